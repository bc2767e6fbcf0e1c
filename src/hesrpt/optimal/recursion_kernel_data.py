"""The arrays that the compiled recursion, allocations and searches for an order work on."""

from __future__ import annotations

from typing import Any, NamedTuple

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.speedups.shape_kernel_data import Corners

#: The columns of a line, which has a row for each place in an order: the value and the price of the
#: recursion, the total weight up to this place, and what is needed to evaluate the speedup.
VALUE, PRICE, WEIGHT, KIND, OFFSET, FIRST, SECOND, HIGH, HIGH_RATE, LOW = range(10)
COLUMNS = 10
#: Kinds of speedups: two formulas and tables, which are evaluated in place, and all others.
FORMULA_POWER, FORMULA_AMDAHL, CORNERS, OTHER = 0.0, 1.0, 2.0, 3.0
#: The columns of prefix sums of values and of their square roots, each in two parts: the second
#: part is what rounding has cut off from the first.
VALUE_SUM, VALUE_REST, ROOT_SUM, ROOT_REST = range(4)
SUMS = 4


class Batch(NamedTuple):
    """Jobs that are to be ordered, or that are listed in an order."""

    shapes: Any
    corners: Corners
    shape_of_job: IntArray
    sizes: FloatArray
    weights: FloatArray
    servers: float
    is_rising: bool  # whether values are known to rise along the list
    #: If they do, a job gets no servers at a price of its value times this or above, and no job
    #: before it does. Otherwise infinity.
    max_slope: float
