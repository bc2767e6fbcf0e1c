"""A user's own concave function: everything but its values is found numerically."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedups.measured import Tabulated
from hesrpt.speedups.speedup import Speedup

# Relative to the servers: over this distance, rates are compared to find a slope.
_STEP = 1e-6
# How close a table must be to its function, relative to it.
_CLOSE = 1e-9
_MOST_HALVINGS = 40


@dataclass(frozen=True, eq=False)
class Custom(Speedup):
    """Any vectorised concave function with s(0) = 0; slope, demand and inverse found numerically.

    >>> Custom(np.log1p)(1)
    0.69314718
    """

    function: Callable[[FloatArray], FloatArray]

    # Identity, because a callable object need not be hashable nor compare as a function does.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and other.function is self.function

    def __hash__(self) -> int:
        return id(self.function)

    def rate(self, servers: FloatArray) -> FloatArray:
        # A copy with one dimension: functions may work in place, or know nothing of others.
        given = np.array(servers, dtype=np.float64, ndmin=1)
        if given.size == 0:
            return given
        try:
            values = np.asarray(self.function(given.copy()), dtype=np.float64)
        except Exception as error:  # whatever a function of the user's may raise
            raise InputError(
                f"the speedup function must take an array of servers and return as many numbers, "
                f"but it failed: {type(error).__name__}: {error}"
            ) from error
        if values.shape != given.shape:
            raise InputError(
                f"the speedup function must return one number per entry: given an array of shape "
                f"{given.shape}, it returned shape {values.shape}"
            )
        return values.reshape(np.shape(servers))

    def slope(self, servers: FloatArray) -> FloatArray:
        step = np.maximum(servers, 1e-12) * _STEP
        low, high = np.maximum(servers - step, 0.0), servers + step
        return (self.rate(high) - self.rate(low)) / (high - low)

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        return self.known_on(most).demand(price, most)

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        return self.known_on(most).inverse(rate, most)

    def known_on(self, servers: float) -> Speedup:
        return _table_of(self, float(servers))

    def check(self, servers: float) -> None:
        if (at_zero := float(self.rate(np.zeros(1))[0])) != 0:
            raise InputError(f"a speedup function must be 0 on 0 servers, got {at_zero!r}")
        grid, values, slopes = _grid_of(self, float(servers))
        finite = np.isfinite(values)
        if not finite.all():
            at = float(grid[np.argmin(finite)])
            raise InputError(
                f"a speedup function must be finite, but it is not at {at:.6g} servers"
            )
        if slopes[0] <= 0:
            raise InputError("a speedup function must grow from 0, but it does not")
        # A chord is no more exact than the values at its ends, which may come from differences of
        # numbers around 1 (as in 1 − exp(−k)) or as large as the function gets.
        rounding = 1e-15 * max(float(np.abs(values).max()), 1.0) / np.diff(grid)
        tolerance = 1e-9 * np.abs(values[1:-1]) / grid[1:-1] + rounding[1:] + rounding[:-1]
        rises = slopes[1:] > slopes[:-1] + tolerance
        if rises.any():
            at = int(np.argmax(rises))
            raise InputError(
                f"a speedup function must be concave, but its slope grows from {slopes[at]:.6g} "
                f"to {slopes[at + 1]:.6g} near {grid[at + 1]:.6g} servers"
            )


@lru_cache(maxsize=64)
def _grid_of(speedup: Custom, most: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return servers, speedups and chord slopes of a function on [0, most], finer near 0."""
    grid = np.concatenate(([0.0], most * np.geomspace(1e-12, 1.0, 2000)))
    values = speedup.rate(grid)
    return grid, values, np.diff(values) / np.diff(grid)


@lru_cache(maxsize=16)
def _table_of(speedup: Custom, most: float) -> Tabulated:
    """Return a function of straight pieces that is nowhere further from this one than it matters.

    Pieces are halved until the function at the middle of each is close to the chord. Where it is
    curved that takes many, at a kink only a few around it.
    """
    at, height, _ = _grid_of(speedup, most)
    peak = float(height.max())
    rounding = 4e-16 * max(peak, 1.0)
    open_pieces = np.ones(len(at) - 1, dtype=bool)
    for _ in range(_MOST_HALVINGS):
        left, right = at[:-1][open_pieces], at[1:][open_pieces]
        middle = np.where(left > 0, np.sqrt(left) * np.sqrt(right), right / 2)
        there = speedup.rate(middle)
        part = (middle - left) / (right - left)
        low, high = height[:-1][open_pieces], height[1:][open_pieces]
        far = np.abs(there - (low + part * (high - low))) > (
            _CLOSE * (np.abs(there) + 1e-4 * peak) + rounding
        )
        far &= (middle > left) & (middle < right)
        if not far.any():
            break
        places = np.flatnonzero(open_pieces)
        at = np.insert(at, places + 1, middle)
        height = np.insert(height, places + 1, there)
        # Both halves of a piece that was far from its chord are looked at again.
        again = np.zeros(len(at) - 1, dtype=bool)
        new_places = places + np.arange(len(places))
        again[new_places[far]] = again[new_places[far] + 1] = True
        open_pieces = again
    # The last digits of what is nearly flat are not worth a server.
    last = int(np.argmax(height >= height.max() * (1 - 1e-12))) + 1
    at, height = at[:last], height[:last]
    # Rounding may have made it not quite concave: the closest slopes that fall.
    slopes = np.diff(height) / np.diff(at)
    if np.any(slopes[1:] > slopes[:-1]):
        from scipy.optimize import isotonic_regression

        slopes = isotonic_regression(slopes, weights=np.diff(at), increasing=False).x
    slopes = np.maximum(slopes, 0.0)
    height = np.concatenate(([0.0], np.cumsum(slopes * np.diff(at))))
    corners = np.concatenate(([True], slopes[1:] < slopes[:-1], [True]))
    return Tabulated(at[corners], height[corners])


def as_speedup(value: object) -> Speedup:
    """Return a speedup as it is, and wrap a plain function."""
    if isinstance(value, Speedup):
        return value
    if callable(value):
        return Custom(value)
    raise InputError(
        f"a speedup must be PowerLaw, Amdahl, Measured or a concave function, got {value!r}"
    )
