"""The logs of a run: one file with the output of each item, private and limited in size."""

from __future__ import annotations

import os
from pathlib import Path

from hesrpt.runtime.state_directory import create_private_directory, open_private


def get_log_path(directory: Path, job_number: int, item: int) -> Path:
    """Return the path of the output of an item."""
    return directory / "logs" / f"{job_number}-{item}.log"


def find_logs(directory: Path, job_number: int) -> list[tuple[int, Path]]:
    """Return the items of a job that have printed something, with the paths of their output."""
    paths = (directory / "logs").glob(f"{job_number}-*.log")
    return sorted((int(path.stem.split("-")[1]), path) for path in paths)


def open_log(path: Path) -> int:
    """Open the log of an item to append to it; return the file descriptor."""
    flags = os.O_RDWR | os.O_APPEND
    try:
        return open_private(path, flags)
    except FileNotFoundError:  # there is no directory yet, or somebody has removed it
        create_private_directory(path.parent)
        return open_private(path, flags)
