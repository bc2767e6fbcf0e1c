"""Piecewise linear speedups: measured points, and tables of custom functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.speedups.speedup import Elementwise, Speedup
from hesrpt.units import format_count
from hesrpt.validation import check_non_negative_vector, check_positive_vector

_MAX_STACKED_CORNERS = 64


class PiecewiseLinear(Speedup):
    """A concave piecewise linear function, flat past its last corner."""

    #: The corners, from the origin to the peak: servers and speedups.
    knots: tuple[FloatArray, FloatArray]

    @cached_property
    def slopes(self) -> FloatArray:
        """The slope of each piece."""
        at, height = self.knots
        return np.diff(height) / np.diff(at)

    def rate(self, servers: FloatArray) -> FloatArray:
        return np.interp(servers, *self.knots)

    def slope(self, servers: FloatArray) -> FloatArray:
        return self._slope_of_piece(np.searchsorted(self.knots[0], servers, side="right"))

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return self._slope_of_piece(np.searchsorted(self.knots[0], servers, side="left"))

    def _slope_of_piece(self, piece: IntArray) -> FloatArray:
        slopes: FloatArray = np.append(self.slopes, 0.0)[np.maximum(piece, 1) - 1]
        return slopes

    def gain(self, servers: FloatArray) -> FloatArray:
        # Within a piece, the slope is more exact than the difference of two rates.
        return exact_gain(self, servers)

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        worthwhile = np.searchsorted(-self.slopes, -price, side="left")
        return np.minimum(self.knots[0][worthwhile], max_servers)

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        at, height = self.knots
        # A rate that exceeds the peak only by rounding is reached there.
        return np.where(rate <= height[-1] * (1 + 4e-16), np.interp(rate, height, at), np.inf)

    def stack_key(self) -> Hashable:
        # Large tables are faster to evaluate one by one.
        return PiecewiseLinear if len(self.knots[0]) <= _MAX_STACKED_CORNERS else self

    @classmethod
    def stack(cls, speedups: Sequence[PiecewiseLinear]) -> Elementwise:
        if len(speedups[0].knots[0]) > _MAX_STACKED_CORNERS:
            return speedups[0]
        return PiecewiseLinearStack.create(speedups)

    def on_whole_servers(self) -> Speedup:
        # Away from corners all chords have the same slope, so only the whole numbers next to a
        # corner matter.
        at, height = self.knots
        whole = np.unique(np.concatenate((np.floor(at), np.ceil(at))))
        return Tabulated(*concave_hull(whole.tolist(), np.interp(whole, at, height).tolist()))


def exact_gain(speedup: Elementwise, servers: FloatArray) -> FloatArray:
    """Return s(k + 1) − s(k) of a piecewise linear function: the slope if both are on one piece."""
    slope = speedup.slope(servers)
    difference = speedup.rate(servers + 1) - speedup.rate(servers)
    return np.where(slope == speedup.slope_before(servers + 1), slope, difference)


@dataclass(frozen=True, eq=False)
class Tabulated(PiecewiseLinear):
    """A piecewise linear function with given corners."""

    at: FloatArray
    height: FloatArray

    @property
    def knots(self) -> tuple[FloatArray, FloatArray]:  # type: ignore[override]
        return self.at, self.height

    def __repr__(self) -> str:
        return (
            f"Tabulated({format_count(len(self.at), 'corner')} up to "
            f"{format_count(float(self.at[-1]), 'server')})"
        )


@dataclass(frozen=True)
class Measured(PiecewiseLinear):
    """The least concave function through the origin above all measured points, flat past its peak.

    A measured curve may be noisy or fall again. A job can alternate between two numbers of servers,
    so every chord can be reached. It can also leave servers idle, so more servers never hurt.
    Nothing is extrapolated: past the last point the speedup stays flat.

    >>> Measured([1, 2, 4, 8], [1, 1.8, 3, 2.5])([3, 8, 100])
    array([2.4, 3. , 3. ])
    """

    servers: tuple[float, ...]
    speedups: tuple[float, ...]

    def __init__(self, servers: ArrayLike, speedups: ArrayLike) -> None:
        measured_at = check_positive_vector("servers", servers)
        measured = check_non_negative_vector("speedups", speedups)
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
    def knots(self) -> tuple[FloatArray, FloatArray]:  # type: ignore[override]
        """The corners of the concave function, from the origin to its peak."""
        points = sorted(zip(self.servers, self.speedups, strict=True))
        return concave_hull(*zip((0.0, 0.0), *points, strict=True))


@dataclass(frozen=True, eq=False)
class PiecewiseLinearStack(Elementwise):
    """Piecewise linear speedups, evaluated together: row i has the corners of entry i."""

    parameters: ClassVar = ("at", "height", "slopes")

    at: FloatArray
    height: FloatArray
    slopes: FloatArray

    @classmethod
    def create(cls, speedups: Sequence[PiecewiseLinear]) -> PiecewiseLinearStack:
        """Return a stack of speedups."""
        shape = len(speedups), max(len(speedup.knots[0]) for speedup in speedups)
        # Rows are padded: past its last corner a function is flat and has no further corner.
        at, height, slopes = np.full(shape, np.inf), np.full(shape, np.inf), np.zeros(shape)
        for row, speedup in enumerate(speedups):
            corners = len(speedup.knots[0])
            at[row, :corners], height[row, :corners] = speedup.knots
            slopes[row, : corners - 1] = speedup.slopes
        return cls(at, height, slopes)

    def rate(self, servers: FloatArray) -> FloatArray:
        piece = self._piece(self.at <= self._column(servers))
        along = self._column(servers) - _pick(self.at, piece)
        rate: FloatArray = (_pick(self.height, piece) + _pick(self.slopes, piece) * along)[:, 0]
        return rate

    def slope(self, servers: FloatArray) -> FloatArray:
        return _pick(self.slopes, self._piece(self.at <= self._column(servers)))[:, 0]

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return _pick(self.slopes, self._piece(self.at < self._column(servers)))[:, 0]

    def gain(self, servers: FloatArray) -> FloatArray:
        return exact_gain(self, servers)

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        worthwhile = np.sum(self.slopes > self._column(price), axis=1, keepdims=True)
        return np.minimum(_pick(self.at, worthwhile)[:, 0], max_servers)

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        # A rate that exceeds the peak only by rounding is reached there.
        rates = self._column(rate)
        peak = np.max(self.height, axis=1, where=np.isfinite(self.height), initial=0.0)[:, None]
        piece = self._piece(self.height < np.minimum(rates, peak))
        slope = _pick(self.slopes, piece)
        along = (np.minimum(rates, peak) - _pick(self.height, piece)) / np.where(
            slope > 0, slope, 1
        )
        return np.where(rates <= peak * (1 + 4e-16), _pick(self.at, piece) + along, np.inf)[:, 0]

    def _column(self, values: FloatArray) -> FloatArray:
        return np.broadcast_to(values, len(self.at))[:, None]

    def _piece(self, has_begun: BoolArray) -> IntArray:
        piece: IntArray = np.maximum(np.sum(has_begun, axis=1, keepdims=True) - 1, 0)
        return piece


def _pick(rows: FloatArray, column: IntArray) -> FloatArray:
    return np.take_along_axis(rows, column, axis=1)


def concave_hull(at: Iterable[float], height: Iterable[float]) -> tuple[FloatArray, FloatArray]:
    """Return the corners of the least concave function above points, up to its peak.

    The points must be sorted from left to right.
    """
    hull: list[tuple[float, float]] = []
    for x, y in zip(at, height, strict=True):
        if hull and y <= hull[-1][1]:
            continue  # the function is flat here, or the point lies below a chord
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    xs, ys = zip(*hull, strict=True)
    return np.array(xs), np.array(ys)


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])
