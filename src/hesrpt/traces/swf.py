"""The Standard Workload Format: lines of 18 numbers, and a header of comments.

The format is that of the Parallel Workloads Archive (Chapin et al., "Benchmarks and standards for
the evaluation of parallel job schedulers", 1999).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.files import Block
from hesrpt.traces.cleaning import DAMAGED, Rows, Sieve
from hesrpt.traces.trace import Log

FIELDS = 18
_FEWEST = 5  # up to the allocated processors
_SUBMIT, _WAIT, _RUNTIME, _ALLOCATED, _REQUESTED, _ESTIMATE, _STATUS = 1, 2, 3, 4, 7, 8, 10
_COLUMNS = {"submit": _SUBMIT, "runtime": _RUNTIME, "servers": _ALLOCATED}
_PARTS_OF_JOBS = (2, 3, 4)  # status of a line about a stretch of a job that has its own line
_HEADER = re.compile(r";\s*(\w+)\s*:\s*([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15})")


def read_swf(text: Iterable[Block], sieve: Sieve) -> Log:
    """Return the jobs of a log in the Standard Workload Format."""
    header: dict[str, int] = {}
    for first, lines in text:
        numbered = [(n, line) for n, line in enumerate(lines, first) if line and not line.isspace()]
        jobs = [(n, line) for n, line in numbered if line.lstrip()[0] != ";"]
        if len(jobs) < len(numbered):
            _read_header(lines, header)
        if jobs:
            numbers, texts = zip(*jobs, strict=True)
            sieve.add(_rows(numbers, texts))
    machine = header.get("maxprocs") or header.get("maxnodes") or None
    return sieve.log(machine, header.get("unixstarttime") or None, zoned=True)


def _read_header(lines: Sequence[str], header: dict[str, int]) -> None:
    for line in lines:
        match = _HEADER.match(line.lstrip())
        if match is not None:
            header.setdefault(match[1].lower(), int(match[2].replace(",", "")))


def _rows(lines: Sequence[int], texts: Sequence[str]) -> Rows:
    table, damaged = _table(texts)
    table[table == -1] = np.nan
    whole_jobs = ~np.isin(table[:, _STATUS], _PARTS_OF_JOBS)
    if not whole_jobs.all():
        table, damaged = table[whole_jobs], damaged[whole_jobs]
        lines, texts = list(compress(lines, whole_jobs)), list(compress(texts, whole_jobs))
    submit, wait = table[:, _SUBMIT], table[:, _WAIT]
    submit[submit < 0] = np.inf
    allocated = table[:, _ALLOCATED]

    def quote(row: int, column: str) -> str:
        return texts[row].split()[_COLUMNS[column]] if column else texts[row].strip()

    return Rows(
        lines=lines,
        names=[text.split(None, 1)[0] for text in texts],
        submit=submit,
        runtime=table[:, _RUNTIME],
        # Nothing runs on 0 processors, so 0 allocated ones are taken as not known.
        servers=np.where(allocated > 0, allocated, table[:, _REQUESTED]),
        start=submit + np.where(wait >= 0, wait, np.nan),
        estimate=table[:, _ESTIMATE],
        troubles={DAMAGED: damaged},
        quote=quote,
    )


def _table(texts: Sequence[str]) -> tuple[FloatArray, BoolArray]:
    """Return the fields of lines, NaN where there are fewer than 18, and which are damaged."""
    for kind in (np.int64, np.float64):  # whole numbers are read five times faster
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # NumPy warns of decimals among whole numbers
                table = np.loadtxt(texts, dtype=kind, comments=None, ndmin=2)
        except (ValueError, Warning):
            continue
        if table.shape == (len(texts), FIELDS):
            return table.astype(np.float64), np.zeros(len(texts), np.bool_)
    return _line_by_line(texts)


def _line_by_line(texts: Sequence[str]) -> tuple[FloatArray, BoolArray]:
    table = np.full((len(texts), FIELDS), np.nan)
    damaged = np.zeros(len(texts), np.bool_)
    for row, text in enumerate(texts):
        fields = text.split()
        try:
            if not _FEWEST <= len(fields) <= FIELDS:
                raise ValueError
            table[row, : len(fields)] = [float(value) for value in fields]
        except ValueError:
            damaged[row] = True
    return table, damaged
