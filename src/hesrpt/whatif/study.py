"""Replaying the jobs of a trace under rigid and malleable policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from hesrpt._version import __version__
from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.optimal.bounds import LowerBound
from hesrpt.policies import HeSrpt, Policy, RigidDiscipline, Rounded, get_policy
from hesrpt.policies.registry import get_title
from hesrpt.schedule import summarise
from hesrpt.simulator.replications import Replication, run_with_bounds
from hesrpt.simulator.simulation import Simulation, record_rigid_jobs
from hesrpt.traces import Trace
from hesrpt.traces.trace import RECORDED
from hesrpt.units import format_duration
from hesrpt.validation import check_flag, check_whole_number
from hesrpt.whatif.assumptions import Assumption, assume_speedup
from hesrpt.whatif.selection import compute_offered_load, select_jobs
from hesrpt.workload import Workload

#: The policies of a study by default.
DEFAULT_POLICIES = (
    "fcfs",
    "easy",
    "equi",
    "srpt",
    "adaptive",
    "hesrpt",
    "hesrpt-slowdown",
    "optimal",
)
# The conclusion is about the better of the first two, or else about the last one.
_HEADLINE_POLICIES = ("adaptive", "equi"), ("hesrpt",)
# With fewer jobs than this, the offered load is meaningless.
_MIN_JOBS_FOR_LOAD = 200
# With more jobs than this, exact planning at each event takes too long.
_MAX_JOBS_TO_PLAN = 1000


class SizeClass(NamedTuple):
    """The jobs between two quantiles of the server-seconds used, given as fractions."""

    title: str
    low: float
    high: float


SIZE_CLASSES = (
    SizeClass("the smallest half", 0.0, 0.5),
    SizeClass("the next 40%", 0.5, 0.9),
    SizeClass("the next 9%", 0.9, 0.99),
    SizeClass("the largest 1%", 0.99, 1.0),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """Simulations of the jobs of a trace under several policies."""

    trace: Trace  # the jobs that were simulated
    servers: int
    assumption: Assumption
    runs: dict[str, Simulation]  # by policy
    notes: tuple[str, ...] = ()  # sentences on options and caveats
    bound: LowerBound | None = None  # on the flow time of all schedules, if it was asked for

    @cached_property
    def load(self) -> float:
        """The server-seconds that users asked for, divided by those available in that time."""
        return compute_offered_load(self.trace, self.servers)

    def slowdowns(self, policy: str) -> FloatArray:
        """Return each job's flow time divided by its run time in the trace."""
        return self.runs[policy].flow_times / self.trace.runtimes

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of metrics for each policy."""
        return [
            {
                "policy": policy,
                **summarise("flow_time", run.flow_times),
                **summarise("slowdown", self.slowdowns(policy)),
                "makespan": run.makespan,
                "utilisation": run.utilisation,
                "overloaded": run.is_overloaded,
                **({} if self.bound is None else {"above_bound": self.bound.gap(run)}),
            }
            for policy, run in self.runs.items()
        ]

    def rows_by_size(self) -> list[dict[str, Any]]:
        """Return a row of mean flow times by policy for each class of job sizes."""
        jobs = len(self.trace)
        ranks = np.empty(jobs)
        ranks[np.argsort(self.trace.servers * self.trace.runtimes, kind="stable")] = np.arange(jobs)
        rows = []
        for title, low, high in SIZE_CLASSES:
            members = (ranks >= low * jobs) & (ranks < high * jobs)
            if members.any():
                means = {
                    policy: float(run.flow_times[members].mean())
                    for policy, run in self.runs.items()
                }
                rows.append({"class": title, "jobs": int(members.sum()), **means})
        return rows

    @property
    def conclusion(self) -> str:
        """The result in a sentence, without an initial capital or a full stop."""
        base = next((policy for policy in ("easy", "fcfs", RECORDED) if policy in self.runs), None)
        assumed = f"with malleable jobs and {self.assumption.text}"
        means = {policy: run.mean_flow_time for policy, run in self.runs.items()}
        shown = {policy: format_duration(mean) for policy, mean in means.items()}
        if base is None or self.headline_policy is None:
            best = min(means, key=means.__getitem__)
            return f"{assumed}, mean flow time is shortest under {get_title(best)}: {shown[best]}"
        policy, title = self.headline_policy, get_title(self.headline_policy)
        name = base if base == RECORDED else base.upper()
        if shown[base] == shown[policy]:
            return f"{assumed}, {title} would change nothing: {shown[base]}, as under {name}"
        verb = "cut" if means[policy] < means[base] else "raise"
        return (
            f"{assumed}, {title} would {verb} mean flow time from {shown[base]} ({name}) to "
            f"{shown[policy]}"
        )

    @property
    def headline_policy(self) -> str | None:
        """The policy that the conclusion is about: the better of adaptive and EQUI, if there."""
        for policies in _HEADLINE_POLICIES:
            present = [policy for policy in policies if policy in self.runs]
            if present:
                return min(present, key=lambda policy: self.runs[policy].mean_flow_time)
        return None

    @property
    def distance(self) -> str | None:
        """How far the policy of the conclusion is from the bound, as a sentence like that."""
        if self.bound is None:
            return None
        policy = self.headline_policy or min(
            self.runs, key=lambda policy: self.runs[policy].mean_flow_time
        )
        percentage = ceil(100 * self.bound.gap(self.runs[policy]))
        return (
            f"{get_title(policy)} is at most {percentage}% above what any scheduler could reach on "
            f"this log, a mean flow time of {format_duration(self.bound.mean)}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the study as JSON values."""
        return {
            "hesrpt": __version__,
            "trace": self.trace.source,
            "jobs": len(self.trace),
            "jobs_read": self.trace.jobs_read,
            "dropped": dict(self.trace.dropped),
            "servers": self.servers,
            "load": self.load if np.isfinite(self.load) else None,
            "assumption": self.assumption.text,
            "notes": list(self.notes),
            "conclusion": self.conclusion,
            "lower_bound": None if self.bound is None else self.bound.mean,
            "proof": None if self.bound is None else self.bound.proof,
            "policies": self.rows(),
            "size_classes": self.rows_by_size(),
        }


