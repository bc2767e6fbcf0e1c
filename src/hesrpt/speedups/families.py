"""The two families with a formula: the power law of the paper, and Amdahl's law."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedups.speedup import Speedup
from hesrpt.validation import check_number


@dataclass(frozen=True)
class PowerLaw(Speedup):
    """s(k) = k^p with 0 < p < 1, the speedup of the paper.

    >>> PowerLaw(0.5)([1, 4, 9])
    array([1., 2., 3.])
    """

    p: float
    r_squared: float | None = field(default=None, compare=False, repr=False)

    precision = 1e-7

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", check_number("p", self.p))
        if not 0 < self.p < 1:
            raise InputError(f"must lie in (0, 1), got {self.p!r}", argument="p")

    def rate(self, servers: FloatArray) -> FloatArray:
        return servers**self.p

    def slope(self, servers: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return self.p * servers ** (self.p - 1)

    def gain(self, servers: FloatArray) -> FloatArray:
        # The difference of the rates would lose most digits where there are many servers.
        some = np.maximum(servers, 1.0)
        return np.where(servers > 0, some**self.p * np.expm1(self.p * np.log1p(1 / some)), 1.0)

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            return np.minimum((self.p / price) ** (1 / (1 - self.p)), most)

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            return rate ** (1 / self.p)


@dataclass(frozen=True)
class Amdahl(Speedup):
    """s(k) = 1 / (1 − f + f/k): a fraction f of the work is parallel, the rest is serial.

    >>> Amdahl(0.9)(10)
    5.26315789
    """

    parallel_fraction: float
    r_squared: float | None = field(default=None, compare=False, repr=False)

    precision = 1e-7

    def __post_init__(self) -> None:
        f = check_number("parallel_fraction", self.parallel_fraction)
        object.__setattr__(self, "parallel_fraction", f)
        if not 0 < f <= 1:
            raise InputError(f"must lie in (0, 1], got {f!r}", argument="parallel_fraction")

    def rate(self, servers: FloatArray) -> FloatArray:
        f = self.parallel_fraction
        return servers / ((1 - f) * servers + f)

    def slope(self, servers: FloatArray) -> FloatArray:
        f = self.parallel_fraction
        return f / ((1 - f) * servers + f) ** 2

    def gain(self, servers: FloatArray) -> FloatArray:
        f = self.parallel_fraction
        return f / (((1 - f) * servers + f) * ((1 - f) * (servers + 1) + f))

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        f = self.parallel_fraction
        # A price of 0, or f = 1, asks for as many as there are: for more than any `most`.
        wanted = (np.sqrt(f / np.maximum(price, 1e-300)) - f) / np.maximum(1 - f, 1e-150)
        demand: FloatArray = np.minimum(np.maximum(wanted, 0.0), most)
        return demand

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        f = self.parallel_fraction
        serial_time_left = 1 - (1 - f) * rate
        with np.errstate(divide="ignore"):
            return np.where(
                serial_time_left > 0, f * rate / np.maximum(serial_time_left, 0), np.inf
            )
