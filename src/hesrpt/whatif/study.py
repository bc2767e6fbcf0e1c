"""Replaying the jobs of a trace under rigid and malleable policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil, isfinite
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
from hesrpt.simulator.simulation import Simulation, record_unresized_jobs
from hesrpt.traces import Trace
from hesrpt.traces.trace import RECORDED
from hesrpt.units import HOUR, format_duration
from hesrpt.validation import check_choice, check_flag, check_whole_number
from hesrpt.whatif.assumptions import Assumption, assume_speedup
from hesrpt.whatif.extrapolation import (
    OTHER_LIMITS,
    Extrapolation,
    OtherLimit,
    list_other_limits,
    measure_extrapolation,
)
from hesrpt.whatif.headline import choose_headline, describe_result, half_width
from hesrpt.whatif.notes import (
    describe_curves,
    describe_estimates,
    describe_options,
    describe_overload,
    describe_recorded,
)
from hesrpt.whatif.request_limits import ServerLimit
from hesrpt.whatif.selection import compute_offered_load, select_jobs
from hesrpt.whatif.study_jobs import build_jobs
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
# Other limits on servers are tried with these policies.
_COMPARED_UNDER_OTHER_LIMITS = ("equi", "adaptive")
#: What malleable policies know of sizes.
SIZES = ("exact", "estimates")
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
    resize_cost: float = 0.0  # seconds for which a resized job pauses
    notes: tuple[str, ...] = ()  # sentences on options and on the trace
    bound: LowerBound | None = None  # on the flow time of all schedules, if it was asked for
    extrapolation: Extrapolation | None = None  # how far malleable policies went beyond the trace

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
                "mean_flow_time_half_width": _none_if_nan(half_width(run)),
                **_summarise_tally(run),
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
        return describe_result(self.runs, f"with malleable jobs and {self.assumption.text}")

    @property
    def headline_policy(self) -> str | None:
        """The policy that the conclusion is about: the best malleable one."""
        return choose_headline(self.runs).best

    @property
    def caveats(self) -> list[str]:
        """Sentences on what the conclusion rests on, about the policy that it names."""
        best = self.headline_policy
        if best is None:
            return []
        sentences = [] if self.extrapolation is None else self.extrapolation.describe(best)
        row = next(row for row in self.rows() if row["policy"] == best)
        if row["resizes_per_job"] is not None:
            lost = f", and {row['server_time_lost']:.1%} of server time was lost to it"
            sentences.append(
                f"under {get_title(best)}, a job was resized {row['resizes_per_job']:.1f} times on "
                f"average{lost if self.resize_cost > 0 else ', at no cost'}"
            )
        return sentences

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
            "best": self.headline_policy,
            "caveats": self.caveats,
            "extrapolation": None if self.extrapolation is None else asdict(self.extrapolation),
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
    sizes: str = "exact",
    other_limits: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """Simulate the jobs of a trace under several policies.

    A job that ran for r seconds on q servers has size r·s(q), so that on q servers it takes r
    seconds again. Malleable policies allocate whole servers, and no more to a job than the limit of
    the assumption.

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
    sizes
        What malleable policies know of sizes: "exact", or "estimates" for sizes that follow from
        the users' estimates of run times. What fraction of a job is done counts as known.
    other_limits
        Whether to replay EQUI and adaptive under other limits too, to see what the result owes to
        servers beyond those that jobs asked for.
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
    check_choice("sizes", sizes, SIZES)
    jobs = build_jobs(used, machine, assumption, seed)
    rigid, malleable = jobs.build_rigid(), jobs.build_malleable()
    if policies is None:
        can_plan = malleable.speedups.shared is not None or len(used) <= _MAX_JOBS_TO_PLAN
        policies = [policy for policy in DEFAULT_POLICIES if can_plan or policy != "optimal"]
    if not policies:
        raise InputError("must name at least one policy", argument="policies")
    options: dict[str, Any] = {
        "whole": True,
        "resize_cost": resize_cost,
        "size_error": size_error,
        "seed": seed,
        "approximate_p": assumption.p,
    }
    if sizes == "estimates":
        options["relative_sizes"] = _relate_estimates(used)

    def replicate(policy: str, workload: Workload, tallying: bool = False) -> Replication:
        chosen = _create_policy(policy, len(used))
        served = rigid if isinstance(chosen, RigidDiscipline) else workload
        return Replication(served, float(machine), chosen, options, tallying)

    replications: dict[tuple[str, ServerLimit | None], Replication] = {
        (policy, None): replicate(policy, malleable, tallying=True) for policy in policies
    }
    for limit in list_other_limits(jobs) if other_limits else ():
        limited = jobs.build_malleable(limit)
        for policy in _COMPARED_UNDER_OTHER_LIMITS:
            if policy in policies:
                replications[policy, limit] = replicate(policy, limited)
    simulations, bounds = run_with_bounds(
        replications,
        [jobs.build_least_limited()] if check_flag("bound", bound) else [],
        float(machine),
        True,
        progress,
    )
    without_start = int(np.count_nonzero(np.isnan(used.start_times)))
    runs = {} if without_start else {RECORDED: build_recorded_run(used, rigid, machine)}
    runs |= {policy: simulations[policy, None] for policy in policies}
    others: dict[ServerLimit, dict[str, float]] = {}
    for (policy, other), simulation in simulations.items():
        if other is not None:
            others.setdefault(other, {})[policy] = simulation.mean_flow_time
    notes = [
        *used.notes,
        *describe_options(resize_cost, size_error, seed, load),
        *describe_estimates(used, sizes),
        *describe_curves(jobs),
        *describe_recorded(without_start, used, window is not None or min_runtime > 0),
        *describe_overload(used, machine),
    ]
    return Study(
        trace=used,
        servers=machine,
        assumption=assumption,
        runs=runs,
        resize_cost=float(resize_cost),
        notes=tuple(notes),
        bound=bounds[0] if bounds else None,
        extrapolation=measure_extrapolation(
            used,
            {policy: runs[policy] for policy in choose_headline(runs).malleable},
            tuple(OtherLimit(OTHER_LIMITS[limit], means) for limit, means in others.items()),
        ),
    )


