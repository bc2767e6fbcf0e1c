"""The trace formats that can be read, and ``read_trace()``, which recognises them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hesrpt.errors import InputError
from hesrpt.files import Block, describe_source, read_pieces, split_blocks
from hesrpt.traces import batsim, elastisim, philly, sacct, swf, table
from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.columns import check_columns
from hesrpt.traces.json_jobs import is_json, parse_document
from hesrpt.traces.trace import Trace
from hesrpt.validation import check_choice, shorten

if TYPE_CHECKING:
    from hashlib import _Hash as Hash


@dataclass(frozen=True)
class TextFormat:
    """How to recognise a format by its first line that is not blank, and how to read it."""

    title: str
    recognises: Callable[[str], bool]
    #: Called with the text from that line on, a builder, and the user's mapping of columns.
    read: Callable[[Iterable[Block], TraceBuilder, Mapping[str, str]], Trace]


@dataclass(frozen=True)
class JsonFormat:
    """How to recognise a JSON document, and how to read it."""

    title: str
    recognises: Callable[[Any], bool]
    #: Called with the document, a builder, and the user's mapping of columns.
    read: Callable[[Any, TraceBuilder, Mapping[str, str]], Trace]


#: The first format that recognises a trace reads it.
FORMATS: dict[str, TextFormat | JsonFormat] = {
    "swf": TextFormat("Standard Workload Format", swf.is_swf, swf.read_swf),
    "sacct": TextFormat("sacct --parsable2", sacct.is_sacct, sacct.read_sacct),
    "sacct-json": JsonFormat("sacct --json", sacct.is_sacct_json, sacct.read_sacct_json),
    "batsim": JsonFormat("a workload of Batsim", batsim.is_batsim, batsim.read_batsim),
    "elastisim": JsonFormat(
        "a workload of ElastiSim", elastisim.is_elastisim, elastisim.read_elastisim
    ),
    "philly": JsonFormat("Philly's job log", philly.is_philly, philly.read_philly),
    "csv": TextFormat("a table with a header", table.is_delimited, table.read_delimited),
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
        "swf" (Standard Workload Format), "sacct" (Slurm's ``sacct --parsable2``), "sacct-json"
        (``sacct --json``), "batsim" or "elastisim" (workloads of these simulators), "philly" (the
        job log of Microsoft's Philly clusters) or "csv" (a table with a header, separated by
        commas, semicolons, tabs or vertical bars). Recognised from the content by default.
    columns
        Maps our names of columns to the names in the file, such as ``{"servers": "num_gpus"}``.
        Only columns with unusual names need this. Our names are submit, runtime, servers, start,
        end, wait, estimate, name and user. Columns without a header have the numbers 1, 2, ….
    labels
        Other columns to keep as text in :attr:`Trace.labels`, by their names in the file; of SWF,
        any of group, application, queue and partition; of JSON, any key of a job. Users are always
        kept.
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
    digest = sha256()
    with closing(_hash_pieces(read_pieces(path), digest)) as pieces:
        trace = _read(pieces, builder, format, columns, progress)
        for _ in pieces:  # whatever the reader has left
            pass
    return replace(trace, sha256=digest.hexdigest())


def _hash_pieces(
    pieces: Generator[bytes, None, None], digest: Hash
) -> Generator[bytes, None, None]:
    """Yield pieces after adding them to a digest."""
    with closing(pieces):
        for piece in pieces:
            digest.update(piece)
            yield piece


def _read(
    pieces: Iterator[bytes],
    builder: TraceBuilder,
    format: str | None,  # noqa: A002
    columns: Mapping[str, str],
    progress: Callable[[int], None] | None,
) -> Trace:
    start = b""
    while not start.strip() and (piece := next(pieces, b"")):
        start += piece
    pieces_again = chain([start], pieces)
    if format is None and is_json(start):
        return _read_json(pieces_again, builder, columns)
    if format == "sacct" and is_json(start):
        format = "sacct-json"  # noqa: A001
    if format is not None and isinstance(known := FORMATS[format], JsonFormat):
        document = parse_document(pieces_again, builder.source)
        if not known.recognises(document):
            raise InputError(
                f"must be that of {builder.source}, got {format!r} ({known.title}); "
                f"{_describe_document(document)}",
                argument="format",
            )
        return known.read(document, builder, columns)
    blocks = split_blocks(pieces_again, builder.source, progress)
    first = next((block for block in blocks if any(map(str.strip, block.lines))), None)
    if first is None:
        raise InputError(f"{builder.source}: is empty; a trace was expected")
    line = next(filter(str.strip, first.lines))
    text_format = FORMATS[format] if format is not None else _recognise_text(line)
    return text_format.read(chain([first], blocks), builder, columns)


def _read_json(pieces: Iterable[bytes], builder: TraceBuilder, columns: Mapping[str, str]) -> Trace:
    document = parse_document(pieces, builder.source)
    known = [each for each in FORMATS.values() if isinstance(each, JsonFormat)]
    for each in known:
        if each.recognises(document):
            return each.read(document, builder, columns)
    titles = ", ".join(each.title for each in known[:-1]) + f" or {known[-1].title}"
    raise InputError(f"{builder.source}: is JSON, but not {titles}; {_describe_document(document)}")


def _recognise_text(line: str) -> TextFormat:
    return next(
        known
        for known in FORMATS.values()
        if isinstance(known, TextFormat) and known.recognises(line)
    )


def _describe_document(document: Any) -> str:
    """Return what a JSON document contains, in words."""
    if isinstance(document, dict):
        return f"the document has the keys {shorten(', '.join(map(str, document)))}"
    kind = "a list" if isinstance(document, list) else "a single value"
    return f"the document is {kind}: {shorten(document)}"
