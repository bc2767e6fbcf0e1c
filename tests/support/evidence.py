"""Items that leave evidence of their own, so that what has ended is judged from outside."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

#: A file whose presence lets the bad item end well.
REPAIRED = "repaired"


def create_work(folder: Path, seconds: float, bad: int | None = None) -> Callable[[int], int]:
    """Return a function that writes when items start and end to a file of its worker."""

    def work(item: int) -> int:
        file = os.open(folder / str(os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"start {item}\n".encode())
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass
            if item == bad and not (folder / REPAIRED).exists():
                raise ValueError("bad")
            os.write(file, f"end {item}\n".encode())
        finally:
            os.close(file)
        return item

    return work


def _read_evidence(folder: Path) -> list[list[tuple[str, int]]]:
    """Return what each worker has started and ended, in this order."""
    files = [path for path in folder.iterdir() if path.name.isdigit()]
    lines = [[line.split() for line in path.read_text().splitlines()] for path in files]
    return [[(kind, int(item)) for kind, item in each] for each in lines]


def find_ended(folder: Path) -> set[int]:
    """Return the items that have certainly ended: their worker has gone on to another one.

    A worker may have been stopped while it returned from its last item.
    """
    return {item for steps in _read_evidence(folder) for kind, item in steps[:-1] if kind == "end"}


def count_ends(folder: Path) -> Counter[int]:
    """Return how often each item has ended."""
    return Counter(
        item for steps in _read_evidence(folder) for kind, item in steps if kind == "end"
    )
