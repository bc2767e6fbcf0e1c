"""A speedup known only by measured points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError, non_negative_vector, positive_vector
from hesrpt.speedup.base import Speedup


@dataclass(frozen=True)
class Measured(Speedup):
    """The least concave function through the origin above all measured points, flat past its peak.

    A measured curve may be noisy or fall again. Between two points a job can switch back and forth
    between them in time, so the chord is attainable; past the peak it can leave servers idle, so
    more servers never hurt. Nothing is extrapolated: past the last point the speedup stays flat.

    >>> Measured([1, 2, 4, 8], [1, 1.8, 3, 2.5])([3, 8, 100])
    array([2.4, 3. , 3. ])
    """

    servers: tuple[float, ...]
    speedups: tuple[float, ...]

    def __init__(self, servers: ArrayLike, speedups: ArrayLike) -> None:
        measured_at = positive_vector("servers", servers)
        measured = non_negative_vector("speedups", speedups)
        if len(measured_at) != len(measured):
            raise InputError(
                f"servers and speedups must have the same length, got {len(measured_at)} and "
                f"{len(measured)}"
            )
        if not measured.any():
            raise InputError("speedups must have an entry greater than 0")
        object.__setattr__(self, "servers", tuple(measured_at.tolist()))
        object.__setattr__(self, "speedups", tuple(measured.tolist()))

    @cached_property
    def knots(self) -> tuple[FloatArray, FloatArray]:
        """The corners of the concave function, from the origin to its peak."""
        hull = [(0.0, 0.0)]
        for x, y in sorted(zip(self.servers, self.speedups, strict=True)):
            if y <= hull[-1][1]:
                continue  # no gain: the function is flat here, or the point lies below a chord
            while len(hull) > 1 and _turns_up(hull[-2], hull[-1], (x, y)):
                hull.pop()
            hull.append((x, y))
        xs, ys = zip(*hull, strict=True)
        return np.array(xs), np.array(ys)

    @cached_property
    def _slopes(self) -> FloatArray:
        at, height = self.knots
        return np.diff(height) / np.diff(at)

    def rate(self, servers: FloatArray) -> FloatArray:
        return np.interp(servers, *self.knots)

    def slope(self, servers: FloatArray) -> FloatArray:
        return self._slope_of_piece(np.searchsorted(self.knots[0], servers, side="right"))

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return self._slope_of_piece(np.searchsorted(self.knots[0], servers, side="left"))

    def _slope_of_piece(self, piece: IntArray) -> FloatArray:
        slopes: FloatArray = np.append(self._slopes, 0.0)[np.maximum(piece, 1) - 1]
        return slopes

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        worthwhile = np.searchsorted(-self._slopes, -price, side="left")
        return np.minimum(self.knots[0][worthwhile], most)

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        at, height = self.knots
        # A rate within rounding of the peak is attained there.
        return np.where(rate <= height[-1] * (1 + 4e-16), np.interp(rate, height, at), np.inf)


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])
