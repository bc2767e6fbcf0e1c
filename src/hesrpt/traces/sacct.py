"""Slurm's accounting records, as ``sacct --parsable2`` and ``sacct --json`` print them.

Without a header, the user says which column is which, by the numbers of columns.

Versions of Slurm differ in their JSON: since 23.02, numbers that may be missing are objects with
``set`` and ``number``, and the state of a job is a list.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import Block
from hesrpt.traces.building import Cells, TraceBuilder
from hesrpt.traces.json_jobs import JsonJob, add_jobs, get_first_job, get_member
from hesrpt.traces.table import Dialect, count_tasks, parse_id, read_table
from hesrpt.traces.trace import Trace
from hesrpt.units import MINUTE
from hesrpt.validation import shorten

_UNFINISHED = {
    *("running", "pending", "suspended", "configuring", "completing", "resizing"),
    *("r", "pd", "s", "cf", "cg", "rs"),
}
_STATES = {
    *_UNFINISHED,
    *("boot_fail", "cancelled", "completed", "deadline", "failed", "node_fail", "out_of_memory"),
    *("preempted", "requeued", "revoked", "timeout"),
    *("bf", "ca", "cd", "dl", "f", "nf", "oom", "pr", "rq", "rv", "to"),
}


def _normalise(state: str) -> str:
    """Return a state without what follows it, such as that of "CANCELLED by 1000"."""
    return state.strip().lower().partition(" ")[0].rstrip("+")  # sacct cuts "CANCELLED+"


_KNOWN_NAMES = {
    "submit": ("submit",),
    "runtime": ("elapsed", "elapsedraw"),
    "servers": ("alloccpus", "ncpus", "reqcpus", "allocnodes", "nnodes"),
    "start": ("start",),
    "end": ("end",),
    "estimate": ("timelimit", "timelimitraw"),
    "name": ("jobid", "jobidraw"),
    "state": ("state",),
    "user": ("user", "uid"),
}
_ALL_NAMES = {name for names in _KNOWN_NAMES.values() for name in names}


def is_sacct(line: str) -> bool:
    """Return whether a line is the header of sacct's output, or a job of it."""
    names = [name.strip().lower() for name in line.split("|")]
    known = sum(name in _ALL_NAMES for name in names)
    return len(names) > 1 and (names[0].startswith("jobid") or known > 1 or _is_job(line))


def read_sacct(text: Iterable[Block], builder: TraceBuilder) -> Trace:
    """Read the output of sacct."""
    blocks = iter(text)
    first_line, lines = next(blocks)
    blank_lines = next(n for n, line in enumerate(lines) if line.strip())
    line = lines[blank_lines]
    if not is_sacct(line):
        raise InputError(
            f"{builder.source}:{first_line + blank_lines}: is not the output of sacct --parsable2, "
            "whose first line has names such as JobID|Submit|Elapsed|AllocCPUS, got "
            f"{shorten(line)}"
        )
    if _is_job(line):
        first_line, lines = first_line + blank_lines, lines[blank_lines:]
        builder.columns = _number_columns(f"{builder.source}:{first_line}", lines, builder.columns)
        header = "|".join(str(number + 1) for number in range(line.rstrip("|").count("|") + 1))
        first_line, lines = first_line - 1, [header, *lines]
    return read_table(chain([Block(first_line, lines)], blocks), builder, _SACCT)


def _number_columns(place: str, lines: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the numbers of our columns in rows without a header; ``columns`` are the user's."""
    has_runtime = "runtime" in columns or {"start", "end"} <= set(columns)
    if not has_runtime or not {"submit", "servers"} <= set(columns):
        raise InputError(
            f"must say which columns of {place} hold submit, runtime and servers, such as "
            "submit=2,runtime=5,servers=6: sacct printed no header (--noheader); the first row is "
            f"{lines[0][:200]!r}",
            argument="columns",
        )
    # Users do not name states, but these are easy to tell, and say which jobs have not ended.
    width = lines[0].count("|") + 1
    rows = [line.split("|") for line in lines if _is_job(line) and line.count("|") + 1 == width]
    columns_of_rows = enumerate(zip(*rows, strict=True), 1)
    states = [
        str(number)
        for number, cells in columns_of_rows
        if all(_normalise(cell) in _STATES for cell in cells)
    ]
    return {"name": "1", **({"state": states[0]} if len(states) == 1 else {}), **columns}


def _is_job(line: str) -> bool:
    """Return whether a line is a row rather than a header: it starts with an id."""
    cells = line.split("|")
    return len(cells) > 2 and parse_id(cells[0]) is not None


def _find_unfinished(cells: Cells) -> list[bool]:
    if "state" in cells:  # such as RUNNING or "CANCELLED by 1000"
        return [_normalise(state) in _UNFINISHED for state in cells["state"]]
    if "end" in cells:
        return [end.strip().lower() == "unknown" for end in cells["end"]]
    return [False] * len(cells["submit"])


_SACCT = Dialect(
    known_names=_KNOWN_NAMES,
    ranked=tuple(_KNOWN_NAMES),
    separators="|",
    csv_options={"quoting": csv.QUOTE_NONE},  # sacct does not escape quotes
    units={"timelimitraw": 60.0},
    has_slurm_ids=True,
    find_unfinished=_find_unfinished,
)


def is_sacct_json(document: Any) -> bool:
    """Return whether a JSON document is the output of ``sacct --json``."""
    first = get_first_job(document)
    is_empty = isinstance(document, dict) and document.get("jobs") == []
    return ("time" in first and "job_id" in first) or (is_empty and "meta" in document)


def read_sacct_json(document: Any, builder: TraceBuilder) -> Trace:
    """Read the output of ``sacct --json``."""
    add_jobs(builder, document["jobs"], _describe_job, _find_unfinished)
    return builder.build(epoch=0.0, is_zoned=True)  # times are in seconds since 1970


def _describe_job(job: Mapping[str, Any]) -> JsonJob:
    number, leader = _get(job, "job_id"), _get(job, "het", "job_id")
    array, task = _get(job, "array", "job_id"), _get(job, "array", "task_id")
    waiting, limit = get_member(job, "array", "task"), _get(job, "time", "limit")
    state = get_member(job, "state", "current")
    return JsonJob(
        name=f"{array}_{task}" if array and task is not None else number,
        user=job.get("user"),
        submit=_get(job, "time", "submission") or None,
        start=_get(job, "time", "start") or None,
        runtime=_get(job, "time", "elapsed"),
        servers=_find_servers(job),
        estimate=limit * MINUTE if isinstance(limit, (int, float)) else None,
        state=state[0] if isinstance(state, list) and state else state,
        component_of=str(leader) if leader else None,
        count=count_tasks(waiting) if array and task is None and isinstance(waiting, str) else 1,
    )


def _get(job: Any, *keys: str) -> Any:
    """Return a number that may be an object with ``set``, ``infinite`` and ``number``."""
    value = get_member(job, *keys)
    if not isinstance(value, dict):
        return value
    return value.get("number") if value.get("set") and not value.get("infinite") else None


def _find_servers(job: Mapping[str, Any]) -> Any:
    """Return the allocated CPUs, the required ones, or the nodes."""
    allocated = get_member(job, "tres", "allocated")
    for resource in allocated if isinstance(allocated, list) else ():
        if get_member(resource, "type") == "cpu":
            return _get(resource, "count")
    required = _get(job, "required", "CPUs")
    return required or _get(job, "allocation_nodes")
