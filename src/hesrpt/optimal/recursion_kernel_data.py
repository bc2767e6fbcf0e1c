"""The arrays that the compiled recursion, allocations and searches for an order work on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.speedups.shape_kernel_data import Corners

#: The columns of a line, which has a row for each place in an order: the value and the price of the
#: recursion, the total weight up to this place, and what is needed to evaluate the speedup.
VALUE, PRICE, WEIGHT, KIND, OFFSET, FIRST, SECOND, HIGH, HIGH_RATE, LOW = range(10)
COLUMNS = 10
#: Kinds of speedups: two formulas and tables, which are evaluated in place, and all others.
FORMULA_POWER, FORMULA_AMDAHL, CORNERS, OTHER = 0.0, 1.0, 2.0, 3.0


class Batch(NamedTuple):
    """Jobs that are to be ordered, or that are listed in an order."""

    shapes: Any
    corners: Corners
    shape_of_job: IntArray
    sizes: FloatArray
    weights: FloatArray
    servers: float
    is_rising: bool  # whether values are known to rise along the list
    #: If they do, a job gets no servers at a price of its value times this or above, and no job
    #: before it does. Otherwise infinity.
    max_slope: float


#: The entries of sums of responses. They hold for prices from the lowest to the highest; the middle
#: one has its logarithm and its root beside it, and the width is a difference of logarithms. Then:
#: how many speedups have kinks, and how their demand changes with the price; what the jobs demand
#: and earn whose demand does not change in the range; the sums for Amdahl's law; and the Taylor
#: series of the profits of power laws.
LOWEST, HIGHEST, MIDDLE, LOG_MIDDLE, ROOT_MIDDLE, HALF_WIDTH, KINKED = range(7)
STEADY_DEMAND, STEADY_EARNED, GROWTH, SQUARES, ROOTS, SERIAL, TAYLOR = range(7, 14)
TERMS = 14
#: The counts beside them: the first places of a list that are covered, those of them that are
#: listed, and how many places were summed at once. All others were added one by one. The last one
#: is the number of places in the prefix sums.
COVERED, LISTED, SUMMED, PREFIXED = range(4)
COUNTS = 4


#: The columns of prefix sums of values and of their square roots, each in two parts: the second
#: part is what rounding has cut off from the first.
VALUE_SUM, VALUE_REST, ROOT_SUM, ROOT_REST = range(4)
PREFIX_COLUMNS = 4


class Precision(NamedTuple):
    """How exact values must be.

    A price is good enough if the demand at that price differs from the servers by at most the
    fraction ``close`` of them, or if no price gives a value greater by the fraction ``exact``. A
    search extrapolates: it takes a value at the next price for granted if the error is likely to be
    at most the fraction ``likely``.
    """

    close: float
    exact: float
    likely: float


class ResponseSums(NamedTuple):
    """What the first places of a list demand together, for prices in a narrow range."""

    sums: FloatArray
    counts: IntArray
    listed: IntArray  # the places whose response is too steep, or has a kink in this range
    #: Prefix sums of values; for jobs that share one Amdahl's law, otherwise empty. Then the sums
    #: above are not needed.
    prefix: FloatArray


def create_response_sums(jobs: int, *, has_prefix: bool = False) -> ResponseSums:
    """Return sums for a list of up to this many jobs; for 0, each job is evaluated by itself."""
    response_sums = ResponseSums(
        sums=np.zeros(TAYLOR + TERMS),
        counts=np.zeros(COUNTS, np.int64),
        listed=np.empty(jobs, np.int64),
        prefix=np.empty((jobs + 1 if has_prefix else 0, PREFIX_COLUMNS)),
    )
    response_sums.prefix[:1] = 0.0
    response_sums.sums[HALF_WIDTH] = 0.05
    response_sums.counts[COVERED] = -1
    return response_sums
