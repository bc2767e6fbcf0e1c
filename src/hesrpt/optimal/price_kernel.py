"""The cheapest way to serve each job if servers have a price that changes over time, compiled.

Time is cut into intervals, and the price of a server is constant on each. A job that ends at time C
costs its weight for each second until C, and the price of the servers that it uses. Let

    π(ψ, μ) = max over n of ψ s(n) − μ n

be the profit per second if a unit of its work is worth ψ. For any ψ the job costs at least

    H(ψ, C) = ψ x + ∫ from its arrival to C of (weight − π(ψ, μ(t))) dt,

and exactly the maximum over ψ, J(C). On one interval J is convex, so its minimum there is at one of
the ends, or where π(ψ, μ) equals the weight. That ψ is the least cost of a unit of work at this
price, (weight + μ n) / s(n), and does not depend on the job. So all jobs with the same speedup and
weight share most of the computation.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled, inlined
from hesrpt.speedups.shape_kernel import Corners, Shape, find_both_demands, find_cheapest

#: The most local minima that are kept for a job.
MAX_MINIMA = 12


class Kinds(NamedTuple):
    """Jobs, sorted by kind: those of one kind have the same speedup and the same weight."""

    sizes: FloatArray
    shapes: Any  # a record for each distinct speedup
    corners: Corners
    shape: IntArray  # the number of the speedup of each kind
    weight: FloatArray
    first_job: IntArray  # jobs of one kind are sorted by arrival
    end_job: IntArray


class Path(NamedTuple):
    """Prices of a server over time: ``prices[i]`` from ``times[i]`` to ``times[i + 1]``."""

    times: FloatArray
    prices: FloatArray
    log_prices: FloatArray


class Minima(NamedTuple):
    """The local minima of each job's cost over the time at which it ends."""

    found: IntArray  # how many
    cost: FloatArray
    interval: IntArray  # in which, or at the start of which, the job ends
    value: FloatArray  # ψ
    is_corner: IntArray  # whether the job ends at the start of the interval


# The demand of a speedup with kinks jumps at some prices: both sides are this close to the jump.
_SIDE = 1e-12
# Sums of work may have relative errors up to this.
_ROUNDING = 1e-11


@inlined
def _respond(
    shape: Shape, corners: Corners, path: Path, interval: int, value: float, log_value: float
) -> tuple[float, float, float, float]:
    """Return the fewest and the most servers that a job wants in an interval, and their rates."""
    price, log_price = path.prices[interval] / value, path.log_prices[interval] - log_value
    return find_both_demands(shape, corners, price, log_price, _SIDE, _SIDE)


@compiled
def _work_at(
    shape: Shape, corners: Corners, path: Path, first: int, end: int, value: float
) -> tuple[float, float]:
    """Return the work done, and the profit made, in some intervals if work has this value."""
    times, prices, _ = path
    log_value = log(value)
    work = profit = 0.0
    for interval in range(first, end):
        _, servers, _, rate = _respond(shape, corners, path, interval, value, log_value)
        duration = times[interval + 1] - times[interval]
        work += rate * duration
        profit += (rate - prices[interval] / value * servers) * duration
    return work, profit * value