def build_recorded_run(trace: Trace, workload: Workload, servers: int) -> Simulation:
    """Return the schedule that the trace records."""
    from hesrpt.simulator.backfilling import run_times

    starts = np.maximum(trace.start_times, trace.submit_times)
    ends = starts + run_times(workload)
    return record_unresized_jobs(workload, float(servers), starts, ends, trace.servers, RECORDED)


def _relate_estimates(trace: Trace) -> FloatArray:
    """Return the sizes that follow from the users' estimates, relative to the true sizes."""
    known = np.isfinite(trace.estimates)
    if not known.any():
        raise InputError(
            f"cannot be 'estimates': {trace.source} has no users' estimates of run times",
            argument="sizes",
        )
    return np.where(known, trace.estimates / trace.runtimes, 1.0)


def _summarise_tally(run: Simulation) -> dict[str, float | None]:
    """Return the mean number of resizes of a job, and the server time that they cost."""
    tally = run.tally
    if tally is None:
        return {"resizes_per_job": None, "server_hours_lost": None, "server_time_lost": None}
    lost = float(tally.server_seconds_lost.sum())
    return {
        "resizes_per_job": float(tally.resizes.mean()),
        "server_hours_lost": lost / HOUR,
        "server_time_lost": lost / float(tally.server_seconds.sum()),
    }


def _none_if_nan(value: float) -> float | None:
    return value if isfinite(value) else None


def _create_policy(name: str, jobs: int) -> Policy | RigidDiscipline:
    policy = get_policy(name)
    if isinstance(policy, HeSrpt) and policy.objective != "flow" and jobs > _MAX_JOBS_TO_PLAN:
        return Rounded(policy)
    return policy
