"""How many jobs respond together to a price within a narrow range, from sums; compiled.

The prices of the recursion change little from one place of a list to the next. So the responses of
all places before are summed once for a range of prices, such that the sums give the response at any
price in it, and one more place is added to the sums when its value is known. Let x be the logarithm
of the price, relative to the middle of the range.

- The profit of a power law is proportional to exp(−x p / (1 − p)): the sum is a Taylor series.
- That of Amdahl's law is (√v − √(λ f))² / (1 − f): the sum is quadratic in √λ.
- Most jobs with a table, a limit or whole servers keep their servers within the range: the sum is
  linear in λ.
- All others are listed, and evaluated singly. The demand of those with kinks jumps, but that of
  many together hardly does, and grows by about as much as from one end of the range to the other.

Demands follow from profits: n = −dπ / dλ.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.optimal.recursion_kernel_data import (
    CORNERS,
    COVERED,
    FIRST,
    FORMULA_AMDAHL,
    FORMULA_POWER,
    GROWTH,
    HALF_WIDTH,
    HIGH,
    HIGH_RATE,
    HIGHEST,
    KIND,
    KINKED,
    LISTED,
    LOG_MIDDLE,
    LOW,
    LOWEST,
    MIDDLE,
    OFFSET,
    ROOT_MIDDLE,
    ROOTS,
    SECOND,
    SERIAL,
    SQUARES,
    STEADY_DEMAND,
    STEADY_EARNED,
    SUMMED,
    TAYLOR,
    TERMS,
    VALUE,
    Batch,
    ResponseSums,
)
from hesrpt.optimal.response_kernel import find_corner, find_first_above, respond_all
from hesrpt.speedups.shape_kernel import find_demand, find_rate

# The least width of a range times the number of places, and the greatest width, as differences of
# logarithms; the factor between one width and the next; and the part of a range below the price
# that it is for: prices rise along the list.
_NARROWEST, _WIDEST, _WIDER, _BELOW = 30.0, 0.2, 1.5, 0.25
# How often sums are asked for at each place, about.
_USES = 4
# The response of a power law is steep if its demand changes by more than this factor, or the
# logarithm of it, over half of the range. Otherwise the series is exact up to 1e-12.
_STEEP, _FACTOR = 0.8, 2.3


@compiled
def respond_together(
    batch: Batch,
    line: FloatArray,
    order: IntArray,
    places: int,
    price: float,
    log_price: float,
    response_sums: ResponseSums,
) -> tuple[float, float, float, bool]:
    """Return what :func:`~hesrpt.optimal.response_kernel.respond_all` does, for the first places.

    If they are for other places, or for other prices, they are computed again.
    """
    if not covers(response_sums, places, price):
        sum_responses(batch, line, order, places, price, response_sums)
    sums, counts = response_sums.sums, response_sums.counts
    demand, earned = sums[STEADY_DEMAND], sums[STEADY_EARNED]
    growth, profit = sums[GROWTH], earned - price * demand
    if price > 0:
        x, series, slope, bend = log_price - sums[LOG_MIDDLE], 0.0, 0.0, 0.0
        for term in range(TAYLOR + TERMS - 1, TAYLOR - 1, -1):
            bend = bend * x + 2 * slope
            slope = slope * x + series
            series = series * x + sums[term]
        root = sqrt(price)
        moved = root - sums[ROOT_MIDDLE]
        by_root = (sums[ROOTS] - sums[SERIAL] * moved) / root
        profit += series + sums[SQUARES] - (2 * sums[ROOTS] - sums[SERIAL] * moved) * moved
        demand += by_root - slope / price
        growth += 0.5 * (by_root + sums[SERIAL]) + (bend - slope) / price
    listed, gain, sensitivity, _ = respond_all(
        batch, line, order, response_sums.listed, 0, counts[LISTED], price, log_price
    )
    if sums[KINKED] == 0:
        growth += sensitivity
    return demand + listed, profit + gain, growth, sums[KINKED] == 0


@compiled
def covers(response_sums: ResponseSums, places: int, price: float) -> bool:
    """Whether sums are those of the first places, and for prices around this one."""
    sums = response_sums.sums
    is_near = sums[LOWEST] <= price <= sums[HIGHEST]
    return bool(is_near and response_sums.counts[COVERED] == places)


@compiled
def sum_responses(
    batch: Batch,
    line: FloatArray,
    order: IntArray,
    places: int,
    price: float,
    response_sums: ResponseSums,
) -> None:
    """Sum the responses of the first places to prices around this one."""
    sums, counts = response_sums.sums, response_sums.counts
    # The wider a range, the less often sums are computed, but the more jobs are listed. Both should
    # take about as long.
    used = max(places - counts[SUMMED], 1)
    is_narrow = _USES * used * counts[LISTED] < places
    width = 2 * sums[HALF_WIDTH] * (_WIDER if is_narrow else 1 / _WIDER)
    width = min(max(width, _NARROWEST / max(places, 1)), _WIDEST)
    sums[KINKED:] = 0.0
    sums[HALF_WIDTH] = 0.5 * width
    counts[LISTED] = 0
    sums[LOWEST], sums[HIGHEST] = price * exp(-_BELOW * width), price * exp((1 - _BELOW) * width)
    sums[MIDDLE] = price * exp((0.5 - _BELOW) * width)
    sums[LOG_MIDDLE] = log(sums[MIDDLE]) if price > 0 else -inf
    sums[ROOT_MIDDLE] = sqrt(sums[MIDDLE])
    start = 0
    if batch.max_slope < inf:
        start = find_first_above(line, places, sums[LOWEST] / batch.max_slope)
    counts[COVERED] = start
    for place in range(start, places):
        add_response(batch, line, order, place, response_sums)
    counts[COVERED] = places
    counts[SUMMED] = places


@compiled
def add_response(
    batch: Batch, line: FloatArray, order: IntArray, place: int, response_sums: ResponseSums
) -> None:
    """Add the response of one more place to sums of the places before."""
    sums, counts, row = response_sums.sums, response_sums.counts, line[place]
    counts[COVERED] = place + 1
    lowest, highest = sums[LOWEST], sums[HIGHEST]
    kind, value, low, high = row[KIND], row[VALUE], row[LOW], row[HIGH]
    if kind >= CORNERS or low > 0:
        sums[KINKED] += 1
    if value <= 0 or (low > 0 and value <= lowest):
        return
    if lowest > 0 and kind < CORNERS:
        # Up to one server, a formula may be linear with slope 1.
        is_beyond_one = low == 0 or value > highest
        first, steepness = row[FIRST], 0.0
        if kind == FORMULA_POWER:
            steepness = first * sums[HALF_WIDTH]
            middle = exp(row[OFFSET] - first * sums[LOG_MIDDLE])
            most, fewest = middle * _FACTOR, middle / _FACTOR
        else:
            middle = (sqrt(row[OFFSET]) / sums[ROOT_MIDDLE] - first) / row[SECOND]
            most = (sqrt(row[OFFSET] / lowest) - first) / row[SECOND]
            fewest = (sqrt(row[OFFSET] / highest) - first) / row[SECOND]
        if steepness <= _STEEP and is_beyond_one:
            if most <= low:
                sums[STEADY_DEMAND] += low
                sums[STEADY_EARNED] += value * low
                return
            if fewest >= high:
                sums[STEADY_DEMAND] += high
                sums[STEADY_EARNED] += value * row[HIGH_RATE]
                return
            if low < fewest and most < high:
                if kind == FORMULA_AMDAHL:
                    above = sqrt(value) - sqrt(first) * sums[ROOT_MIDDLE]
                    sums[SQUARES] += above * above / row[SECOND]
                    sums[ROOTS] += above * sqrt(first) / row[SECOND]
                    sums[SERIAL] += first / row[SECOND]
                    return
                term = sums[MIDDLE] * middle * row[SECOND]
                for number in range(TERMS):
                    sums[TAYLOR + number] += term
                    term *= (1 - first) / (number + 1)
                return
    elif lowest > 0:
        if kind == CORNERS:
            corners = batch.corners
            corner = find_corner(line, place, corners.slope, highest)
            servers, rate = corners.at[corner], corners.height[corner]
            most = corners.at[find_corner(line, place, corners.slope, lowest)]
        else:
            shape = batch.shapes[batch.shape_of_job[order[place]]]
            servers = find_demand(shape, batch.corners, highest / value)
            most = find_demand(shape, batch.corners, lowest / value)
            rate = find_rate(shape, batch.corners, servers)
        sums[GROWTH] += (most - servers) / (2 * sums[HALF_WIDTH])
        if most == servers:
            sums[STEADY_DEMAND] += servers
            sums[STEADY_EARNED] += value * rate
            return
    response_sums.listed[counts[LISTED]] = place
    counts[LISTED] += 1
