"""The arrays that the compiled search for an order works on."""

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


class Batch(NamedTuple):
    """Jobs that are to be ordered."""

    shapes: Any
    corners: Corners
    shape_of_job: IntArray
    sizes: FloatArray
    weights: FloatArray
    servers: float
