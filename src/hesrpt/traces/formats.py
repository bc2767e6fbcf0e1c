"""The trace formats that can be read, and ``read_trace()``, which recognises them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from hesrpt.errors import InputError
from hesrpt.files import Block, describe_source, read_blocks
from hesrpt.traces import delimited, sacct, swf
from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.columns import check_columns
from hesrpt.traces.trace import Trace
from hesrpt.validation import check_choice


@dataclass(frozen=True)
class TraceFormat:
    """How to recognise a format by its first line that is not blank, and how to read it."""

    recognises: Callable[[str], bool]
    #: Called with the text from that line on, a builder, and the user's mapping of columns.
    read: Callable[[Iterable[Block], TraceBuilder, Mapping[str, str]], Trace]


#: The first format that recognises a trace reads it.
FORMATS = {
    "swf": TraceFormat(swf.is_swf, swf.read_swf),
    "sacct": TraceFormat(sacct.is_sacct, sacct.read_sacct),
    "csv": TraceFormat(delimited.is_delimited, delimited.read_delimited),
}


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] = (),
    strict: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """Read the trace of a cluster.

    Parameters
    ----------
    path
        The file, plain or gzipped. "-" reads standard input.
    format
        "swf" (Standard Workload Format), "sacct" (Slurm's ``sacct --parsable2``) or "csv" (a table
        with a header, separated by commas, semicolons, tabs or vertical bars). Recognised from the
        first line by default.
    columns
        Maps our names of columns to the names in the file, such as ``{"servers": "num_gpus"}``.
        Only columns with unusual names need this. Our names are submit, runtime, servers, start,
        end, wait, estimate, name and user.
    labels
        Other columns to keep as text in :attr:`Trace.labels`, by their names in the file; of SWF,
        any of group, application, queue and partition. Users are always kept.
    strict
        Raise an error for the first unusable job. By default, unusable jobs are dropped and counted
        in :attr:`Trace.dropped`.
    progress
        Called from time to time with the number of lines read.
    """
    if format is not None:
        check_choice("format", format, tuple(FORMATS))
    columns = columns or {}
    check_columns(columns)
    builder = TraceBuilder(describe_source(path), strict, tuple(labels))
    with closing(read_blocks(path, progress)) as blocks:
        first = next((block for block in blocks if any(map(str.strip, block.lines))), None)
        if first is None:
            raise InputError(f"{builder.source}: is empty; a trace was expected")
        if format is None:
            format = _recognise_format(next(filter(str.strip, first.lines)))  # noqa: A001
        return FORMATS[format].read(chain([first], blocks), builder, columns)


def _recognise_format(line: str) -> str:
    return next(name for name, known in FORMATS.items() if known.recognises(line))
