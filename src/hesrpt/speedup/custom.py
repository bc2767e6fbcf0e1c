"""A user's own concave function: everything but its values is found numerically."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedup.base import Speedup


@dataclass(frozen=True, eq=False)
class Custom(Speedup):
    """Any vectorised concave function with s(0) = 0; slope, demand and inverse found numerically.

    >>> Custom(np.log1p)(1)
    0.69314718
    """

    function: Callable[[FloatArray], FloatArray]

    precision = 1e-7  # demand and slope, found numerically, agree no better

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
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the speedup function must take an array of servers and return as many numbers, "
                f"but it failed: {error}"
            ) from error
        if values.shape != given.shape:
            raise InputError(
                f"the speedup function must return one number per entry: given an array of shape "
                f"{given.shape}, it returned shape {values.shape}"
            )
        return values.reshape(np.shape(servers))

    def slope(self, servers: FloatArray) -> FloatArray:
        step = np.maximum(servers, 1e-12) * 1e-6
        low, high = np.maximum(servers - step, 0.0), servers + step
        return (self.rate(high) - self.rate(low)) / (high - low)

    def steepest(self) -> float:
        return np.inf  # a slope found numerically bounds nothing

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        grid, _, slopes = _grid_of(self, float(most))
        # The maximum lies between the neighbours of the best grid point.
        falling = np.minimum.accumulate(slopes)
        best = np.searchsorted(-falling, -np.asarray(price), side="left")
        low = grid[np.maximum(best - 1, 0)]
        high = grid[np.minimum(best + 1, len(grid) - 1)]
        return self._golden_section(price, low, high)

    def _golden_section(self, price: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        ratio = (np.sqrt(5) - 1) / 2

        def profit(servers: FloatArray) -> FloatArray:
            return self.rate(servers) - price * servers

        ends = low, high
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        at_left, at_right = profit(left), profit(right)
        for _ in range(44):
            lower = at_left >= at_right  # the maximum lies below `right`
            high, low = np.where(lower, right, high), np.where(lower, low, left)
            probe = np.where(lower, high - ratio * (high - low), low + ratio * (high - low))
            at_probe = profit(probe)
            left, right = np.where(lower, probe, right), np.where(lower, left, probe)
            at_left, at_right = (
                np.where(lower, at_probe, at_right),
                np.where(lower, at_left, at_probe),
            )
        middle = (low + high) / 2
        # An end of the range is often the exact answer (nothing, or all there is).
        for end in ends:
            middle = np.where(profit(end) >= profit(middle), end, middle)
        return middle

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        peak = self.demand(np.zeros_like(rate), most)
        # Near the peak a rate is as good as reached.
        reached = rate <= self.rate(peak) * (1 + 1e-14)
        low, high = np.zeros_like(rate), peak
        for _ in range(120):
            middle = (low + high) / 2
            enough = self.rate(middle) >= rate
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(reached, high, np.inf)

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


def as_speedup(value: object) -> Speedup:
    """Return a speedup as it is, and wrap a plain function."""
    if isinstance(value, Speedup):
        return value
    if callable(value):
        return Custom(value)
    raise InputError(
        f"a speedup must be PowerLaw, Amdahl, Measured or a concave function, got {value!r}"
    )
