"""Speedups made from other speedups: limited, time-shared, on whole servers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedups.speedup import Speedup
from hesrpt.validation import check_positive


@dataclass(frozen=True)
class Limited(Speedup):
    """``base`` for a job that cannot use more than ``limit`` servers: flat beyond."""

    base: Speedup
    limit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", check_positive("the limit of a speedup", self.limit))

    def rate(self, servers: FloatArray) -> FloatArray:
        return self.base.rate(np.minimum(servers, self.limit))

    def slope(self, servers: FloatArray) -> FloatArray:
        return np.where(servers < self.limit, self.base.slope(servers), 0.0)

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return np.where(servers <= self.limit, self.base.slope_before(servers), 0.0)

    def gain(self, servers: FloatArray) -> FloatArray:
        return np.where(servers + 1 <= self.limit, self.base.gain(servers), super().gain(servers))

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        return np.minimum(self.base.demand(price, self._most(most)), self.limit)

    def _most(self, most: float) -> float:
        """Return the most that can be used; a stack of limits leaves that to the minimum."""
        return min(most, self.limit) if np.ndim(self.limit) == 0 else most

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        best = self.demand(np.zeros_like(rate), max(most, float(np.max(self.limit))))
        # A rate within rounding of the greatest one is attained there.
        attained = rate <= self.base.rate(best) * (1 + 4e-16)
        servers = self.base.inverse(rate, self._most(most))
        return np.where(attained, np.minimum(servers, best), np.inf)

    def check(self, servers: float) -> None:
        self.base.check(min(servers, self.limit))

    def known_on(self, servers: float) -> Speedup:
        known = self.base.known_on(min(servers, self.limit))
        return self if known is self.base else Limited(known, self.limit)


@dataclass(frozen=True)
class TimeShared(Speedup):
    """``base`` made linear below one server, where servers are shared in time."""

    base: Speedup

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

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        at_least_one = np.maximum(self.base.demand(price, most), 1.0)
        return np.where(price < self._at_one, np.minimum(at_least_one, most), 0.0)

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        return np.where(
            rate < self._at_one,
            rate / self._at_one,
            np.maximum(self.base.inverse(np.maximum(rate, self._at_one), most), 1.0),
        )

    def check(self, servers: float) -> None:
        self.base.check(max(servers, 1.0))
        if (at_one := float(np.min(self._at_one))) <= 0:
            raise InputError(
                f"a speedup shared in time must be greater than 0 on one server, got {at_one!r}"
            )

    def known_on(self, servers: float) -> Speedup:
        known = self.base.known_on(max(servers, 1.0))
        return self if known is self.base else TimeShared(known)


@dataclass(frozen=True)
class WholeServers(Speedup):
    """``base`` on whole servers, and its chords between them: switching back and forth in time.

    The chords make it concave again, so the planner needs no second method for whole servers: its
    demand is always a whole number, and so is every allocation that it leads to.
    """

    base: Speedup

    def rate(self, servers: FloatArray) -> FloatArray:
        below = np.floor(servers)
        return self.base.rate(below) + (servers - below) * self.base.gain(below)

    def slope(self, servers: FloatArray) -> FloatArray:
        return self.base.gain(np.floor(servers))

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return self.base.gain(np.maximum(np.ceil(servers), 1.0) - 1)

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        # By concavity the last worthwhile server is the one below or above the continuous demand.
        below = np.floor(self.base.demand(price, most))
        one_more = self.base.gain(below) > price
        wanted: FloatArray = np.minimum(below + one_more, most)
        return wanted

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        # A chord meets the function at its ends, so the interval is the one of the function.
        exact = self.base.inverse(rate, most)
        below = np.floor(np.where(np.isfinite(exact), exact, 0.0))
        gain = self.base.gain(below)
        part = (rate - self.base.rate(below)) / np.where(gain > 0, gain, 1.0)
        return np.where(np.isfinite(exact), below + np.clip(part, 0.0, 1.0), np.inf)

    def check(self, servers: float) -> None:
        self.base.check(servers)

    def known_on(self, servers: float) -> Speedup:
        known = self.base.known_on(servers)
        return self if known is self.base else known.on_whole_servers()
