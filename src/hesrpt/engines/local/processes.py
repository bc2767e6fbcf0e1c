"""Finding, killing and pinning processes: by their parents, and by the mark of their run.

Every process that a run starts carries the run's mark in its environment, and its children inherit
it. The mark is the last net: what a run started is first found by its parents (see
:mod:`~hesrpt.engines.local.supervisor`).

This module runs in processes that must start quickly, so it imports nothing else of the project,
and psutil only where there is no ``/proc``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: The environment variable that holds the marks of a process, separated by spaces.
MARKS_VARIABLE = "HESRPT_RUN"
#: The environment variable of guardian, supervisor and keepers with the mark of their run.
GUARDED_VARIABLE = "HESRPT_GUARDED_RUN"

#: How often to look again at processes that are to end, in seconds.
POLL_SECONDS = 0.005
# How long to wait for their end, in seconds.
_END_SECONDS = 10.0

_HAS_PROC = sys.platform == "linux" and os.path.exists("/proc/self/stat")
# From <linux/prctl.h>.
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36

# --- marks ------------------------------------------------------------------------------------


def create_mark() -> str:
    """Create a mark that no other run has."""
    return os.urandom(16).hex()


def derive_mark(directory: Path) -> str:
    """Return the mark of all runs in a state directory: the same for the next scheduler.

    A copy of the directory has another mark, so resuming the copy does not affect the original.
    """
    import hashlib

    found = directory.stat()
    return hashlib.sha256(f"{found.st_dev} {found.st_ino}".encode()).hexdigest()[:32]


def build_environment(mark: str) -> dict[str, str]:
    """Return the environment of this process with a mark added.

    A run inside another run keeps the outer mark, so that either can kill its processes.
    """
    outer = os.environ.get(MARKS_VARIABLE)
    return {**os.environ, MARKS_VARIABLE: f"{outer} {mark}" if outer else mark}


def find_marked(mark: str, variable: str = MARKS_VARIABLE) -> list[int]:
    """Return the living processes that carry a mark, except this one."""
    others = set(_list_processes()) - {os.getpid()}
    return [pid for pid in others if mark in _read_marks(pid, variable)]


def kill_marked(mark: str) -> None:
    """Kill every process that carries a mark, including those started meanwhile."""
    deadline = time.monotonic() + _END_SECONDS
    while (found := find_marked(mark)) and time.monotonic() < deadline:
        kill_all(found)
        time.sleep(POLL_SECONDS)
        for pid in found:  # they are our children if we are process 1
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill_leftovers(mark: str) -> None:
    """Kill what an earlier run with the same mark left behind, if its scheduler was killed."""
    deadline = time.monotonic() + _END_SECONDS
    while (guardians := find_marked(mark, GUARDED_VARIABLE)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)  # they have noticed that their scheduler is gone, and will end
    kill_all(guardians)
    kill_marked(mark)


def _read_marks(pid: int, variable: str) -> list[str]:
    if not _HAS_PROC:
        import psutil

        with contextlib.suppress(psutil.Error, OSError):
            return str(psutil.Process(pid).environ().get(variable, "")).split()
        return []
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()  # empty for a zombie
    except OSError:
        return []
    prefix = variable.encode() + b"="
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :]).split()
    return []


# --- families of processes --------------------------------------------------------------------


def _list_processes() -> list[int]:
    if _HAS_PROC:
        return list(map(int, filter(str.isdigit, os.listdir("/proc"))))
    import psutil

    return list(psutil.pids())


def list_children(pid: int) -> list[int]:
    """Return the children of a process, including those that have ended but were not reaped."""
    if not _HAS_PROC:
        import psutil

        try:
            return [child.pid for child in psutil.Process(pid).children()]
        except psutil.Error:
            return []
    children: list[int] = []
    tasks = f"/proc/{pid}/task"
    try:
        for task in os.listdir(tasks):  # the children of each thread
            with open(f"{tasks}/{task}/children") as file:
                children += map(int, file.read().split())
    except FileNotFoundError:
        # The process or a thread is gone, or this kernel has no list of children.
        if os.path.exists(tasks):
            return [other for other in _list_processes() if _read_stat(other)[1] == str(pid)]
    except OSError:
        pass
    return children


def _read_stat(pid: int) -> list[str]:
    """Return the state of a process, its parent, and what else the system knows about it."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:  # it is gone
        return ["X", ""]


def list_descendants(pid: int) -> Iterator[int]:
    """Yield the children of a process, their children, and so on."""
    for child in list_children(pid):
        yield child
        yield from list_descendants(child)


def kill_all(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to processes, as far as they still exist and we may."""
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def are_descendants_stopped(pid: int) -> bool:
    """Return whether a process has descendants, and none will run until it gets a signal.

    They were sent a signal to stop. Those that wait for the disk, or for a child to replace itself
    by a program (``vfork``), stop when they have waited.
    """
    members = set(list_descendants(pid))
    if not members or any(_read_state(member) not in "TtDZXx" for member in members):
        return False
    return members >= set(list_descendants(pid))  # none was started before they were stopped


def _read_state(pid: int) -> str:
    """Return the letter that ``ps`` shows for the state of a process; X if it is gone."""
    if not _HAS_PROC:
        import psutil

        with contextlib.suppress(psutil.Error):
            return "T" if psutil.Process(pid).status() == psutil.STATUS_STOPPED else "S"
        return "X"
    return _read_stat(pid)[0]


def pin_to_cores(pid: int, cores: Sequence[int]) -> None:
    """Restrict a process and its descendants to some cores, on systems that support it."""
    if not _HAS_PROC:
        return
    for member in [pid, *list_descendants(pid)]:
        with contextlib.suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{member}/task"):
                os.sched_setaffinity(int(thread), cores)


# --- what Linux offers ------------------------------------------------------------------------


def _control(option: int, argument: int | bytes) -> None:
    """Call ``prctl``, where it exists."""
    if _LIBRARY is not None:
        _LIBRARY.prctl(option, argument, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _control(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int) -> None:
    """Let the system send this process a signal when the thread that created it ends."""
    _control(_PR_SET_PDEATHSIG, number)


def set_process_name(name: str) -> None:
    """Set the name of this process, as ``ps`` and ``top`` show it."""
    _control(_PR_SET_NAME, name.encode()[:15])


def open_process(pid: int) -> int | None:
    """Return a file descriptor that becomes readable when a process ends.

    Returns None where the system does not offer this. Raises ProcessLookupError if the process is
    gone.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


# --- cores ----------------------------------------------------------------------------------------


def list_usable_cores() -> list[int]:
    """Return the cores that this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(list_usable_cores()) or os.cpu_count() or 1


def choose_cores(servers: int, taken: Iterable[int]) -> list[int]:
    """Choose cores that are not taken; if there are too few, choose all cores."""
    cores = list_usable_cores()
    free = [core for core in cores if core not in set(taken)]
    return free[:servers] if len(free) >= servers else cores
