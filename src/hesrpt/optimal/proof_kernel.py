"""What a job costs at least if servers have a price, proven with rates alone; compiled.

See :mod:`hesrpt.optimal.bounds`, and :mod:`hesrpt.optimal.certificate` for certificates.
Nothing here uses the planner or the search for prices. The demand and the cheapest cost of work
that a speedup computes only suggest where to look.
"""

from __future__ import annotations

from math import inf, isnan
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.compiled import compiled
from hesrpt.speedups.shape_kernel import (
    TABLE,
    Corners,
    Shape,
    Shapes,
    find_cheapest,
    find_demand,
    find_rate,
)

# The relative rounding error of a product or a sum of two numbers.
_ROUNDING = 2.3e-16
# The relative error of the rate of a formula; and of a table, which may stand for a function. The
# table of a function may also be wrong by so much of its greatest rate.
_FORMULA_ERROR, _TABLE_ERROR, _PART_OF_PEAK = 2e-12, 4e-9, 1e-4
# The distance from the demand at which rates are compared, and the same where the demand is 0.
_STEP, _FIRST_STEP = 3e-5, 1e-13
_POINTS = 5
# A job that needs more values than this is given up: its bound is lower than it might be.
_MAX_VALUES = 400


class Intervals(NamedTuple):
    """Intervals of time: where each of them starts or ends, and the price of a server in it."""

    times: FloatArray
    prices: FloatArray


@compiled
def prove_costs(
    shapes: Shapes,
    sizes: FloatArray,
    weights: FloatArray,
    arrivals: FloatArray,
    servers: float,
    path: Intervals,
    targets: FloatArray,
    costs: FloatArray,
) -> None:
    """Set lower bounds on what jobs cost if they pay for servers, ``targets`` at most."""
    corners, most = shapes.corners, path.prices.size + 2
    points = np.empty((4, _POINTS))
    # The intervals of one job, counted from its arrival.
    own = Intervals(np.empty(most + 1), np.empty(most))
    bounds, at_ends = np.empty(most + 1), np.empty(most + 1)
    for job in range(sizes.size):
        shape = shapes.records[shapes.of_job[job]]
        weight, target = weights[job], inf if isnan(targets[job]) else targets[job]
        count = _cut_intervals(path, arrivals[job], target / weight, own)
        for interval in range(count + 1):
            bounds[interval] = (
                weight * own.times[interval] * (1 - 2 * _ROUNDING)
            )  # from waiting alone
        # From the last interval to the first, so that what follows need not be bounded again.
        last = count
        for _ in range(_MAX_VALUES):
            while last >= 0 and bounds[last] >= target:
                last -= 1
            if last < 0:
                break
            value = _find_value(shape, corners, sizes[job], weight, own, count, last, target)
            work, end = value * sizes[job], min(last + 1, count)
            _bound_at_ends(shape, corners, servers, value, work, weight, own, end, at_ends, points)
            for interval in range(end):
                bounds[interval] = max(
                    bounds[interval], min(at_ends[interval], at_ends[interval + 1])
                )
            if last == count and weight >= value * shape.high_rate * (1 + 2 * _TABLE_ERROR):
                bounds[count] = max(bounds[count], at_ends[count])
            # What the best value does not prove, nothing does.
            target = min(target, bounds[last])
        costs[job] = min(target, bounds[: count + 1].min())


@compiled
def _cut_intervals(path: Intervals, arrival: float, longest: float, own: Intervals) -> int:
    """Set the intervals from an arrival until waiting alone costs enough; return their number."""
    times, prices = path
    ends, price_of = own
    first = int(np.searchsorted(times, arrival, side="right")) - 1
    last = int(np.searchsorted(times, arrival + longest, side="right")) + 1
    count = 0
    ends[0] = 0.0
    if first < 0:
        ends[1], price_of[0] = times[0] - arrival, 0.0
        count = 1
    for interval in range(max(first, 0), min(last, prices.size)):
        price_of[count], ends[count + 1] = prices[interval], times[interval + 1] - arrival
        count += 1
    return count


@compiled
def _do_work(
    shape: Shape, corners: Corners, own: Intervals, count: int, value: float
) -> tuple[float, float]:
    """Return about how much work is done, and how much profit made, in the first intervals."""
    work = profit = 0.0
    for interval in range(count):
        price, duration = (
            own.prices[interval] / value,
            own.times[interval + 1] - own.times[interval],
        )
        servers = find_demand(shape, corners, price)
        rate = find_rate(shape, corners, servers)
        work += rate * duration
        profit += (rate - price * servers) * duration
    return work, value * profit


