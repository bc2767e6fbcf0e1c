"""Workloads of the simulator Batsim: JSON with ``jobs``, ``profiles`` and ``nb_res``.

A profile says what a job does. Run times follow from profiles that wait: delays, and sequences of
them. How long other profiles take depends on the simulated machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.columns import refuse_columns
from hesrpt.traces.json_jobs import get_first_job, get_number
from hesrpt.traces.simulator_workloads import read_workload
from hesrpt.traces.trace import Trace

# Of Batsim 5, and of earlier versions.
_DELAYS = ("DelayProfile", "delay")
_SEQUENCES = ("SequentialCompositionProfile", "composed")
_MAX_DEPTH = 100  # of sequences in sequences


def is_batsim(document: Any) -> bool:
    """Return whether a JSON document is a workload of Batsim."""
    return isinstance(document, dict) and (
        isinstance(document.get("profiles"), dict) or "subtime" in get_first_job(document)
    )


def read_batsim(document: Any, builder: TraceBuilder, columns: Mapping[str, str]) -> Trace:
    """Read a workload of Batsim."""
    refuse_columns(builder.source, "Batsim's workloads", columns)
    delays = _Delays(document.get("profiles"))
    machine = document.get("nb_res")
    is_size = isinstance(machine, int) and not isinstance(machine, bool) and machine >= 1
    return read_workload(
        builder,
        document.get("jobs"),
        get_servers=lambda job: job.get("res"),
        compute_runtime=lambda job: delays.compute(job.get("profile")),
        names={"name": "id", "submit": "subtime"},
        machine_servers=machine if is_size else None,
        expected="a walltime, or a profile that is a delay or a sequence of delays",
    )


class _Delays:
    """The seconds that profiles wait; NaN for those that do anything else."""

    def __init__(self, profiles: Any) -> None:
        self._profiles = profiles if isinstance(profiles, dict) else {}
        self._known: dict[str, float] = {}

    def compute(self, name: Any, depth: int = 0) -> float:
        if not isinstance(name, str) or depth > _MAX_DEPTH:
            return math.nan
        if name not in self._known:
            self._known[name] = math.nan  # in case that the profile contains itself
            self._known[name] = self._compute(self._profiles.get(name), depth)
        return self._known[name]

    def _compute(self, profile: Any, depth: int) -> float:
        if not isinstance(profile, dict):
            return math.nan
        if profile.get("type") in _DELAYS:
            return get_number(profile.get("delay"))
        parts = profile.get("seq")
        if profile.get("type") in _SEQUENCES and isinstance(parts, list):
            repeats = get_number(profile.get("repeat", profile.get("nb", 1)))
            return repeats * math.fsum(self.compute(part, depth + 1) for part in parts)
        return math.nan
