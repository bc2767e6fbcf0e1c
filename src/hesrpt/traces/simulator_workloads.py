"""Workloads of the simulators Batsim and ElastiSim, in JSON.

Batsim's workloads have ``jobs``, ``profiles`` and ``nb_res``. A profile says what a job does. Run
times follow from profiles that wait: delays, and sequences of them. How long other profiles take
depends on the simulated machine, and so does the run time of each job of ElastiSim: there, the
walltime stands for it.

ElastiSim's workloads have ``jobs`` that refer to application models. Servers are nodes. A job that
can use several numbers of nodes counts as asking for the most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.json_jobs import JsonJob, add_jobs, get_first_job, get_member, get_number
from hesrpt.traces.trace import Trace
from hesrpt.units import format_count


def _add_workload(
    builder: TraceBuilder,
    jobs: Any,
    submit: str,
    get_servers: Callable[[Mapping[str, Any]], Any],
    compute_runtime: Callable[[Mapping[str, Any]], float],
) -> None:
    """Add the jobs of a workload, whose times are seconds.

    ``submit`` is the simulator's name of the submission time. ``compute_runtime`` returns NaN if
    the run time of a job is unknown, because it depends on the simulated machine. Then the walltime
    stands for it, and the trace has a note.
    """
    unknown = 0

    def describe(job: Mapping[str, Any]) -> JsonJob:
        nonlocal unknown
        walltime = get_number(job.get("walltime"))
        has_walltime = walltime > 0  # simulators write 0 or -1 if there is none
        runtime = compute_runtime(job)
        if math.isnan(runtime) and has_walltime:
            runtime = walltime
            unknown += 1
        elif has_walltime:
            runtime = min(runtime, walltime)  # simulators kill jobs at their walltimes
        return JsonJob(
            name=job.get("id"),
            submit=job.get(submit),
            servers=get_servers(job),
            runtime=None if math.isnan(runtime) else runtime,
            estimate=walltime if has_walltime else None,
        )

    add_jobs(builder, jobs, describe)
    if unknown:
        builder.notes.append(
            f"the walltime stands for the run time of {format_count(unknown, 'job')}, which the "
            "workload does not say: how long a job computes depends on the simulated machine"
        )


# --- Batsim ----------------------------------------------------------------------------------

# Of Batsim 5, and of earlier versions.
_DELAYS = ("DelayProfile", "delay")
_SEQUENCES = ("SequentialCompositionProfile", "composed")
_MAX_PROFILES = 100  # inside each other


def is_batsim(document: Any) -> bool:
    """Return whether a JSON document is a workload of Batsim."""
    return isinstance(document, dict) and (
        isinstance(document.get("profiles"), dict) or "subtime" in get_first_job(document)
    )


def read_batsim(document: Any, builder: TraceBuilder) -> Trace:
    """Read a workload of Batsim."""
    profiles, known = document.get("profiles"), dict[str, float]()
    builder.expected["runtime"] = "a walltime, or a profile that is a delay or a sequence of delays"
    _add_workload(
        builder,
        document.get("jobs"),
        submit="subtime",
        get_servers=lambda job: job.get("res"),
        compute_runtime=lambda job: _find_delay(job.get("profile"), profiles, known),
    )
    machine = document.get("nb_res")
    is_size = isinstance(machine, int) and not isinstance(machine, bool) and machine >= 1
    return builder.build(machine_servers=machine if is_size else None)


def _find_delay(name: Any, profiles: Any, known: dict[str, float], depth: int = 0) -> float:
    """Return the seconds that a profile waits; NaN if it does anything else."""
    if not isinstance(name, str) or depth > _MAX_PROFILES:
        return math.nan
    if name not in known:
        known[name] = math.nan  # in case that the profile contains itself
        profile = get_member(profiles, name)
        kind, parts = get_member(profile, "type"), get_member(profile, "seq")
        if kind in _DELAYS:
            known[name] = get_number(profile.get("delay"))
        elif kind in _SEQUENCES and isinstance(parts, list):
            repeats = get_number(profile.get("repeat", profile.get("nb", 1)))
            delays = [_find_delay(part, profiles, known, depth + 1) for part in parts]
            known[name] = repeats * math.fsum(delays)
    return known[name]


# --- ElastiSim -------------------------------------------------------------------------------


def is_elastisim(document: Any) -> bool:
    """Return whether a JSON document is a workload of ElastiSim."""
    first = get_first_job(document)
    return isinstance(document, dict) and (
        "application_model" in first or ("submit_time" in first and "type" in first)
    )


def read_elastisim(document: Any, builder: TraceBuilder) -> Trace:
    """Read a workload of ElastiSim."""
    builder.expected["runtime"] = "a walltime"
    _add_workload(
        builder,
        document.get("jobs"),
        submit="submit_time",
        get_servers=lambda job: job.get("num_nodes", job.get("num_nodes_max")),
        compute_runtime=lambda job: math.nan,
    )
    return builder.build()
