"""Sharing servers among the jobs in the system, compiled: the rules of simple policies.

Each function decides as the policy of its rule does (:mod:`hesrpt.policies`), up to rounding.
"""

from __future__ import annotations

from math import exp, expm1, floor, log, log1p
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.speedups.shape_kernel import Shapes, find_knee

#: What happens to servers beyond all knees, as in :data:`hesrpt.policies.sharing.Leftover`.
IDLE, TO_SMALLEST, TO_ALL = range(3)
# Servers up to this fraction are rounding error, as in :mod:`hesrpt.policies.sharing`.
_ROUNDING = 1e-12
# A list with more displaced entries than this, on average, is sorted by merging.
_MAX_MOVES = 8


class JobFacts(NamedTuple):
    """What rules know of each job, and what they decide."""

    usable: FloatArray  # servers that speed it up
    weight: FloatArray
    gain: FloatArray  # p/(1 − p) of the power law closest to its speedup
    fastest: FloatArray  # its rate on all servers
    arrival_rank: IntArray  # its place in the order of arrivals
    key: FloatArray  # by which jobs are ordered
    held: FloatArray  # the servers that the rule decides on
    order: IntArray  # the jobs in the system, from the first expected to end to the last
    planned: IntArray  # the same in another order: as the planner expects it, or by knee


class Workspace(NamedTuple):
    """Arrays for intermediate results, with an entry for each job or each place of a list."""

    keys: FloatArray
    sums: FloatArray
    entries: IntArray
    scratch: IntArray


@compiled
def sort_by_key(
    entries: IntArray, count: int, keys: FloatArray, ties: IntArray, scratch: IntArray
) -> None:
    """Sort the first ``count`` entries by their keys, and entries with equal keys by ``ties``.

    A list that is nearly sorted takes a time in proportion to its length.
    """
    moves = _MAX_MOVES * count
    place = 1
    while place < count and moves >= 0:
        entry = entries[place]
        key, tie = keys[entry], ties[entry]
        at = place
        while at > 0:
            before = entries[at - 1]
            if keys[before] < key or (keys[before] == key and ties[before] <= tie):
                break
            entries[at] = before
            at -= 1
        entries[at] = entry
        moves -= place - at
        place += 1
    if place == count or count < 2:
        return
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            middle, end = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for at in range(start, end):
                takes_left = right >= end
                if not takes_left and left < middle:
                    first, second = entries[left], entries[right]
                    takes_left = keys[first] < keys[second] or (
                        keys[first] == keys[second] and ties[first] <= ties[second]
                    )
                if takes_left:
                    scratch[at] = entries[left]
                    left += 1
                else:
                    scratch[at] = entries[right]
                    right += 1
        for at in range(count):
            entries[at] = scratch[at]
        width *= 2


@compiled
def share_equally(listed: IntArray, count: int, facts: JobFacts, servers: float) -> None:
    """Give all jobs of the list the same, and what some cannot use to the others."""
    equal = servers / count
    is_over = False
    for place in range(count):
        job = listed[place]
        facts.held[job] = equal
        is_over |= equal > facts.usable[job]
    if is_over:
        redistribute_excess(listed, count, facts)


@compiled
def serve_in_order(listed: IntArray, count: int, facts: JobFacts, servers: float) -> None:
    """Give each job of the list all the servers it can use, until there are none left."""
    used = 0.0
    for place in range(count):
        job = listed[place]
        facts.held[job] = min(max(servers - used, 0.0), facts.usable[job])
        used += facts.usable[job]


