"""A search for a better order by moving single jobs, and when jobs end, compiled.

See :mod:`hesrpt.optimal.ordering`. Jobs are listed from the last to end to the first. A row of
``line`` belongs to a place in the list.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.optimal.execution_kernel import allocate
from hesrpt.optimal.recursion_kernel import FEW_PLACES, Precision, value_places
from hesrpt.optimal.response_kernel import (
    COLUMNS,
    COVERED,
    HIGHEST,
    LISTED,
    LOWEST,
    PRICE,
    VALUE,
    Batch,
    ResponseSums,
    add_response,
    sum_responses,
)

# A move is given up if the cost rises by more than this fraction with the values of this many jobs,
# unless there are only some jobs.
_HOPELESS, _FIRST_LOOK, _SOME_JOBS = 1e-4, 8, 50
# An order is better only if its cost is lower by more than this fraction.
_BETTER = 1e-9


@compiled
def move_jobs(
    batch: Batch,
    order: IntArray,
    line: FloatArray,
    remaining: FloatArray,
    untried: BoolArray,
    reach: int,
    horizon: int,
    precision: Precision,
    before: ResponseSums,
    response_sums: ResponseSums,
) -> int:
    """Move single jobs by up to ``reach`` places if that lowers the cost; return the steps.

    A move also changes the values of all jobs that end earlier. The allocation of the phases before
    is optimal, so to first order the change of the whole cost is that of Σ v_i times what
    ``remains`` of job i when these phases are over. The values of ``horizon`` more places are
    computed, to be more exact. ``line`` and ``remaining`` must be filled, and the line is filled
    for the new order at the end. Only ``untried`` places are tried, and the places that are worth
    another try are marked. ``before`` and ``response_sums`` are overwritten: sums up to a place
    that is tried, and sums for one move.
    """
    jobs, width = order.size, remaining.shape[1]
    kept, kept_order = np.empty((reach + horizon + 1, COLUMNS)), np.empty(reach + 1, np.int64)
    rest, moved = np.empty(reach + horizon + 1), np.empty(reach + 1)
    known, steps = jobs, 0
    before.counts[COVERED] = response_sums.counts[COVERED] = -1
    for place in range(jobs - 1):
        if not untried[place]:
            continue
        untried[place] = False
        _sum_up_to(batch, line, order, min(place, known), before)
        if known < place:
            steps += value_places(batch, line, order, known, place, precision, before)
            known = place
        for distance in range(1, min(reach, jobs - 1 - place) + 1):
            last = place + distance
            for back in range(2 if distance > 1 else 1):
                stop = min(last + 1 + horizon, jobs)
                _copy_sums(before, response_sums)
                if known < stop:
                    _sum_up_to(batch, line, order, known, response_sums)
                    steps += value_places(batch, line, order, known, stop, precision, response_sums)
                    known = stop
                    _copy_sums(before, response_sums)
                kept[: stop - place] = line[place:stop]
                kept_order[: distance + 1] = order[place : last + 1]
                _rotate(order, place, last, back)
                first, cost, new_cost = place, 0.0, 0.0
                for end in (min(last + 1 + _FIRST_LOOK, stop), stop):
                    steps += value_places(batch, line, order, first, end, precision, response_sums)
                    first = end
                    for at in range(place, end):
                        rest[at - place] = remaining[end, end - 1 - at]
                    cost = 0.0
                    for at in range(place, end):
                        cost += kept[at - place, VALUE] * rest[at - place]
                    _rotate(rest, 0, distance, back)
                    new_cost = 0.0
                    for at in range(place, end):
                        new_cost += line[at, VALUE] * rest[at - place]
                    if jobs > _SOME_JOBS and new_cost > cost * (1 + _HOPELESS):
                        break
                if new_cost < cost * (1 - _BETTER):
                    known = stop
                    for at in range(max(place - reach - horizon, 0), stop):
                        untried[at] = True
                    for end in range(last + 1, min(last + width, jobs) + 1):
                        for at in range(place, last + 1):
                            moved[at - place] = remaining[end, min(end - 1 - at, width - 1)]
                        _rotate(moved, 0, distance, back)
                        for at in range(max(place, end - width), last + 1):
                            remaining[end, end - 1 - at] = moved[at - place]
                else:
                    line[place:first] = kept[: first - place]
                    order[place : last + 1] = kept_order[: distance + 1]
    _sum_up_to(batch, line, order, known, before)
    return steps + value_places(batch, line, order, known, jobs, precision, before)


@compiled
def _sum_up_to(
    batch: Batch, line: FloatArray, order: IntArray, places: int, response_sums: ResponseSums
) -> None:
    """Complete sums for the first places, whose values are known, and for the prices after them."""
    sums, covered = response_sums.sums, response_sums.counts[COVERED]
    price = line[min(places, order.size - 1), PRICE]
    if places < FEW_PLACES:
        return
    if 0 <= covered <= places and sums[LOWEST] <= price < sums[HIGHEST]:
        for place in range(covered, places):
            add_response(batch, line, order, place, response_sums)
    else:
        sum_responses(batch, line, order, places, price, response_sums)


@compiled
def _copy_sums(source: ResponseSums, target: ResponseSums) -> None:
    count = source.counts[LISTED]
    target.sums[:] = source.sums
    target.counts[:] = source.counts
    target.listed[:count] = source.listed[:count]


@compiled
def _rotate(values: Any, first: int, last: int, back: int) -> None:
    """Move the first of some entries to their end or, ``back``, the last of them to the front."""
    if back == 0:
        moved = values[first]
        for at in range(first, last):
            values[at] = values[at + 1]
        values[last] = moved
    else:
        moved = values[last]
        for at in range(last, first, -1):
            values[at] = values[at - 1]
        values[first] = moved


@compiled
def find_ends(
    batch: Batch, order: IntArray, line: FloatArray, ends: FloatArray, remaining_at: FloatArray
) -> int:
    """Find about when each place ends; return how many end before their turn.

    A job that ends before its turn keeps its servers until then: that is the approximation.
    ``remaining_at[k, i]`` gets what remains of the job at place k − 1 − i when k jobs are present.
    """
    jobs = order.size
    remaining = np.empty(jobs)
    for place in range(jobs):
        remaining[place] = batch.sizes[order[place]]
    held, rates = np.empty(jobs), np.empty(jobs)
    now, early = 0.0, 0
    for present in range(jobs, 0, -1):
        last = present - 1
        for back in range(min(remaining_at.shape[1], present)):
            remaining_at[present, back] = remaining[last - back]
        if remaining[last] <= 0:
            continue
        start = allocate(batch, line, order, present, held, rates)
        until_end = remaining[last] / rates[last] if rates[last] > 0 else inf
        longest = 0.0
        if until_end == inf:
            for place in range(start, present):
                if remaining[place] > 0 and rates[place] > 0:
                    longest = max(longest, remaining[place] / rates[place])
        if until_end == inf:
            shape = batch.shapes.records[batch.shapes.of_job[order[last]]]
            until_end = longest + remaining[last] / shape.high_rate
        for place in range(start, last):
            if remaining[place] <= 0:
                continue
            done = rates[place] * until_end
            if done > remaining[place]:
                ends[place] = now + remaining[place] / rates[place]
                if ends[place] < (now + until_end) * (1 - 1e-9):
                    early += 1
                remaining[place] = 0.0
            else:
                remaining[place] -= done
        now += until_end
        ends[last] = now
        remaining[last] = 0.0
    return early


@compiled
def exchange_neighbours(
    order: IntArray,
    sizes: FloatArray,
    weights: FloatArray,
    p: float,
    only_ends: bool,
    max_exchanges: int,
) -> bool:
    """Exchange neighbours, for one power law, until jobs end in order and no exchange is cheaper.

    If job a is listed before job b and would nevertheless end first, the two are exchanged: for the
    old order they can at best end together, and so they can for the new one. W^c is convex, so a
    can end first only if its x / w^p is less than b's. Hence no two jobs are exchanged forth and
    back for this reason. Unless ``only_ends``, they are also exchanged if that is cheaper and they
    end in order before and after. The values of all other jobs do not depend on the order of the
    two. Return whether all is done: ``max_exchanges`` limits the work.
    """
    jobs = order.size
    before = np.zeros(jobs)  # the weight of the jobs that end after each place
    exchanges = place = 0
    while place < jobs - 1:
        a, b = order[place], order[place + 1]
        weight, x_a, w_a, x_b, w_b = before[place], sizes[a], weights[a], sizes[b], weights[b]
        should_exchange = _ends_first(x_a, w_a, x_b, w_b, weight, p)
        if not (should_exchange or only_ends or _ends_first(x_b, w_b, x_a, w_a, weight, p)):
            cost = _power_law_cost(w_a, x_a, weight, p)
            cost += _power_law_cost(w_b, x_b, weight + w_a, p)
            new_cost = _power_law_cost(w_b, x_b, weight, p)
            new_cost += _power_law_cost(w_a, x_a, weight + w_b, p)
            should_exchange = new_cost < cost * (1 - 1e-12)
        if should_exchange:
            if exchanges == max_exchanges:
                return False
            exchanges += 1
            order[place], order[place + 1] = b, a
            before[place + 1] = weight + w_b
            place = max(place - 1, 0)
        else:
            before[place + 1] = weight + w_a
            place += 1
    return True


@compiled
def _ends_first(
    size: float, weight: float, next_size: float, next_weight: float, before: float, p: float
) -> bool:
    """Whether a job would end before the next one in the list, by x / (W_k^c − W_(k−1)^c)^p.

    ``before`` is W_(k−1) of the job, the weight of the jobs that end after it.
    """
    c, up_to = 1 / (1 - p), before + weight
    own = -np.expm1(c * np.log1p(-weight / up_to)) if before > 0 else 1.0
    exponent = c * np.log1p(next_weight / up_to)
    if exponent > 700:
        return False  # it has hardly any servers until the next one ends
    return bool(size * np.expm1(exponent) ** p < next_size * own**p * (1 - 1e-13))


@compiled
def _power_law_cost(weight: float, size: float, before: float, p: float) -> float:
    """Return v x / N^−p of a job, given the weight of the jobs that end after it."""
    up_to = before + weight
    own = -np.expm1(np.log1p(-weight / up_to) / (1 - p)) if before > 0 else 1.0
    return float(up_to * own ** (1 - p) * size)
