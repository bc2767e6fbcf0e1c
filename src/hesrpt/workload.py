"""The jobs of a study: sizes, speedups, arrivals, weights and names, checked once and frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.speedups import Speedup, SpeedupVector, as_speedup
from hesrpt.units import format_count
from hesrpt.validation import (
    check_non_negative_vector,
    check_positive,
    check_positive_vector,
    check_same_length,
    check_whole_number,
)

SpeedupLike: TypeAlias = Speedup | Callable[[FloatArray], FloatArray]
# What a workload may say of each job in an array.
_OF_EACH_JOB = ("arrivals", "weights", "requested", "estimates", "rigid")
SizeSampler: TypeAlias = Callable[[np.random.Generator, int], FloatArray]


@dataclass(frozen=True, init=False, eq=False)
class Workload:
    """A set of parallel jobs.

    Parameters
    ----------
    sizes
        The time that each job takes on one server (where s(1) = 1), in any unit.
    speedup
        One speedup for all jobs, or a list with one for each: a :class:`~hesrpt.PowerLaw`,
        :class:`~hesrpt.Amdahl`, :class:`~hesrpt.Measured`, or any concave function.
    arrivals
        The arrival time of each job; by default all jobs arrive at time 0.
    weights
        The cost of each unit of a job's flow time, for ``objective="weighted"``.
    names
        The name of each job; by default its number, from 0.
    requested
        The number of servers that each job's user requested. Rigid policies give a job exactly this
        many.
    estimates
        The user's estimate of each job's run time on the requested servers, for policies that plan
        ahead; by default the actual run time. A job may run longer than estimated: no policy
        foresees that.
    rigid
        Whether each job must run on the servers that it requested from start to end, whatever the
        policy; by default none must. Malleable policies share the servers that rigid jobs leave.

    >>> from hesrpt import PowerLaw
    >>> Workload(sizes=[9, 4, 1], speedup=PowerLaw(0.5))
    <Workload of 3 jobs, sizes 1 to 9, PowerLaw(p=0.5)>
    """

    sizes: FloatArray
    speedups: SpeedupVector
    arrivals: FloatArray | None
    weights: FloatArray | None
    given_names: tuple[str, ...] | None
    requested: FloatArray | None
    estimates: FloatArray | None
    rigid: BoolArray | None

    def __init__(
        self,
        sizes: ArrayLike,
        speedup: SpeedupLike | Sequence[SpeedupLike],
        *,
        arrivals: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        requested: ArrayLike | None = None,
        estimates: ArrayLike | None = None,
        rigid: ArrayLike | None = None,
    ) -> None:
        def set_frozen(name: str, value: object) -> None:
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

        set_frozen("sizes", check_positive_vector("sizes", sizes))
        if len(self.sizes) == 0:
            raise InputError("must have at least one entry, got an empty list", argument="sizes")
        set_frozen("speedups", _create_speedups(speedup, len(self)))
        for name, given, check in (
            ("arrivals", arrivals, check_non_negative_vector),
            ("weights", weights, check_positive_vector),
            ("requested", requested, check_positive_vector),
            ("estimates", estimates, check_positive_vector),
        ):
            values = None if given is None else check(name, given)
            if values is not None:
                check_same_length(name, values, len(self))
            set_frozen(name, values)
        if names is not None and (isinstance(names, str) or not isinstance(names, Iterable)):
            raise InputError(
                f"must be a list with one name per job, got {names!r}", argument="names"
            )
        set_frozen("given_names", None if names is None else tuple(str(name) for name in names))
        set_frozen("rigid", None if rigid is None else _check_rigid(rigid, self.requested))
        for name, entries in (("rigid", self.rigid), ("names", self.given_names)):
            if entries is not None:
                check_same_length(name, entries, len(self))

    @classmethod
    def pareto(
        cls,
        jobs: int,
        *,
        speedup: SpeedupLike | Sequence[SpeedupLike],
        shape: float = 1.5,
        minimum: float = 1.0,
        seed: int = 0,
    ) -> Workload:
        """Create a batch of jobs with Pareto-distributed sizes: P(X > x) = (minimum/x)^shape.

        >>> from hesrpt import PowerLaw, Workload
        >>> Workload.pareto(500, shape=1.5, seed=1, speedup=PowerLaw(0.3))
        <Workload of 500 jobs, sizes 1.0017 to 274.592, PowerLaw(p=0.3)>
        """
        rng, jobs = np.random.default_rng(seed), check_whole_number("jobs", jobs, minimum=1)
        sizes = check_positive("minimum", minimum) * (
            rng.pareto(check_positive("shape", shape), jobs) + 1
        )
        return cls(sizes, speedup)

    @classmethod
    def poisson(
        cls,
        rate: float,
        jobs: int,
        *,
        speedup: SpeedupLike | Sequence[SpeedupLike],
        sizes: str | SizeSampler = "exponential",
        mean_size: float = 1.0,
        seed: int = 0,
    ) -> Workload:
        """Create jobs that arrive in a Poisson process, ``rate`` per unit of time on average.

        ``sizes`` is "exponential", "deterministic", "pareto" (shape 1.5), "hyperexponential" (one
        job in ten is large, and the large jobs are 90% of the work), or a function that takes a
        random generator and a number of jobs and returns their sizes. Sizes are multiplied by
        ``mean_size``.

        >>> from hesrpt import PowerLaw, Workload
        >>> Workload.poisson(rate=30, jobs=1000, seed=2, speedup=PowerLaw(0.5))
        <Workload of 1,000 jobs, sizes 0.00112 to 7.84, PowerLaw(p=0.5), arriving until 30.9>
        """
        rng, jobs = np.random.default_rng(seed), check_whole_number("jobs", jobs, minimum=1)
        arrivals = np.cumsum(rng.exponential(1 / check_positive("rate", rate), jobs))
        if isinstance(sizes, str):
            if sizes not in SIZES:
                raise InputError(
                    f"must be one of {', '.join(SIZES)} or a function, got {sizes!r}",
                    argument="sizes",
                )
            sizes = SIZES[sizes]
        sampled = np.asarray(sizes(rng, jobs), dtype=np.float64)
        return cls(check_positive("mean_size", mean_size) * sampled, speedup, arrivals=arrivals)

    def head(self, jobs: int) -> Workload:
        """Return the first ``jobs`` jobs to arrive; of a batch, the first in the list."""
        jobs = check_whole_number("jobs", jobs, minimum=1)
        if self.arrivals is None:
            first = np.arange(min(jobs, len(self)))
        else:
            first = np.sort(np.argsort(self.arrivals, kind="stable")[:jobs])
        return self.take(first)

    def take(self, jobs: IntArray) -> Workload:
        """Return some of the jobs, given by their numbers."""
        given = {name: getattr(self, name) for name in _OF_EACH_JOB}
        names = self.given_names
        return Workload(
            self.sizes[jobs],
            self.speedups.shared or list(self.speedups.take(jobs)),
            names=None if names is None else [names[job] for job in jobs],
            **{name: values[jobs] for name, values in given.items() if values is not None},
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        speedup = self.speedups.shared or "different speedups"
        jobs = format_count(len(self), "job")
        sizes = f"sizes {self.sizes.min():g} to {self.sizes.max():g}"
        last = 0.0 if self.arrivals is None else float(self.arrivals.max())
        until = f", arriving until {last:g}" if last > 0 else ""
        return f"<Workload of {jobs}, {sizes}, {speedup}{until}>"

    @property
    def arrival_times(self) -> FloatArray:
        """The arrival time of each job: 0 for all jobs of a batch."""
        return np.zeros(len(self)) if self.arrivals is None else self.arrivals

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each job."""
        return self.given_names or tuple(str(job) for job in range(len(self)))


