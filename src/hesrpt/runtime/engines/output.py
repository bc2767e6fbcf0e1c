"""Where the output of items goes: to the log of the item, if it has one.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hesrpt.runtime.storage.logs import limit_log, open_log


@contextlib.contextmanager
def redirect_output(log: str | Path | None) -> Iterator[None]:
    """Append all output to a file, including that of C libraries and child processes."""
    if log is None:
        try:
            yield
        finally:
            _flush()
        return
    saved = os.dup(1), os.dup(2)
    _flush()
    try:
        handle = open_log(Path(log))
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.close(handle)
        yield
    finally:
        _flush()
        for original, standard in zip(saved, (1, 2), strict=True):
            os.dup2(original, standard)
            os.close(original)
        finish_log(log)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


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
    import fcntl

    output = tempfile.TemporaryFile()  # noqa: SIM115
    # So that it can be cut while programs write to it.
    fcntl.fcntl(output, fcntl.F_SETFL, fcntl.fcntl(output, fcntl.F_GETFL) | os.O_APPEND)
    return output


def add_last_lines(error: str, output: IO[bytes], *, lines: int = 10, skip: int = 0) -> str:
    """Return an error followed by the last lines of a command's output.

    The first ``skip`` bytes of the file are not part of the command's output.
    """
    tail = read_tail(output, 4096, skip=skip)
    last_lines = tail.decode("utf-8", "replace").splitlines()[-lines:]
    return "\n".join([error, *last_lines])


def read_end(output: IO[bytes], count: int) -> bytes:
    """Return the last ``count`` bytes of a file, after a line that says how many are missing."""
    dropped = output.seek(0, os.SEEK_END) - count
    if dropped <= 0:
        return read_tail(output, count)
    note = f"hesrpt: at least {dropped:,} bytes of output before this line were dropped\n"
    return note.encode() + read_tail(output, count)


def read_tail(output: IO[bytes], count: int, *, skip: int = 0) -> bytes:
    """Return the last ``count`` bytes of a file, but nothing of its first ``skip`` bytes."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - count, skip))
    return output.read()
