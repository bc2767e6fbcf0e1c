"""What one speedup does with servers, compiled: its rate, slope, gain and demand.

These are the functions of :class:`hesrpt.speedups.Speedup` for one number. The record of the
speedup and the corners of all tables come from :meth:`hesrpt.speedups.SpeedupVector.shapes`.
"""

from __future__ import annotations

from math import exp, expm1, inf, log, log1p, sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled

#: Families of speedups: k^p, Amdahl's law, and tables.
POWER, AMDAHL, TABLE = range(3)


class Shape(Protocol):
    """A speedup up to a number of servers, a record of an array: a formula, or a table.

    From 0 to ``low`` servers a formula is linear with slope 1, and from ``high`` on it is flat. On
    whole servers it is linear between whole numbers. A table never needs any of this: it has
    corners where its slope changes, the first of them at 0, and is flat past the last.
    """

    family: int
    is_whole: int  # 1 for a formula on whole servers
    parameter: float  # p of a power law, f of Amdahl's law
    log_parameter: float
    c: float  # 1 / (1 − parameter)
    has_kinks: int  # whether its demand jumps at some prices
    low: float  # 0, or 1 if servers are shared in time
    high: float
    high_rate: float
    usable: float  # the most servers that speed the job up
    first_corner: int
    last_corner: int


class Corners(NamedTuple):
    """The corners of all tables, one table after the other."""

    at: FloatArray
    height: FloatArray
    slope: FloatArray  # from each corner to the next; 0 after the last


class Shapes(NamedTuple):
    """The speedups of a list of jobs on a number of servers, for compiled code."""

    records: Any  # an array with a :class:`Shape` for each distinct speedup
    corners: Corners
    of_job: IntArray  # the number of each job's speedup in that array


@compiled
def find_rate(shape: Shape, corners: Corners, servers: float) -> float:
    """Return s(n)."""
    if servers >= shape.usable:
        return shape.high_rate
    if shape.family == TABLE:
        return _evaluate_table(shape, corners, servers)
    if shape.is_whole:
        below = float(np.floor(servers))
        rate = _evaluate_formula(shape, below)
        if servers > below:
            rate += (servers - below) * find_gain(shape, corners, below)
        return rate
    return servers if servers < shape.low else _evaluate_formula(shape, servers)


# No two functions here call each other: numba cannot keep such code on disk.


@compiled
def _evaluate_table(shape: Shape, corners: Corners, servers: float) -> float:
    if servers >= shape.high:
        return shape.high_rate
    piece = _find_piece(shape, corners, servers)
    return float(corners.height[piece] + corners.slope[piece] * (servers - corners.at[piece]))


@compiled
def _evaluate_formula(shape: Shape, servers: float) -> float:
    if shape.family == POWER:
        return float(servers**shape.parameter)
    return servers / ((1 - shape.parameter) * servers + shape.parameter)


@compiled
def _find_piece(shape: Shape, corners: Corners, servers: float) -> int:
    """Return the last corner of a table, but the very last, that is at most at these servers."""
    first, last = shape.first_corner, shape.last_corner
    while last - first > 1:
        middle = (first + last) // 2
        if corners.at[middle] <= servers:
            first = middle
        else:
            last = middle
    return first


@compiled
def find_slope_before(shape: Shape, corners: Corners, servers: float) -> float:
    """Return the loss per server removed, s'(n−)."""
    if servers > shape.usable:
        return 0.0
    if shape.family == TABLE:
        piece = _find_piece(shape, corners, servers)
        if corners.at[piece] == servers and piece > shape.first_corner:
            piece -= 1
        return float(corners.slope[piece])
    if shape.is_whole:
        return find_gain(shape, corners, max(float(np.ceil(servers)), 1.0) - 1.0)
    return 1.0 if servers <= shape.low and shape.low > 0 else _find_slope_of_formula(shape, servers)


