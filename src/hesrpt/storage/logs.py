"""The logs of a run: one file with the output of each item, private and limited in size.

Programs write to the files themselves. A log that has become too large is cut while its item runs:
its beginning and its end remain, with a line between them that says what was dropped.
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from hesrpt.storage.state_directory import create_private_directory, open_private

#: The largest size of a log, in bytes.
LOG_LIMIT = 10_000_000
#: How often to check the sizes of logs while items run, in seconds.
LOG_CHECK_SECONDS = 0.25

_NAME = re.compile(r"([0-9]+)-[0-9]+(-[0-9]+)?\.log")
_NOTE = re.compile(rb"\nhesrpt: at least ([0-9,]+) bytes of output were dropped here[^\n]*\n")


class LogName(NamedTuple):
    """Which log of a job it is."""

    item: int  # the position that the item had when it ran
    run: int  # how often the job had been resumed then: after that, items may be elsewhere


class LogPaths(NamedTuple):
    """The paths of the logs of a job's items: with the number of the item in between."""

    prefix: str
    suffix: str | None  # None: the prefix is the path of the only log

    def get(self, item: int) -> Path:
        """Return the path of an item's log."""
        return Path(self.prefix if self.suffix is None else f"{self.prefix}{item}{self.suffix}")


def get_log_paths(directory: Path, job_number: int, run: int) -> LogPaths:
    """Return the paths of the outputs of a job's items, given how often it had been resumed."""
    return LogPaths(f"{directory}/logs/{job_number}-", f"-{run}.log" if run else ".log")


def find_logs(directory: Path, job_number: int) -> dict[LogName, Path]:
    """Return the logs of a job, with their paths."""
    found = {}
    for path in list_all_logs(directory).get(job_number, ()):
        _, item, *run = path.stem.split("-")
        found[LogName(int(item), int(run[0]) if run else 0)] = path
    return found


def list_all_logs(directory: Path) -> dict[int, list[Path]]:
    """Return the logs of all jobs, by the numbers of the jobs."""
    found: dict[int, list[Path]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory / "logs"):
            if match := _NAME.fullmatch(name):
                found.setdefault(int(match[1]), []).append(directory / "logs" / name)
    return found


def open_log(path: Path) -> int:
    """Open the log of an item to append to it; return the file descriptor."""
    flags = os.O_RDWR | os.O_APPEND
    try:
        return open_private(path, flags)
    except FileNotFoundError:  # there is no directory yet, or somebody has removed it
        create_private_directory(path.parent)
        return open_private(path, flags)


def mark_attempt(path: Path, item: int, attempt: int | None) -> None:
    """Add a line to the log of an item, if there is one, that tells attempts apart.

    ``attempt`` is the number of the attempt that is about to start; None if it is not known.
    """
    with contextlib.suppress(OSError):
        if os.stat(path).st_size == 0:
            return
        descriptor = open_log(path)
        try:
            size = os.fstat(descriptor).st_size
            newline = "" if os.pread(descriptor, 1, size - 1) == b"\n" else "\n"
            what = "started again" if attempt is None else f"attempt {attempt}"
            line = f"{newline}── item {item}, {what}, {datetime.now():%H:%M:%S} ──\n"
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def limit_log(path: Path, limit: int = LOG_LIMIT) -> None:
    """Cut a log if it is larger than ``limit`` bytes, even while programs write to it."""
    with contextlib.suppress(OSError):  # it may have been removed
        if os.stat(path).st_size > limit:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            try:
                limit_output(descriptor, limit)
            finally:
                os.close(descriptor)


def limit_output(descriptor: int, limit: int = LOG_LIMIT) -> int:
    """Cut a file like :func:`limit_log`; return by how many bytes it has become shorter.

    All programs that write to the file must append.

    The first half of the limit and the last quarter remain. What programs write at the very moment
    may be lost, so the line in between says how many bytes were dropped "at least".
    """
    size = os.fstat(descriptor).st_size
    if size <= limit:
        return 0
    head = limit // 2
    note = _NOTE.match(os.pread(descriptor, 200, head))  # left by an earlier cut
    dropped = int(note[1].replace(b",", b"")) if note else 0
    start = head + (note.end() if note else 0)
    tail = os.pread(descriptor, limit // 4, max(size - limit // 4, start))
    dropped += os.fstat(descriptor).st_size - start - len(tail)
    line = (
        f"\nhesrpt: at least {dropped:,} bytes of output were dropped here, because a log holds at "
        f"most {limit:,} bytes\n"
    )
    os.ftruncate(descriptor, head)
    end = rest = memoryview(line.encode() + tail)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    return size - head - len(end)
