"""What is told of a job as JSON values: the same by state directory and by URL of a service."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from hesrpt.jobs.command_template import write_braces_once
from hesrpt.jobs.job_end import ENDED
from hesrpt.jobs.job_spec import JobSpec


def create_job_values(
    spec: JobSpec,
    *,
    state: str,
    number: int = 0,
    done: int = 0,
    items: int | None = None,
    failed: int = 0,
    servers: int = 0,
    planned: int | None = None,
    arrived: float | None = None,
    ended: float | None = None,
    eta: float | None = None,
    waits_for: Sequence[str] = (),
    waits_because: str = "",
    error: str | None = None,
) -> dict[str, Any]:
    """Return what lists of jobs have of one. A job that has ended holds and awaits nothing."""
    if state in ENDED:
        servers, planned, eta, waits_for, waits_because = 0, None, None, (), ""
    return {
        "name": spec.name,
        "number": number,
        "state": state,
        "group": spec.group,
        "after": list(spec.after),
        "waits_for": list(waits_for),
        "waits_because": waits_because,
        "done": done,
        "items": items,
        "failed": failed,
        "servers": servers,
        "planned": planned,
        "min_servers": spec.min_servers,
        "max_servers": spec.max_servers,
        "weight": spec.weight,
        "resources": dict(spec.resources),
        "command": write_command(spec),
        "arrived": arrived,
        "ended": ended,
        "flow_time": None if arrived is None or ended is None else ended - arrived,
        "eta": eta,
        "progress": None if arrived is None else _get_progress(state, done, items),
        "error": error,
    }


def _get_progress(state: str, done: int, items: int | None) -> float | None:
    if state == "done":
        return 1.0
    return done / items if items else None


def write_command(spec: JobSpec) -> str | None:
    """Return the command of a job as ``hesrpt add`` takes it; None if it calls a function."""
    if spec.command is None:
        return None
    command = spec.command.command
    if isinstance(command, str):
        return write_braces_once(command.strip())
    return shlex.join(map(write_braces_once, command))
