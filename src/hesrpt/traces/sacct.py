"""Slurm's accounting records, as ``sacct --parsable2`` prints them, with or without a header."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import Block
from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.headerless import guess_columns
from hesrpt.traces.job_cells import Cells
from hesrpt.traces.slurm_ids import parse_id
from hesrpt.traces.slurm_states import is_unfinished
from hesrpt.traces.table import Dialect, read_table
from hesrpt.traces.trace import Trace
from hesrpt.validation import shorten

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


def read_sacct(text: Iterable[Block], builder: TraceBuilder, columns: Mapping[str, str]) -> Trace:
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
        sample = [row for row in map(_split, lines[blank_lines:]) if _is_whole_job(row, width)]
        place = f"{builder.source}:{first_line + blank_lines}"
        if not sample:
            raise InputError(f"{place}: has no header and no job, only steps of jobs")
        columns = guess_columns(place, [row[:width] for row in sample[:_SAMPLE]], columns)
        header = "|".join(str(number) for number in range(1, width + 1))
        first_line, lines = first_line + blank_lines - 1, [header, *lines[blank_lines:]]
    return read_table(chain([Block(first_line, lines)], blocks), builder, _SACCT, columns)


def _split(line: str) -> list[str]:
    return line.split("|")


def _is_job(line: str) -> bool:
    """Return whether a line is a row rather than a header: it starts with an id."""
    cells = _split(line)
    return len(cells) > 2 and parse_id(cells[0]) is not None


def _is_whole_job(cells: Sequence[str], width: int) -> bool:
    meaning = parse_id(cells[0])
    return meaning is not None and not meaning.is_step and len(cells) >= width


def _choose_csv_options(header: str) -> Mapping[str, Any]:
    return {"delimiter": "|", "quoting": csv.QUOTE_NONE}  # sacct does not escape quotes


def _find_unfinished(cells: Cells) -> list[bool]:
    if "state" in cells:  # such as RUNNING or "CANCELLED by 1000"
        return [is_unfinished(state) for state in cells["state"]]
    if "end" in cells:
        return [end.strip().lower() == "unknown" for end in cells["end"]]
    return [False] * len(cells["submit"])


_SACCT = Dialect(
    known_names=_KNOWN_NAMES,
    ranked=tuple(_KNOWN_NAMES),
    csv_options=_choose_csv_options,
    units={"timelimitraw": 60.0},
    parse_id=parse_id,
    find_unfinished=_find_unfinished,
)
