"""The processes between the scheduler and its items: guardian, supervisor and keepers.

    scheduler ── guardian ── supervisor ─┬─ keeper ── worker or command ── its children
                                         └─ keeper ── …

The *supervisor* starts processes at the scheduler's request, each below a keeper of its own. A
*keeper* runs one process at a time, and adopts whatever that leaves behind, daemons included. So it
knows all descendants of one attempt, and only of that one. When the process has ended, the keeper
kills them, and reports the attempt as gone when none is left. If a keeper is killed, the supervisor
adopts the orphans, and kills them before it reports the attempt.

When the scheduler is gone, supervisor and guardian kill all their descendants. The guardian does so
too if the supervisor dies, and the supervisor if the guardian dies. So whichever two of the three
are killed, the third cleans up: if it is the scheduler, with the help of the keepers, which the
system informs (PR_SET_PDEATHSIG), and which end when they have cleaned up. What only carries the
mark is killed last.

These processes must start quickly, so this module imports little, and the supervisor and the
keepers are forks of the guardian.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from hesrpt.engines.local.channel import Channel, close_all, wait_for
from hesrpt.engines.local.processes import (
    POLL_SECONDS,
    adopt_orphans,
    are_descendants_stopped,
    die_with_parent,
    kill_all,
    kill_marked,
    list_children,
    list_descendants,
    open_process,
    set_process_name,
)

# Where the system cannot report the end of another process, look for it this often, in seconds.
_PARENT_POLL_SECONDS = 0.5
# When a process has exited, its children may run on for this long, for instance to write what they
# hold in their buffers. In seconds.
_GRACE_SECONDS = 0.5
# A process that was killed this many seconds ago hangs in the kernel, and will not run again.
_HUNG_SECONDS = 5.0
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


class StartedReport(NamedTuple):
    """A process was started."""

    number: int
    pid: int


class GoneReport(NamedTuple):
    """A process and all its descendants are gone."""

    number: int
    status: int | None = None  # as of os.waitpid; None: not known, because its keeper was killed
    ended: float | None = None  # when the process itself ended, on the monotonic clock
    error: str | None = None  # why it could not be started

    @property
    def exit_code(self) -> int:
        """The exit code of the process, or -N after signal N."""
        return -signal.SIGKILL if self.status is None else os.waitstatus_to_exitcode(self.status)

    def describe_end(self) -> str:
        """Describe how the process ended."""
        if self.status is None:
            return "killed"
        code = self.exit_code
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"ended by signal {-code}, {signal.Signals(-code).name}"
        except ValueError:  # a real-time signal has no name
            return f"ended by signal {-code}"


def run_guardian(mark: str, scheduler: str, control: str, is_detached: str) -> None:
    """Fork the supervisor, and kill everything once it or the scheduler is gone.

    A detached guardian is not a child of the scheduler.
    """
    import fcntl  # noqa: F401 (once, and not in every keeper)

    gc.disable()  # so that forks need not copy the memory that it would go through
    gc.freeze()
    parent = None if is_detached == "True" else int(scheduler)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, _do_nothing)  # programs do not inherit this, unlike SIG_IGN
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    set_process_name("hesrpt-guardian")
    adopt_orphans()
    try:
        scheduler_end = open_process(int(scheduler))
    except ProcessLookupError:
        return
    guardian, child_ended = os.getpid(), _watch_children()
    supervisor = os.fork()
    if supervisor == 0:
        with _exit_afterwards():
            set_process_name("hesrpt-superv")
            ends = [scheduler_end, open_process(guardian)]
            Supervisor(socket.socket(fileno=int(control)), ends, guardian).run()
            _kill_descendants(mark)
    os.close(int(control))
    exit_code = 0
    while parent in (None, os.getppid()):
        ready = wait_for(
            [child_ended, scheduler_end], None if scheduler_end else _PARENT_POLL_SECONDS
        )
        if scheduler_end in ready:
            break
        _drain(child_ended)
        if (status := dict(_reap_children()).get(supervisor)) is not None:
            exit_code = os.waitstatus_to_exitcode(status)
            break
    _kill_descendants(mark)
    sys.exit(max(exit_code, 0))  # nothing is wrong if somebody killed the supervisor


def _kill_descendants(mark: str) -> None:
    """Kill all descendants of this process, and what carries the mark, until nothing is left."""
    deadline = time.monotonic() + _HUNG_SECONDS
    while time.monotonic() < deadline:
        _reap_children()
        children = list_children(os.getpid())
        if not children:
            break
        _kill_families(children)
        time.sleep(POLL_SECONDS)
    kill_marked(mark)


@dataclass
class _Keeper:
    """A keeper, and what it has reported about its process so far."""

    channel: Channel
    report: GoneReport | None = None  # None: it has no process
    is_doomed: bool = False  # whether its process is to be killed
    stops_until: float = 0.0  # until when to stop what still runs of a suspended process


class Supervisor:
    """Starts processes, and reports when they and all their descendants are gone."""

    def __init__(self, control: socket.socket, ends: Sequence[int | None], guardian: int) -> None:
        adopt_orphans()
        control.setblocking(False)
        self.control = Channel(control, has_fds=True)
        self.guardian = guardian
        self.ends = ends  # readable when the scheduler or the guardian is gone
        self.child_ended = _watch_children()
        self.keepers: dict[int, _Keeper] = {}  # by process id
        self.gone: list[GoneReport] = []  # of dead keepers, to be reported when no orphan is left
        self.orphans: dict[int, float] = {}  # when each was first seen
        self.control.send(("hello", guardian, os.getpid()))

    def run(self) -> None:
        """Work until the scheduler or the guardian is gone."""
        while not self.control.is_closed and os.getppid() == self.guardian:
            ready = self._wait()
            if any(end in ready for end in self.ends):
                return
            if self.control.connection.fileno() in ready:
                self.control.flush()
                for head, _, fds in self.control.receive():
                    self._handle_request(head, fds)
            for pid, keeper in self.keepers.items():
                if keeper.channel.connection.fileno() in ready:
                    keeper.channel.flush()
                    self._read_reports(keeper)
                if keeper.is_doomed:
                    kill_all(list_descendants(pid))
                elif keeper.stops_until:
                    kill_all(list_descendants(pid), signal.SIGSTOP)
                    # Once all of them are stopped, none can start another.
                    if are_descendants_stopped(pid) or time.monotonic() > keeper.stops_until:
                        keeper.stops_until = 0.0
            if self.child_ended in ready:
                _drain(self.child_ended)
            self._bury_keepers()
            if self.gone and not self._kill_orphans():
                for report in self.gone:
                    self.control.send(("gone", *report))
                self.gone = []

    def _wait(self) -> set[int | None]:
        """Wait until there is something to do."""
        timeout = None if None not in self.ends else _PARENT_POLL_SECONDS
        keepers = self.keepers.values()
        if self.gone or any(keeper.is_doomed or keeper.stops_until for keeper in keepers):
            timeout = POLL_SECONDS
        channels = [self.control, *(keeper.channel for keeper in self.keepers.values())]
        channels = [channel for channel in channels if not channel.is_closed]
        return wait_for([self.child_ended, *self.ends], timeout, channels)

    # --- requests -------------------------------------------------------------------------------

    def _handle_request(self, head: tuple[Any, ...], fds: list[int]) -> None:
        kind, *values = head
        if kind == "start":
            self._start(StartRequest._make(values), fds)
            return
        (number,) = values
        for pid, keeper in self.keepers.items():
            if keeper.report is None or keeper.report.number != number:
                continue
            if kind == "kill":
                keeper.is_doomed = True
            keeper.stops_until = time.monotonic() + _HUNG_SECONDS if kind == "suspend" else 0.0
            if kind == "resume":
                kill_all(list_descendants(pid), signal.SIGCONT)

    def _start(self, request: StartRequest, fds: list[int]) -> None:
        free = (
            keeper
            for keeper in self.keepers.values()
            if keeper.report is None and not keeper.channel.is_closed
        )
        try:
            keeper = next(free, None) or self._fork_keeper()
        except OSError as error:
            close_all(fds)
            report = GoneReport(request.number, error=str(error.strerror))
            self.control.send(("gone", *report))
            return
        keeper.report = GoneReport(request.number)
        keeper.channel.send(tuple(request), fds=fds)

    def _fork_keeper(self) -> _Keeper:
        ours, theirs = socket.socketpair()
        with theirs:
            supervisor = os.getpid()
            pid = os.fork()
            if pid == 0:
                with _exit_afterwards():
                    signal.set_wakeup_fd(-1)
                    _run_keeper(theirs, supervisor)
        ours.setblocking(False)
        keeper = self.keepers[pid] = _Keeper(Channel(ours))
        return keeper

    # --- reports --------------------------------------------------------------------------------

    def _read_reports(self, keeper: _Keeper) -> None:
        """Read what a keeper has reported about its process."""
        for (kind, *values), _, _ in keeper.channel.receive(everything=True):
            assert keeper.report is not None
            if kind == "started":
                self.control.send(("started", keeper.report.number, *values))
            elif kind == "failed":
                keeper.report = keeper.report._replace(error=values[0])
            else:
                status, ended = values
                report = keeper.report._replace(status=status, ended=ended)
                keeper.report, keeper.is_doomed, keeper.stops_until = None, False, 0.0
                self.control.send(("gone", *report))

    def _bury_keepers(self) -> None:
        """Note the attempts of keepers that were killed."""
        for pid, _ in _reap_children():
            if (keeper := self.keepers.pop(pid, None)) is not None:
                self._read_reports(keeper)
                keeper.channel.close()
                if keeper.report is not None:
                    self.gone.append(keeper.report)

    def _kill_orphans(self) -> bool:
        """Kill the orphans of killed keepers; return whether there are any."""
        now = time.monotonic()
        found = [pid for pid in list_children(os.getpid()) if pid not in self.keepers]
        self.orphans = {pid: self.orphans.get(pid, now) for pid in found}
        alive = [pid for pid, seen in self.orphans.items() if now < seen + _HUNG_SECONDS]
        _kill_families(alive)
        return bool(alive)


# --- waiting ----------------------------------------------------------------------------------


def _watch_children() -> int:
    """Return a file descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, _do_nothing)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _do_nothing(number: int, frame: object) -> None:
    """Handle a signal."""


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(fd, 4096)


