"""Keepers: the parents of workers and commands, each of which runs one process at a time.

A keeper adopts whatever its process leaves behind, daemons included, so it knows all descendants of
one attempt, and only of that one. When the process has ended, the keeper kills them, and reports
the attempt as gone when none is left. Keepers are forks of the supervisor. They survive it until
they have cleaned up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from hesrpt.engines.local.channel import Channel, close_all
from hesrpt.engines.local.processes import (
    POLL_SECONDS,
    adopt_orphans,
    die_with_parent,
    kill_all,
    list_children,
    list_descendants,
    set_process_name,
)

# When a process has exited, its children may run on for this long, for instance to write what they
# hold in their buffers. In seconds.
_GRACE_SECONDS = 0.5
#: A process that was killed this many seconds ago hangs in the kernel, and will not run again.
HUNG_SECONDS = 5.0
# File descriptors below this one are those of the new process.
_FIRST_SPARE_FD = 20


class StartRequest(NamedTuple):
    """A process to start. File descriptors 1, 2, 3 and so on come with the request."""

    number: int
    arguments: tuple[bytes, ...]
    environment: dict[bytes, bytes]
    directory: bytes | None
    cores: tuple[int, ...] = ()
    has_input: bool = False  # whether the last file descriptor is its standard input
    input_file: bytes | None = None  # or the file that is, relative to the directory


class _SupervisorGone(BaseException):
    """The supervisor has died."""


def run_keeper(connection: socket.socket, supervisor: int) -> None:
    """Run one process after another, as requested, until the connection is closed.

    If the supervisor dies, kill what is running first.
    """
    set_process_name("hesrpt-keeper")
    adopt_orphans()
    signal.signal(signal.SIGUSR1, _raise_supervisor_gone)
    die_with_parent(signal.SIGUSR1)
    if os.getppid() != supervisor:
        return
    try:
        _serve_requests(connection)
    except _SupervisorGone:
        _end_children(time.monotonic())


def _raise_supervisor_gone(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # it comes again if the guardian dies as well
    raise _SupervisorGone


def _serve_requests(connection: socket.socket) -> None:
    import fcntl  # the modules that import this one work without POSIX

    # Whoever waits for the end of another connection must not wait for this process.
    fd = fcntl.fcntl(connection.detach(), fcntl.F_DUPFD_CLOEXEC, _FIRST_SPARE_FD)
    _close_all_except([0, 1, 2, fd])
    channel = Channel(socket.socket(fileno=fd), has_fds=True)
    while not channel.is_closed:
        for head, _, fds in channel.receive():
            spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_SPARE_FD) for fd in fds]
            close_all(fds)
            _run_process(StartRequest._make(head), spare, channel)


def _run_process(request: StartRequest, fds: Sequence[int], channel: Channel) -> None:
    """Start a process, and report when it and all its descendants are gone."""
    keeper = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        close_all(fds)
        channel.send(("failed", str(error.strerror)))
        channel.send(("gone", None, None))
        return
    if pid == 0:
        with exit_afterwards():
            die_with_parent(signal.SIGKILL)
            if os.getppid() == keeper:
                channel.send(("failed", _run_program(request, fds)))
    close_all(fds)
    channel.send(("started", pid))
    status = next(status for child, status in _wait_for_children() if child == pid)
    ended = time.monotonic()
    _end_children(ended + (_GRACE_SECONDS if os.WIFEXITED(status) else 0.0))
    channel.send(("gone", status, ended))


def _end_children(kill_at: float) -> None:
    """Wait until all children are gone; kill them from a certain time on."""
    while True:
        reap_children()
        now = time.monotonic()
        children = list_children(os.getpid())
        if not children or now > kill_at + HUNG_SECONDS:
            return
        if now >= kill_at:
            kill_families(children)
        time.sleep(POLL_SECONDS)


def _run_program(request: StartRequest, fds: Sequence[int]) -> str:
    """Replace this process by the program; return why that is not possible."""
    place = request.directory
    try:
        os.setsid()  # Ctrl-C in the terminal must not reach it
        if request.directory is not None:
            os.chdir(request.directory)
        place = request.input_file
        if request.has_input:
            *fds, standard_input = fds
        else:
            standard_input = os.open(request.input_file or os.devnull, os.O_RDONLY)
        os.dup2(standard_input, 0)
        for target, fd in enumerate(fds, start=1):
            os.dup2(fd, target)
        for changed in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(changed, signal.SIG_DFL)
        if request.cores:
            os.sched_setaffinity(0, request.cores)
        place = request.arguments[0]
        os.execvpe(place, request.arguments, request.environment)
    except OSError as error:
        return f"{os.fsdecode(place or b'')}: {error.strerror}"
    except ValueError as error:
        return str(error)


def _wait_for_children() -> Iterator[tuple[int, int]]:
    """Yield the process id and the status of each child that ends."""
    while True:
        yield os.waitpid(-1, 0)


def reap_children() -> list[tuple[int, int]]:
    """Return the process id and the status of each child that has ended.

    Let children go on that somebody has stopped: without them, nothing starts and nothing ends.
    """
    ended = []
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
            pid, status = found
            if os.WIFSTOPPED(status):
                os.kill(pid, signal.SIGCONT)
            else:
                ended.append(found)
    return ended


def kill_families(pids: Sequence[int]) -> None:
    """Kill processes and their descendants."""
    kill_all([*pids, *(member for pid in pids for member in list_descendants(pid))])


@contextlib.contextmanager
def exit_afterwards() -> Iterator[None]:
    """End this process, a fork, after a block of code, whatever happens in it."""
    try:
        yield
    finally:
        os._exit(127)


def _close_all_except(kept: list[int]) -> None:
    limit = os.sysconf("SC_OPEN_MAX")
    edges = sorted({-1, *kept, limit})
    for low, high in pairwise(edges):
        if low + 1 < high:
            os.closerange(low + 1, high)
