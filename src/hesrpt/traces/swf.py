"""The Standard Workload Format: a header of comments, then 18 numbers per line.

The format of the Parallel Workloads Archive (Chapin et al., "Benchmarks and standards for the
evaluation of parallel job schedulers", 1999).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from itertools import compress

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import InputError
from hesrpt.files import Block
from hesrpt.traces.building import UNREADABLE, RawJobs, TraceBuilder
from hesrpt.traces.trace import Trace
from hesrpt.validation import is_number

_FIELDS = 18
_MIN_FIELDS = 5  # up to the allocated processors
_SUBMIT, _WAIT, _RUNTIME, _ALLOCATED, _REQUESTED, _ESTIMATE, _STATUS = 1, 2, 3, 4, 7, 8, 10
# Fields with numbers that stand for users, programs and so on.
_LABELS = {"user": 11, "group": 12, "application": 13, "queue": 14, "partition": 15}
_FIELD_OF_COLUMN = {"submit": _SUBMIT, "runtime": _RUNTIME, "servers": _ALLOCATED}
_PARTIAL_STATUSES = (2, 3, 4)  # parts of a job; another line describes the whole job
_HEADER = re.compile(r";\s*(\w+)\s*:\s*([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15})")


def is_swf(line: str) -> bool:
    """Return whether a line is a comment or a job in the Standard Workload Format."""
    fields = line.split()
    return line.lstrip().startswith(";") or (len(fields) == _FIELDS and all(map(is_number, fields)))


def read_swf(text: Iterable[Block], builder: TraceBuilder) -> Trace:
    """Read a trace in the Standard Workload Format."""
    for name in builder.kept:
        if name not in _LABELS:
            raise InputError(
                f"{builder.source}: has no column {name!r}; SWF has {', '.join(_LABELS)}"
            )
    header: dict[str, int] = {}
    for first_line, lines in text:
        numbered = [
            (number, line)
            for number, line in enumerate(lines, first_line)
            if line and not line.isspace()
        ]
        jobs = [(number, line) for number, line in numbered if line.lstrip()[0] != ";"]
        if len(jobs) < len(numbered):
            for match in filter(None, (_HEADER.match(line.lstrip()) for line in lines)):
                header.setdefault(match[1].lower(), int(match[2].replace(",", "")))
        if jobs:
            numbers, texts = zip(*jobs, strict=True)
            builder.add(_read_jobs(numbers, texts, dict.fromkeys(("user", *builder.kept))))
    return builder.build(
        machine_servers=header.get("maxprocs") or header.get("maxnodes") or None,
        epoch=header.get("unixstarttime") or None,
        is_zoned=True,
    )


def _read_jobs(lines: Sequence[int], texts: Sequence[str], labels: Collection[str]) -> RawJobs:
    fields, unreadable = _parse_fields(texts)
    fields[fields == -1] = np.nan
    is_job = ~np.isin(fields[:, _STATUS], _PARTIAL_STATUSES)
    if not is_job.all():
        fields, unreadable = fields[is_job], unreadable[is_job]
        lines, texts = list(compress(lines, is_job)), list(compress(texts, is_job))
    submit, wait = fields[:, _SUBMIT], fields[:, _WAIT]
    submit[submit < 0] = np.inf
    allocated = fields[:, _ALLOCATED]

    def quote(job: int, column: str) -> str:
        text = texts[job]
        return text.split()[_FIELD_OF_COLUMN[column]] if column else text.strip()

    return RawJobs(
        places=lines,
        names=[text.split(None, 1)[0] for text in texts],
        submit_times=submit,
        runtimes=fields[:, _RUNTIME],
        # No job runs on 0 processors, so an allocation of 0 means unknown.
        servers=np.where(allocated > 0, allocated, fields[:, _REQUESTED]),
        start_times=submit + np.where(wait >= 0, wait, np.nan),
        estimates=fields[:, _ESTIMATE],
        defects={UNREADABLE: unreadable},
        quote=quote,
        labels={
            name: ["" if number != number else f"{number:g}" for number in fields[:, at].tolist()]
            for name, at in _LABELS.items()
            if name in labels
        },
    )


def _parse_fields(texts: Sequence[str]) -> tuple[FloatArray, BoolArray]:
    """Return the fields of each line, padded with NaN, and which lines are unreadable."""
    for dtype in (np.int64, np.float64):  # integers are parsed five times faster
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # NumPy warns about decimals among integers
                fields = np.loadtxt(texts, dtype=dtype, comments=None, ndmin=2)
        except (ValueError, Warning):
            continue
        if fields.shape == (len(texts), _FIELDS):
            return fields.astype(np.float64), np.zeros(len(texts), np.bool_)
    return _parse_line_by_line(texts)


def _parse_line_by_line(texts: Sequence[str]) -> tuple[FloatArray, BoolArray]:
    fields = np.full((len(texts), _FIELDS), np.nan)
    unreadable = np.zeros(len(texts), np.bool_)
    for row, text in enumerate(texts):
        values = text.split()
        try:
            if not _MIN_FIELDS <= len(values) <= _FIELDS:
                raise ValueError
            fields[row, : len(values)] = [float(value) for value in values]
        except ValueError:
            unreadable[row] = True
    return fields, unreadable