# --- keepers ----------------------------------------------------------------------------------


class _SupervisorGone(BaseException):
    """The supervisor has died."""


def _run_keeper(connection: socket.socket, supervisor: int) -> None:
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
    for low, high in pairwise([2, fd, os.sysconf("SC_OPEN_MAX")]):
        os.closerange(low + 1, high)
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
        with _exit_afterwards():
            die_with_parent(signal.SIGKILL)
            if os.getppid() == keeper:
                channel.send(("failed", _run_program(request, fds)))
    close_all(fds)
    channel.send(("started", pid))
    child, status = os.waitpid(-1, 0)
    while child != pid:  # it was adopted
        child, status = os.waitpid(-1, 0)
    ended = time.monotonic()
    _end_children(ended + (_GRACE_SECONDS if os.WIFEXITED(status) else 0.0))
    channel.send(("gone", status, ended))


def _end_children(kill_at: float) -> None:
    """Wait until all children are gone; kill them from a certain time on."""
    while True:
        _reap_children()
        now = time.monotonic()
        children = list_children(os.getpid())
        if not children or now > kill_at + _HUNG_SECONDS:
            return
        if now >= kill_at:
            _kill_families(children)
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


def _reap_children() -> list[tuple[int, int]]:
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


def _kill_families(pids: Sequence[int]) -> None:
    """Kill processes and their descendants."""
    kill_all([*pids, *(member for pid in pids for member in list_descendants(pid))])


@contextlib.contextmanager
def _exit_afterwards() -> Iterator[None]:
    """End this process, a fork, after a block of code, whatever happens in it."""
    try:
        yield
    finally:
        os._exit(127)
