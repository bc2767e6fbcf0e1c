"""The questions that every speedup answers, for one job or for many.

Arguments and results are arrays, and entry i of a result depends on entry i of the argument alone.
A :class:`~hesrpt.speedups.Speedup` applies one function to every entry; a
:class:`~hesrpt.speedups.SpeedupVector` applies the function of job i to entry i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from hesrpt.arrays import FloatArray, IntArray


class Elementwise(ABC):
    """Concave speedup functions, evaluated entry by entry. Nothing is validated here."""

    #: The relative precision to which the planner must find the price of a server. Job values have
    #: a minimum at the right price, so their error is about the square of this where s is smooth.
    precision = 1e-8

    @abstractmethod
    def rate(self, servers: FloatArray) -> FloatArray:
        """Return s(k)."""

    @abstractmethod
    def slope(self, servers: FloatArray) -> FloatArray:
        """Return the gain per additional server, s'(k+)."""

    def slope_before(self, servers: FloatArray) -> FloatArray:
        """Return the loss per server removed, s'(k−): the slope, except where s has a kink."""
        return self.slope(servers)

    def gain(self, servers: FloatArray) -> FloatArray:
        """Return the gain of one more server, s(k + 1) − s(k), for whole numbers k."""
        return self.rate(servers + 1) - self.rate(servers)

    @abstractmethod
    def demand(self, price: FloatArray, most: float) -> FloatArray:
        """Return the fewest servers in [0, most] that maximise s(k) − price·k."""

    @abstractmethod
    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        """Return the fewest servers that reach ``rate``; more than ``most`` if those do not."""

    def knee(self, saving: FloatArray, most: float) -> FloatArray:
        """Return the greatest k in [0, most] with ``saving``·s'(k−) ≥ s(k)², by bisection."""
        low, high = np.zeros_like(saving), np.full(len(saving), most)
        at_most = saving * self.slope_before(high) >= self.rate(high) ** 2
        for _ in range(60):
            middle = (low + high) / 2
            holds = saving * self.slope_before(middle) >= self.rate(middle) ** 2
            low, high = np.where(holds, middle, low), np.where(holds, high, middle)
        return np.where(at_most, most, low)

    def entries(self, which: slice | IntArray) -> Elementwise:
        """Return the functions of some entries; itself if all entries have one function."""
        return self