@compiled
def _find_slope_of_formula(shape: Shape, servers: float) -> float:
    parameter = shape.parameter
    if shape.family == POWER:
        return float(parameter * servers ** (parameter - 1))
    return parameter / ((1 - parameter) * servers + parameter) ** 2


@compiled
def find_gain(shape: Shape, corners: Corners, servers: float) -> float:
    """Return the gain of one more server, s(n + 1) − s(n), for whole numbers n."""
    if shape.family == TABLE:
        piece = _find_piece(shape, corners, servers)
        if corners.at[piece] <= servers and servers + 1 <= corners.at[piece + 1]:
            return float(corners.slope[piece])  # more exact than the difference of two rates
        here = _evaluate_table(shape, corners, servers)
        return _evaluate_table(shape, corners, servers + 1) - here
    return _find_gain_of_formula(shape, servers)


@compiled
def _find_gain_of_formula(shape: Shape, servers: float) -> float:
    parameter = shape.parameter
    if servers + 1 > shape.high:
        if servers >= shape.high:
            return 0.0
        return shape.high_rate - _evaluate_formula(shape, servers)
    if shape.family == POWER:
        # With many servers, the difference of two rates would lose most digits.
        if servers == 0.0:
            return 1.0
        return float(servers**parameter * expm1(parameter * log1p(1 / servers)))
    here = (1 - parameter) * servers + parameter
    return parameter / (here * (here + 1 - parameter))


@compiled
def find_both_demands(
    shape: Shape, corners: Corners, price: float, log_price: float, above: float, below: float
) -> tuple[float, float, float, float]:
    """Return the fewest and the most servers n that maximise s(n) − price·n, and their rates.

    They are the same unless the demand jumps near the price: up to the part ``above`` over it for
    the fewest, and up to the part ``below`` under it for the most. If both parts are 0, both are
    the fewest.
    """
    if shape.family == TABLE:
        at, height, slope = corners
        first = last = find_corner(shape, slope, price * (1 - below))
        least = price * (1 + above)
        while first > shape.first_corner and slope[first - 1] <= least:
            first -= 1
        return at[first], at[last], height[first], height[last]
    if shape.is_whole:
        fewest = most = _find_whole_demand(shape, price * (1 + above))
        if below > 0:
            most = _find_whole_demand(shape, price * (1 - below))
        rate = _evaluate_formula(shape, min(fewest, shape.high))
        if most == fewest:
            return fewest, most, rate, rate
        return fewest, most, rate, _evaluate_formula(shape, min(most, shape.high))
    if not shape.has_kinks:
        servers, rate = find_demand_of_formula(shape, price, log_price)
        return servers, servers, rate, rate
    # Up to one server, or up to all if there is no serial part, the slope is 1.
    if price * (1 - below) >= 1:
        return 0.0, 0.0, 0.0, 0.0
    servers, rate = shape.high, shape.high_rate
    if shape.parameter < 1:
        servers, rate = find_demand_of_formula(shape, price, log_price)
    if price * (1 + above) >= 1:
        return 0.0, servers, 0.0, rate
    return servers, servers, rate, rate


@compiled
def find_corner(shape: Shape, slope: FloatArray, price: float) -> int:
    """Return the corner of a table at which the demand is: the pieces before it are worth it."""
    first, last = shape.first_corner, shape.last_corner
    while first < last:
        middle = (first + last) // 2
        if slope[middle] > price:
            first = middle + 1
        else:
            last = middle
    return first


@compiled
def find_demand_of_formula(shape: Shape, price: float, log_price: float) -> tuple[float, float]:
    """Return the demand of a formula without kinks, or beyond its first server, and its rate.

    In loops over many jobs, this and :func:`find_corner` take half as long as
    :func:`find_both_demands`: numba counts references to all arrays that are passed.
    """
    parameter = shape.parameter
    if shape.family == POWER:
        servers = exp((shape.log_parameter - log_price) * shape.c)
        rate = price * servers / parameter
    else:
        root = sqrt(price / parameter)
        rate = (1 - parameter * root) * shape.c
        servers = rate / root if root > 0 else inf
    if servers >= shape.high:
        return shape.high, shape.high_rate
    if servers <= shape.low:
        return shape.low, shape.low
    return servers, rate


