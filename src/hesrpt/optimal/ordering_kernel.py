"""What an order costs, and a search for a better one by moving single jobs, compiled.

The recursion of :mod:`hesrpt.optimal.recursion` gives job k a value for which phase k exactly pays
its cost. By duality, with a price λ of a server,

    v_k = max over λ of min over n of (g(λ) + λ n) / s_k(n),
    g(λ) = W_k − λ N − Σ over i < k of π_i(λ),   π_i(λ) = max over n of v_i s_i(n) − λ n.

The function of λ is concave, so an error of the price has only a second-order effect on the value,
and one or two steps from a good guess are enough for a search. Σ v_k x_k is what the order costs if
jobs end in that order. Otherwise jobs that end earlier make it cheaper.

Jobs are listed from the last to end to the first. A row of ``line`` belongs to a place in the list.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt
from typing import Any

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.optimal.ordering_kernel_data import (
    COLUMNS,
    CORNERS,
    FIRST,
    FORMULA_AMDAHL,
    FORMULA_POWER,
    HIGH,
    HIGH_RATE,
    KIND,
    LOW,
    OFFSET,
    OTHER,
    PRICE,
    SECOND,
    VALUE,
    WEIGHT,
    Batch,
)
from hesrpt.speedups.shape_kernel import (
    find_cheapest,
    find_demand,
    find_rate,
    find_slope_before,
)
from hesrpt.speedups.shape_kernel_data import AMDAHL, POWER, TABLE

# The demand may differ from the servers by this fraction when a price is good enough …
_CLOSE = 1e-6
# … or if no price can give a value that is higher by more than this fraction.
_EXACT = 1e-11
_MAX_OFFERS = 60
# Prices this close are the same: jobs whose demand changes between them are tied for servers.
_TIED = 1e-9
# An order is better only if its cost is lower by more than this fraction.
_BETTER = 1e-9


@compiled
def place_job(batch: Batch, line: FloatArray, place: int, job: int) -> None:
    """Fill a row of the line with what does not depend on other jobs."""
    shape = batch.shapes[batch.shape_of_job[job]]
    row = line[place]
    row[PRICE] = 0.0
    row[HIGH], row[HIGH_RATE], row[LOW] = shape.usable, shape.high_rate, shape.low
    parameter = shape.parameter
    row[KIND] = OTHER
    if shape.is_whole == 0 and shape.family == POWER and parameter < 1:
        row[KIND] = FORMULA_POWER
        row[FIRST], row[SECOND] = 1 / (1 - parameter), 1 / parameter - 1
    elif shape.is_whole == 0 and shape.family == AMDAHL and parameter < 1:
        row[KIND] = FORMULA_AMDAHL
        row[FIRST], row[SECOND] = parameter, 1 - parameter
    elif shape.family == TABLE:
        row[KIND] = CORNERS
        row[FIRST], row[SECOND] = shape.first_corner, shape.last_corner


@compiled
def _set_value(batch: Batch, line: FloatArray, place: int, job: int, value: float) -> None:
    row = line[place]
    row[VALUE] = value
    if row[KIND] == FORMULA_POWER:
        log_parameter = batch.shapes[batch.shape_of_job[job]].log_parameter
        row[OFFSET] = (log_parameter + log(value)) * row[FIRST] if value > 0 else -inf
    elif row[KIND] == FORMULA_AMDAHL:
        row[OFFSET] = row[FIRST] * value


@compiled
def _respond(
    kind: float,
    value: float,
    offset: float,
    first: float,
    second: float,
    low: float,
    high: float,
    high_rate: float,
    price: float,
    log_price: float,
) -> tuple[float, float, float]:
    """Return the servers that a job with a formula demands, its profit, and −dn / d log λ.

    This is the innermost loop, and passing arrays would take longer than the rest of it.
    """
    if low > 0 and price >= value:
        return 0.0, 0.0, 0.0
    if kind == FORMULA_POWER:
        servers = exp(offset - first * log_price)
        if low < servers < high:
            return servers, price * servers * second, servers * first
    else:
        root = sqrt(offset / price) if price > 0 else inf
        servers = (root - first) / second
        if low < servers < high:
            return servers, servers * (value / root - price), 0.5 * root / second
    if servers >= high:
        return high, value * high_rate - price * high, 0.0
    return low, (value - price) * low, 0.0


@compiled
def _value_place(
    batch: Batch, line: FloatArray, order: IntArray, place: int, guess: float, close: float
) -> int:
    """Set the value and the price of a place, given all rows before; return the steps it took."""
    shapes, corners, shape_of_job = batch.shapes, batch.corners, batch.shape_of_job
    at, height, slope = corners.at, corners.height, corners.slope
    job = order[place]
    shape = shapes[shape_of_job[job]]
    row = line[place]
    before = line[place - 1, WEIGHT] if place > 0 else 0.0
    cost = row[WEIGHT] = before + batch.weights[job]
    if place == 0:
        value = cost / row[HIGH_RATE]
        marginal = find_slope_before(shape, corners, batch.servers)
        row[PRICE] = 0.0 if row[HIGH] < batch.servers else value * marginal
        _set_value(batch, line, place, job, value)
        return 1
    low, high = 0.0, cost / batch.servers
    low_value = high_value = low_slope = high_slope = 0.0  # tangents, where slopes are not 0
    price = guess
    if not 0 < price < high:
        # Logarithms of prices change smoothly.
        price = line[place - 1, PRICE]
        if place > 1 and line[place - 2, PRICE] > 0:
            price *= min(price / line[place - 2, PRICE], 2.0)
        if not price < high:
            price = 0.99 * high
    best, best_price, factor = 0.0, price, 1.02
    offers = 0
    while offers < _MAX_OFFERS:
        offers += 1
        log_price = log(price) if price > 0 else -inf
        demand = profit = growth = 0.0
        for other in range(place):
            value = line[other, VALUE]
            if line[other, KIND] == CORNERS:
                corner, end = int(line[other, FIRST]), int(line[other, SECOND])
                while corner < end:
                    middle = (corner + end) // 2
                    if value * slope[middle] > price:
                        corner = middle + 1
                    else:
                        end = middle
                demand += at[corner]
                profit += value * height[corner] - price * at[corner]
                continue
            if line[other, KIND] == OTHER:
                if value > 0:
                    other_shape = shapes[shape_of_job[order[other]]]
                    servers = find_demand(other_shape, corners, price / value)
                    rate = find_rate(other_shape, corners, servers)
                    demand += servers
                    profit += value * rate - price * servers
                continue
            servers, gain, sensitivity = _respond(
                line[other, KIND],
                value,
                line[other, OFFSET],
                line[other, FIRST],
                line[other, SECOND],
                line[other, LOW],
                line[other, HIGH],
                line[other, HIGH_RATE],
                price,
                log_price,
            )
            demand += servers
            profit += gain
            growth += sensitivity
        spare = cost - price * batch.servers - profit
        step = 0.0
        if spare <= 0:
            is_low = demand >= batch.servers
        else:
            value, servers, rate = find_cheapest(shape, batch.corners, spare, price)
            if value > best:
                best, best_price = value, price
            excess = demand + servers - batch.servers
            is_low = excess > 0
            if abs(excess) <= close * batch.servers or (price == 0 and not is_low):
                break
            if is_low:
                low_value, low_slope = value, excess / rate
            else:
                high_value, high_slope = value, excess / rate
            if servers < row[HIGH] and servers > row[LOW] and row[KIND] < CORNERS:
                own = servers * (1 + price * (batch.servers - demand) / spare)
                growth += own if row[KIND] == FORMULA_POWER else 0.5 * own
            if growth > 0 and offers < 12:
                step = price * exp(min(max(excess / growth, -3.0), 3.0))
        if is_low:
            low = price
            low_slope = low_slope if spare > 0 else 0.0
        else:
            high = price
            high_slope = high_slope if spare > 0 else 0.0
        if low_slope > 0 and high_slope < 0:
            width = high - low
            along = (high_value - low_value - high_slope * width) / (low_slope - high_slope)
            if low_value + low_slope * along - best <= _EXACT * best:
                break
            if not low < step < high:
                step = low + along
        if not low < step < high:
            if low == 0:
                step = high / factor if high > 1e-9 * cost / batch.servers else 0.0
            elif high_slope == 0 and high == cost / batch.servers:
                step = min(low * factor, 0.5 * (low + high))
            else:
                step = sqrt(low) * sqrt(high)
            factor = min(factor * factor, 1e3)
        if high - low <= 1e-14 * high or (not low < step < high and step > 0):
            break
        price = step
    row[PRICE] = best_price
    _set_value(batch, line, place, job, best)
    return offers * (place + 1)


@compiled
def value_places(
    batch: Batch, line: FloatArray, order: IntArray, first: int, end: int, is_new: bool
) -> int:
    """Set the values of some places, given all before; return the steps it took.

    If the line is not new, the prices that it has are good guesses.
    """
    steps = 0
    for place in range(first, end):
        guess = 0.0 if is_new else line[place, PRICE]
        if is_new:
            place_job(batch, line, place, order[place])
        steps += _value_place(batch, line, order, place, guess, _CLOSE)
    return steps


@compiled
def _find_cost(batch: Batch, line: FloatArray, order: IntArray, first: int, end: int) -> float:
    """Return Σ v x of some places."""
    total = 0.0
    for place in range(first, end):
        total += line[place, VALUE] * batch.sizes[order[place]]
    return total


@compiled
def find_cost(batch: Batch, order: IntArray, line: FloatArray) -> float:
    """Fill the line for an order and return Σ v x."""
    value_places(batch, line, order, 0, order.size, True)
    return _find_cost(batch, line, order, 0, order.size)


@compiled
def move_jobs(
    batch: Batch,
    order: IntArray,
    line: FloatArray,
    remaining: FloatArray,
    untried: BoolArray,
    reach: int,
    horizon: int,
) -> int:
    """Move single jobs by up to ``reach`` places if that lowers the cost; return the steps.

    A move also changes the values of all jobs that end earlier. The allocation of the phases before
    is optimal, so to first order the change of the whole cost is that of Σ v_i times what
    ``remains`` of job i when these phases are over. The values of ``horizon`` more places are
    computed, to be more exact. ``line`` and ``remaining`` must be filled, and the line is filled
    for the new order at the end. Only ``untried`` places are tried, and the places that are worth
    another try are marked.
    """
    jobs, width = order.size, remaining.shape[1]
    kept, kept_order = np.empty((reach + horizon + 1, COLUMNS)), np.empty(reach + 1, np.int64)
    rest, moved = np.empty(reach + horizon + 1), np.empty(reach + 1)
    known, steps = jobs, 0
    for place in range(jobs - 1):
        if not untried[place]:
            continue
        untried[place] = False
        for distance in range(1, min(reach, jobs - 1 - place) + 1):
            last = place + distance
            for back in range(2 if distance > 1 else 1):
                stop = min(last + 1 + horizon, jobs)
                if known < stop:
                    steps += value_places(batch, line, order, known, stop, False)
                    known = stop
                cost = 0.0
                for at in range(place, stop):
                    rest[at - place] = remaining[stop, stop - 1 - at]
                    cost += line[at, VALUE] * rest[at - place]
                kept[: stop - place] = line[place:stop]
                kept_order[: distance + 1] = order[place : last + 1]
                _rotate(order, place, last, back)
                _rotate(rest, 0, distance, back)
                for at in range(place, last + 1):
                    guess = line[at, PRICE]
                    place_job(batch, line, at, order[at])
                    line[at, PRICE] = guess
                steps += value_places(batch, line, order, place, stop, False)
                new_cost = 0.0
                for at in range(place, stop):
                    new_cost += line[at, VALUE] * rest[at - place]
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
                    line[place:stop] = kept[: stop - place]
                    order[place : last + 1] = kept_order[: distance + 1]
    return steps + value_places(batch, line, order, known, jobs, False)


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
    shapes, corners, shape_of_job = batch.shapes, batch.corners, batch.shape_of_job
    jobs = order.size
    remaining = np.empty(jobs)
    for place in range(jobs):
        remaining[place] = batch.sizes[order[place]]
    held, room = np.empty(jobs), np.empty(jobs)
    now, early = 0.0, 0
    for present in range(jobs, 0, -1):
        last = present - 1
        for back in range(min(remaining_at.shape[1], present)):
            remaining_at[present, back] = remaining[last - back]
        if remaining[last] <= 0:
            continue
        price = line[last, PRICE]
        log_price = log(price) if price > 0 else -inf
        rest = batch.servers
        for place in range(present):
            value = line[place, VALUE]
            held[place] = room[place] = 0.0
            if line[place, KIND] >= CORNERS:
                if value > 0:
                    shape = shapes[shape_of_job[order[place]]]
                    held[place] = find_demand(shape, corners, price * (1 + _TIED) / value)
                    room[place] = find_demand(shape, corners, price * (1 - _TIED) / value)
                    room[place] -= held[place]
            else:
                held[place], _, _ = _respond(
                    line[place, KIND],
                    value,
                    line[place, OFFSET],
                    line[place, FIRST],
                    line[place, SECOND],
                    line[place, LOW],
                    line[place, HIGH],
                    line[place, HIGH_RATE],
                    price,
                    log_price,
                )
            rest -= held[place]
        room[last] = line[last, HIGH] - held[last]
        if rest < 0:
            taken = min(held[last], -rest)
            held[last] -= taken
            rest = 0.0
        until_end = inf
        longest = 0.0
        for place in range(last, -1, -1):
            extra = min(room[place], rest)
            rest -= extra
            shape = shapes[shape_of_job[order[place]]]
            held[place] = find_rate(shape, corners, held[place] + extra)  # the rate from here
            if place == last and held[place] > 0:
                until_end = remaining[place] / held[place]
            if remaining[place] > 0 and held[place] > 0:
                longest = max(longest, remaining[place] / held[place])
        if until_end == inf:
            until_end = longest + remaining[last] / line[last, HIGH_RATE]
        for place in range(last):
            if remaining[place] <= 0:
                continue
            done = held[place] * until_end
            if done > remaining[place]:
                ends[place] = now + remaining[place] / held[place]
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
    order: IntArray, sizes: FloatArray, weights: FloatArray, p: float, max_sweeps: int
) -> None:
    """Exchange neighbours as long as the cost falls, for one power law.

    The values of all other jobs do not depend on the order of two neighbours.
    """
    jobs = order.size
    untried = np.ones(jobs, np.bool_)
    for _ in range(max_sweeps):
        before, has_changed = 0.0, False
        for place in range(jobs - 1):
            a, b = order[place], order[place + 1]
            if untried[place]:
                untried[place] = False
                as_is = _power_law_cost(weights[a], sizes[a], before, p)
                as_is += _power_law_cost(weights[b], sizes[b], before + weights[a], p)
                exchanged = _power_law_cost(weights[b], sizes[b], before, p)
                exchanged += _power_law_cost(weights[a], sizes[a], before + weights[b], p)
                if exchanged < as_is * (1 - 1e-12):
                    order[place], order[place + 1] = b, a
                    has_changed = True
                    untried[max(place - 1, 0) : place + 2] = True
            before += weights[order[place]]
        if not has_changed:
            break


@compiled
def _power_law_cost(weight: float, size: float, before: float, p: float) -> float:
    """Return v x / N^−p of a job, given the weight of the jobs that end after it."""
    up_to = before + weight
    own = -np.expm1(np.log1p(-weight / up_to) / (1 - p)) if before > 0 else 1.0
    return float(up_to * own ** (1 - p) * size)
