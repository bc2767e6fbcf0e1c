"""The speedup function of one job."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedups.elementwise import Elementwise

if TYPE_CHECKING:
    from hesrpt.speedups.limits import Limited, TimeShared


class Speedup(Elementwise):
    """A concave speedup function with s(0) = 0.

    Call it to evaluate s. To add a family, define :meth:`rate`, :meth:`slope`, :meth:`demand` and
    :meth:`inverse`, all vectorised. A plain function needs none of this: it is wrapped in
    :class:`Custom`, which finds the other three numerically.
    """

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

    def max_slope(self) -> float:
        """Return the slope at 0, the greatest of all: at this price or above, the demand is 0."""
        return float(self.slope(np.zeros(())))

    @property
    def exponent(self) -> float | None:
        """The p of a power law, also of one that is limited or time-shared; otherwise None."""
        return None

    @property
    def closest_exponent(self) -> float:
        """The p of a power law; for other speedups, the p that agrees on 1 and 8 servers."""
        if self.exponent is not None:
            return self.exponent
        return float(np.log(float(self(8.0)) / float(self(1.0))) / np.log(8.0))

    def check(self, servers: float) -> None:
        """Raise an error if the function is not concave on [0, servers]."""
        return  # the families are concave by construction

    def tabulate(self, servers: float) -> Speedup:
        """Return this speedup on [0, servers] in a form whose demand and inverse are exact.

        That is a table for a custom function, and the speedup itself for all others.
        """
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

    # A SpeedupVector evaluates speedups of one family together, with arrays for their parameters.

    def stack_key(self) -> Hashable:
        """Return a key that is equal for speedups that can be stacked."""
        return self

    @classmethod
    def stack(cls, speedups: Sequence[Self]) -> Elementwise:
        """Return speedups with the same stack key as one object, one entry for each of them."""
        return speedups[0]  # by default only equal speedups have the same key


def stack_speedups(speedups: Sequence[Speedup]) -> Elementwise:
    """Return speedups with the same stack key as one object, one entry for each of them."""
    return type(speedups[0]).stack(speedups)
