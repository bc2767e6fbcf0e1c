"""A user's own concave function: everything but its values is found numerically."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedup.base import Speedup
from hesrpt.speedup.measured import concave_hull

# Of the search for a slope. Smooth functions take a handful, kinks as many as bisection.
_MOST_STEPS = 60
# Relative to the servers: over this distance, rates are compared to find a slope.
_STEP = 1e-6


@dataclass(frozen=True, eq=False)
class Custom(Speedup):
    """Any vectorised concave function with s(0) = 0; slope, demand and inverse found numerically.

    >>> Custom(np.log1p)(1)
    0.69314718
    """

    function: Callable[[FloatArray], FloatArray]

    precision = 1e-7  # demand and slope, found numerically, agree no better
    sharp = False

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
        step = np.maximum(servers, 1e-12) * _STEP
        low, high = np.maximum(servers - step, 0.0), servers + step
        return (self.rate(high) - self.rate(low)) / (high - low)

    def steepest(self) -> float:
        return np.inf  # a slope found numerically bounds nothing

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        corners, slopes = _hull_of(self, float(most))
        # The maximum lies between the neighbours of the best corner.
        best = np.searchsorted(-slopes, -np.asarray(price), side="left")
        low = corners[np.maximum(best - 1, 0)]
        high = np.append(corners, most)[best + 1]
        return self._where_slope_is(np.asarray(price), low, high)

    def _where_slope_is(self, price: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return where s'(k) falls below a price, between bounds: regula falsi (Illinois)."""
        ends = low, high
        too_much, too_little = self.slope(low) - price, price - self.slope(high)
        at_an_end = (too_much <= 0) | (too_little <= 0)
        exact = 1e-9 * price + 1e-10 * self.rate(high) / high  # as a difference of rates can be
        middle = low
        for _ in range(_MOST_STEPS):
            total = np.where(at_an_end, 1.0, too_much + too_little)
            middle = low + (high - low) * np.where(at_an_end, 0.5, too_much / total)
            error = self.slope(middle) - price
            steep = error > 0
            if np.all(at_an_end | (np.abs(error) <= exact) | (high - low <= 1e-11 * high)):
                break
            # The end that stays is trusted less, so that the other one moves next.
            low, high = np.where(steep, middle, low), np.where(steep, high, middle)
            too_much = np.where(steep, error, too_much / 2)
            too_little = np.where(steep, too_little / 2, -error)
        # An end of the range is often the exact answer (nothing, or all there is). So is a kink.
        profit = self.rate(middle) - price * middle
        for candidate in (*ends, np.clip(self._kink_near(middle), *ends)):
            at_candidate = self.rate(candidate) - price * candidate
            middle = np.where(at_candidate >= profit, candidate, middle)
            profit = np.maximum(at_candidate, profit)
        return middle

    def _kink_near(self, servers: FloatArray) -> FloatArray:
        """Return where s has a kink that its slope, a difference, could not place exactly.

        That is where the straight lines from the left and from the right meet.
        """
        at = [servers * (1 + side * _STEP) for side in (-4, -2, 2, 4)]
        height = [self.rate(each) for each in at]
        width = np.where(servers > 0, at[1] - at[0], 1.0)
        left, right = (height[1] - height[0]) / width, (height[3] - height[2]) / width
        bends = left > right
        along = height[2] - height[1] - right * (at[2] - at[1])
        return np.where(bends, at[1] + along / np.where(bends, left - right, 1.0), servers)

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


@lru_cache(maxsize=64)
def _hull_of(speedup: Custom, most: float) -> tuple[FloatArray, FloatArray]:
    """Return the corners of the least concave function above the grid, and its slopes.

    On the grid itself slopes need not fall: near 0 they may be lost in rounding.
    """
    grid, values, _ = _grid_of(speedup, most)
    at, height = concave_hull(grid.tolist(), values.tolist())
    return at, np.diff(height) / np.diff(at)


def as_speedup(value: object) -> Speedup:
    """Return a speedup as it is, and wrap a plain function."""
    if isinstance(value, Speedup):
        return value
    if callable(value):
        return Custom(value)
    raise InputError(
        f"a speedup must be PowerLaw, Amdahl, Measured or a concave function, got {value!r}"
    )
