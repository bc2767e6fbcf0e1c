"""How jobs respond to a price of a server: what they demand, and the profit they make; compiled.

Jobs are listed from the last to end to the first. A row of ``line`` belongs to a place in the list.

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

Jobs that share one Amdahl's law, with values that rise along the list, need no ranges: prefix sums
give the response of many at any price, as fast as that of one. For 100,000 such jobs the recursion
is 5 to 60 times as fast as with ranges.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled, inlined
from hesrpt.speedups.shape_kernel import AMDAHL, POWER, TABLE, Shapes, find_demand, find_rate

#: The columns of a line, which has a row for each place in an order: the value and the price of the
#: recursion, the total weight up to this place, and what is needed to evaluate the speedup.
VALUE, PRICE, WEIGHT, KIND, OFFSET, FIRST, SECOND, HIGH, HIGH_RATE, LOW = range(10)
COLUMNS = 10
#: Kinds of speedups: two formulas and tables, which are evaluated in place, and all others.
FORMULA_POWER, FORMULA_AMDAHL, CORNERS, OTHER = 0.0, 1.0, 2.0, 3.0


class Batch(NamedTuple):
    """Jobs that are to be ordered, or that are listed in an order."""

    shapes: Shapes
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


# A table with more corners than this is that of a smooth function.
_MANY_CORNERS = 50


@compiled
def place_job(batch: Batch, line: FloatArray, place: int, job: int) -> None:
    """Fill a row of the line with what does not depend on other jobs."""
    shape = batch.shapes.records[batch.shapes.of_job[job]]
    row = line[place]
    row[HIGH], row[HIGH_RATE], row[LOW] = shape.usable, shape.high_rate, shape.low
    parameter = shape.parameter
    row[KIND], row[OFFSET], row[FIRST], row[SECOND] = OTHER, 0.0, 0.0, 0.0
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
def set_value(batch: Batch, line: FloatArray, place: int, job: int, value: float) -> None:
    """Set the value of a place, and what responses to prices need of it."""
    row = line[place]
    row[VALUE] = value
    if row[KIND] == FORMULA_POWER:
        log_parameter = batch.shapes.records[batch.shapes.of_job[job]].log_parameter
        row[OFFSET] = (log_parameter + log(value)) * row[FIRST] if value > 0 else -inf
    elif row[KIND] == FORMULA_AMDAHL:
        row[OFFSET] = row[FIRST] * value


@inlined
def respond(
    line: FloatArray, place: int, price: float, log_price: float
) -> tuple[float, float, float]:
    """Return the servers that a place with a formula demands, its profit, and −dn / d log λ."""
    value, offset = line[place, VALUE], line[place, OFFSET]
    first, second = line[place, FIRST], line[place, SECOND]
    low, high = line[place, LOW], line[place, HIGH]
    if low > 0 and price >= value:
        return 0.0, 0.0, 0.0
    if line[place, KIND] == FORMULA_POWER:
        servers = exp(offset - first * log_price)
        if low < servers < high:
            return servers, price * servers * second, servers * first
    else:
        root = sqrt(offset / price) if price > 0 else inf
        servers = (root - first) / second
        if low < servers < high:
            return servers, servers * (value / root - price), 0.5 * root / second
    if servers >= high:
        return high, value * line[place, HIGH_RATE] - price * high, 0.0
    return low, (value - price) * low, 0.0


@compiled
def find_first_above(line: FloatArray, places: int, value: float) -> int:
    """Return the first of some places with a greater value, if values rise along the list."""
    first, end = 0, places
    while first < end:
        middle = (first + end) // 2
        if line[middle, VALUE] > value:
            end = middle
        else:
            first = middle + 1
    return first


@compiled
def find_corner(line: FloatArray, place: int, slope: FloatArray, price: float) -> int:
    """Return the corner of its table at which a place is at a price: the fewest servers."""
    value = line[place, VALUE]
    first, last = int(line[place, FIRST]), int(line[place, SECOND])
    while first < last:
        middle = (first + last) // 2
        if value * slope[middle] > price:
            first = middle + 1
        else:
            last = middle
    return first


@compiled
def respond_all(
    batch: Batch,
    line: FloatArray,
    order: IntArray,
    listed: IntArray,
    first: int,
    end: int,
    price: float,
    log_price: float,
) -> tuple[float, float, float, bool]:
    """Return what some places demand together, their profit, −dn / d log λ, and a predicate.

    They are the places from the first to the end or, if there is a list, the listed ones at these
    numbers. The predicate says whether the demand never jumps.
    """
    shapes, corners, shape_of_job = batch.shapes
    at, height, slope = corners.at, corners.height, corners.slope
    demand = profit = growth = 0.0
    is_smooth = True
    for number in range(first, end):
        other = listed[number] if listed.size > 0 else number
        value = line[other, VALUE]
        is_smooth = is_smooth and line[other, KIND] < CORNERS and line[other, LOW] == 0
        if line[other, KIND] == CORNERS:
            corner = find_corner(line, other, slope, price)
            demand += at[corner]
            profit += value * height[corner] - price * at[corner]
            lowest, highest = int(line[other, FIRST]), int(line[other, SECOND])
            if highest - lowest > _MANY_CORNERS and lowest < corner < highest:
                # The table of a smooth function: the demand hardly jumps.
                change = (slope[corner - 1] - slope[corner]) / slope[corner - 1]
                growth += 0.5 * (at[corner + 1] - at[corner - 1]) / max(change, 1e-9)
            continue
        if line[other, KIND] == OTHER:
            if value > 0:
                shape = shapes[shape_of_job[order[other]]]
                servers = find_demand(shape, corners, price / value)
                demand += servers
                profit += value * find_rate(shape, corners, servers) - price * servers
                if shape.family == POWER and shape.parameter < 1 and servers < shape.high:
                    growth += servers / (1 - shape.parameter)
            continue
        servers, gain, sensitivity = respond(line, other, price, log_price)
        demand += servers
        profit += gain
        growth += sensitivity
    return demand, profit, growth, is_smooth


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
            corners = batch.shapes.corners
            corner = find_corner(line, place, corners.slope, highest)
            servers, rate = corners.at[corner], corners.height[corner]
            most = corners.at[find_corner(line, place, corners.slope, lowest)]
        else:
            shape = batch.shapes.records[batch.shapes.of_job[order[place]]]
            servers = find_demand(shape, batch.shapes.corners, highest / value)
            most = find_demand(shape, batch.shapes.corners, lowest / value)
            rate = find_rate(shape, batch.shapes.corners, servers)
        sums[GROWTH] += (most - servers) / (2 * sums[HALF_WIDTH])
        if most == servers:
            sums[STEADY_DEMAND] += servers
            sums[STEADY_EARNED] += value * rate
            return
    response_sums.listed[counts[LISTED]] = place
    counts[LISTED] += 1


@compiled
def respond_by_prefix(
    line: FloatArray, sums: FloatArray, places: int, price: float
) -> tuple[float, float, float]:
    """Return what the first places demand together, their profit, and −dn / d log λ.

    A job with value v demands (√(f v/λ) − f) / (1 − f) servers at the price λ, and its profit is
    (√v − √(λ f))² / (1 − f).
    """
    f, serial = line[0, FIRST], line[0, SECOND]
    high, high_rate = line[0, HIGH], line[0, HIGH_RATE]
    # The slope is f / ((1 − f) n + f)².
    start = find_first_above(line, places, price * f)
    capped, most = places, price / f * (serial * high + f) ** 2
    if line[places - 1, VALUE] > most:  # hardly ever: searching takes longer than all the rest
        capped = max(find_first_above(line, places, most), start)
    roots = _sum_between(sums, ROOT_SUM, start, capped)
    value = _sum_between(sums, VALUE_SUM, start, capped)
    count = capped - start
    demand = (roots * sqrt(f / price) - f * count) / serial
    profit = (value - 2 * sqrt(price * f) * roots + price * f * count) / serial
    count = places - capped
    demand += high * count
    profit += high_rate * _sum_between(sums, VALUE_SUM, capped, places) - price * high * count
    return demand, profit, 0.5 * roots * sqrt(f / price) / serial


@compiled
def _sum_between(sums: FloatArray, column: int, first: int, end: int) -> float:
    rest = sums[end, column + 1] - sums[first, column + 1]
    return float(sums[end, column] - sums[first, column] + rest)


@compiled
def add_to_prefix(sums: FloatArray, place: int, value: float) -> None:
    """Append a value to prefix sums of values and of their roots."""
    root = sqrt(value)
    # The square of the root is not quite the value: correct the root to twice the precision.
    high, low = _split_square(root)
    root_rest = ((value - high) - low) / (2 * root) if root > 0 else 0.0
    _add_exactly(sums, place, VALUE_SUM, value, 0.0)
    _add_exactly(sums, place, ROOT_SUM, root, root_rest)


@compiled
def _split_square(number: float) -> tuple[float, float]:
    """Return the square of a number as the sum of two: the rounded square, and its error."""
    square = number * number
    upper = number * 134217729.0  # 2^27 + 1 (Veltkamp)
    upper = upper - (upper - number)
    lower = number - upper
    return square, ((upper * upper - square) + 2 * upper * lower) + lower * lower


@compiled
def _add_exactly(sums: FloatArray, place: int, column: int, number: float, rest: float) -> None:
    before = sums[place, column]
    total = before + number
    part = total - before
    error = (before - (total - part)) + (number - part)
    sums[place + 1, column] = total
    sums[place + 1, column + 1] = sums[place, column + 1] + error + rest
