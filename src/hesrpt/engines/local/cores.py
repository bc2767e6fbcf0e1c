"""The cores of this machine, and which of them a command gets."""

from __future__ import annotations

import os
from collections.abc import Iterable


def list_usable_cores() -> list[int]:
    """Return the cores that this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(list_usable_cores()) or os.cpu_count() or 1


def choose_cores(servers: int, taken: Iterable[int]) -> list[int]:
    """Choose cores that are not taken; if there are too few, choose all cores."""
    cores = list_usable_cores()
    free = [core for core in cores if core not in set(taken)]
    return free[:servers] if len(free) >= servers else cores
