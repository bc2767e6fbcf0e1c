"""``read_log()``: finds out what kind of log a file holds, and has it read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path

from hesrpt.errors import InputError
from hesrpt.files import describe_source, read_blocks
from hesrpt.traces import sacct
from hesrpt.traces.cleaning import Sieve
from hesrpt.traces.columns import check_columns
from hesrpt.traces.delimited import CSV
from hesrpt.traces.swf import FIELDS, read_swf
from hesrpt.traces.table import read_table
from hesrpt.traces.trace import Log
from hesrpt.validation import is_number

_TABLES = {"sacct": sacct.SACCT, "csv": CSV}
FORMATS = ("swf", *_TABLES)


def read_log(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Mapping[str, str] | None = None,
    strict: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Log:
    """Return the jobs in the log of a cluster.

    Parameters
    ----------
    path
        The file, plain or gzipped. "-" reads standard input.
    format
        "swf" (Standard Workload Format), "sacct" (Slurm's ``sacct --parsable2``) or "csv" (a table
        with a header, separated by commas, semicolons or tabs). Found out if not given.
    columns
        Where columns have other names than we know: our names, and what they are called there, such
        as ``{"servers": "num_gpus"}``. Ours are submit, runtime, servers, start, end, wait,
        estimate and name.
    strict
        Whether the first job that cannot be used is an error. Otherwise such jobs are counted, in
        :attr:`Log.dropped`.
    progress
        Called now and then with how many lines have been read.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"unknown format {format!r}; formats are: {', '.join(FORMATS)}")
    columns = columns or {}
    check_columns(columns)
    sieve = Sieve(describe_source(path), strict)
    with closing(read_blocks(path, progress)) as blocks:
        # What comes before the first line that is not blank tells nothing.
        begin = next((block for block in blocks if any(map(str.strip, block.lines))), None)
        if begin is None:
            raise InputError(f"{sieve.place}: is empty; a log was expected")
        text = chain([begin], blocks)
        kind = format or _format_of(next(filter(str.strip, begin.lines)))
        if kind != "swf":
            return read_table(text, sieve, _TABLES[kind], columns)
        if columns:
            raise InputError(f"{sieve.place}: is in SWF, whose columns have no names to be given")
        return read_swf(text, sieve)


def _format_of(line: str) -> str:
    """Return the format of a log that begins with this line."""
    names = [name.strip().lower() for name in line.split("|")]
    known = sum(name in sacct.NAMES for name in names)
    if len(names) > 1 and (names[0].startswith("jobid") or known > 1):
        return "sacct"
    fields = line.split()
    if line.lstrip().startswith(";") or (len(fields) == FIELDS and all(map(is_number, fields))):
        return "swf"
    return "csv"