@compiled
def share_by_rank(
    listed: IntArray,
    count: int,
    facts: JobFacts,
    servers: float,
    exponent: float,
    sums: FloatArray,
) -> None:
    """Give jobs, listed from the first to end to the last, heSRPT's shares.

    These are (W_i/W_m)^c − (W_{i−1}/W_m)^c, where W_i is the weight of the last i jobs to end: see
    :func:`hesrpt.optimal.closed_form.compute_shares`.
    """
    c = 1.0 / (1.0 - exponent)
    total = 0.0
    for place in range(count - 1, -1, -1):
        total += facts.weight[listed[place]]
        sums[place] = total
    is_over = False
    for place in range(count):
        job = listed[place]
        weight, up_to = facts.weight[job], sums[place]
        own = 1.0
        if place < count - 1:
            part = weight / up_to
            log_ratio = log1p(-part) if part <= 0.5 else log(sums[place + 1] / up_to)
            own = -expm1(c * log_ratio)
        log_part = log1p((up_to - total) / total) if up_to > total / 2 else log(up_to / total)
        facts.held[job] = servers * (exp(c * log_part) * own)
        is_over |= facts.held[job] > facts.usable[job]
    if is_over:
        redistribute_excess(listed, count, facts)


@compiled
def share_up_to_knees(
    listed: IntArray,
    count: int,
    facts: JobFacts,
    shapes: Shapes,
    servers: float,
    alpha: float,
    leftover: int,
    is_whole: bool,
    work: Workspace,
) -> None:
    """Give jobs, listed from the smallest to the largest, their knees, the lowest knee first.

    ``facts.key`` has what remains of each job. See :class:`hesrpt.policies.Knee`.
    """
    for place in range(count):
        job = listed[place]
        work.entries[job] = place  # of equal knees, the one of the smallest job comes first
        shape = shapes.records[shapes.of_job[job]]
        knee = find_knee(shape, shapes.corners, facts.key[job] / alpha, servers)
        work.keys[job] = max(np.ceil(knee), 1.0) if is_whole else knee
    sort_by_key(facts.planned, count, work.keys, work.entries, work.scratch)
    free = servers
    for place in range(count):
        job = facts.planned[place]
        facts.held[job] = min(work.keys[job], max(free, 0.0))
        free -= work.keys[job]
    unassigned = servers
    for place in range(count):
        unassigned -= facts.held[facts.planned[place]]
    if unassigned <= _ROUNDING * servers:
        return
    if leftover == TO_SMALLEST:
        facts.held[facts.planned[0]] += unassigned
    elif leftover == TO_ALL:
        for place in range(count):
            facts.held[facts.planned[place]] += unassigned / count


@compiled
def redistribute_excess(listed: IntArray, count: int, facts: JobFacts) -> None:
    """Give servers that some jobs cannot use to the others, in proportion to what those hold.

    See :func:`hesrpt.policies.sharing.redistribute_excess`.
    """
    held, usable = facts.held, facts.usable
    while True:
        excess = growing = 0.0
        is_over = False
        for place in range(count):
            job = listed[place]
            if held[job] > usable[job]:
                is_over = True
                excess += held[job] - usable[job]
                held[job] = usable[job]
            elif held[job] < usable[job]:
                growing += held[job]
        if not is_over:
            return
        if growing <= 0.0:
            for place in range(count):
                job = listed[place]
                room = usable[job] - held[job]
                held[job] += min(max(excess, 0.0), room)
                excess -= room
            return
        for place in range(count):
            job = listed[place]
            if held[job] < usable[job]:
                held[job] += excess * held[job] / growing


@compiled
def round_fairly(
    listed: IntArray, count: int, facts: JobFacts, servers: float, work: Workspace
) -> None:
    """Round all shares down, then give one server more to the jobs that lost the most.

    See :func:`hesrpt.policies.sharing.round_fairly`.
    """
    total = rounded = 0.0
    for place in range(count):
        job = listed[place]
        held = facts.held[job]
        whole = floor(held + 1e-9)
        total += held
        rounded += whole
        work.keys[job] = -np.rint((held - whole) * 1e9)
        facts.held[job] = whole
    missing = int(min(floor(total + 1e-9), servers) - rounded)
    if missing > 0:
        for place in range(count):
            work.entries[place] = listed[place]
        sort_by_key(work.entries, count, work.keys, facts.arrival_rank, work.scratch)
        for place in range(min(missing, count)):
            facts.held[work.entries[place]] += 1.0
