"""The job log of Microsoft's Philly clusters: a JSON list of jobs with their attempts to run.

A job runs again after a failure or a preemption. Its run time is that of all its attempts, its
start that of the first, and its servers are the GPUs of its widest attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hesrpt.traces.building import Cells, TraceBuilder
from hesrpt.traces.cells import parse_times
from hesrpt.traces.columns import refuse_columns
from hesrpt.traces.json_jobs import (
    JsonJob,
    add_jobs,
    get_first_job,
    get_member,
    write_text,
)
from hesrpt.traces.trace import Trace

_RUNNING = "running"


def is_philly(document: Any) -> bool:
    """Return whether a JSON document is a job log of Philly."""
    return isinstance(document, list) and "attempts" in get_first_job(document)


def read_philly(document: Any, builder: TraceBuilder, columns: Mapping[str, str]) -> Trace:
    """Read a job log of Philly."""
    refuse_columns(builder.source, "Philly's job log", columns)
    return add_jobs(builder, "jobs", document, _describe_job, _find_unfinished).build(builder)


def _describe_job(job: Mapping[str, Any]) -> JsonJob:
    attempts = job.get("attempts")
    attempts = attempts if isinstance(attempts, list) else []
    starts = [write_text(get_member(attempt, "start_time")) for attempt in attempts]
    ends = [write_text(get_member(attempt, "end_time")) for attempt in attempts]
    runtime = None
    if attempts:
        # Attempts without a start or an end are errors of the log.
        with np.errstate(invalid="ignore"):
            times = parse_times(ends)[0] - parse_times(starts)[0]
        known = times[np.isfinite(times)]
        runtime = float(known.sum()) if len(known) else None
    is_running = bool(ends) and ends[-1].strip().lower() in ("", "none")
    return JsonJob(
        name=job.get("jobid"),
        user=job.get("user"),
        submit=job.get("submitted_time"),
        start=starts[0] if starts else None,
        runtime=runtime,
        servers=max(map(_count_gpus, attempts), default=None),
        state=_RUNNING if is_running else job.get("status"),
    )


def _count_gpus(attempt: Any) -> int:
    machines = get_member(attempt, "detail")
    if not isinstance(machines, list):
        return 0
    lists = [get_member(machine, "gpus") for machine in machines]
    return sum(len(gpus) for gpus in lists if isinstance(gpus, list))


def _find_unfinished(cells: Cells) -> list[bool]:
    return [state == _RUNNING for state in cells["state"]]
