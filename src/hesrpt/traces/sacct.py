"""Slurm's accounting, as ``sacct --parsable2`` prints it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any

from hesrpt.traces.table import Cells, Dialect

_UNENDED = {"running", "pending", "suspended", "configuring", "completing", "resizing"} | {
    "r", "pd", "s", "cf", "cg", "rs",
}  # fmt: skip


def _options(header: str) -> Mapping[str, Any]:
    return {"delimiter": "|", "quoting": csv.QUOTE_NONE}  # sacct prints quotes as they are


def _is_step(job: str) -> bool:
    return "." in job


def _is_unended(cells: Cells) -> list[bool]:
    if "state" in cells:  # such as RUNNING, or "CANCELLED by 1000"
        return [state.lower().partition(" ")[0] in _UNENDED for state in cells["state"]]
    if "end" in cells:
        return [end.strip().lower() == "unknown" for end in cells["end"]]
    return [False] * len(cells["submit"])


_KNOWN = {
    "submit": ("submit",),
    "runtime": ("elapsed", "elapsedraw"),
    "servers": ("alloccpus", "ncpus", "reqcpus", "allocnodes", "nnodes"),
    "start": ("start",),
    "end": ("end",),
    "estimate": ("timelimit", "timelimitraw"),
    "name": ("jobid", "jobidraw"),
    "state": ("state",),
}
NAMES = {name for names in _KNOWN.values() for name in names}
SACCT = Dialect(
    known=_KNOWN,
    ranked=tuple(_KNOWN),
    options=_options,
    units={"timelimitraw": 60.0},
    is_part=_is_step,
    is_unended=_is_unended,
    named=True,
)
