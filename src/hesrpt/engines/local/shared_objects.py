"""Pickling locks, queues and other objects of ``multiprocessing`` that processes share.

multiprocessing allows this only while it starts a process, which it recognises by an object that
stands for the process. We pretend to be starting one. The objects must come from the context
"spawn": those of "fork" exist only in processes that were forked.
"""

from __future__ import annotations

import os
import sys
from _multiprocessing import SemLock  # type: ignore[import-not-found]
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_sharer
from multiprocessing.context import get_spawning_popen, set_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import cloudpickle

from hesrpt.engines.engine import PackedFunction, pickle_in_pieces, pickle_value
from hesrpt.engines.local.channel import LARGE_BYTES, MAX_FDS, duplicate_all, write_shared_file
from hesrpt.errors import InputError


def pickle_for_one(value: Any) -> bytes:
    """Pickle a value for one process, which fetches the files that it needs, such as pipes."""
    return pickle_value(value, _OneProcessPickler)


def pack_for_many(value: Any) -> PackedFunction:
    """Pack a function for several processes. Each must receive copies of the files."""
    processes = _SeveralProcesses()
    with _pretend_to_start(processes):
        pieces = pickle_in_pieces(value, _Pickler)
    if len(processes.fds) > MAX_FDS:
        raise InputError(
            f"{value!r} cannot be sent to another process: it needs {len(processes.fds)} files, "
            f"and at most {MAX_FDS} can be sent"
        )
    fds, is_in_file = duplicate_all(processes.fds), False
    if sum(map(len, pieces)) > LARGE_BYTES and len(fds) < MAX_FDS:
        with suppress(OSError):  # then it goes through the connection
            fds.append(write_shared_file(pieces))
            is_in_file = True
    pickled = b"" if is_in_file else b"".join(pieces)
    return PackedFunction(pickled, fds=fds, is_in_file=is_in_file)


def _reduce_semaphore(semaphore: SemLock) -> tuple[Any, ...]:
    arguments = semaphore.handle, semaphore.kind, semaphore.maxvalue, semaphore.name
    return SemLock._rebuild, arguments


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what cloudpickle can, and what multiprocessing can."""

    dispatch_table: ClassVar[Any] = ChainMap(
        cloudpickle.Pickler.dispatch_table,
        {SemLock: _reduce_semaphore},  # what the methods of locks belong to
        ForkingPickler._extra_reducers,  # type: ignore[attr-defined]
    )


class _OneProcess:
    """Stands for a process that can connect to this one."""

    DupFd = resource_sharer.DupFd

    def duplicate_for_child(self, fd: int) -> int:
        return fd


class _OneProcessPickler(_Pickler):
    """Pretends only while it pickles: plain values need no pickler, which is faster."""

    def dump(self, value: Any) -> None:
        with _pretend_to_start(_OneProcess()):
            super().dump(value)


@dataclass
class _SeveralProcesses:
    """Stands for processes to which files are sent."""

    fds: list[int] = field(default_factory=list)

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(fd)
        return len(self.fds) - 1

    class DupFd:
        """A file, by its place among those that were sent."""

        def __init__(self, place: int) -> None:
            self.place = place

        def detach(self) -> int:
            """Return the file in the process that received it."""
            received: Any = get_spawning_popen()
            return os.dup(received[self.place])


@contextmanager
def _pretend_to_start(process: Any) -> Iterator[None]:
    before = get_spawning_popen()
    set_spawning_popen(process)
    try:
        yield
    finally:
        set_spawning_popen(before)


# Workers do not import the project, which takes long.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
