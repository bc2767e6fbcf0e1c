"""How jobs that share one Amdahl's law respond together to a price, from prefix sums; compiled.

Their values must rise along the list. Then what many of them demand takes no longer than what one
demands, at any price: :mod:`~hesrpt.optimal.summed_response_kernel` is for all other jobs.
"""

from __future__ import annotations

from math import sqrt

from hesrpt.arrays import FloatArray
from hesrpt.compiled import compiled
from hesrpt.optimal.recursion_kernel_data import (
    FIRST,
    HIGH,
    HIGH_RATE,
    ROOT_SUM,
    SECOND,
    VALUE,
    VALUE_SUM,
)
from hesrpt.optimal.response_kernel import find_first_above


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
