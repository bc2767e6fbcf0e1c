"""Traces in JSON: what the formats share, and the job log of Microsoft's Philly clusters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from hesrpt.errors import InputError
from hesrpt.traces.building import Cells, JobParser, JobText, TraceBuilder, parse_times
from hesrpt.traces.table import COLUMNS
from hesrpt.traces.trace import Trace
from hesrpt.validation import shorten

#: A document that is longer than this is refused: it would need several times as much memory.
MAX_BYTES = 1 << 30
_KEYS = (*COLUMNS, "state")


class JsonJob:
    """A job of a JSON document as texts, by our names of columns."""

    def __init__(self, *, count: int = 1, component_of: str | None = None, **values: object):
        self.texts = {ours: write_text(value) for ours, value in values.items()}
        self.count = count  # how many jobs it stands for
        self.component_of = component_of  # the heterogeneous job that it is a part of


def parse_document(pieces: Iterable[bytes], source: str) -> Any:
    """Return a JSON document that comes in pieces."""
    parts, length = [], 0
    for piece in pieces:
        parts.append(piece)
        length += len(piece)
        if length > MAX_BYTES:
            raise InputError(
                f"{source}: is longer than {MAX_BYTES:,} bytes of JSON; a table, such as that of "
                "sacct --parsable2, may be longer"
            )
    try:
        return json.loads(b"".join(parts).decode())
    except UnicodeDecodeError:
        raise InputError(f"{source}: is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source}:{error.lineno}: is not JSON: {error.msg} (column {error.colno})"
        ) from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits; 100,000 brackets
        raise InputError(f"{source}: cannot be read as JSON: {error}") from None


def get_first_job(document: Any) -> Mapping[str, Any]:
    """Return the first job of a document that has a list of jobs, or else an empty mapping."""
    jobs = document.get("jobs") if isinstance(document, dict) else document
    first = jobs[0] if isinstance(jobs, list) and jobs else None
    return first if isinstance(first, dict) else {}


def get_member(value: Any, *keys: str) -> Any:
    """Return a value inside nested objects, or None if one of them does not have it."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def write_text(value: object) -> str:
    """Return a value as the text of a cell; None is a missing value.

    >>> write_text(12), write_text("a"), write_text(None), write_text([1])
    ('12', 'a', '', '[1]')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, (dict, list)) else repr(value)


def get_number(value: Any) -> float:
    """Return a number of a JSON document, or NaN if the value is not one.

    >>> get_number(2), get_number("2"), get_number(True)
    (2.0, nan, nan)
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e300 else math.nan


def add_jobs(
    builder: TraceBuilder,
    jobs: Any,
    describe: Callable[[Mapping[str, Any]], JsonJob],
    find_unfinished: Callable[[Cells], list[bool]] | None = None,
) -> JobParser:
    """Add the jobs in a list; ``describe`` returns the values of one."""
    if not isinstance(jobs, list):
        raise InputError(f"{builder.source}: jobs must be a list, got {shorten(jobs)}")
    for name in builder.kept:
        if not any(isinstance(job, dict) and name in job for job in jobs):
            keys = ", ".join(get_first_job(jobs))
            raise InputError(
                f"{builder.source}: no job has {shorten(name)}; the first has {shorten(keys)}"
            )
    texts = []
    for number, job in enumerate(jobs):
        place = f"jobs[{number}]"
        if not isinstance(job, dict):
            texts.append(JobText(place, [write_text(job)], is_readable=False))
            continue
        described = describe(job)
        described.texts["name"] = described.texts.get("name") or str(number)
        row = [described.texts.get(ours, "") for ours in _KEYS]
        row += [write_text(job.get(name)) for name in builder.kept]
        texts.append(JobText(place, row, jobs=described.count, component_of=described.component_of))
    readable = [text.cells for text in texts if text.is_readable]
    positions = {
        ours: position
        for position, ours in enumerate(_KEYS)
        if ours in ("submit", "servers", "state") or any(row[position] for row in readable)
    }
    kept = {name: position for position, name in enumerate(builder.kept, len(_KEYS))}
    parser = JobParser(positions, find_unfinished=find_unfinished, kept=kept)
    parser.add_jobs(builder, [texts])
    return parser


_RUNNING = "running"


def is_philly(document: Any) -> bool:
    """Return whether a JSON document is a job log of Philly."""
    return isinstance(document, list) and "attempts" in get_first_job(document)


def read_philly(document: Any, builder: TraceBuilder) -> Trace:
    """Read a job log of Philly: a list of jobs with their attempts to run.

    A job runs again after a failure or a preemption. Its run time is that of all its attempts, its
    start that of the first, and its servers are the GPUs of its widest attempt.
    """
    return add_jobs(builder, document, _describe_job, _find_unfinished).build(builder)


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
