"""Comparing policies on the same jobs: ``compare()``, the table that it returns, and all cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hesrpt import files
from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.optimal.bounds import BOUND_STEPS, LowerBound, lower_bound
from hesrpt.parallel import run_tasks
from hesrpt.policies import (
    Knee,
    Policy,
    PolicyLike,
    RigidDiscipline,
    as_ranked,
    find_rule,
    get_policy,
)
from hesrpt.simulator.intervals import Difference, Interval, estimate_difference, estimate_mean
from hesrpt.simulator.simulation import Simulation, run_simulation, warn_of_overload
from hesrpt.units import format_count
from hesrpt.validation import check_flag, check_number
from hesrpt.workload import Workload

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Key = TypeVar("Key", bound=Hashable)

DEFAULT_POLICIES = ("hesrpt", "equi", "srpt")
# Starting processes takes seconds. It pays off if Python policies serve at least this many jobs.
_MIN_JOBS_FOR_PROCESSES = 100_000
# KNEE is tuned by this many simulations.
_TRIALS = 100


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Mapping[str, Simulation]):
    """The simulations of several policies.

    ``comparison["equi"]`` is the simulation of EQUI, on the first workload if there are several.
    """

    simulations: dict[str, tuple[Simulation, ...]]
    confidence: float
    bounds: tuple[LowerBound, ...] = ()  # for each workload, if they were asked for

    def __getitem__(self, policy: str) -> Simulation:
        return self.simulations[policy][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.simulations)

    def __len__(self) -> int:
        return len(self.simulations)

    @property
    def replications(self) -> int:
        """The number of workloads that each policy was simulated on."""
        return len(next(iter(self.simulations.values())))

    @property
    def best(self) -> str:
        """The policy with the lowest mean flow time."""
        return min(self, key=lambda policy: self.interval(policy, "mean_flow_time").mean)

    @property
    def lower_bound(self) -> float | None:
        """The bound on the mean flow time of all schedules, averaged over the replications."""
        return float(np.mean([bound.mean for bound in self.bounds])) if self.bounds else None

    def above_bound(self, policy: str) -> float | None:
        """Return how far the mean flow time of a policy is above the bound: 0.06 is 6%."""
        if (bound := self.lower_bound) is None:
            return None
        return self.interval(policy, "mean_flow_time").mean / bound - 1

    def interval(self, policy: str, metric: str) -> Interval:
        """Return the mean of a metric over the replications, with its confidence interval."""
        return estimate_mean(self._list_values(policy, metric), self.confidence)

    def difference(self, policy: str, other: str, metric: str = "mean_flow_time") -> Difference:
        """Return how much better or worse a policy is than another on the same jobs.

        >>> from hesrpt import PowerLaw, Workload, compare
        >>> streams = [Workload.poisson(30, 500, speedup=PowerLaw(0.9), seed=s) for s in range(4)]
        >>> print(compare(streams, servers=64).difference("hesrpt", "equi"))
        hesrpt is 22.8% ± 3.0% better than equi
        """
        values = self._list_values(policy, metric), self._list_values(other, metric)
        return estimate_difference(policy, other, metric, *values, self.confidence)

    def differences(self) -> list[Difference]:
        """Return the differences in mean flow time between the best policy and each other one."""
        best = self.best
        return [self.difference(best, other) for other in self if other != best]

    def _list_values(self, policy: str, metric: str) -> FloatArray:
        """Return a metric of a policy in each replication."""
        if policy not in self.simulations:
            raise InputError(f"no policy named {policy!r}; compared were {', '.join(self)}")
        runs = [run.metrics() for run in self.simulations[policy]]
        if metric not in runs[0]:
            raise InputError(f"no metric named {metric!r}; choose from {', '.join(runs[0])}")
        return np.array([run[metric] for run in runs])

    def rows(self) -> list[dict[str, str | float]]:
        """Return a row for each policy, with every metric and the half width of its interval."""
        rows = []
        for policy in self:
            row: dict[str, str | float] = {"policy": policy}
            for metric in self[policy].metrics():
                mean, half_width = self.interval(policy, metric)
                row[metric] = mean
                if self.replications > 1:
                    row[f"{metric}_±"] = half_width
            if (above := self.above_bound(policy)) is not None:
                row["above_bound"] = above
            rows.append(row)
        return rows

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas data frame, with the policies as its index."""
        return files.build_frame(self.rows()).set_index("policy")

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file with one line for each policy, replication and metric."""
        files.write_csv(
            path,
            [
                {"policy": policy, "replication": number, "metric": metric, "value": value}
                for policy, runs in self.simulations.items()
                for number, run in enumerate(runs)
                for metric, value in run.metrics().items()
            ],
        )

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw mean flow times relative to the best policy, and the distribution of flow times.

        The figure is saved if a path is given.
        """
        from hesrpt import plotting  # matplotlib is slow to import

        figure = plotting.draw_comparison(self)
        if path is not None:
            plotting.save_figure(figure, path)
        return figure

    def __repr__(self) -> str:
        intervals = {policy: self.interval(policy, "mean_flow_time") for policy in self}
        best = intervals[self.best].mean
        note = ""
        if self.replications > 1:
            note = f", {self.replications} replications, {self.confidence:.0%} intervals"
        lines = []
        for policy, (mean, half_width) in intervals.items():
            shown = f"{mean:<12.6g}"
            if self.replications > 1:
                shown = f"{mean:.6g} ± {half_width:.2g}".ljust(20)
            line = f"  {policy:<16} mean flow time {shown} {mean / best:.3f} times the best"
            if (above := self.above_bound(policy)) is not None:
                line += f", {above:.1%} above the bound"
            lines.append(line)
        policies = format_count(len(self), "policy")
        return "\n".join([f"<Comparison of {policies}{note}:", *lines]) + ">"


