"""Slurm's accounting records, as ``sacct --json`` prints them.

Versions of Slurm differ: since 23.02, numbers that may be missing are objects with ``set`` and
``number``, and the state of a job is a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.columns import refuse_columns
from hesrpt.traces.job_cells import Cells
from hesrpt.traces.json_jobs import JsonJob, add_jobs, get_first_job, get_member
from hesrpt.traces.slurm_ids import count_tasks
from hesrpt.traces.slurm_states import is_unfinished
from hesrpt.traces.trace import Trace
from hesrpt.units import MINUTE


def is_sacct_json(document: Any) -> bool:
    """Return whether a JSON document is the output of ``sacct --json``."""
    first = get_first_job(document)
    is_empty = isinstance(document, dict) and document.get("jobs") == []
    return ("time" in first and "job_id" in first) or (is_empty and "meta" in document)


def read_sacct_json(document: Any, builder: TraceBuilder, columns: Mapping[str, str]) -> Trace:
    """Read the output of ``sacct --json``."""
    refuse_columns(builder.source, "sacct --json", columns)
    add_jobs(builder, "jobs", document["jobs"], _describe_job, _find_unfinished)
    return builder.build(epoch=0.0, is_zoned=True)  # times are in seconds since 1970


def _describe_job(job: Mapping[str, Any]) -> JsonJob:
    number, array, leader = (
        _get_number(value)
        for value in (
            job.get("job_id"),
            get_member(job, "array", "job_id"),
            get_member(job, "het", "job_id"),
        )
    )
    task = _get_number(get_member(job, "array", "task_id"))
    waiting = get_member(job, "array", "task")
    limit = _get_number(get_member(job, "time", "limit"))
    state = get_member(job, "state", "current")
    return JsonJob(
        name=f"{array}_{task}" if array and task is not None else number,
        user=job.get("user"),
        submit=_get_number(get_member(job, "time", "submission")) or None,
        start=_get_number(get_member(job, "time", "start")) or None,
        runtime=_get_number(get_member(job, "time", "elapsed")),
        servers=_find_servers(job),
        estimate=limit * MINUTE if isinstance(limit, (int, float)) else None,
        state=state[0] if isinstance(state, list) and state else state,
        component_of=str(leader) if leader else None,
        count=count_tasks(waiting) if array and task is None and isinstance(waiting, str) else 1,
    )


def _get_number(value: Any) -> Any:
    """Return a number that may be an object with ``set``, ``infinite`` and ``number``."""
    if not isinstance(value, dict):
        return value
    return value.get("number") if value.get("set") and not value.get("infinite") else None


def _find_servers(job: Mapping[str, Any]) -> Any:
    """Return the allocated CPUs, the required ones, or the nodes."""
    allocated = get_member(job, "tres", "allocated")
    for resource in allocated if isinstance(allocated, list) else ():
        if get_member(resource, "type") == "cpu":
            return _get_number(get_member(resource, "count"))
    required = _get_number(get_member(job, "required", "CPUs"))
    return required or _get_number(job.get("allocation_nodes"))


def _find_unfinished(cells: Cells) -> list[bool]:
    return [is_unfinished(state) for state in cells["state"]]
