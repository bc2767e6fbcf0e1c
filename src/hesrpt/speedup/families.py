"""The two families with a formula: the power law of the paper, and Amdahl's law."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError, number
from hesrpt.speedup.base import Speedup


@dataclass(frozen=True)
class PowerLaw(Speedup):
    """s(k) = k^p with 0 < p < 1, the speedup of the paper.

    >>> PowerLaw(0.5)([1, 4, 9])
    array([1., 2., 3.])
    """

    p: float
    r_squared: float | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < number("p", self.p) < 1:
            raise InputError(f"p must lie in (0, 1), got {self.p!r}")

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

    def __post_init__(self) -> None:
        if not 0 < number("parallel_fraction", self.parallel_fraction) <= 1:
            raise InputError(
                f"parallel_fraction must lie in (0, 1], got {self.parallel_fraction!r}"
            )

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
        # √f (1 − √(f·price)) / √price / (1 − f), and a step from `most` to 0 where f = 1.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            wanted = (np.sqrt(f / price) - f) / (1 - f)
        # NaN stands for 0/0: f = 1 below its price, where every server is worth having.
        return np.where(price * f < 1, np.fmin(wanted, most), 0.0)

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        f = self.parallel_fraction
        serial_time_left = 1 - (1 - f) * rate
        with np.errstate(divide="ignore"):
            return np.where(
                serial_time_left > 0, f * rate / np.maximum(serial_time_left, 0), np.inf
            )