def run_study(
    trace: Trace,
    servers: int | None = None,
    assumption: Assumption | float | str = 0.7,
    *,
    policies: Sequence[str] | None = None,
    window: str | None = None,
    min_runtime: float = 0.0,
    load: float | None = None,
    strict: bool = False,
    bound: bool = False,
    resize_cost: float = 0.0,
    size_error: float = 0.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """Simulate the jobs of a trace under several policies.

    A job that ran for r seconds on q servers has size r·s(q), so that on q servers it takes r
    seconds again. Malleable policies allocate whole servers.

    Parameters
    ----------
    trace
        The trace, from :func:`hesrpt.traces.read_trace`.
    servers
        The servers of the machine; by default, the number that the trace states.
    assumption
        How jobs speed up: the p of k^p, or an assumption from :func:`assume_speedup`.
    policies
        Names of policies. The rigid ones, "fcfs" and "easy", give jobs the servers they asked for.
        By default all of :data:`DEFAULT_POLICIES`, except "optimal" if there are many jobs with
        different speedups: it would take too long.
    window
        Study only the jobs submitted in this part of the trace, such as "10d..40d".
    min_runtime
        Drop jobs that ran for fewer seconds.
    load
        Stretch the submission times so that users ask for this fraction of all server-seconds.
    strict
        Raise an error if a job asked for more servers than there are, instead of dropping it.
    bound
        Also bound the mean flow time of all schedules (:func:`hesrpt.lower_bound`): takes long.
    resize_cost, size_error, seed
        As for :func:`hesrpt.simulate`.
    progress
        Called with the number of steps done and the total number: each simulation is a step, and
        the bound takes several.
    """
    machine = trace.machine_servers if servers is None else servers
    if machine is None:
        raise InputError(
            f"must be given: {trace.source} does not say how many servers the machine has",
            argument="servers",
        )
    machine = check_whole_number("servers", machine, 1)
    if not isinstance(assumption, Assumption):
        assumption = assume_speedup(assumption)
    used = select_jobs(
        trace, machine, window=window, min_runtime=min_runtime, load=load, strict=strict
    )
    workload = build_workload(used, assumption, seed)
    if policies is None:
        can_plan = assumption.is_shared or len(used) <= _MAX_JOBS_TO_PLAN
        policies = [policy for policy in DEFAULT_POLICIES if can_plan or policy != "optimal"]
    if not policies:
        raise InputError("must name at least one policy", argument="policies")
    options = {
        "whole": True,
        "resize_cost": resize_cost,
        "size_error": size_error,
        "seed": seed,
        "approximate_p": assumption.p,
    }
    simulations, bounds = run_with_bounds(
        {
            policy: Replication(
                workload, float(machine), _create_policy(policy, len(used)), options
            )
            for policy in policies
        },
        [workload] if check_flag("bound", bound) else [],
        float(machine),
        True,
        progress,
    )
    without_start = int(np.count_nonzero(np.isnan(used.start_times)))
    runs = {} if without_start else {RECORDED: build_recorded_run(used, workload, machine)}
    runs |= simulations
    notes = [
        *_describe_options(resize_cost, size_error, seed, load),
        *_describe_recorded(without_start, used, window is not None or min_runtime > 0),
        *_describe_overload(used, machine),
    ]
    return Study(
        trace=used,
        servers=machine,
        assumption=assumption,
        runs=runs,
        notes=tuple(notes),
        bound=bounds[0] if bounds else None,
    )


def build_workload(trace: Trace, assumption: Assumption, seed: int) -> Workload:
    """Return malleable jobs that, on the servers requested, run as long as in the trace."""
    speedup = assumption.draw(len(trace), seed)
    unit_jobs = Workload(np.ones(len(trace)), speedup)
    return Workload(
        trace.runtimes * unit_jobs.speedups.rate(trace.servers),
        speedup,
        arrivals=trace.submit_times,
        names=trace.names,
        requested=trace.servers,
        estimates=np.fmax(trace.estimates, trace.runtimes),  # fmax ignores unknown estimates
    )


def build_recorded_run(trace: Trace, workload: Workload, servers: int) -> Simulation:
    """Return the schedule that the trace records."""
    starts = np.maximum(trace.start_times, trace.submit_times)
    return record_rigid_jobs(workload, float(servers), starts, RECORDED)


def _create_policy(name: str, jobs: int) -> Policy | RigidDiscipline:
    policy = get_policy(name)
    if isinstance(policy, HeSrpt) and policy.objective != "flow" and jobs > _MAX_JOBS_TO_PLAN:
        return Rounded(policy)
    return policy


def _describe_options(
    resize_cost: float, size_error: float, seed: int, load: float | None
) -> list[str]:
    notes = []
    if resize_cost > 0:
        notes.append(f"a resize stops a malleable job for {resize_cost:g} s")
    if size_error > 0:
        notes.append(
            f"malleable policies see sizes times exp({size_error:g} Z), Z standard normal "
            f"(seed {seed})"
        )
    if load is not None:
        notes.append(f"submission times are scaled to a load of {load:g}")
    return notes


def _describe_recorded(without_start: int, trace: Trace, is_part: bool) -> list[str]:
    if 0 < without_start < len(trace):
        jobs = "1 job has" if without_start == 1 else f"{without_start:,} jobs have"
        return [f"the recorded schedule is not shown: {jobs} no recorded start"]
    if without_start == 0 and is_part:
        return [
            "recorded waits are those of the whole trace; simulations start on an empty machine, "
            "without the jobs that were left out"
        ]
    return []


def _describe_overload(trace: Trace, servers: int) -> list[str]:
    load = compute_offered_load(trace, servers)
    if len(trace) < _MIN_JOBS_FOR_LOAD or not 1 < load < np.inf:
        return []
    return [
        f"users asked for {load:.2f} times the capacity of {servers:,} servers while jobs were "
        "submitted: under rigid policies the queue keeps growing, and averages depend on the "
        "length of the trace"
    ]
