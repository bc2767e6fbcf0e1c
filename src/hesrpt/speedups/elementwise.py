"""The operations of every speedup, for one job or for many.

Arguments and results are arrays. Entry i of a result depends only on entry i of the argument.
A :class:`~hesrpt.speedups.Speedup` applies one function to every entry; a
:class:`~hesrpt.speedups.SpeedupVector` applies the function of job i to entry i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from hesrpt.arrays import FloatArray, IntArray


class Elementwise(ABC):
    """Concave speedup functions, evaluated entry by entry. Nothing is validated here."""

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
    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        """Return the fewest servers in [0, max_servers] that maximise s(k) − price·k."""

    @abstractmethod
    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        """Return the fewest servers that reach ``rate``.

        The result exceeds ``max_servers`` if that many servers cannot reach it.
        """

    def knee(self, saving: FloatArray, max_servers: float) -> FloatArray:
        """Return the greatest k up to ``max_servers`` with ``saving``·s'(k−) ≥ s(k)²."""
        low, high = np.zeros_like(saving), np.full(len(saving), max_servers)
        holds_at_max = saving * self.slope_before(high) >= self.rate(high) ** 2
        for _ in range(60):
            middle = (low + high) / 2
            holds = saving * self.slope_before(middle) >= self.rate(middle) ** 2
            low, high = np.where(holds, middle, low), np.where(holds, high, middle)
        return np.where(holds_at_max, max_servers, low)

    def entries(self, which: slice | IntArray) -> Elementwise:
        """Return the functions of some entries; by default, all entries have the same function."""
        return self