@compiled
def _find_value(
    shape: Shape,
    corners: Corners,
    path: Path,
    first: int,
    end: int,
    size: float,
    low: float,
    high: float,
    max_steps: int,
) -> tuple[float, float]:
    """Return the value, between two others, at which a size is done, and the profit made.

    The maximum over ψ of ψ x − profit(ψ) is at that value. Any other value between the two gives a
    lower bound on the cost, and near the maximum the error is of second order.
    """
    low_work, low_profit = _work_at(shape, corners, path, first, end, low)
    high_work, high_profit = _work_at(shape, corners, path, first, end, high)
    best, best_profit = low, low_profit
    if high * size - high_profit > low * size - low_profit:
        best, best_profit = high, high_profit
    for step in range(max_steps):
        if high - low <= 1e-9 * high or low_work >= size or high_work <= size:
            break
        # The tangents at both ends bound what is still to be gained.
        gap = high_profit - low_profit - (high - low) * low_work
        slope = high_work - low_work
        crossing = low + ((high - low) * high_work - (high_profit - low_profit)) / slope
        bound = crossing * size - low_profit - (crossing - low) * low_work
        reached = best * size - best_profit
        if gap <= 0.0 or bound - reached <= 1e-13 * abs(reached):
            break
        middle = low + (high - low) * (size - low_work) / slope
        if step % 3 == 2:
            middle = sqrt(low) * sqrt(high)
        if not low < middle < high:
            break
        work, profit = _work_at(shape, corners, path, first, end, middle)
        if middle * size - profit > best * size - best_profit:
            best, best_profit = middle, profit
        if work <= size:
            low, low_work, low_profit = middle, work, profit
        else:
            high, high_work, high_profit = middle, work, profit
    return best, best_profit


@compiled
def _keep(minima: Minima, job: int, cost: float, interval: int, value: float, corner: int) -> None:
    """Keep a local minimum, instead of the highest one if there is no more room."""
    place = minima.found[job]
    if place < MAX_MINIMA:
        minima.found[job] += 1
    else:
        place = 0
        for other in range(1, MAX_MINIMA):
            if minima.cost[job, other] > minima.cost[job, place]:
                place = other
        if cost >= minima.cost[job, place]:
            return
    minima.cost[job, place] = cost
    minima.interval[job, place] = interval
    minima.value[job, place] = value
    minima.is_corner[job, place] = corner


@compiled
def find_minima(
    kinds: Kinds,
    arrivals: IntArray,
    path: Path,
    margin: float,
    max_steps: int,
    least: FloatArray,
    minima: Minima,
) -> int:
    """Find the local minima of each job's cost that are at most ``1 + margin`` times the least.

    After the last of the path's times the price is 0. ``arrivals`` are the
    intervals at whose start the jobs arrive. A minimum between two intervals is found in up to
    ``max_steps``, and with few steps it is only bounded from below. Return the number of steps that
    all of this took.
    """
    sizes, shapes, corners = kinds.sizes, kinds.shapes, kinds.corners
    times, prices, _ = path
    intervals = prices.size
    alive = np.empty(sizes.size, np.int64)
    work_before = np.empty(sizes.size)  # until the start of the interval, at the value before
    cost_before = np.empty(sizes.size)
    steps = 0
    for number in range(kinds.weight.size):
        shape, weight = shapes[kinds.shape[number]], kinds.weight[number]
        next_job, end_job = kinds.first_job[number], kinds.end_job[number]
        for job in range(next_job, end_job):
            least[job] = inf
            minima.found[job] = 0
        count = 0
        value_before = inf
        interval = arrivals[next_job]
        while interval <= intervals:
            # Jobs whose waiting alone costs more than their minimum cannot do better any more.
            kept = 0
            for place in range(count):
                job = alive[place]
                waited = weight * (times[interval] - times[arrivals[job]])
                if waited < least[job] * (1 + margin):
                    alive[kept] = job
                    kept += 1
            count = kept
            if count == 0 and next_job < end_job and arrivals[next_job] > interval:
                interval = arrivals[next_job]
            while next_job < end_job and arrivals[next_job] == interval:
                alive[count] = next_job
                work_before[next_job] = inf
                count += 1
                next_job += 1
            if count == 0:
                break
            price = prices[interval] if interval < intervals else 0.0
            value, _, rate = find_cheapest(shape, corners, weight, price)
            here = inf
            if interval < intervals:
                here = rate * (times[interval + 1] - times[interval])
            log_value = log(value)
            low = high = profit = 0.0
            earlier = interval
            for place in range(count - 1, -1, -1):
                job = alive[place]
                while earlier > arrivals[job]:
                    earlier -= 1
                    duration = times[earlier + 1] - times[earlier]
                    _, most, low_rate, high_rate = _respond(
                        shape, corners, path, earlier, value, log_value
                    )
                    low += low_rate * duration
                    high += high_rate * duration
                    profit += (high_rate - prices[earlier] / value * most) * duration
                    steps += 1
                size = sizes[job]
                start_cost = value * size - value * profit
                start_cost += weight * (times[interval] - times[arrivals[job]])
                enough = least[job] * (1 + margin)
                is_inside = low <= size * (1 + _ROUNDING) and size <= (high + here) * (
                    1 + _ROUNDING
                )
                if is_inside and start_cost < enough:
                    _keep(minima, job, start_cost, interval, value, 0)
                    least[job] = min(least[job], start_cost)
                elif (
                    work_before[job] <= size <= high
                    and max(start_cost, cost_before[job]) < enough
                    and value_before <= value
                ):
                    root, root_profit = _find_value(
                        shape,
                        corners,
                        path,
                        arrivals[job],
                        interval,
                        size,
                        value_before,
                        value,
                        max_steps,
                    )
                    steps += (2 + min(max_steps, 6)) * (interval - arrivals[job])
                    cost = root * size - root_profit
                    cost += weight * (times[interval] - times[arrivals[job]])
                    if cost < enough:
                        _keep(minima, job, cost, interval, root, 1)
                        least[job] = min(least[job], cost)
                work_before[job] = low + here
                cost_before[job] = start_cost
            value_before = value
            interval += 1
    return steps


