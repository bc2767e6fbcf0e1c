"""Files without a path, in memory, through which processes share large values.

A large value is written once, and the other process maps the file: nothing goes through a pipe.

This module runs in workers, which must start quickly, so it imports nothing else of the project.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import tempfile
import weakref
from collections.abc import Iterable
from typing import TypeAlias

#: A pickled value, in memory of this process or in a file that it has mapped.
Pickled: TypeAlias = bytes | memoryview
#: Values that are larger than this are shared in files, in bytes.
LARGE_BYTES = 2**20
# A mapped file stays open. If more files are mapped than this, or than this fraction of all that
# may be open, others are copied.
_MAX_MAPPED, _MAPPED_FRACTION = 200, 1 / 4

_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def create_shared_file(name: str) -> int:
    """Create a file without a path, to be shared with other processes; return its descriptor."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # some sandboxes forbid it
            return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def write_shared_file(pieces: Iterable[Pickled]) -> int:
    """Write a value to a new file; return its descriptor."""
    fd = create_shared_file("hesrpt-value")
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(fd, rest) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_shared_file(fd: int) -> Pickled:
    """Return the value in a file, and close the descriptor."""
    try:
        if len(_mapped) < _count_mappable():
            with contextlib.suppress(OSError):  # there are too many open files
                content = mmap.mmap(fd, os.fstat(fd).st_size, access=mmap.ACCESS_READ)
                _mapped.add(content)
                return memoryview(content)
        os.lseek(fd, 0, os.SEEK_SET)
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def _count_mappable() -> float:
    """Return how many files may be mapped at a time."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_MAPPED if limit < 0 else min(_MAX_MAPPED, limit * _MAPPED_FRACTION)