@compiled
def _find_value(
    shape: Shape,
    corners: Corners,
    size: float,
    weight: float,
    own: Intervals,
    count: int,
    interval: int,
    enough: float,
) -> float:
    """Return a value for which the bound over an interval is about as high as it gets.

    It may be lower than it gets if it is ``enough``. The interval after the last one has the price
    0 and no end.
    """
    end, ends = interval, own.times
    if interval == count:
        best = weight / shape.high_rate * (1 - 3 * _TABLE_ERROR)
        if _do_work(shape, corners, own, interval, best)[0] <= size:
            return best
        low, high = 0.0, best
    else:
        best, _, rate = find_cheapest(shape, corners, weight, own.prices[interval])
        before, _ = _do_work(shape, corners, own, interval, best)
        here = rate * (ends[interval + 1] - ends[interval])
        if before <= size <= before + here:
            return best
        low, high = 0.0, best
        if before < size:
            low, high, end = best, inf, interval + 1
    # At the right value the work is done just then, not earlier or later.
    waiting = weight * ends[end]
    value = best * 2.0 if high == inf else best / 2.0
    best_bound = -inf
    for _ in range(200):
        work, profit = _do_work(shape, corners, own, end, value)
        # Great values would win by rounding alone.
        bound = value * size * (1 - 2 * _FORMULA_ERROR) + waiting - profit
        if work < size:
            low = value
        else:
            high = value
        if bound > best_bound:
            best, best_bound = value, bound
        elif high == inf:
            break  # all servers are in use, and a greater value gains nothing
        if bound > enough * (1 + 1e-6) or (high < inf and high - low <= 1e-9 * high):
            break
        if high == inf:
            value = low * 4.0
        elif low == 0.0:
            value = high / 4.0
        else:
            value = (low * high) ** 0.5
    return best


@compiled
def _bound_at_ends(
    shape: Shape,
    corners: Corners,
    servers: float,
    value: float,
    work: float,
    weight: float,
    own: Intervals,
    count: int,
    at_ends: FloatArray,
    points: FloatArray,
) -> None:
    """Set lower bounds on what the job costs if it ends at each of the times, from one value.

    ``work`` is the value of all of its work.
    """
    ends, prices = own.times, own.prices
    rounding = (count + 10) * _ROUNDING
    # If the true rate may be higher by a part, so may the profit, at a price lower by this part.
    error = _TABLE_ERROR if shape.family == TABLE else _FORMULA_ERROR
    profits = 0.0
    at_ends[0] = work * (1 - rounding)
    for interval in range(count):
        price = prices[interval] / value / (1 + error)
        profit = _bound_profit(shape, corners, servers, price, _STEP, _FIRST_STEP, points)
        profit *= 1 + error
        if shape.family == TABLE:
            profit += error * _PART_OF_PEAK * shape.high_rate
        profits += profit * (ends[interval + 1] - ends[interval])
        at_ends[interval + 1] = (work + weight * ends[interval + 1]) * (
            1 - rounding
        ) - value * profits * (1 + rounding)


@compiled
def _bound_profit(
    shape: Shape,
    corners: Corners,
    servers: float,
    price: float,
    step: float,
    first_step: float,
    points: FloatArray,
) -> float:
    """Return a bound on max s(n) − price·n over 0 ≤ n ≤ N, tight if the demand is right.

    Rates are compared at a relative distance from the demand or, where that is 0, at parts of all
    servers. ``points`` is overwritten.
    """
    guess = min(find_demand(shape, corners, price), servers)
    at, rates, lowest, highest = points
    for number in range(_POINTS):
        # The demand, and two points on either side. Some are the same if it is 0 or N.
        side = number - 2.0
        here = guess * (1 + side * step) if guess > 0 else side * first_step * servers
        at[number] = min(max(here, 0.0), servers)
        rates[number] = find_rate(shape, corners, at[number])
    bound = _bound_by_chords(at, rates, shape.high_rate, servers, price, lowest, highest)
    return min(bound, shape.high_rate)


@compiled
def _bound_by_chords(
    at: FloatArray,
    rates: FloatArray,
    fastest: float,
    servers: float,
    price: float,
    lowest: FloatArray,
    highest: FloatArray,
) -> float:
    """Return a bound on max s(n) − price·n over 0 ≤ n ≤ N, from rates at points in rising order.

    Outside two points of a concave function, the chord through them lies above the function. So the
    chords of the neighbouring intervals bound the function on an interval. ``lowest`` and
    ``highest`` are overwritten: the slope of each chord, which rounding makes uncertain. That of an
    empty interval is unknown.
    """
    bound, last = 0.0, at.size - 1
    for number in range(last + 1):
        height = rates[number] - price * at[number]
        bound = max(bound, height)
        if number > 0:
            before = number - 1
            width = at[number] - at[before]
            lowest[before], highest[before] = -inf, inf
            if width > 0:
                slope = (height - (rates[before] - price * at[before])) / width
                blur = 4 * _ROUNDING * (rates[number] + price * at[number]) / width
                lowest[before], highest[before] = slope - blur, slope + blur
    if at[0] > 0 and lowest[0] < 0:
        bound = max(bound, rates[0] - price * at[0] - lowest[0] * at[0])
    if at[last] < servers and highest[last - 1] > 0:
        # No job is ever faster than on all servers.
        beyond = min(rates[last] + highest[last - 1] * (servers - at[last]), fastest)
        bound = max(bound, beyond - price * at[last])
    for number in range(last):
        width = at[number + 1] - at[number]
        left = highest[number - 1] if number > 0 else inf
        right = lowest[number + 1] if number + 1 < last else -inf
        if width > 0 and left > 0 and right < 0:  # otherwise an end of the interval is highest
            by_left = rates[number] - price * at[number]
            by_right = rates[number + 1] - price * at[number + 1]
            if left < inf and right > -inf:
                # Where the two lines cross, or at the end that is beyond.
                along = (by_right - by_left - right * width) / (left - right)
                peak = by_left + left * min(max(along, 0.0), width)
            elif left < inf:
                peak = by_left + left * width
            else:
                peak = by_right - right * width
            bound = max(bound, peak)
    return bound