@compiled
def add_usage(
    kinds: Kinds,
    arrivals: IntArray,
    path: Path,
    least: FloatArray,
    minima: Minima,
    smoothing: float,
    usage: FloatArray,
    ends: FloatArray,
) -> float:
    """Add the server time that jobs use in each interval, and return their smoothed total cost.

    A job is spread over its local minima with weights exp(−cost / τ), where τ is ``smoothing``
    times its least cost. ``usage`` has a row for each job, or one for all. ``ends`` gets the mean
    time at which each job ends.
    """
    sizes, shapes, corners = kinds.sizes, kinds.shapes, kinds.corners
    times, prices, _ = path
    total = 0.0
    for number in range(kinds.weight.size):
        shape, weight = shapes[kinds.shape[number]], kinds.weight[number]
        for job in range(kinds.first_job[number], kinds.end_job[number]):
            row = min(job, usage.shape[0] - 1)
            scale = smoothing * least[job]
            chances = 0.0
            for place in range(minima.found[job]):
                chances += exp((least[job] - minima.cost[job, place]) / scale)
            total += least[job] - scale * log(chances)
            ends[job] = 0.0
            for place in range(minima.found[job]):
                chance = exp((least[job] - minima.cost[job, place]) / scale) / chances
                if chance < 1e-5:
                    continue
                value, last = minima.value[job, place], minima.interval[job, place]
                size, first = sizes[job], arrivals[job]
                low_work = high_work = 0.0
                log_value = log(value)
                for interval in range(first, last):
                    _, _, low_rate, high_rate = _respond(
                        shape, corners, path, interval, value, log_value
                    )
                    low_work += low_rate * (times[interval + 1] - times[interval])
                    high_work += high_rate * (times[interval + 1] - times[interval])
                part = 1.0  # of the higher of two demands, where they differ
                if low_work < high_work and size < high_work:
                    part = max(size - low_work, 0.0) / (high_work - low_work)
                for interval in range(first, last):
                    fewest, most, _, _ = _respond(shape, corners, path, interval, value, log_value)
                    n = part * most + (1 - part) * fewest
                    usage[row, interval] += chance * n * (times[interval + 1] - times[interval])
                end = times[last]
                if minima.is_corner[job, place] == 0 and high_work < size:
                    price = prices[last] if last < prices.size else 0.0
                    _, n, rate = find_cheapest(shape, corners, weight, price)
                    end += (size - high_work) / rate
                    if last < prices.size:
                        usage[row, last] += chance * n * (size - high_work) / rate
                ends[job] += chance * end
    return total
