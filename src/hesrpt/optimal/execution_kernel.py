"""From job values to servers, and from servers to completion times, compiled.

Jobs are listed from the last to end to the first, as in :mod:`hesrpt.optimal.recursion_kernel`.
"""

from __future__ import annotations

from math import inf, log, sqrt

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.optimal.recursion_kernel import is_negligible
from hesrpt.optimal.response_kernel import LOG_VALUE, PRICE, VALUE, Batch, find_first_above
from hesrpt.speedups.shape_kernel import find_both_demands, find_demand_of_formula, find_rate

# Prices this close are the same: jobs whose demand changes between them are tied for servers.
_TIED = 1e-9
# If jobs demand too many servers, prices further apart are the same. That is tried this often.
_MAX_MARGINS = 40
# The total demand at a price may exceed the servers by this fraction, from rounding.
_ROUNDING = 1e-6
# Two completions this close, relative to the time since the start, are simultaneous.
_SAME_TIME = 1e-12


@compiled
def allocate(
    batch: Batch,
    line: FloatArray,
    order: IntArray,
    present: int,
    held: FloatArray,
    rates: FloatArray,
) -> int:
    """Set the servers and rates of the first jobs while no others are present.

    Return the first place that holds servers. Nothing is set before it.
    """
    shapes, corners, shape_of_job = batch.shapes
    last = present - 1
    while last > 0 and is_negligible(batch, line, order, last):
        held[last] = rates[last] = 0.0
        last -= 1
    price = line[last, PRICE]
    log_price = log(price) if price > 0 else -inf
    start = 0
    if batch.max_slope < inf:
        start = find_first_above(line, last, price / batch.max_slope * (1 - _TIED))
    margin = _TIED
    for _ in range(_MAX_MARGINS):
        rest, tied, has_kinks = batch.servers, 0.0, False
        for place in range(start, last + 1):
            held[place] = rates[place] = 0.0
            value = line[place, VALUE]
            if value > 0:
                shape = shapes[shape_of_job[order[place]]]
                log_relative = log_price - line[place, LOG_VALUE]
                if shape.has_kinks:
                    held[place], most, rates[place], _ = find_both_demands(
                        shape, corners, price / value, log_relative, margin, _TIED
                    )
                    tied += most - held[place]
                    # Of a formula that is linear up to one server, only that end is a kink.
                    has_kinks = has_kinks or shape.low == 0 or most > held[place]
                else:
                    held[place], rates[place] = find_demand_of_formula(
                        shape, price / value, log_relative
                    )
            rest -= held[place]
        if not has_kinks or -rest <= _ROUNDING * held[last]:
            break
        margin *= 8  # rounding has hidden a tie
    _settle(batch, line, order, start, last, log_price, rest, tied, held, rates)
    if batch.is_rising and last > start and held[last] < held[last - 1]:
        # Tied by rounding: a job that ends earlier must not hold less.
        _sort_nearly_sorted(held, start, last)
        _sort_nearly_sorted(rates, start, last)
    return start


@compiled
def _sort_nearly_sorted(array: FloatArray, first: int, last: int) -> None:
    """Sort the entries from the first to the last by insertion.

    ``np.sort`` takes seconds to compile, and live jobs wait for that when the first run starts.
    """
    for place in range(first + 1, last + 1):
        entry, at = array[place], place
        while at > first and array[at - 1] > entry:
            array[at] = array[at - 1]
            at -= 1
        array[at] = entry


@compiled
def _settle(
    batch: Batch,
    line: FloatArray,
    order: IntArray,
    start: int,
    last: int,
    log_price: float,
    rest: float,
    tied: float,
    held: FloatArray,
    rates: FloatArray,
) -> None:
    """Give the servers that are left to tied jobs, or take back those that are too many.

    Of tied jobs, those that end first are served first. Up to rounding, the price leaves the last
    place of the list exactly what it demands.
    """
    shapes, corners, shape_of_job = batch.shapes
    price = line[last, PRICE]
    if tied > 0 and rest > 0:
        for place in range(last, start - 1, -1):
            value = line[place, VALUE]
            if value > 0:
                log_relative = log_price - line[place, LOG_VALUE]
                shape = shapes[shape_of_job[order[place]]]
                _, most, _, _ = find_both_demands(
                    shape, corners, price / value, log_relative, 0.0, _TIED
                )
                extra = min(max(most - held[place], 0.0), rest)
                if extra > 0:
                    held[place] += extra
                    rates[place] = find_rate(shape, corners, held[place])
                    rest -= extra
                if rest <= 0:
                    break
    if rest > 0 or -rest <= _ROUNDING * held[last]:
        before, shape = held[last], shapes[shape_of_job[order[last]]]
        held[last] = min(max(before + rest, 0.0), shape.usable)
        rest -= held[last] - before
        rates[last] = find_rate(shape, corners, held[last])
    if rest < 0:
        # All give back the same part. Taken from one job, a few servers may be all that it has.
        part = 1 + rest / (batch.servers - rest)
        for place in range(start, last + 1):
            if held[place] > 0:
                held[place] *= part
                rates[place] = find_rate(shapes[shape_of_job[order[place]]], corners, held[place])


