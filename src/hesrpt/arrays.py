"""The array types of the library."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
TextArray: TypeAlias = NDArray[np.str_]


def scalar(value: float) -> FloatArray:
    """Return a number typed as an array: NumPy is much faster with it than with a 0-d array."""
    return np.float64(value)  # type: ignore[return-value]
