"""Replaying the jobs of a trace under rigid and malleable policies, beside what it records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import InputError
from hesrpt.policies import Moldable, RigidDiscipline, get_policy
from hesrpt.simulator.comparison import Replication, run_simulations
from hesrpt.simulator.simulation import Simulation, record_unresized_jobs
from hesrpt.traces import Trace
from hesrpt.traces.trace import RECORDED
from hesrpt.units import format_count
from hesrpt.whatif.assumptions import ServerLimit
from hesrpt.whatif.malleability import describe_malleable_jobs
from hesrpt.whatif.study_jobs import (
    DEFAULT_OPTIONS,
    StudyJobs,
    StudyOptions,
    compute_offered_load,
    select_jobs,
)
from hesrpt.whatif.study_results import OTHER_LIMITS, OtherLimit, Study, list_other_limits
from hesrpt.workload import Workload

# Other limits on servers are tried with these policies.
_COMPARED_UNDER_OTHER_LIMITS = ("equi", "adaptive")


def run_study(
    trace: Trace,
    options: StudyOptions = DEFAULT_OPTIONS,
    *,
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
    options
        How to replay it.
    progress
        Called with the number of steps done and the total number: each simulation is a step, and
        the bound takes several.
    """
    machine, assumption = options.find_servers(trace), options.find_assumption(trace)
    used = select_jobs(trace, options)
    is_malleable = options.malleable.select(used, options.seed)
    jobs = StudyJobs(used, machine, assumption, options.seed, is_malleable)
    as_rigid, as_malleable = jobs.build_rigid(), jobs.build_malleable()
    simulated: dict[str, Any] = {
        "whole": True,
        "resize_cost": options.resize_cost,
        "size_error": options.size_error,
        "seed": options.seed,
        "approximate_p": assumption.p,
    }
    if options.sizes == "estimates":
        simulated["relative_sizes"] = _relate_estimates(used)

    def replicate(policy: str, workload: Workload, tallying: bool = False) -> Replication:
        chosen = get_policy(policy)
        is_rigid = isinstance(chosen, RigidDiscipline) and not isinstance(chosen, Moldable)
        served = as_rigid if is_rigid else workload
        options = {**simulated, "tallying": tallying}
        return Replication(served, float(machine), chosen, options)

    replications: dict[tuple[str, ServerLimit | None], Replication] = {
        (policy, None): replicate(policy, as_malleable, tallying=True)
        for policy in options.policies
    }
    compared = _choose_compared(options.policies) if options.other_limits else []
    other_limits = list_other_limits(jobs) if compared else []
    for limit in other_limits:
        limited = jobs.build_malleable(limit)
        replications |= {(policy, limit): replicate(policy, limited) for policy in compared}
    simulations, bounds = run_simulations(
        replications,
        [jobs.build_least_limited()] if options.bound else [],
        float(machine),
        True,
        progress,
    )
    recorded = build_recorded_run(used, as_rigid, machine)
    runs = {} if recorded is None else {RECORDED: recorded}
    runs |= {policy: simulations[policy, None] for policy in options.policies}
    notes = [
        *used.notes,
        *describe_malleable_jobs(used, options.malleable, is_malleable, options.seed),
        *describe_options(options),
        *describe_estimates(used, options.sizes),
        *describe_curves(jobs),
        *describe_recorded(used, options.window is not None or options.min_runtime > 0),
        *describe_overload(used, machine),
    ]
    return Study(
        trace=used,
        servers=machine,
        options=replace(options, assumption=assumption),
        runs=runs,
        is_malleable=is_malleable,
        notes=tuple(notes),
        bound=bounds[0] if bounds else None,
        other_limits=tuple(
            OtherLimit(
                OTHER_LIMITS[limit],
                {policy: simulations[policy, limit].mean_flow_time for policy in compared},
            )
            for limit in other_limits
        ),
    )


def _choose_compared(policies: Sequence[str]) -> list[str]:
    """Return the policies to replay under other limits: the usual ones, or else all malleable."""
    usual = [policy for policy in _COMPARED_UNDER_OTHER_LIMITS if policy in policies]
    if usual:
        return usual
    return [name for name in policies if not isinstance(get_policy(name), RigidDiscipline)]


def _relate_estimates(trace: Trace) -> FloatArray:
    """Return the sizes that follow from the users' estimates, relative to the true sizes."""
    known = np.isfinite(trace.estimates)
    if not known.any():
        raise InputError(
            f"cannot be 'estimates': {trace.source} has no users' estimates of run times",
            argument="sizes",
        )
    return np.where(known, trace.estimates / trace.runtimes, 1.0)


# If a larger part of the jobs has no recorded start, the recorded schedule is not shown.
_MAX_WITHOUT_START = 0.01


def build_recorded_run(trace: Trace, workload: Workload, servers: int) -> Simulation | None:
    """Return the schedule that the trace records; None if too many starts are missing."""
    from hesrpt.simulator.backfilling import run_times

    if not _has_enough_starts(trace):
        return None
    starts = np.maximum(_complete_starts(trace), trace.submit_times)
    ends = starts + run_times(workload)
    return record_unresized_jobs(workload, float(servers), starts, ends, trace.servers, RECORDED)


