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
of their values give the same sums for any price, as fast as the response of one job. For 100,000
such jobs the recursion is 5 to 60 times as fast as with ranges.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.speedups.shape_kernel import (
    AMDAHL,
    POWER,
    TABLE,
    Shape,
    Shapes,
    find_both_demands,
    find_corner,
    find_demand_of_formula,
)

#: The columns of a line, which has a row for each place in an order: the value and the price of the
#: recursion, the logarithm of the value, and the total weight up to this place.
VALUE, PRICE, LOG_VALUE, WEIGHT = range(4)
COLUMNS = 4


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
def set_value(line: FloatArray, place: int, value: float) -> None:
    """Set the value of a place, and its logarithm."""
    line[place, VALUE] = value
    line[place, LOG_VALUE] = log(value) if value > 0 else -inf


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
    at, height, slope = corners
    demand = profit = growth = 0.0
    is_smooth = True
    for number in range(first, end):
        place = listed[number] if listed.size > 0 else number
        value, shape = line[place, VALUE], shapes[shape_of_job[order[place]]]
        is_smooth = is_smooth and not shape.has_kinks
        if value > 0:
            log_relative = log_price - line[place, LOG_VALUE]
            if not shape.has_kinks:
                servers, rate = find_demand_of_formula(shape, price / value, log_relative)
            elif shape.family == TABLE:
                corner = find_corner(shape, slope, price / value)
                servers, rate = at[corner], height[corner]
                first_corner, last_corner = shape.first_corner, shape.last_corner
                is_many = last_corner - first_corner > _MANY_CORNERS
                if is_many and first_corner < corner < last_corner:
                    # The table of a smooth function: the demand hardly jumps.
                    change = (slope[corner - 1] - slope[corner]) / slope[corner - 1]
                    growth += 0.5 * (at[corner + 1] - at[corner - 1]) / max(change, 1e-9)
            else:
                servers, _, rate, _ = find_both_demands(
                    shape, corners, price / value, log_relative, 0.0, 0.0
                )
            demand += servers
            profit += value * rate - price * servers
            if shape.low < servers < shape.high and shape.parameter < 1:  # not a table
                is_power = shape.family == POWER
                own = servers if is_power else 0.5 * (servers / shape.c + shape.parameter)
                growth += own * shape.c
    return demand, profit, growth, is_smooth


