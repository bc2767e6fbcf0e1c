"""Speedups from plain functions and from JSON.

Slope, demand and inverse of a plain function are found numerically.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedups import families
from hesrpt.speedups.families import PowerLaw
from hesrpt.speedups.limits import Limited, TimeShared, WholeServers
from hesrpt.speedups.measured import Measured, Tabulated
from hesrpt.speedups.speedup import Speedup
from hesrpt.units import format_count

# The step of difference quotients, relative to the servers.
_STEP = 1e-6
# The relative error that a table may have.
_TABLE_ERROR = 1e-9
_MAX_HALVINGS = 40


@dataclass(frozen=True, eq=False)
class Custom(Speedup):
    """Any vectorised concave function with s(0) = 0.

    Slope, demand and inverse are found numerically.

    >>> Custom(np.log1p)(1)
    0.69314718
    """

    function: Callable[[FloatArray], FloatArray]

    # Compare functions by identity: a callable object may define equality and not be hashable.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and other.function is self.function

    def __hash__(self) -> int:
        return id(self.function)

    def rate(self, servers: FloatArray) -> FloatArray:
        # Pass a one-dimensional copy: functions may work in place or support only one dimension.
        checked = np.array(servers, dtype=np.float64, ndmin=1)
        if checked.size == 0:
            return checked
        try:
            values = np.asarray(self.function(checked.copy()), dtype=np.float64)
        except Exception as error:  # a custom function may raise anything
            raise InputError(
                "the speedup function must take an array of servers and return an array of the "
                f"same length, but it failed: {type(error).__name__}: {error}"
            ) from error
        if values.shape != checked.shape:
            raise InputError(
                "the speedup function must return one number per entry: for an array of shape "
                f"{checked.shape}, it returned shape {values.shape}"
            )
        return values.reshape(np.shape(servers))

    def slope(self, servers: FloatArray) -> FloatArray:
        step = np.maximum(servers, 1e-12) * _STEP
        low, high = np.maximum(servers - step, 0.0), servers + step
        return (self.rate(high) - self.rate(low)) / (high - low)

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        return self.tabulate(max_servers).demand(price, max_servers)

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        return self.tabulate(max_servers).inverse(rate, max_servers)

    def tabulate(self, servers: float) -> Speedup:
        return _tabulate(self, float(servers))

    def check(self, servers: float) -> None:
        if (at_zero := float(self.rate(np.zeros(1))[0])) != 0:
            raise InputError(f"a speedup function must be 0 on 0 servers, got {at_zero!r}")
        grid, values, slopes = _evaluate_on_grid(self, float(servers))
        is_finite = np.isfinite(values)
        if not is_finite.all():
            at = float(grid[np.argmin(is_finite)])
            raise InputError(
                f"a speedup function must be finite, but it is not at {format_count(at, 'server')}"
            )
        if slopes[0] <= 0:
            raise InputError("a speedup function must grow from 0, but it does not")
        # A chord is only as exact as the values at its ends. These may be differences of numbers
        # near 1 (as in 1 − exp(−k)), or of numbers as large as the function's maximum.
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
def _evaluate_on_grid(
    speedup: Custom, max_servers: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return servers, speedups and chord slopes on a grid over [0, max_servers], finer near 0."""
    grid = np.concatenate(([0.0], max_servers * np.geomspace(1e-12, 1.0, 2000)))
    values = speedup.rate(grid)
    return grid, values, np.diff(values) / np.diff(grid)