def describe_recorded(trace: Trace, is_part: bool) -> list[str]:
    """Return sentences on the recorded schedule."""
    missing = int(np.count_nonzero(np.isnan(trace.start_times)))
    if missing == len(trace):
        return []
    have = f"{format_count(missing, 'job')} {'has' if missing == 1 else 'have'} no recorded start"
    if not _has_enough_starts(trace):
        return [f"the recorded schedule is not shown: {have}"]
    notes = []
    if missing:
        notes.append(
            f"{have}: the recorded schedule lets {'it' if missing == 1 else 'them'} wait as long "
            "as the job submitted before"
        )
    if is_part:
        notes.append(
            "recorded waits are those of the whole trace; simulations start on an empty machine, "
            "without the jobs that were left out"
        )
    return notes


def _has_enough_starts(trace: Trace) -> bool:
    return bool(np.isnan(trace.start_times).mean() <= _MAX_WITHOUT_START)


def _complete_starts(trace: Trace) -> FloatArray:
    """Return when jobs started; where that is unknown, they wait as long as the job before."""
    waits = trace.start_times - trace.submit_times
    known = np.flatnonzero(~np.isnan(waits))
    before = np.searchsorted(known, np.arange(len(trace)), side="right") - 1
    return trace.submit_times + waits[known[np.maximum(before, 0)]]


# With fewer jobs than this, the offered load is meaningless.
_MIN_JOBS_FOR_LOAD = 200


def describe_options(options: StudyOptions) -> list[str]:
    """Return sentences on the options of a study."""
    notes = []
    if options.resize_cost > 0:
        notes.append(f"a resize stops a malleable job for {options.resize_cost:g} s")
    if options.size_error > 0:
        notes.append(
            f"malleable policies see sizes times exp({options.size_error:g} Z), Z standard normal "
            f"(seed {options.seed})"
        )
    if options.load is not None:
        notes.append(f"submission times are scaled to a load of {options.load:g}")
    return notes


def describe_estimates(trace: Trace, sizes: str) -> list[str]:
    """Return sentences on the users' estimates: who uses them, and how good they are."""
    known = np.isfinite(trace.estimates)
    if not known.any():
        return []
    overruns = int(np.count_nonzero(trace.runtimes[known] > trace.estimates[known]))
    ratio = float(np.median(trace.estimates[known] / trace.runtimes[known]))
    unforeseen = f", and does not foresee that {format_count(overruns, 'job')} ran longer"
    notes = [
        f"users' estimates are {ratio:.3g} times the run time in the median; EASY takes them as "
        f"they are{unforeseen if overruns else ''}"
    ]
    if sizes == "estimates":
        notes.append(
            "malleable policies see sizes that follow from the users' estimates, and what fraction "
            "of a job is done"
        )
    missing = len(trace) - int(np.count_nonzero(known))
    if missing:
        notes.append(
            f"the run times of {format_count(missing, 'job')} without an estimate count as known"
        )
    return notes


def describe_overload(trace: Trace, servers: int) -> list[str]:
    """Return a sentence if users asked for more than the machine has."""
    load = compute_offered_load(trace, servers)
    if len(trace) < _MIN_JOBS_FOR_LOAD or not 1 < load < np.inf:
        return []
    return [
        f"users asked for {load:.2f} times the capacity of {format_count(servers, 'server')} while "
        "jobs were submitted: under rigid policies the queue keeps growing, and averages depend on "
        "the length of the trace"
    ]


def describe_curves(jobs: StudyJobs) -> list[str]:
    """Return sentences on what lies beyond the data of measured curves, and on bad fits."""
    curves, trace = jobs.assumption.curves, jobs.trace
    if not curves:
        return []
    first = np.array([curve.first for curve in curves])[jobs.drawn]
    last = np.array([curve.last for curve in curves])[jobs.drawn]
    is_flat = np.array([curve.stays_flat for curve in curves])[jobs.drawn]
    is_beyond, law = trace.servers > last, "the curve is extended by the power law that fits it"
    notes = [
        *_describe_beyond(trace, is_beyond & ~is_flat, "more", law),
        *_describe_beyond(
            trace, is_beyond & is_flat, "more", "the curve stays flat: it has passed its peak"
        ),
        *_describe_beyond(trace, trace.servers < first, "fewer", law),
    ]
    bad = [curve for curve in curves if curve.problem]
    if bad:
        worst = bad[0]
        name = f" {worst.application}" if worst.application else ""
        notes.append(
            f"a power law fits {len(bad)} of {format_count(len(curves), 'measured curve')} badly, "
            f"so that extending it is uncertain; of{name}: {worst.problem}"
        )
    return notes


def _describe_beyond(trace: Trace, is_beyond: BoolArray, which: str, extension: str) -> list[str]:
    number = int(np.count_nonzero(is_beyond))
    if not number:
        return []
    used = trace.servers * trace.runtimes
    part = float(used[is_beyond].sum() / used.sum())
    hours = float(used[is_beyond].sum()) / 3600
    return [
        f"{format_count(number, 'job')} with {part:.0%} of the server-hours ({hours:,.0f}) ran on "
        f"{which} servers than {'its' if number == 1 else 'their'} curve was measured on; there, "
        f"{extension}"
    ]
