"""How jobs respond to a price of a server: what they demand, and the profit they make; compiled.

Jobs are listed from the last to end to the first. A row of ``line`` belongs to a place in the list.
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
    SECOND,
    VALUE,
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
def respond_at(
    batch: Batch, line: FloatArray, order: IntArray, place: int, price: float, log_price: float
) -> tuple[float, float, float]:
    """Return the servers that a place demands, its profit, and −dn / d log λ."""
    row = line[place]
    value, corners = row[VALUE], batch.corners
    if row[KIND] < CORNERS:
        return respond(
            row[KIND],
            value,
            row[OFFSET],
            row[FIRST],
            row[SECOND],
            row[LOW],
            row[HIGH],
            row[HIGH_RATE],
            price,
            log_price,
        )
    growth = 0.0
    if row[KIND] == CORNERS:
        at, slope = corners.at, corners.slope
        corner = find_corner(line, place, slope, price)
        first, last = int(row[FIRST]), int(row[SECOND])
        if last - first > _MANY_CORNERS and first < corner < last:
            # The table of a smooth function: the demand hardly jumps.
            change = (slope[corner - 1] - slope[corner]) / slope[corner - 1]
            growth = 0.5 * (at[corner + 1] - at[corner - 1]) / max(change, 1e-9)
        return at[corner], value * corners.height[corner] - price * at[corner], growth
    if value <= 0:
        return 0.0, 0.0, 0.0
    shape = batch.shapes[batch.shape_of_job[order[place]]]
    servers = find_demand(shape, corners, price / value)
    if shape.family == POWER and shape.parameter < 1 and servers < shape.high:
        growth = servers / (1 - shape.parameter)
    return servers, value * find_rate(shape, corners, servers) - price * servers, growth


@compiled
def respond_all(
    batch: Batch, line: FloatArray, order: IntArray, places: int, price: float, log_price: float
) -> tuple[float, float, float, bool]:
    """Return what the first places demand together, their profit, −dn / d log λ, and a predicate.

    It says whether the demand never jumps.
    """
    start = 0
    if batch.max_slope < inf:
        start = find_first_above(line, places, price / batch.max_slope)
    demand = profit = growth = 0.0
    is_smooth = True
    for place in range(start, places):
        is_smooth = is_smooth and line[place, KIND] < CORNERS and line[place, LOW] == 0
        servers, gain, sensitivity = respond_at(batch, line, order, place, price, log_price)
        demand += servers
        profit += gain
        growth += sensitivity
    return demand, profit, growth, is_smooth
