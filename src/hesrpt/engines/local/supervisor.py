"""The processes between the scheduler and its items: guardian, supervisor and keepers.

    scheduler ── guardian ── supervisor ─┬─ keeper ── worker or command ── its children
                                         └─ keeper ── …

The *supervisor* starts processes at the scheduler's request, each below a keeper of its own (see
:mod:`~hesrpt.engines.local.keeper`), which says when all descendants of the process are gone. If
a keeper is killed, the supervisor adopts the orphans, and kills them before it reports the attempt.

When the scheduler is gone, supervisor and guardian kill all their descendants. The guardian does so
too if the supervisor dies, and the supervisor if the guardian dies. So whichever two of the three
are killed, the third cleans up: if it is the scheduler, with the help of the keepers, which the
system informs (PR_SET_PDEATHSIG). What only carries the mark is killed last.

These processes must start quickly, so this module imports little, and the supervisor and the
keepers are forks of the guardian.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hesrpt.engines.local.channel import Channel, close_all
from hesrpt.engines.local.keeper import (
    HUNG_SECONDS,
    StartRequest,
    exit_afterwards,
    kill_families,
    reap_children,
    run_keeper,
)
from hesrpt.engines.local.processes import (
    POLL_SECONDS,
    adopt_orphans,
    are_descendants_stopped,
    kill_all,
    kill_marked,
    list_children,
    list_descendants,
    open_process,
    set_process_name,
    signal_descendants,
)

# Where the system cannot report the end of another process, look for it this often, in seconds.
_PARENT_POLL_SECONDS = 0.5


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
        with exit_afterwards():
            set_process_name("hesrpt-superv")
            ends = [scheduler_end, open_process(guardian)]
            Supervisor(socket.socket(fileno=int(control)), ends, guardian).run()
            kill_descendants(mark)
    os.close(int(control))
    exit_code = 0
    while parent in (None, os.getppid()):
        ready = wait_for(
            [child_ended, scheduler_end], None if scheduler_end else _PARENT_POLL_SECONDS
        )
        if scheduler_end in ready:
            break
        _drain(child_ended)
        if (status := dict(reap_children()).get(supervisor)) is not None:
            exit_code = os.waitstatus_to_exitcode(status)
            break
    kill_descendants(mark)
    sys.exit(max(exit_code, 0))  # nothing is wrong if somebody killed the supervisor


def kill_descendants(mark: str) -> None:
    """Kill all descendants of this process, and what carries the mark, until nothing is left."""
    deadline = time.monotonic() + HUNG_SECONDS
    while time.monotonic() < deadline:
        reap_children()
        children = list_children(os.getpid())
        if not children:
            break
        kill_families(children)
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
            if self.control.fileno() in ready:
                self.control.flush()
                for head, _, fds in self.control.receive():
                    self._handle_request(head, fds)
            for pid, keeper in self.keepers.items():
                if keeper.channel.fileno() in ready:
                    keeper.channel.flush()
                    self._read_reports(keeper)
                if keeper.is_doomed:
                    kill_all(list_descendants(pid))
                elif keeper.stops_until:
                    signal_descendants(pid, signal.SIGSTOP)
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
            keeper.stops_until = time.monotonic() + HUNG_SECONDS if kind == "suspend" else 0.0
            if kind == "resume":
                signal_descendants(pid, signal.SIGCONT)

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
                with exit_afterwards():
                    signal.set_wakeup_fd(-1)
                    run_keeper(theirs, supervisor)
        ours.setblocking(False)
        keeper = self.keepers[pid] = _Keeper(Channel(ours))
        return keeper

    # --- reports --------------------------------------------------------------------------------

    def _read_reports(self, keeper: _Keeper) -> None:
        """Read what a keeper has reported about its process."""
        for (kind, *values), _, _ in keeper.channel.receive_all():
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
        for pid, _ in reap_children():
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
        alive = [pid for pid, seen in self.orphans.items() if now < seen + HUNG_SECONDS]
        kill_families(alive)
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


def wait_for(
    sources: Sequence[int | None], timeout: float | None, channels: Sequence[Channel] = ()
) -> set[int | None]:
    """Return the file descriptors that are readable, after waiting for one.

    Those of channels are also returned if there is room for what they have to send.
    """
    poll = select.poll()
    for source in sources:
        if source is not None:
            poll.register(source, select.POLLIN)
    for channel in channels:
        poll.register(channel, select.POLLIN | (select.POLLOUT if channel.has_outgoing else 0))
    return {fd for fd, _ in poll.poll(None if timeout is None else 1000 * timeout)}
