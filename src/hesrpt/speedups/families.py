"""The two families with a formula: the power law of the paper, and Amdahl's law.

Each formula is written once, for a parameter that is a number (the speedup of one job) or an array
(the stacked speedups of many jobs).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedups.speedup import Speedup
from hesrpt.validation import check_number, shorten

#: Below this R², a fit is bad: it explains less than half of the variation of the points.
MIN_R_SQUARED = 0.5


@dataclass(frozen=True)
class Fit:
    """How well a fitted speedup agrees with measured points.

    Points past the peak of a curve that falls again are left out, because no speedup of these
    families falls. R² is that of the points that were fitted.
    """

    r_squared: float  # NaN for a single point
    standard_error: float  # of the parameter; NaN if the points are too few to tell
    first: float  # the fewest servers of the points that were fitted …
    last: float  # … and the most
    points: int  # the number of points that were fitted
    left_out: int  # the number of points past the peak
    problem: str = ""  # why the fit is bad; empty if it is not

    @property
    def is_bad(self) -> bool:
        """Whether R² is below 0.5."""
        return bool(self.problem)


class Fitted:
    """A speedup that may have been fitted to points; ``fit`` is None if it was not."""

    fit: Fit | None

    @property
    def r_squared(self) -> float | None:
        """The R² of the fit; None for a speedup that was not fitted."""
        return None if self.fit is None else self.fit.r_squared

    @property
    def standard_error(self) -> float | None:
        """The standard error of the fitted parameter; None for a speedup that was not fitted."""
        return None if self.fit is None else self.fit.standard_error


@dataclass(frozen=True)
class PowerLaw(Fitted, Speedup):
    """s(k) = k^p with 0 < p < 1, the speedup of the paper.

    >>> PowerLaw(0.5)([1, 4, 9])
    array([1., 2., 3.])
    """

    parameters: ClassVar = ("p",)

    p: float
    fit: Fit | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", check_number("p", self.p))
        if not 0 < self.p < 1:
            raise InputError(f"must lie in (0, 1), got {shorten(self.p)}", argument="p")

    @property
    def exponent(self) -> float:
        return self.p

    def rate(self, servers: FloatArray) -> FloatArray:
        return servers**self.p

    def slope(self, servers: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return self.p * servers ** (self.p - 1)

    def gain(self, servers: FloatArray) -> FloatArray:
        # With many servers, the difference of two rates would lose most digits.
        k = np.maximum(servers, 1.0)
        return np.where(servers > 0, k**self.p * np.expm1(self.p * np.log1p(1 / k)), 1.0)

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            return np.minimum((self.p / price) ** (1 / (1 - self.p)), max_servers)

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            return rate ** (1 / self.p)

    def knee(self, saving: FloatArray, max_servers: float) -> FloatArray:
        return np.minimum((self.p * saving) ** (1 / (1 + self.p)), max_servers)


@dataclass(frozen=True)
class Amdahl(Fitted, Speedup):
    """s(k) = 1 / (1 − f + f/k): a fraction f of the work is parallel, the rest is serial.

    >>> Amdahl(0.9)(10)
    5.26315789
    """

    parameters: ClassVar = ("parallel_fraction",)

    parallel_fraction: float
    fit: Fit | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        f = check_number("parallel_fraction", self.parallel_fraction)
        object.__setattr__(self, "parallel_fraction", f)
        if not 0 < f <= 1:
            raise InputError(f"must lie in (0, 1], got {shorten(f)}", argument="parallel_fraction")

    def rate(self, servers: FloatArray) -> FloatArray:
        f = self.parallel_fraction
        return servers / ((1 - f) * servers + f)

    def slope(self, servers: FloatArray) -> FloatArray:
        f = self.parallel_fraction
        return f / ((1 - f) * servers + f) ** 2

    def gain(self, servers: FloatArray) -> FloatArray:
        f = self.parallel_fraction
        return f / (((1 - f) * servers + f) * ((1 - f) * (servers + 1) + f))

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        f = self.parallel_fraction
        # At a price of 0, or with f = 1, the demand is unlimited. The bounds avoid a division by 0.
        unlimited = (np.sqrt(f / np.maximum(price, 1e-300)) - f) / np.maximum(1 - f, 1e-150)
        demand: FloatArray = np.minimum(np.maximum(unlimited, 0.0), max_servers)
        return demand

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        f = self.parallel_fraction
        parallel_time = 1 - (1 - f) * rate  # what remains of a unit of time after the serial part
        with np.errstate(divide="ignore"):
            return np.where(parallel_time > 0, f * rate / np.maximum(parallel_time, 0), np.inf)

    def knee(self, saving: FloatArray, max_servers: float) -> FloatArray:
        return np.minimum(np.sqrt(self.parallel_fraction * saving), max_servers)
