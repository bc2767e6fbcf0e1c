"""The live scheduler relies on POSIX: file locks, file owners, process groups and signals."""

from __future__ import annotations

import importlib.util

from hesrpt.errors import InputError


def require_posix() -> None:
    """Raise an error on systems where the live scheduler cannot work."""
    try:
        has_file_locks = importlib.util.find_spec("fcntl") is not None
    except ValueError:  # the module is blocked
        has_file_locks = False
    if not has_file_locks:
        raise InputError(
            "the live scheduler needs Linux or macOS; planning and simulating work on any system"
        )
