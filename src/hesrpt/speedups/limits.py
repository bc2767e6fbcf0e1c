"""Speedups built from other speedups: limited, time-shared, or on whole servers.

As in :mod:`hesrpt.speedups.families`, formulas serve one job as well as the stacked speedups of
many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedups.speedup import Speedup
from hesrpt.validation import check_positive


@final
@dataclass(frozen=True)
class Limited(Speedup):
    """``base`` for a job that cannot use more than ``limit`` servers: flat beyond."""

    parameters: ClassVar = ("base", "limit")

    base: Speedup
    limit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", check_positive("the limit of a speedup", self.limit))

    @property
    def exponent(self) -> float | None:
        return self.base.exponent

    def check(self, servers: float) -> None:
        self.base.check(min(servers, self.limit))

    def tabulate(self, servers: float) -> Speedup:
        tabulated = self.base.tabulate(min(servers, self.limit))
        return self if tabulated is self.base else Limited(tabulated, self.limit)

    def rate(self, servers: FloatArray) -> FloatArray:
        return self.base.rate(np.minimum(servers, self.limit))

    def slope(self, servers: FloatArray) -> FloatArray:
        return np.where(servers < self.limit, self.base.slope(servers), 0.0)

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return np.where(servers <= self.limit, self.base.slope_before(servers), 0.0)

    def gain(self, servers: FloatArray) -> FloatArray:
        return np.where(servers + 1 <= self.limit, self.base.gain(servers), super().gain(servers))

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        usable = min(max_servers, self._highest_limit)
        return np.minimum(self.base.demand(price, usable), self.limit)

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        best = self.demand(np.zeros_like(rate), max(max_servers, self._highest_limit))
        # A rate that exceeds the greatest one only by rounding is reached there.
        reached = rate <= self.base.rate(best) * (1 + 4e-16)
        servers = self.base.inverse(rate, min(max_servers, self._highest_limit))
        return np.where(reached, np.minimum(servers, best), np.inf)

    @cached_property
    def _highest_limit(self) -> float:
        return float(np.max(self.limit))


@final
@dataclass(frozen=True)
class TimeShared(Speedup):
    """``base`` made linear below one server, where servers are shared in time."""

    parameters: ClassVar = ("base",)

    base: Speedup

    @property
    def exponent(self) -> float | None:
        return self.base.exponent

    def check(self, servers: float) -> None:
        self.base.check(max(servers, 1.0))
        if (at_one := float(self._at_one)) <= 0:
            raise InputError(
                f"a time-shared speedup must be greater than 0 on one server, got {at_one!r}"
            )

    def tabulate(self, servers: float) -> Speedup:
        tabulated = self.base.tabulate(max(servers, 1.0))
        return self if tabulated is self.base else TimeShared(tabulated)

    @cached_property
    def _at_one(self) -> FloatArray:
        return self.base.rate(np.asarray(1.0))

    def rate(self, servers: FloatArray) -> FloatArray:
        return np.where(
            servers < 1, servers * self._at_one, self.base.rate(np.maximum(servers, 1.0))
        )

    def slope(self, servers: FloatArray) -> FloatArray:
        return np.where(servers < 1, self._at_one, self.base.slope(np.maximum(servers, 1.0)))

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return np.where(
            servers <= 1, self._at_one, self.base.slope_before(np.maximum(servers, 1.0))
        )

    def gain(self, servers: FloatArray) -> FloatArray:
        return self.base.gain(servers)

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        at_least_one = np.maximum(self.base.demand(price, max_servers), 1.0)
        return np.where(price < self._at_one, np.minimum(at_least_one, max_servers), 0.0)

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        return np.where(
            rate < self._at_one,
            rate / self._at_one,
            np.maximum(self.base.inverse(np.maximum(rate, self._at_one), max_servers), 1.0),
        )


@final
@dataclass(frozen=True)
class WholeServers(Speedup):
    """``base`` on whole servers, and its chords between them: switching back and forth in time.

    The chords make it concave again, so the planner needs no second method for whole servers: its
    demand is always a whole number, and so is every allocation that it leads to.
    """

    parameters: ClassVar = ("base",)

    base: Speedup

    def check(self, servers: float) -> None:
        self.base.check(servers)

    def tabulate(self, servers: float) -> Speedup:
        tabulated = self.base.tabulate(servers)
        return self if tabulated is self.base else tabulated.on_whole_servers()

    def rate(self, servers: FloatArray) -> FloatArray:
        below = np.floor(servers)
        return self.base.rate(below) + (servers - below) * self.base.gain(below)

    def slope(self, servers: FloatArray) -> FloatArray:
        return self.base.gain(np.floor(servers))

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return self.base.gain(np.maximum(np.ceil(servers), 1.0) - 1)

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        # By concavity the last worthwhile server is the one below or above the continuous demand.
        below = np.floor(self.base.demand(price, max_servers))
        one_more = self.base.gain(below) > price
        demand: FloatArray = np.minimum(below + one_more, max_servers)
        return demand

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        # A chord meets the function at both ends, so the inverses of the two lie between the same
        # whole numbers.
        exact = self.base.inverse(rate, max_servers)
        below = np.floor(np.where(np.isfinite(exact), exact, 0.0))
        gain = self.base.gain(below)
        part = (rate - self.base.rate(below)) / np.where(gain > 0, gain, 1.0)
        return np.where(np.isfinite(exact), below + np.clip(part, 0.0, 1.0), np.inf)