def _hyperexponential(rng: np.random.Generator, jobs: int) -> FloatArray:
    """Return exponential sizes with mean 9 for one job in ten and 1/9 for the rest: 1 overall."""
    return rng.exponential(np.where(rng.random(jobs) < 0.1, 9.0, 1 / 9))


#: Size distributions with mean 1.
SIZES: dict[str, SizeSampler] = {
    "exponential": lambda rng, jobs: rng.exponential(size=jobs),
    "deterministic": lambda rng, jobs: np.ones(jobs),
    "pareto": lambda rng, jobs: (rng.pareto(1.5, jobs) + 1) / 3,
    "hyperexponential": _hyperexponential,
}


def _check_rigid(rigid: ArrayLike, requested: FloatArray | None) -> BoolArray | None:
    """Return which jobs are rigid; None if none is."""
    flags = np.array(rigid)
    if flags.dtype != np.bool_ or flags.ndim != 1:
        raise InputError(
            f"must be a list with True or False for each job, got {rigid!r}", argument="rigid"
        )
    if not flags.any():
        return None
    if requested is None:
        raise InputError(
            "is missing: rigid jobs run on the servers that they request", argument="requested"
        )
    return flags


def _create_speedups(speedup: SpeedupLike | Sequence[SpeedupLike], jobs: int) -> SpeedupVector:
    if isinstance(speedup, np.ndarray):
        speedup = speedup.tolist()
    if isinstance(speedup, str) or not isinstance(speedup, Sequence):
        return SpeedupVector.repeat(as_speedup(speedup), jobs)
    check_same_length("speedup", speedup, jobs)
    return SpeedupVector.create(as_speedup(one) for one in speedup)
