"""The jobs: their sizes, speedups, weights and names, checked once and frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import FloatArray
from hesrpt.errors import (
    InputError,
    non_negative_vector,
    positive_vector,
    same_length,
)
from hesrpt.speedup import Mixed, Speedup, as_speedup

SpeedupLike: TypeAlias = Speedup | Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, init=False, eq=False)
class Workload:
    """A set of parallel jobs.

    Parameters
    ----------
    sizes
        The work of each job, in seconds on one server (where s(1) = 1).
    speedup
        One speedup for all jobs, or a list with one for each: a :class:`~hesrpt.PowerLaw`,
        :class:`~hesrpt.Amdahl`, :class:`~hesrpt.Measured`, or any concave function.
    arrivals
        When each job arrives; all at time 0 by default.
    weights
        How much a second of each job's flow time counts, for ``objective="weighted"``.
    names
        A name for each job; its number (from 0) by default.

    >>> from hesrpt import PowerLaw
    >>> Workload(sizes=[9, 4, 1], speedup=PowerLaw(0.5))
    <Workload of 3 jobs, sizes 1 to 9, PowerLaw(p=0.5)>
    """

    sizes: FloatArray
    speedup: Speedup
    arrivals: FloatArray | None
    weights: FloatArray | None
    given_names: tuple[str, ...] | None

    def __init__(
        self,
        sizes: ArrayLike,
        speedup: SpeedupLike | Sequence[SpeedupLike],
        *,
        arrivals: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        def keep(name: str, value: object) -> None:
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

        keep("sizes", positive_vector("sizes", sizes))
        if len(self.sizes) == 0:
            raise InputError("sizes must name at least one job, got an empty list")
        keep("speedup", _shared_or_mixed(speedup, len(self)))
        keep("arrivals", None if arrivals is None else non_negative_vector("arrivals", arrivals))
        keep("weights", None if weights is None else positive_vector("weights", weights))
        if names is not None and (isinstance(names, str) or not isinstance(names, Iterable)):
            raise InputError(f"names must be a list with one name per job, got {names!r}")
        keep("given_names", None if names is None else tuple(str(name) for name in names))
        for name, values in (
            ("arrivals", self.arrivals),
            ("weights", self.weights),
            ("names", self.given_names),
        ):
            if values is not None:
                same_length(name, values, len(self))

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        speedup = "a speedup for each" if isinstance(self.speedup, Mixed) else self.speedup
        jobs = "1 job" if len(self) == 1 else f"{len(self)} jobs"
        return (
            f"<Workload of {jobs}, sizes {self.sizes.min():g} to {self.sizes.max():g}, {speedup}>"
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each job."""
        return self.given_names or tuple(str(job) for job in range(len(self)))

    @property
    def shared(self) -> bool:
        """Whether all jobs have the same speedup."""
        return not isinstance(self.speedup, Mixed)


def _shared_or_mixed(speedup: SpeedupLike | Sequence[SpeedupLike], jobs: int) -> Speedup:
    if isinstance(speedup, np.ndarray):
        speedup = speedup.tolist()
    if isinstance(speedup, str) or not isinstance(speedup, Sequence):
        return as_speedup(speedup)
    same_length("speedup", speedup, jobs)
    each = [as_speedup(one) for one in speedup]
    return each[0] if all(one == each[0] for one in each) else Mixed(each)