@lru_cache(maxsize=16)
def _tabulate(speedup: Custom, max_servers: float) -> Tabulated:
    """Return a piecewise linear function whose difference from the speedup is negligible.

    Pieces are halved until the function at the middle of each is close to the chord. This adds many
    pieces where the function is curved, and few at a kink.
    """
    at, height, _ = _evaluate_on_grid(speedup, max_servers)
    peak = float(height.max())
    rounding = 4e-16 * max(peak, 1.0)
    open_pieces = np.ones(len(at) - 1, dtype=bool)
    for _ in range(_MAX_HALVINGS):
        left, right = at[:-1][open_pieces], at[1:][open_pieces]
        middle = np.where(left > 0, np.sqrt(left) * np.sqrt(right), right / 2)
        at_middle = speedup.rate(middle)
        part = (middle - left) / (right - left)
        low, high = height[:-1][open_pieces], height[1:][open_pieces]
        far = np.abs(at_middle - (low + part * (high - low))) > (
            _TABLE_ERROR * (np.abs(at_middle) + 1e-4 * peak) + rounding
        )
        far &= (middle > left) & (middle < right)
        if not far.any():
            break
        places = np.flatnonzero(open_pieces)
        at = np.insert(at, places + 1, middle)
        height = np.insert(height, places + 1, at_middle)
        # Check both halves of each piece that was far from its chord.
        again = np.zeros(len(at) - 1, dtype=bool)
        new_places = places + np.arange(len(places))
        again[new_places[far]] = again[new_places[far] + 1] = True
        open_pieces = again
    # Cut off the nearly flat end: the last digits are not worth a server.
    last = int(np.argmax(height >= height.max() * (1 - 1e-12))) + 1
    at, height = at[:last], height[:last]
    # If rounding made the table slightly convex, use the closest falling slopes.
    slopes = np.diff(height) / np.diff(at)
    if np.any(slopes[1:] > slopes[:-1]):
        from scipy.optimize import isotonic_regression

        slopes = isotonic_regression(slopes, weights=np.diff(at), increasing=False).x
    slopes = np.maximum(slopes, 0.0)
    height = np.concatenate(([0.0], np.cumsum(slopes * np.diff(at))))
    corners = np.concatenate(([True], slopes[1:] < slopes[:-1], [True]))
    return Tabulated(at[corners], height[corners])


def as_speedup(value: object) -> Speedup:
    """Return the value if it is a speedup; wrap it in :class:`Custom` if it is a function."""
    if isinstance(value, Speedup):
        return value
    if callable(value):
        return Custom(value)
    is_power = isinstance(value, float) and 0 < value < 1
    hint = f"; for a power law, use PowerLaw({value})" if is_power else ""
    raise InputError(
        f"a speedup must be PowerLaw, Amdahl, Measured or a concave function, got {value!r}{hint}"
    )


# The families whose parameters are numbers, lists of numbers or other speedups.
_FAMILIES: dict[str, type[Speedup]] = {
    family.__name__: family
    for family in (*vars(families).values(), Measured, Limited, TimeShared, WholeServers)
    if is_dataclass(family) and isinstance(family, type) and issubclass(family, Speedup)
}


def speedup_to_json(speedup: Speedup) -> Any:
    """Return the p of a power law, a family with its parameters, or None for a function.

    >>> speedup_to_json(families.Amdahl(0.9).limited(4))
    {'family': 'Limited', 'base': {'family': 'Amdahl', 'parallel_fraction': 0.9}, 'limit': 4.0}
    """
    if type(speedup) is PowerLaw:
        return speedup.p
    family = _FAMILIES.get(type(speedup).__name__)
    if family is None or type(speedup) is not family:
        return None
    names = [field.name for field in fields(speedup) if field.compare]  # type: ignore[arg-type]
    values = {name: getattr(speedup, name) for name in names}
    if isinstance(base := values.get("base"), Speedup):
        values["base"] = speedup_to_json(base)
        if values["base"] is None:
            return None
    return {"family": family.__name__, **values}


def speedup_from_json(value: Any) -> Speedup | None:
    """Return the speedup that :func:`speedup_to_json` described."""
    if not isinstance(value, dict):
        return None if value is None else PowerLaw(value)
    values = {name: each for name, each in value.items() if name != "family"}
    if "base" in values:
        values["base"] = speedup_from_json(values["base"])
    return _FAMILIES[value["family"]](**values)
