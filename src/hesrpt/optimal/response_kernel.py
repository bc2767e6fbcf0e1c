"""How jobs respond to a price of a server: what they demand, and the profit they make; compiled.

Jobs are listed from the last to end to the first. A row of ``line`` belongs to a place in the list.
If all jobs share one Amdahl's law and values rise along the list, what many demand together follows
from prefix sums, and takes no longer than what one demands.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.optimal.recursion_kernel_data import (
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
    ROOT_SUM,
    SECOND,
    VALUE,
    VALUE_SUM,
    Batch,
)
from hesrpt.speedups.shape_kernel import find_demand, find_rate
from hesrpt.speedups.shape_kernel_data import AMDAHL, POWER, TABLE

# A table with more corners than this is that of a smooth function.
_MANY_CORNERS = 50


@compiled
def place_job(batch: Batch, line: FloatArray, place: int, job: int) -> None:
    """Fill a row of the line with what does not depend on other jobs."""
    shape = batch.shapes[batch.shape_of_job[job]]
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
        log_parameter = batch.shapes[batch.shape_of_job[job]].log_parameter
        row[OFFSET] = (log_parameter + log(value)) * row[FIRST] if value > 0 else -inf
    elif row[KIND] == FORMULA_AMDAHL:
        row[OFFSET] = row[FIRST] * value


@compiled
def respond(
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
    batch: Batch, line: FloatArray, order: IntArray, places: int, price: float, log_price: float
) -> tuple[float, float, float, bool]:
    """Return what the first places demand together, their profit, −dn / d log λ, and a predicate.

    It says whether the demand never jumps.
    """
    shapes, corners, shape_of_job = batch.shapes, batch.corners, batch.shape_of_job
    at, height, slope = corners.at, corners.height, corners.slope
    start = 0
    if batch.max_slope < inf:
        start = find_first_above(line, places, price / batch.max_slope)
    demand = profit = growth = 0.0
    is_smooth = True
    for other in range(start, places):
        value = line[other, VALUE]
        is_smooth = is_smooth and line[other, KIND] < CORNERS and line[other, LOW] == 0
        if line[other, KIND] == CORNERS:
            corner = find_corner(line, other, slope, price)
            demand += at[corner]
            profit += value * height[corner] - price * at[corner]
            first, last = int(line[other, FIRST]), int(line[other, SECOND])
            if last - first > _MANY_CORNERS and first < corner < last:
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
        servers, gain, sensitivity = respond(
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
    return demand, profit, growth, is_smooth


@compiled
def respond_together(
    line: FloatArray, sums: FloatArray, places: int, price: float
) -> tuple[float, float, float]:
    """Do the same for jobs with one Amdahl's law and rising values, from prefix sums.

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
def add_to_sums(sums: FloatArray, place: int, value: float) -> None:
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
