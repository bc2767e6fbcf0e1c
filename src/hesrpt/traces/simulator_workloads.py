"""Workloads of simulators, whose walltimes may have to stand for run times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.json_jobs import JsonJob, add_jobs, get_number
from hesrpt.traces.trace import Trace
from hesrpt.units import format_count


def read_workload(
    builder: TraceBuilder,
    jobs: Any,
    get_servers: Callable[[Mapping[str, Any]], Any],
    compute_runtime: Callable[[Mapping[str, Any]], float],
    names: Mapping[str, str],
    machine_servers: int | None,
    expected: str,
    describe_run_times: Callable[[], list[str]] = list,
) -> Trace:
    """Read the jobs of a workload, whose times are seconds.

    ``compute_runtime`` returns NaN if the run time of a job is unknown, because it depends on the
    simulated machine. Then the walltime stands for it, and the trace has a note. ``names`` are the
    simulator's names of the name and the submission time, and ``expected`` says what a job without
    a run time needs. ``describe_run_times`` returns notes when all jobs have been read.
    """
    unknown = 0
    builder.expected["runtime"] = expected

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
            name=job.get(names["name"]),
            submit=job.get(names["submit"]),
            servers=get_servers(job),
            runtime=None if math.isnan(runtime) else runtime,
            estimate=walltime if has_walltime else None,
        )

    add_jobs(builder, "jobs", jobs, describe)
    if unknown:
        builder.notes.append(
            f"the walltime stands for the run time of {format_count(unknown, 'job')}, which the "
            "workload does not say: how long a job computes depends on the simulated machine"
        )
    builder.notes += describe_run_times()
    return builder.build(machine_servers=machine_servers)
