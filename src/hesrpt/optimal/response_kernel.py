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
    shapes, corners, shape_of_job = batch.shapes, batch.corners, batch.shape_of_job
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
