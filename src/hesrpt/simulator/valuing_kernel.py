"""Sharing servers by the planner's values, compiled: see :mod:`hesrpt.policies.optimal`.

The value of a job depends only on jobs that end later, so the values of jobs before the first
change in the list are kept from event to event.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled, inlined
from hesrpt.optimal.execution_kernel import allocate
from hesrpt.optimal.recursion_kernel import Precision, value_place
from hesrpt.optimal.response_kernel import (
    PREFIX_COLUMNS,
    PRICE,
    WEIGHT,
    Batch,
    ResponseSums,
    place_job,
)
from hesrpt.simulator.sharing_kernel import JobFacts
from hesrpt.speedups.shape_kernel import Shapes


class Values(NamedTuple):
    """The values of the jobs in the system, from the last to end to the first."""

    line: FloatArray  # see :mod:`hesrpt.optimal.response_kernel`
    listed: IntArray  # the jobs whose values the line has …
    known: IntArray  # … and how many: one entry
    price_by_weight: FloatArray  # of each job, when it was listed last; 0 at first
    held: FloatArray
    rates: FloatArray


@compiled
def has_rising_weights(listed: IntArray, count: int, facts: JobFacts) -> bool:
    """Whether no job weighs more than one before it; the first to end is listed first."""
    for place in range(1, count):
        if facts.weight[listed[place]] > facts.weight[listed[place - 1]]:
            return False
    return True


@inlined
def share_by_value(
    listed: IntArray,
    count: int,
    facts: JobFacts,
    shapes: Shapes,
    values: Values,
    servers: float,
    max_slope: float,
    precision: Precision,
    is_rising: bool,
) -> None:
    """Share servers among jobs listed from the first to end to the last."""
    batch = Batch(
        shapes.records,
        shapes.corners,
        shapes.of_job,
        facts.weight[:0],
        facts.weight,
        servers,
        is_rising,
        max_slope if is_rising else inf,
    )
    known = 0
    while known < min(count, values.known[0]):
        if values.listed[known] != listed[count - 1 - known]:
            break
        known += 1
    none = np.empty(0, np.int64)
    no_sums = ResponseSums(np.empty(0), none, none, np.empty((0, PREFIX_COLUMNS)))
    for place in range(known, count):
        job = listed[count - 1 - place]
        values.listed[place] = job
        place_job(batch, values.line, place, job)
        # Prices are nearly in proportion to the weight of the jobs present.
        before = values.line[place - 1, WEIGHT] if place > 0 else 0.0
        guess = values.price_by_weight[job] * (before + facts.weight[job])
        value_place(batch, values.line, values.listed, place, guess, precision, no_sums)
        found = values.line[place]
        values.price_by_weight[job] = found[PRICE] / found[WEIGHT]
    values.known[0] = count
    start = allocate(batch, values.line, values.listed, count, values.held, values.rates)
    for place in range(count):
        facts.held[values.listed[place]] = values.held[place] if place >= start else 0.0
