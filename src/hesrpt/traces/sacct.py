"""Slurm's accounting records, as ``sacct --parsable2`` prints them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from typing import Any

from hesrpt.files import Block
from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.table import Cells, Dialect, read_table
from hesrpt.traces.trace import Trace

_UNFINISHED_STATES = {
    *("running", "pending", "suspended", "configuring", "completing", "resizing"),
    *("r", "pd", "s", "cf", "cg", "rs"),
}
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
    """Return whether a line is the header of sacct's output."""
    names = [name.strip().lower() for name in line.split("|")]
    known = sum(name in _ALL_NAMES for name in names)
    return len(names) > 1 and (names[0].startswith("jobid") or known > 1)


def read_sacct(text: Iterable[Block], builder: TraceBuilder, columns: Mapping[str, str]) -> Trace:
    """Read the output of sacct."""
    return read_table(text, builder, _SACCT, columns)


def _choose_csv_options(header: str) -> Mapping[str, Any]:
    return {"delimiter": "|", "quoting": csv.QUOTE_NONE}  # sacct does not escape quotes


def _is_step(job_id: str) -> bool:
    return "." in job_id


def _find_unfinished(cells: Cells) -> list[bool]:
    if "state" in cells:  # such as RUNNING or "CANCELLED by 1000"
        return [state.lower().partition(" ")[0] in _UNFINISHED_STATES for state in cells["state"]]
    if "end" in cells:
        return [end.strip().lower() == "unknown" for end in cells["end"]]
    return [False] * len(cells["submit"])


_SACCT = Dialect(
    known_names=_KNOWN_NAMES,
    ranked=tuple(_KNOWN_NAMES),
    csv_options=_choose_csv_options,
    units={"timelimitraw": 60.0},
    is_part_of_job=_is_step,
    find_unfinished=_find_unfinished,
    needs_names=True,
)
