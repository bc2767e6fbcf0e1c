"""Where the output of items goes: to the log of the item, if it has one.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hesrpt.storage.logs import LogPaths, limit_log, limit_output, open_log

# Of the output of an item on another node, at most this many bytes are sent back: the last ones.
_SENT_BYTES = 2**20


@contextlib.contextmanager
def redirect_output(target: int | Path) -> Iterator[None]:
    """Append all output to a file or a log, including that of C libraries and child processes."""
    saved = os.dup(1), os.dup(2)
    flush_output()
    try:
        fd = os.dup(target) if isinstance(target, int) else open_log(target)
        for standard in (1, 2):
            os.dup2(fd, standard)
        os.close(fd)
        yield
    finally:
        flush_output()
        for original, standard in zip(saved, (1, 2), strict=True):
            os.dup2(original, standard)
            os.close(original)
        if isinstance(target, Path):
            finish_log(target)


def flush_output() -> None:
    """Write what Python has buffered."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # an item may have replaced or closed them
        with contextlib.suppress(Exception):
            sys.stderr.flush()


def move_output(captured: int, logs: LogPaths, item: int) -> None:
    """Append the output of an item in a file to its log, and remove it from the file.

    Opening and removing a log for each of many items that print nothing would take long.
    """
    flush_output()
    size = os.fstat(captured).st_size
    if size == 0:
        return
    handle = open_log(logs.get(item))
    try:
        offset = 0
        while offset < size:
            offset += os.write(handle, os.pread(captured, 2**20, offset))
        limit_output(handle)
    finally:
        os.close(handle)
        os.ftruncate(captured, 0)


def finish_log(log: Path) -> None:
    """Remove the log of an item that printed nothing, and cut one that is too large."""
    with contextlib.suppress(OSError):
        if os.stat(log).st_size == 0:
            os.unlink(log)
        else:
            limit_log(log)


def read_end(output: IO[bytes], count: int = _SENT_BYTES) -> bytes:
    """Return the last ``count`` bytes of a file, after a line that says how many are missing."""
    dropped = output.seek(0, os.SEEK_END) - count
    note = f"hesrpt: at least {dropped:,} bytes of output before this line were dropped\n"
    return (note.encode() if dropped > 0 else b"") + read_tail(output, count)


def append_output(log: Path, output: bytes) -> None:
    """Append what an item has printed on another node to its log."""
    with os.fdopen(open_log(log), "ab") as file:
        file.write(output)
    limit_log(log)


def read_tail(output: IO[bytes], count: int, *, skip: int = 0) -> bytes:
    """Return the last ``count`` bytes of a file, but nothing of its first ``skip`` bytes."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - count, skip))
    return output.read()
