"""The trace formats that can be read, and ``read_trace()``, which recognises them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hesrpt.errors import InputError
from hesrpt.files import BLOCK_BYTES, describe_source, read_pieces, split_blocks
from hesrpt.traces import json_jobs, sacct, swf, table
from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.simulator_workloads import is_batsim, is_elastisim, read_batsim, read_elastisim
from hesrpt.traces.trace import Trace
from hesrpt.traces.training_jobs import is_training, read_training
from hesrpt.validation import check_choice, shorten

if TYPE_CHECKING:
    from hashlib import _Hash as Hash


@dataclass(frozen=True)
class Format:
    """How to recognise a format, and how to read it."""

    title: str
    #: Called with a JSON document, or with the first line of a text that is not blank.
    recognises: Callable[[Any], bool]
    #: Called with the document, or with the blocks of the text from that line on.
    read: Callable[[Any, TraceBuilder], Trace]
    is_json: bool = True
    #: Whether a user may say which columns are which.
    has_columns: bool = False


#: The first format that recognises a trace reads it.
FORMATS = {
    "swf": Format("SWF", swf.is_swf, swf.read_swf, is_json=False),
    "sacct": Format(
        "sacct --parsable2", sacct.is_sacct, sacct.read_sacct, is_json=False, has_columns=True
    ),
    "sacct-json": Format("sacct --json", sacct.is_sacct_json, sacct.read_sacct_json),
    "batsim": Format("a workload of Batsim", is_batsim, read_batsim),
    "elastisim": Format("a workload of ElastiSim", is_elastisim, read_elastisim),
    "philly": Format("Philly's job log", json_jobs.is_philly, json_jobs.read_philly),
    "training": Format("a list of training jobs", is_training, read_training, is_json=False),
    "csv": Format(
        "a table with a header", lambda line: True, table.read_csv, is_json=False, has_columns=True
    ),
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
        job log of Microsoft's Philly clusters), "training" (jobs of a training cluster, in JSON
        lines) or "csv" (a table with a header, separated by commas, semicolons, tabs or vertical
        bars). Recognised from the content by default.
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
    table.check_columns(columns or {})
    builder = TraceBuilder(describe_source(path), strict, columns or {}, tuple(labels))
    digest = sha256()
    with closing(_hash_pieces(read_pieces(path), digest)) as pieces:
        trace = _read(pieces, builder, format, progress)
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
    progress: Callable[[int], None] | None,
) -> Trace:
    start = b""
    while b"\n" not in (head := start.lstrip()) and len(head) <= BLOCK_BYTES:
        if not (piece := next(pieces, b"")):
            break
        start += piece
    pieces = chain([start], pieces)
    # JSON lines are a text, of which each line is a document.
    is_json = head[:1] in (b"{", b"[") and not is_training(b"".join(head.splitlines()[:1]))
    if format == "sacct" and is_json:
        format = "sacct-json"  # noqa: A001
    content: Any
    if is_json if format is None else FORMATS[format].is_json:
        content = json_jobs.parse_document(pieces, builder.source)
        known = _recognise_document(content, builder.source, format)
    else:
        blocks = split_blocks(pieces, builder.source, progress)
        first = next((block for block in blocks if any(map(str.strip, block.lines))), None)
        if first is None:
            raise InputError(f"{builder.source}: is empty; a trace was expected")
        line = next(filter(str.strip, first.lines))
        content = chain([first], blocks)
        texts = (each for each in FORMATS.values() if not each.is_json and each.recognises(line))
        known = next(texts) if format is None else FORMATS[format]
    if builder.columns and not known.has_columns:
        ours, theirs = next(iter(builder.columns.items()))
        raise InputError(
            f"does not apply to {builder.source}, got {ours}={theirs}: the columns of "
            f"{known.title} have fixed meanings",
            argument="columns",
        )
    return known.read(content, builder)


def _recognise_document(document: Any, source: str, format: str | None) -> Format:  # noqa: A002
    """Return the format of a JSON document, or raise an error if it is not the expected one."""
    known = [each for each in FORMATS.values() if each.is_json]
    candidates = known if format is None else [FORMATS[format]]
    for each in candidates:
        if each.recognises(document):
            return each
    if format is not None:
        raise InputError(
            f"must be that of {source}, got {format!r} ({FORMATS[format].title}); "
            f"{_describe_document(document)}",
            argument="format",
        )
    titles = ", ".join(each.title for each in known[:-1]) + f" or {known[-1].title}"
    raise InputError(f"{source}: is JSON, but not {titles}; {_describe_document(document)}")


def _describe_document(document: Any) -> str:
    """Return what a JSON document contains, in words."""
    if isinstance(document, dict):
        return f"the document has the keys {shorten(', '.join(map(str, document)))}"
    kind = "a list" if isinstance(document, list) else "a single value"
    return f"the document is {kind}: {shorten(document)}"
