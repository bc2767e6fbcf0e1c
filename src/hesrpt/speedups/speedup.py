"""What every speedup answers: its rate, its slope, and how many servers are worth a price."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.speedups.limits import Limited, TimeShared


class Speedup(ABC):
    """A concave speedup function with s(0) = 0.

    Call it to evaluate s. A family of one's own defines :meth:`rate`, :meth:`slope`,
    :meth:`demand` and :meth:`inverse`, all vectorised; a plain function is wrapped by
    :class:`Custom`, which finds the other three numerically.
    """

    #: How exactly the price of a server must be known. At the right price, values are at their
    #: minimum: where s is smooth, their error is about the square of this.
    precision = 1e-8

    def __call__(self, servers: ArrayLike) -> float | FloatArray:
        """Return the speedup s(k) on ``servers`` servers, a float for a number."""
        try:
            checked = np.asarray(servers, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"servers must be numbers, got {servers!r}") from None
        if not np.all((checked >= 0) & np.isfinite(checked)):
            raise InputError(f"servers must be finite and at least 0, got {servers!r}")
        rate = self.rate(checked)
        return rate if checked.ndim else float(rate)

    @abstractmethod
    def rate(self, servers: FloatArray) -> FloatArray:
        """Return s(k), unchecked."""

    @abstractmethod
    def slope(self, servers: FloatArray) -> FloatArray:
        """Return the gain per additional server, s'(k+)."""

    def slope_before(self, servers: FloatArray) -> FloatArray:
        """Return the loss per server taken away, s'(k−): the slope, except where s has a kink."""
        return self.slope(servers)

    def gain(self, servers: FloatArray) -> FloatArray:
        """Return the gain of one more server, s(k + 1) − s(k), for whole numbers k."""
        return self.rate(servers + 1) - self.rate(servers)

    def steepest(self) -> float:
        """Return a bound on the slope: a job is worth no server at this price or above."""
        return float(self.slope(np.zeros(())))

    @abstractmethod
    def demand(self, price: FloatArray, most: float) -> FloatArray:
        """Return the fewest servers in [0, most] that maximise s(k) − price·k."""

    @abstractmethod
    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        """Return the fewest servers that give ``rate``; more than ``most`` if no fewer do."""

    def check(self, servers: float) -> None:
        """Raise an error if this is no concave speedup on [0, servers]."""
        return  # the families are concave by construction

    def known_on(self, servers: float) -> Speedup:
        """Return a speedup that is this one on [0, servers] and answers everything exactly."""
        return self

    # The speedup of a list of jobs: one and the same for all of them, unless it is `Mixed`.

    def of(self, job: int) -> Speedup:
        """Return the speedup of one job of the list."""
        return self

    def first(self, jobs: int) -> Speedup:
        """Return the speedup of the first ``jobs`` jobs of the list."""
        return self

    def reordered(self, order: IntArray) -> Speedup:
        """Return the speedup of the jobs in another order, or of some of them."""
        return self

    def on_whole_servers(self) -> Speedup:
        """Return this speedup on whole servers, linear between them."""
        from hesrpt.speedups.limits import WholeServers

        return WholeServers(self)

    def limited(self, servers: float) -> Limited:
        """Return this speedup for a job that cannot use more than ``servers`` servers.

        >>> from hesrpt import PowerLaw
        >>> PowerLaw(0.5).limited(4)(9)
        2.0
        """
        from hesrpt.speedups.limits import Limited

        return Limited(self, servers)

    def time_shared(self) -> TimeShared:
        """Return this speedup made linear below one server: half a server is half as fast.

        >>> from hesrpt import PowerLaw
        >>> PowerLaw(0.5).time_shared()([0.25, 1, 4])
        array([0.25, 1.  , 2.  ])
        """
        from hesrpt.speedups.limits import TimeShared

        return TimeShared(self)