# The least width of a range times the number of places, and the greatest width, as differences of
# logarithms; the factor between one width and the next; and the part of a range below the price
# that it is for: prices rise along the list.
_NARROWEST, _WIDEST, _WIDER, _BELOW = 30.0, 0.2, 1.5, 0.25
# How often sums are asked for at each place, about.
_USES = 4
# The response of a power law is steep if the logarithm of its demand changes by more than this over
# half of the range. Otherwise the series is exact up to 1e-12.
_STEEP = 0.8


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

    If the sums are for other places, or for other prices, they are computed again.
    """
    sums, counts = response_sums.sums, response_sums.counts
    if not covers(response_sums, places, price):
        sum_responses(batch, line, order, places, price, response_sums)
    demand, profit, growth = respond_by_sums(sums, price, log_price)
    if counts[LISTED] > 0:
        listed, gain, sensitivity, _ = respond_all(
            batch, line, order, response_sums.listed, 0, counts[LISTED], price, log_price
        )
        demand += listed
        profit += gain
        growth += sensitivity if sums[KINKED] == 0 else 0.0
    return demand, profit, growth, sums[KINKED] == 0


@compiled
def respond_by_sums(sums: FloatArray, price: float, log_price: float) -> tuple[float, float, float]:
    """Return what sums give for a price: the demand, the profit, and −dn / d log λ."""
    demand, growth = sums[STEADY_DEMAND], sums[GROWTH]
    profit = sums[STEADY_EARNED] - price * demand
    if price > 0:
        root = sqrt(price)
        moved = root - sums[ROOT_MIDDLE]
        by_root = (sums[ROOTS] - sums[SERIAL] * moved) / root
        demand += by_root
        profit += sums[SQUARES] - (2 * sums[ROOTS] - sums[SERIAL] * moved) * moved
        growth += 0.5 * (by_root + sums[SERIAL])
        if sums[TAYLOR] > 0:
            x, series, slope, bend = log_price - sums[LOG_MIDDLE], 0.0, 0.0, 0.0
            for term in range(TAYLOR + TERMS - 1, TAYLOR - 1, -1):
                bend = bend * x + 2 * slope
                slope = slope * x + series
                series = series * x + sums[term]
            demand -= slope / price
            profit += series
            growth += (bend - slope) / price
    return demand, profit, growth


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
    sums, counts, value = response_sums.sums, response_sums.counts, line[place, VALUE]
    shapes, corners, shape_of_job = batch.shapes
    shape = shapes[shape_of_job[order[place]]]
    counts[COVERED] = place + 1
    lowest, middle, highest = sums[LOWEST], sums[MIDDLE], sums[HIGHEST]
    if shape.has_kinks:
        sums[KINKED] += 1
    if value <= 0:
        return
    if lowest > 0:
        log_middle = sums[LOG_MIDDLE] - line[place, LOG_VALUE]
        half = sums[HALF_WIDTH]
        if shape.has_kinks:
            most, _, _, _ = find_both_demands(
                shape, corners, lowest / value, log_middle - half, 0.0, 0.0
            )
            fewest, _, rate, _ = find_both_demands(
                shape, corners, highest / value, log_middle + half, 0.0, 0.0
            )
        else:
            most, _ = find_demand_of_formula(shape, lowest / value, log_middle - half)
            fewest, rate = find_demand_of_formula(shape, highest / value, log_middle + half)
        if most == fewest:
            sums[STEADY_DEMAND] += fewest
            sums[STEADY_EARNED] += value * rate
            return
        is_formula = shape.family != TABLE and not shape.is_whole
        if is_formula and shape.low < fewest and most < shape.high:
            if shape.family == AMDAHL:
                root = sqrt(shape.parameter)
                above = sqrt(value) - root * sums[ROOT_MIDDLE]
                sums[SQUARES] += above * above * shape.c
                sums[ROOTS] += above * root * shape.c
                sums[SERIAL] += shape.parameter * shape.c
                return
            if shape.c * half <= _STEEP:
                servers = exp((shape.log_parameter - log_middle) * shape.c)
                term = middle * servers * (1 / shape.parameter - 1)
                for number in range(TERMS):
                    sums[TAYLOR + number] += term
                    term *= (1 - shape.c) / (number + 1)
                return
        if shape.has_kinks:
            sums[GROWTH] += (most - fewest) / (2 * half)
    response_sums.listed[counts[LISTED]] = place
    counts[LISTED] += 1


@compiled
def sum_by_prefix(
    shape: Shape, line: FloatArray, places: int, price: float, sums: FloatArray, prefix: FloatArray
) -> None:
    """Sum the responses of the first places to one price, if they share one Amdahl's law.

    Their values rise. So those that demand no servers are at the head of the list, and those that
    demand all that they can use are at its end.
    """
    f, high = shape.parameter, shape.high
    # The slope is f / ((1 − f) n + f)².
    start = find_first_above(line, places, price * f)
    capped, most = places, price / f * ((1 - f) * high + f) ** 2
    if line[places - 1, VALUE] > most:  # hardly ever: searching takes longer than all the rest
        capped = max(find_first_above(line, places, most), start)
    sums[STEADY_DEMAND] = high * (places - capped)
    sums[STEADY_EARNED] = shape.high_rate * _sum_between(prefix, VALUE_SUM, capped, places)
    sums[SQUARES] = _sum_between(prefix, VALUE_SUM, start, capped) * shape.c
    sums[ROOTS] = _sum_between(prefix, ROOT_SUM, start, capped) * sqrt(f) * shape.c
    sums[SERIAL] = f * shape.c * (capped - start)


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
