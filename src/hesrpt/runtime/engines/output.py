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

from hesrpt.runtime.logs import open_log


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
        remove_if_empty(log)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def remove_if_empty(log: str | Path) -> None:
    """Remove the log of an item that printed nothing."""
    with contextlib.suppress(OSError):
        if os.stat(log).st_size == 0:
            os.unlink(log)


def open_output(log: Path | None) -> IO[bytes]:
    """Open the file for a command's output: its log, or a temporary file if it has none."""
    return tempfile.TemporaryFile() if log is None else os.fdopen(open_log(log), "a+b")


def add_last_lines(error: str, output: IO[bytes], *, lines: int = 10, skip: int = 0) -> str:
    """Return an error followed by the last lines of a command's output.

    The first ``skip`` bytes of the file are not part of the command's output.
    """
    tail = read_tail(output, 4096, skip=skip)
    last_lines = tail.decode("utf-8", "replace").splitlines()[-lines:]
    return "\n".join([error, *last_lines])


def read_tail(output: IO[bytes], count: int, *, skip: int = 0) -> bytes:
    """Return the last ``count`` bytes of a file, but nothing of its first ``skip`` bytes."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - count, skip))
    return output.read()