# The distances for certificates: short ones for curved speedups, long ones for speedups that are
# nearly straight.
_STEPS = 1e-5, 1e-3, 0.3, 0.01, 0.6, 1e-7
# Greater prices of work are not told apart: they could overflow.
_MAX_PRICE = 1e150


@compiled
def bound_phases(
    shapes: Shapes,
    values: FloatArray,
    servers: float,
    enough: FloatArray,
    is_rising: bool,
    earned: FloatArray,
) -> None:
    """Set bounds on what the first k jobs can earn per second, for each k that has a limit.

    A bound is tight unless it is below the limit, ``enough``. See :func:`bound_earnings`.
    """
    price = enough[-1] / servers
    for jobs in range(values.size, 0, -1):
        if enough[jobs - 1] < inf:
            earned[jobs - 1], price = bound_earnings(
                shapes, values[:jobs], servers, enough[jobs - 1], price, is_rising
            )


@compiled
def bound_earnings(
    shapes: Shapes,
    values: FloatArray,
    servers: float,
    enough: float,
    price: float,
    is_rising: bool,
) -> tuple[float, float]:
    """Return a bound on max Σ v_i s_i(n_i) over Σ n_i ≤ N, and the price that gives it.

    Every price gives a bound: the cost of all servers, plus the most that jobs can earn beyond the
    price they pay. The bound is least at the right price, at which the jobs together demand exactly
    N servers. The search starts at ``price`` and may stop once the bound is below ``enough``.

    ``is_rising`` says that all jobs share one speedup, and values rise along the list. Then, if a
    job gets no servers at a price, neither does any job before it, and none of them earns more.
    """
    # Bracket the right price in growing steps from the given one, then bisect.
    least, is_too_low = _bound_by_demand(shapes, values, servers, price, is_rising)
    best, low, high, factor = price, 0.0, price, 1.001
    if is_too_low:
        low, high = price, inf
    while least > enough and (high == inf or high - low > 1e-15 * high):
        if high == inf:
            price = low * factor
        elif low == 0.0:
            price = high / factor if high > 1e-250 else 0.0
        else:
            price = (low + high) / 2
        if not low < price < high:
            break
        factor = min(factor * factor, 1e30)
        bound, is_too_low = _bound_by_demand(shapes, values, servers, price, is_rising)
        if is_too_low:
            low = price
        else:
            high = price
        if bound < least:
            least, best = bound, price
    if least > enough and _bound_by_demand(shapes, values, servers, low, is_rising)[0] < least:
        best = low

    # The search relied on the demand that speedups compute. The final bound uses rates only. As a
    # rule, one distance is enough.
    points, bound = np.empty((4, _POINTS)), inf
    for steps in (1, len(_STEPS)):
        bound = best * servers
        for job in range(values.size - 1, -1, -1):
            if values[job] > 0:
                shape = shapes.records[shapes.of_job[job]]
                relative, profit = min(best / values[job], _MAX_PRICE), inf
                for number in range(steps):
                    step = _STEPS[number]
                    at_step = _bound_profit(
                        shape, shapes.corners, servers, relative, step, step**3, points
                    )
                    profit = min(profit, at_step)
                if is_rising and find_demand(shape, shapes.corners, relative) == 0:
                    if profit > 0:
                        bound += profit * values[: job + 1].sum()
                    break
                bound += profit * values[job]
        if bound <= enough:
            break
    return bound, best


@compiled
def _bound_by_demand(
    shapes: Shapes, values: FloatArray, servers: float, price: float, is_rising: bool
) -> tuple[float, bool]:
    """Return about the bound at a price, and whether jobs demand too many servers at it."""
    demand = earned = 0.0
    for job in range(values.size - 1, -1, -1):
        if values[job] > 0:
            shape = shapes.records[shapes.of_job[job]]
            relative = min(price / values[job], _MAX_PRICE)
            wanted = find_demand(shape, shapes.corners, relative)
            if wanted == 0 and is_rising:
                break
            demand += wanted
            earned += values[job] * find_rate(shape, shapes.corners, wanted)
    return price * (servers - demand) + earned, demand > servers
