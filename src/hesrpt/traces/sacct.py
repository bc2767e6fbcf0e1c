"""Slurm's accounting records, as ``sacct --parsable2`` and ``sacct --json`` print them.

Without a header, the values tell which column is which, as far as they do. Dates are in the order
submission, start, end. The elapsed time is the one from start to end. A column of whole numbers
holds the servers if it is the only one. Whatever remains open is the user's to say, by the numbers
of columns.

Versions of Slurm differ in their JSON: since 23.02, numbers that may be missing are objects with
``set`` and ``number``, and the state of a job is a list.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.files import Block
from hesrpt.traces.building import Cells, TraceBuilder
from hesrpt.traces.cells import TimeKind, count_tasks, parse_durations, parse_id, parse_times
from hesrpt.traces.json_jobs import JsonJob, add_jobs, get_first_job, get_member
from hesrpt.traces.table import Dialect, read_table
from hesrpt.traces.trace import Trace
from hesrpt.units import MINUTE
from hesrpt.validation import shorten

_UNFINISHED = {
    *("running", "pending", "suspended", "configuring", "completing", "resizing"),
    *("r", "pd", "s", "cf", "cg", "rs"),
}
_FINISHED = {
    *("boot_fail", "cancelled", "completed", "deadline", "failed", "node_fail", "out_of_memory"),
    *("preempted", "requeued", "revoked", "timeout"),
    *("bf", "ca", "cd", "dl", "f", "nf", "oom", "pr", "rq", "rv", "to"),
}


def is_unfinished(state: str) -> bool:
    """Return whether a job in this state has not ended.

    >>> is_unfinished("RUNNING"), is_unfinished("CANCELLED by 1000")
    (True, False)
    """
    return _normalise(state) in _UNFINISHED


def is_state(text: str) -> bool:
    """Return whether a text is a state of a job."""
    return _normalise(text) in _UNFINISHED | _FINISHED


def _normalise(state: str) -> str:
    return state.strip().lower().partition(" ")[0].rstrip("+")  # sacct cuts "CANCELLED+"


# The part of jobs whose elapsed time is the time from start to end: the others were suspended.
_USUALLY = 0.9
_Columns = dict[int, FloatArray]  # by number


def guess_columns(
    place: str, rows: Sequence[Sequence[str]], columns: Mapping[str, str]
) -> dict[str, str]:
    """Return the numbers of our columns, from 1, in rows of jobs; ``columns`` is what is known.

    >>> job = "7|2024-05-01T10:00:00|2024-05-01T10:01:00|2024-05-01T10:02:00|COMPLETED|16"
    >>> guess_columns("trace:1", [job.split("|")], {})
    {'submit': '2', 'start': '3', 'end': '4', 'servers': '6', 'state': '5', 'name': '1'}
    """
    taken = set(columns.values())
    free = {
        number: [row[number - 1].strip() for row in rows]
        for number in range(2, len(rows[0]) + 1)
        if str(number) not in taken
    }
    found = _find_times(_select(free, _parse_dates), _select(free, _parse_durations))
    numbers = _select(free, _parse_whole_numbers)
    if len(numbers) == 1:
        found["servers"] = next(iter(numbers))
    states = [number for number, cells in free.items() if all(map(is_state, cells))]
    if len(states) == 1:
        found["state"] = states[0]
    known = {ours: str(number) for ours, number in (found | {"name": 1}).items()} | dict(columns)
    missing = [ours for ours in ("submit", "servers") if ours not in known]
    if "runtime" not in known and not {"start", "end"} <= set(known):
        missing.append("runtime")
    if missing:
        raise InputError(
            f"must say which columns of {place} hold {' and '.join(missing)}, by number, such as "
            f"{missing[0]}=5: sacct printed no header (--noheader), and the values of columns 2 to "
            f"{len(rows[0])} do not tell; the first row is {'|'.join(rows[0])[:200]!r}",
            argument="columns",
        )
    return known


def _select(
    columns: Mapping[int, Sequence[str]], parse: Callable[[Sequence[str]], FloatArray | None]
) -> _Columns:
    parsed = {number: parse(cells) for number, cells in columns.items()}
    return {number: values for number, values in parsed.items() if values is not None}


def _parse_dates(cells: Sequence[str]) -> FloatArray | None:
    times, kinds = parse_times(cells)
    is_date = kinds != TimeKind.NUMBER
    # The start of a job that never started is "Unknown" or "None".
    return times if is_date.any() and (is_date | np.isnan(times)).all() else None


def _parse_durations(cells: Sequence[str]) -> FloatArray | None:
    """Return the durations in a column such as Elapsed; exit codes (0:0) are none."""
    durations = parse_durations(cells)
    has_clock = all(cell.count(":") == 2 for cell in cells)
    return durations if has_clock and np.isfinite(durations).all() else None


def _parse_whole_numbers(cells: Sequence[str]) -> FloatArray | None:
    is_whole = all(cell.isascii() and cell.isdigit() and len(cell) < 16 for cell in cells)
    return np.array([float(cell) for cell in cells]) if is_whole else None


def _find_times(dates: _Columns, durations: _Columns) -> dict[str, int]:
    """Return which columns hold the submission, the start, the end and the elapsed time."""
    has_all = np.all([np.isfinite(times) for times in dates.values()], axis=0)
    if not dates or not has_all.any():
        return {}
    order = sorted(dates, key=lambda number: float(dates[number][has_all].mean()))
    submit, start, end = order[0], order[-2:][0], order[-1]  # Eligible may be in between
    matching = [
        number
        for number, values in durations.items()
        if np.mean((values == dates[end] - dates[start])[has_all]) > _USUALLY
    ]
    if len(order) >= 3 and (matching or not durations):
        times = {"submit": submit, "start": start, "end": end}
        return times | ({"runtime": matching[0]} if matching else {})
    if len(order) == 2 and matching:
        return {}  # submission and end of jobs that never waited, or start and end
    return {"submit": submit} | ({"runtime": next(iter(durations))} if len(durations) == 1 else {})


_SAMPLE = 1000  # rows from which columns without a header are guessed

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
        width = line.rstrip("|").count("|") + 1
        cells = [line.split("|") for line in lines[blank_lines:]]
        sample = [row for row in cells if _is_whole_job(row, width)]
        place = f"{builder.source}:{first_line + blank_lines}"
        if not sample:
            raise InputError(f"{place}: has no header and no job, only steps of jobs")
        rows = [row[:width] for row in sample[:_SAMPLE]]
        builder.columns = guess_columns(place, rows, builder.columns)
        header = "|".join(str(number) for number in range(1, width + 1))
        first_line, lines = first_line + blank_lines - 1, [header, *lines[blank_lines:]]
    return read_table(chain([Block(first_line, lines)], blocks), builder, _SACCT)


def _is_job(line: str) -> bool:
    """Return whether a line is a row rather than a header: it starts with an id."""
    cells = line.split("|")
    return len(cells) > 2 and parse_id(cells[0]) is not None


def _is_whole_job(cells: Sequence[str], width: int) -> bool:
    meaning = parse_id(cells[0])
    return meaning is not None and not meaning.is_step and len(cells) >= width


def _find_unfinished(cells: Cells) -> list[bool]:
    if "state" in cells:  # such as RUNNING or "CANCELLED by 1000"
        return [is_unfinished(state) for state in cells["state"]]
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
