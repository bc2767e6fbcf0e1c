"""Where the output of items goes: to the log of the item, if it has one.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Self

from hesrpt.engines.local.channel import create_shared_file
from hesrpt.storage.logs import LogPaths, limit_log, limit_output, open_log

# Of the output of an item on another node, at most this many bytes are sent back: the last ones.
_SENT_BYTES = 2**20


@contextlib.contextmanager
def redirect_output(log: str | Path) -> Iterator[None]:
    """Append all output to a file, including that of C libraries and child processes."""
    saved = os.dup(1), os.dup(2)
    flush_output()
    try:
        handle = open_log(Path(log))
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.close(handle)
        yield
    finally:
        flush_output()
        for original, standard in zip(saved, (1, 2), strict=True):
            os.dup2(original, standard)
            os.close(original)
        finish_log(log)


def flush_output() -> None:
    """Write what Python has buffered."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # an item may have replaced or closed them
        with contextlib.suppress(Exception):
            sys.stderr.flush()


class OutputCapture:
    """Collects the output of short items in one open file, and moves it to their logs.

    Opening and removing a log for each of many items that print nothing would take long.
    """

    def __init__(self, fd: int, logs: LogPaths, items: Sequence[int]) -> None:
        self._fd, self._logs, self._items = fd, logs, items

    def __enter__(self) -> Self:
        flush_output()
        self._saved = os.dup(1), os.dup(2)
        for standard in (1, 2):
            os.dup2(self._fd, standard)
        return self

    def save(self, place: int) -> None:
        """Append what was printed since the last call to the log of the item at a place."""
        flush_output()
        if os.fstat(self._fd).st_size > 0:
            move_output(self._fd, self._logs.get(self._items[place]))

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.save(-1)
        for original, standard in zip(self._saved, (1, 2), strict=True):
            os.dup2(original, standard)
            os.close(original)


def create_capture_file() -> int:
    """Create a file without a path for :class:`OutputCapture`; return its descriptor."""
    fd = create_shared_file("hesrpt-output")
    append_always(fd)
    return fd


def append_always(fd: int) -> None:
    """Let programs append to an open file, so that it can be cut while they write to it."""
    import fcntl

    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)


def move_output(captured: int, log: str | Path) -> None:
    """Append the output in a file for :class:`OutputCapture` to a log, and remove it there."""
    size = os.fstat(captured).st_size
    if size == 0:
        return
    handle = open_log(Path(log))
    try:
        offset = 0
        while offset < size:
            offset += os.write(handle, os.pread(captured, 2**20, offset))
        limit_output(handle)
    finally:
        os.close(handle)
        os.ftruncate(captured, 0)


def finish_log(log: str | Path) -> None:
    """Remove the log of an item that printed nothing, and cut one that is too large."""
    with contextlib.suppress(OSError):
        if os.stat(log).st_size == 0:
            os.unlink(log)
        else:
            limit_log(Path(log))


def open_output(log: Path | None) -> IO[bytes]:
    """Open the file for a command's output: its log, or a temporary file if it has none."""
    if log is not None:
        return os.fdopen(open_log(log), "a+b")
    output = tempfile.TemporaryFile()  # noqa: SIM115
    append_always(output.fileno())
    return output


def add_last_lines(error: str, output: IO[bytes], *, lines: int = 10, skip: int = 0) -> str:
    """Return an error followed by the last lines of a command's output.

    The first ``skip`` bytes of the file are not part of the command's output.
    """
    tail = read_tail(output, 4096, skip=skip)
    last_lines = tail.decode("utf-8", "replace").splitlines()[-lines:]
    return "\n".join([error, *last_lines])


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
