"""The scheduler's side of a worker: the items it was given, and its replies."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

from hesrpt.runtime.engines.attempts import Attempt, describe_end
from hesrpt.runtime.engines.channel import Channel, close_all
from hesrpt.runtime.engines.engine import PackedFunction, PythonTask
from hesrpt.runtime.engines.error_details import (
    NO_DETAILS,
    ErrorDetails,
    ErrorReport,
    create_timeout_report,
)
from hesrpt.runtime.engines.launching import build_python_command
from hesrpt.runtime.engines.supervision import Supervision
from hesrpt.runtime.engines.supervisor import GoneReport
from hesrpt.runtime.storage.logs import limit_log

# If an item takes longer than this, in seconds, those after it go to other workers.
_PATIENCE_SECONDS = 0.05
# A worker that is not ready after this long, in seconds, is replaced.
_START_SECONDS = 120.0
# A worker that closes its connection usually ends. If it does not, it is killed after this long.
_EXIT_SECONDS = 0.2


class Reply(NamedTuple):
    """A worker's report of an item that has ended."""

    attempt: Attempt
    seconds: float
    error: str | None
    details: ErrorDetails
    result: bytes


class WorkerProcess:
    """A worker. It runs its attempts one after another."""

    servers = 1

    def __init__(self, number: int, supervision: Supervision, directory: str | None) -> None:
        self.number = number
        self.pid: int | None = None  # not known at first
        self.attempts: deque[Attempt] = deque()  # those without a reply
        self.is_ready = False  # whether it has started
        self.is_late = False  # whether it took too long to start
        self.has_to_end = False  # whether it has sent its last reply
        self.is_ending = False  # whether it is being killed
        self.error: str | None = None  # why it is to be killed while it runs an item
        self.details = NO_DETAILS  # of this error
        self._exit_by = inf  # when to kill it, if it has closed its connection
        self._has_left = False  # whether it went on without its connection, and was killed
        self._functions: set[int] = set()  # the numbers of those it has
        self._generation = 0  # of tokens: those of withdrawn items are not valid any more
        self._is_slow = False  # whether items were withdrawn, because the running one takes long
        self.busy_since = inf  # when it started what it is doing now
        with contextlib.ExitStack() as on_error:
            ours, theirs = socket.socketpair()
            on_error.callback(ours.close)
            on_error.callback(theirs.close)
            self._tokens = os.pipe()
            os.set_blocking(self._tokens[0], False)
            fds = list(self._tokens)
            on_error.callback(close_all, fds)
            for copy, fd in ((_duplicate, 1), (_duplicate, 2), (os.dup, self._tokens[0])):
                fds.append(copy(fd))
            on_error.pop_all()
        ours.setblocking(False)
        self.channel = Channel(ours)
        supervision.start(
            number,
            build_python_command("worker", "run_worker"),
            fds=[*fds[2:4], theirs.detach(), fds[4]],
            directory=directory,
        )
        # The key opens connections to the managers and queues of multiprocessing.
        key = bytes(multiprocessing.current_process().authkey)
        self.channel.send(("arguments", list(sys.argv), key))

    @property
    def is_idle(self) -> bool:
        """Whether it can be given attempts."""
        return not self.attempts and not self.is_ending

    @property
    def can_prefetch(self) -> bool:
        """Whether to give it further attempts while it runs one."""
        return len(self.attempts) == 1 and not (self.is_ending or self._is_slow)

    @property
    def deadline(self) -> float:
        """When it is to be killed, on the monotonic clock."""
        if self.channel.is_closed:
            return self._exit_by
        if self.is_ending or not self.attempts:
            return inf
        if not self.is_ready:
            return self.busy_since + _START_SECONDS
        timeout = self.attempts[0].task.timeout
        if timeout is None or self.channel.has_partial_message:
            return inf
        return self.busy_since + timeout

    @property
    def patience_end(self) -> float:
        """When to withdraw the attempts that wait for the running one."""
        if len(self.attempts) < 2 or self._is_slow or not self.is_ready:
            return inf
        return self.busy_since + _PATIENCE_SECONDS

    def expire(self) -> None:
        """Record why the worker is killed at its deadline."""
        if self.channel.is_closed:
            self._has_left, self._exit_by = True, inf
        elif not self.is_ready:
            self.is_late = True
        else:
            timeout = self.attempts[0].task.timeout
            assert timeout is not None
            self.error, self.details = create_timeout_report(timeout)

    def give(self, attempts: Sequence[Attempt]) -> None:
        """Give the worker attempts, to run one after another."""
        if not self.attempts:
            self.busy_since, self._is_slow = time.monotonic(), False
        token = bytes([self._generation])
        os.write(self._tokens[1], token * len(attempts))
        for attempt in attempts:
            task = attempt.task
            assert isinstance(task, PythonTask)
            function: PackedFunction = task.function
            if function.number not in self._functions:
                self._functions.add(function.number)
                head, fds = ("function", function.number, function.path), map(os.dup, function.fds)
                self.channel.add(head, function.pickled, list(fds))
            log = None if task.log is None else str(task.log)
            self.channel.add(("item", token, function.number, log), task.argument)
        self.attempts.extend(attempts)
        self.channel.flush()

    def withdraw(self) -> list[Attempt]:
        """Take back the attempts that it has not started, and return them."""
        self._generation = (self._generation + 1) % 256
        self._is_slow = True
        tokens = b""
        with contextlib.suppress(BlockingIOError):
            tokens = os.read(self._tokens[0], 2**16)
        unstarted = [self.attempts.pop() for _ in tokens]
        return unstarted[::-1]

    def forget(self, function: int) -> None:
        """Let the worker release a function."""
        if function in self._functions:
            self._functions.discard(function)
            self.channel.send(("forget", function))

    def receive(self, *, is_gone: bool = False) -> list[Reply]:
        """Return replies that have arrived; if the process is gone, all that it has sent.

        After its last reply, a worker has to be killed. If that is an error, the item has left
        processes behind, and its reply is held back until they are gone.
        """
        replies = []
        messages = self.channel.receive_all() if is_gone else self.channel.receive()
        if self.channel.is_closed:
            self.is_ending, self._exit_by = True, time.monotonic() + _EXIT_SECONDS
        for (kind, *values), body, _ in messages:
            self.busy_since = time.monotonic()
            if kind == "ready":
                self.is_ready = True
                continue
            seconds, failure, is_last = values
            self.has_to_end = is_last
            error, details = (None, NO_DETAILS) if failure is None else _read_failure(failure)
            if is_last and error is not None:
                self.error, self.details = error, details
                break
            self._is_slow = False
            replies.append(Reply(self.attempts.popleft(), seconds, error, details, body))
        if self.channel.is_garbled and self.error is None:
            self.error = "something was written to the connection of its worker"
            self.has_to_end = True
        return replies

    def describe_failure(self, report: GoneReport) -> str:
        """Return why the running item failed."""
        if self.error is not None:
            return self.error
        if self._has_left and report.status == signal.SIGKILL:
            return "the process left the scheduler (by exec, for instance) before the item ended"
        return f"the process ended ({describe_end(report.status)}) before the item did"

    def limit_output(self) -> None:
        """Cut the log of the running item if that has become too large."""
        if self.attempts and (log := self.attempts[0].task.log) is not None:
            limit_log(log)

    def close(self) -> None:
        """Release it after its end."""
        self.close_files()

    def close_files(self) -> None:
        """Close its connection."""
        self.channel.close()
        close_all(self._tokens)


def _duplicate(fd: int) -> int:
    """Return a copy of one of our standard files, or an empty file if it is closed."""
    try:
        return os.dup(fd)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _read_failure(failure: tuple[Any, ...]) -> ErrorReport:
    """Return what a worker has sent about an error."""
    error, *details = failure
    return ErrorReport(error, ErrorDetails(*details))