@compiled
def _find_whole_demand(shape: Shape, price: float) -> float:
    """Return the fewest whole servers that maximise what a formula earns."""
    log_price = log(price) if price > 0 else -inf
    servers = shape.high if price < 1 else 0.0
    if shape.parameter < 1:
        servers, _ = find_demand_of_formula(shape, price, log_price)
    # By concavity the last worthwhile server is the one below or above the continuous demand.
    part = servers - float(np.floor(servers))
    servers -= part
    # The gain of one more server is the slope half a server further, or slightly more.
    is_plain = shape.family == POWER and 4 <= servers < shape.high - 1
    if is_plain and part >= 0.5:
        servers += 1
    elif not (is_plain and 1e-3 < part < 0.5 - 1 / servers):
        if _find_gain_of_formula(shape, servers) > price:
            servers += 1
        elif servers > 0 and _find_gain_of_formula(shape, servers - 1) <= price:
            servers -= 1  # the continuous demand was rounded up
    return servers


@compiled
def find_demand(shape: Shape, corners: Corners, price: float) -> float:
    """Return the fewest servers n that maximise s(n) − price·n."""
    log_price = log(price) if shape.family == POWER and price > 0 else -inf
    return find_both_demands(shape, corners, price, log_price, 0.0, 0.0)[0]


@compiled
def find_knee(shape: Shape, corners: Corners, saving: float, servers: float) -> float:
    """Return the greatest n up to ``servers`` with ``saving``·s'(n−) ≥ s(n)²."""
    if shape.family != TABLE and shape.low == 0.0 and not shape.is_whole:
        # A power law or Amdahl's law.
        square = shape.parameter * saving
        knee = square ** (1 / (1 + shape.parameter)) if shape.family == POWER else sqrt(square)
        return float(min(knee, shape.high))
    low, high = 0.0, servers
    if saving * find_slope_before(shape, corners, high) >= find_rate(shape, corners, high) ** 2:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        rate = find_rate(shape, corners, middle)
        if saving * find_slope_before(shape, corners, middle) >= rate**2:
            low = middle
        else:
            high = middle
    return low


@compiled
def find_cheapest(
    shape: Shape, corners: Corners, weight: float, price: float
) -> tuple[float, float, float]:
    """Return the least (weight + price·n) / s(n), and the servers and rate that reach it."""
    parameter = shape.parameter
    if shape.family == TABLE:
        first = shape.first_corner + 1
        last = shape.last_corner
        at, height = corners.at, corners.height
        while first < last:
            middle = (first + last) // 2
            here = (weight + price * at[middle]) * height[middle + 1]
            if (weight + price * at[middle + 1]) * height[middle] < here:
                first = middle + 1
            else:
                last = middle
        return (weight + price * at[first]) / height[first], at[first], height[first]
    servers = shape.high
    if shape.family == POWER:
        if price > 0.0:
            servers = parameter * weight / (price * (1 - parameter))
    elif price > 0.0 and parameter < 1.0:
        servers = sqrt(weight * parameter / (price * (1 - parameter)))
    servers = min(max(servers, shape.low), shape.high)
    if shape.is_whole:
        # The cost of a unit of work falls up to the best number of servers, and then rises.
        above = max(float(np.ceil(servers)), 1.0)
        servers = max(float(np.floor(servers)), 1.0)
        rate_above = find_rate(shape, corners, above)
        rate = find_rate(shape, corners, servers)
        if (weight + price * above) * rate < (weight + price * servers) * rate_above:
            servers, rate = above, rate_above
    else:
        rate = find_rate(shape, corners, servers)
    return (weight + price * servers) / rate, servers, rate