def compare(
    workload: Workload | Sequence[Workload],
    servers: float,
    policies: Sequence[PolicyLike] = DEFAULT_POLICIES,
    *,
    whole: bool = False,
    resize_cost: float = 0.0,
    size_error: float = 0.0,
    seed: int = 0,
    confidence: float = 0.95,
    bound: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Simulate several policies on the same jobs, on all cores.

    ``workload`` may be a list of replications; results then have confidence intervals. ``progress``
    is called with the number of steps done and the total number: each simulation is a step, and
    each bound takes several. With ``bound``, :func:`~hesrpt.lower_bound` adds how far each policy
    is above what any schedule could reach. For the other options see :func:`simulate`.

    >>> from hesrpt import PowerLaw, Workload, compare
    >>> compare(Workload([9, 4, 1], PowerLaw(0.5)), servers=10)
    <Comparison of 3 policies:
      hesrpt           mean flow time 1.91468      1.000 times the best
      equi             mean flow time 1.9692       1.028 times the best
      srpt             mean flow time 2.10819      1.101 times the best>
    """
    workloads = [workload] if isinstance(workload, Workload) else list(workload)
    if not workloads or not all(isinstance(one, Workload) for one in workloads):
        raise InputError("compare() needs a Workload, or a list of them")
    if isinstance(policies, str) or not isinstance(policies, Iterable):
        raise InputError(
            f"must be a list of names or callables, got {policies!r}", argument="policies"
        )
    policies = list(policies)
    if not policies:
        raise InputError("must name at least one policy", argument="policies")
    if not 0 < check_number("confidence", confidence) < 1:
        raise InputError(f"must lie in (0, 1), got {confidence!r}", argument="confidence")
    check_flag("bound", bound)
    chosen = _label_policies([get_policy(policy) for policy in policies])
    options = {"whole": whole, "resize_cost": resize_cost, "size_error": size_error}
    runs, bounds = run_simulations(
        {
            (label, index): Replication(one, servers, policy, {**options, "seed": seed + index})
            for label, policy in chosen.items()
            for index, one in enumerate(workloads)
        },
        workloads if bound else [],
        servers,
        whole,
        progress,
    )
    simulations = {
        label: tuple(runs[label, index] for index in range(len(workloads))) for label in chosen
    }
    overloaded = [label for label in chosen if any(s.is_overloaded for s in simulations[label])]
    if overloaded:
        warn_of_overload(overloaded, servers, stacklevel=2)
    return Comparison(simulations, confidence, bounds)


def _label_policies(
    policies: Sequence[Policy | RigidDiscipline],
) -> dict[str, Policy | RigidDiscipline]:
    """Return the policies by name; a name that occurs again gets a number."""
    labelled: dict[str, Policy | RigidDiscipline] = {}
    seen = Counter[str]()
    for policy in policies:
        seen[policy.name] += 1
        number = seen[policy.name]
        labelled[policy.name if number == 1 else f"{policy.name} ({number})"] = policy
    return labelled


# --- many simulations -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Replication:
    """One simulation among many; the options are those of :func:`run_simulation`."""

    workload: Workload
    servers: float
    policy: Policy | RigidDiscipline
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_compiled(self) -> bool:
        """Whether it runs without calling the policy at each event."""
        if isinstance(self.policy, RigidDiscipline):
            return True
        if self.workload.rigid is not None:
            return False
        speedups, whole = self.workload.speedups, bool(self.options.get("whole"))
        is_ranked = as_ranked(self.policy, speedups) is not None
        return is_ranked or find_rule(self.policy, speedups, whole) is not None

    @property
    def jobs(self) -> int:
        """The number of jobs to simulate, counting those of all trials."""
        is_tuned = isinstance(self.policy, Knee) and self.policy.alpha is None
        return (_TRIALS if is_tuned else 1) * len(self.workload)

    def run(self) -> Simulation:
        """Run the simulation."""
        return run_simulation(self.workload, self.servers, self.policy, **self.options)


def run_simulations(
    replications: Mapping[Key, Replication],
    bounded: Sequence[Workload],
    servers: float,
    whole: bool,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[Key, Simulation], tuple[LowerBound, ...]]:
    """Run simulations on all cores, then bound what any schedule of some workloads could reach.

    ``progress`` is called with the number of steps done and the total: one for each simulation, and
    many for each bound, which takes longer.

    The compiled loop releases the interpreter's lock, so threads keep all cores busy. Policies that
    are called at each event hold the lock, so long simulations of these run in processes.
    """
    total = len(replications) + BOUND_STEPS * len(bounded)
    finished = 0

    def report(before: int, done: int, _: int = 0) -> None:
        if progress is not None:
            progress(before + done, total)

    def count(key: Key) -> None:
        nonlocal finished
        finished += 1
        report(0, finished)

    longest_first = sorted(replications, key=lambda key: -replications[key].jobs)
    interpreted = [key for key in replications if not replications[key].is_compiled]
    jobs = sum(replications[key].jobs for key in interpreted)
    uses_processes = len(interpreted) > 1 and jobs >= _MIN_JOBS_FOR_PROCESSES
    simulations = run_tasks(
        {key: replications[key].run for key in longest_first},
        in_threads={key for key in replications if not uses_processes or key not in interpreted},
        on_done=count,
    )
    bounds = []
    for number, workload in enumerate(bounded):
        report_step = partial(report, len(replications) + BOUND_STEPS * number)
        bounds.append(lower_bound(workload, servers, whole=whole, progress=report_step))
    # Simulations from another process have a copy of the workload.
    return {
        key: replace(simulations[key], workload=replication.workload)
        for key, replication in replications.items()
    }, tuple(bounds)
