"""The jobs: their sizes, speedups, weights and names, checked once and frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.speedups import Speedup, SpeedupVector, as_speedup
from hesrpt.validation import (
    check_non_negative_vector,
    check_positive,
    check_positive_vector,
    check_same_length,
    check_whole_number,
)

SpeedupLike: TypeAlias = Speedup | Callable[[FloatArray], FloatArray]
SizeSampler: TypeAlias = Callable[[np.random.Generator, int], FloatArray]


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
    requested
        How many servers each job's user has asked for: what rigid policies give it, no more, no
        less.
    estimates
        How long each job's user thinks that it runs on those, for policies that plan ahead. No
        less than it really takes; exactly that by default.

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
    ) -> None:
        def keep(name: str, value: object) -> None:
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

        keep("sizes", check_positive_vector("sizes", sizes))
        if len(self.sizes) == 0:
            raise InputError("sizes must name at least one job, got an empty list")
        keep("speedups", _speedups(speedup, len(self)))
        keep(
            "arrivals",
            None if arrivals is None else check_non_negative_vector("arrivals", arrivals),
        )
        keep("weights", None if weights is None else check_positive_vector("weights", weights))
        if names is not None and (isinstance(names, str) or not isinstance(names, Iterable)):
            raise InputError(f"names must be a list with one name per job, got {names!r}")
        keep("given_names", None if names is None else tuple(str(name) for name in names))
        keep(
            "requested",
            None if requested is None else check_positive_vector("requested", requested),
        )
        keep(
            "estimates",
            None if estimates is None else check_positive_vector("estimates", estimates),
        )
        for name, values in (
            ("arrivals", self.arrivals),
            ("requested", self.requested),
            ("estimates", self.estimates),
            ("weights", self.weights),
            ("names", self.given_names),
        ):
            if values is not None:
                check_same_length(name, values, len(self))

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
        """Return a batch of jobs with Pareto-distributed sizes: P(X > x) = (minimum/x)^shape.

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
        """Return jobs that arrive as a Poisson process, ``rate`` of them per second on average.

        ``sizes`` is "exponential", "deterministic", "pareto" (shape 1.5), "hyperexponential" (one
        job in ten is large, and these do 90% of the work), or a function of a random generator and
        a number of jobs that returns their sizes, which ``mean_size`` then multiplies.

        >>> from hesrpt import PowerLaw, Workload
        >>> Workload.poisson(rate=30, jobs=1000, seed=2, speedup=PowerLaw(0.5))
        <Workload of 1000 jobs, sizes 0.00112 to 7.84, PowerLaw(p=0.5), arriving until 30.9>
        """
        rng, jobs = np.random.default_rng(seed), check_whole_number("jobs", jobs, minimum=1)
        arrivals = np.cumsum(rng.exponential(1 / check_positive("rate", rate), jobs))
        if isinstance(sizes, str):
            if sizes not in SIZES:
                raise InputError(
                    f"sizes must be one of {', '.join(SIZES)} or a function, got {sizes!r}"
                )
            sizes = SIZES[sizes]
        drawn = np.asarray(sizes(rng, jobs), dtype=np.float64)
        return cls(check_positive("mean_size", mean_size) * drawn, speedup, arrivals=arrivals)

    def head(self, jobs: int) -> Workload:
        """Return the first jobs to arrive; of a batch, the first ones given."""
        jobs = check_whole_number("jobs", jobs, minimum=1)
        if self.arrivals is None:
            first = np.arange(min(jobs, len(self)))
        else:
            first = np.sort(np.argsort(self.arrivals, kind="stable")[:jobs])
        names = self.given_names
        return Workload(
            self.sizes[first],
            self.speedups.shared or list(self.speedups.take(first)),
            arrivals=None if self.arrivals is None else self.arrivals[first],
            weights=None if self.weights is None else self.weights[first],
            names=None if names is None else [names[job] for job in first],
            requested=None if self.requested is None else self.requested[first],
            estimates=None if self.estimates is None else self.estimates[first],
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        speedup = self.speedups.shared or "a speedup for each"
        jobs = "1 job" if len(self) == 1 else f"{len(self)} jobs"
        sizes = f"sizes {self.sizes.min():g} to {self.sizes.max():g}"
        last = 0.0 if self.arrivals is None else float(self.arrivals.max())
        until = f", arriving until {last:g}" if last > 0 else ""
        return f"<Workload of {jobs}, {sizes}, {speedup}{until}>"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each job."""
        return self.given_names or tuple(str(job) for job in range(len(self)))


def _hyperexponential(rng: np.random.Generator, jobs: int) -> FloatArray:
    """Return exponential sizes of mean 9 for one job in ten and 1/9 for the others: 1 in all."""
    return rng.exponential(np.where(rng.random(jobs) < 0.1, 9.0, 1 / 9))


#: Distributions of sizes with mean 1.
SIZES: dict[str, SizeSampler] = {
    "exponential": lambda rng, jobs: rng.exponential(size=jobs),
    "deterministic": lambda rng, jobs: np.ones(jobs),
    "pareto": lambda rng, jobs: (rng.pareto(1.5, jobs) + 1) / 3,
    "hyperexponential": _hyperexponential,
}


def _speedups(speedup: SpeedupLike | Sequence[SpeedupLike], jobs: int) -> SpeedupVector:
    if isinstance(speedup, np.ndarray):
        speedup = speedup.tolist()
    if isinstance(speedup, str) or not isinstance(speedup, Sequence):
        return SpeedupVector.repeat(as_speedup(speedup), jobs)
    check_same_length("speedup", speedup, jobs)
    return SpeedupVector.create(as_speedup(one) for one in speedup)