@compiled
def run_phases(
    batch: Batch,
    line: FloatArray,
    order: IntArray,
    present: int,
    now: float,
    ends_in_order: bool,
    remaining: FloatArray,
    ended: IntArray,
    ends: FloatArray,
    prices: FloatArray,
) -> tuple[int, int, float]:
    """Run phase after phase until a job ends before its turn, or until all jobs have ended.

    ``remaining`` is indexed by place. The jobs that end, the ends of phases and their prices are
    appended to ``ended``, ``ends`` and ``prices``, whose last ``present`` entries are free. Return
    how many jobs are present, the place of the one that ended before its turn (it is still counted;
    −1 if there is none), and the time.
    """
    held, rates = np.zeros(present), np.zeros(present)
    while present > 0:
        start = allocate(batch, line, order, present, held, rates)
        last = present - 1
        place, until_end = last, inf
        if rates[last] > 0:
            until_end = remaining[last] / rates[last]
        if not (ends_in_order and until_end < inf):
            # Compare work rather than times: a job may hold no servers, or have no work remaining.
            earlier = until_end - _SAME_TIME * (now + until_end)
            is_last = until_end < inf
            if is_last:
                for other in range(start, last):
                    if rates[other] * earlier > remaining[other]:
                        is_last = False
                        break
            if not is_last:
                until_end = inf
                for other in range(start, present):
                    time = 0.0
                    if remaining[other] > 0:
                        time = remaining[other] / rates[other] if rates[other] > 0 else inf
                    if time < until_end:
                        place, until_end = other, time
        for other in range(start, present):
            remaining[other] = max(remaining[other] - rates[other] * until_end, 0.0)
        now += until_end
        ended[ended.size - present] = order[place]
        ends[ends.size - present] = now
        prices[prices.size - present] = line[last, PRICE]
        if place < last:
            return present, place, now
        present -= 1
    return 0, -1, now


@compiled
def run_phases_together(
    batch: Batch, line: FloatArray, sizes: FloatArray, ended: IntArray, ends: FloatArray
) -> None:
    """Do the same for jobs that share one Amdahl's law, have rising values, and end in order.

    At the price λ, a job with value v is as fast as (1 − √(f λ/v)) / (1 − f). Prices rise with the
    number of jobs. So what a job has done before its own phase follows from sums over the phases in
    which it held servers.
    """
    jobs, shape = sizes.size, batch.shapes.records[0]
    f, serial, high, high_rate = shape.parameter, 1 - shape.parameter, shape.high, shape.high_rate
    at_high = (serial * high + f) ** 2 / f  # the price at which a job with this value demands all
    # From the start of the schedule to the start of the phase with k jobs, at k.
    times, root_times = np.zeros(jobs + 1), np.zeros(jobs + 1)
    prices = line[:, PRICE].copy()
    idle = jobs
    for last in range(jobs - 1, -1, -1):
        value, size = line[last, VALUE], sizes[last]
        # With more jobs than this, it holds no servers, and with more than that not all it can use.
        after = last + 1
        while idle > after and prices[idle - 1] >= value / f:  # values rise along the list
            idle -= 1
        capped = after
        if after < jobs and prices[after] < value / at_high:
            capped = _count_prices_below(prices, after, jobs, value / at_high)
        time, root_time = times[capped] - times[idle], root_times[capped] - root_times[idle]
        done = (time - sqrt(f / value) * root_time) / serial
        done += high_rate * (times[after] - times[capped])
        price = prices[last]
        _, rate = find_demand_of_formula(shape, price / value, -inf)
        length = max(size - done, 0.0) / rate
        times[last] = times[after] + length
        root_times[last] = root_times[after] + length * sqrt(price)
        ended[jobs - after], ends[jobs - after] = last, times[last]


@compiled
def _count_prices_below(prices: FloatArray, first: int, end: int, price: float) -> int:
    """Return up to how many jobs the price is below this one, if prices rise."""
    while first < end:
        middle = (first + end) // 2
        if prices[middle] < price:
            first = middle + 1
        else:
            end = middle
    return first
