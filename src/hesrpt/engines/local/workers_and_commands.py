"""The scheduler's side of the processes that run items: workers and their batches, and commands."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from math import inf
from typing import NamedTuple

from hesrpt.engines.engine import CommandTask, PackedFunction, PythonTasks
from hesrpt.engines.item_reports import NO_DETAILS, ErrorDetails, create_timeout_report
from hesrpt.engines.local.channel import (
    Channel,
    close_all,
    create_output_file,
    duplicate_all,
    is_about_open_files,
    read_shared_file,
    write_shared_file,
)
from hesrpt.engines.local.output import finish_log, move_output, read_tail
from hesrpt.engines.local.supervisor import GoneReport
from hesrpt.engines.local.supervisor_client import Supervision, build_python_command
from hesrpt.engines.local.worker import GATHER_SECONDS
from hesrpt.pickling import Pickled, dump_arguments
from hesrpt.storage.logs import limit_log, limit_output, open_log

_numbers = count(1)


class Batch:
    """Items that wait for a worker, or that a worker has.

    A worker answers for the items in their order. Each of its answers names the batch by its
    number, and the place of the first item that it answers for.
    """

    servers = 1

    def __init__(self, job: str, tasks: PythonTasks) -> None:
        self.job, self.tasks = job, tasks
        self.variables = tasks.variables  # that its worker must have in its environment
        self.holds_resources = tasks.holds_resources  # besides a server
        self.number = next(_numbers)
        self.token = b""  # that its worker takes before it starts an item
        self.is_single = len(tasks) == 1  # whether the worker was given one item
        self.answered = 0  # how many of its items have been answered for
        self.stopped: set[int] = set()  # items that are reported only if they are done

    @property
    def unanswered(self) -> Sequence[int]:
        """The items that have not been answered for."""
        return self.tasks.numbers[self.answered :]

    @property
    def has_ended(self) -> bool:
        """Whether all items have been answered for."""
        return self.answered == len(self.tasks)

    @property
    def is_stopping(self) -> bool:
        """Whether items were stopped that have not been answered for."""
        return bool(self.stopped) and not self.stopped.isdisjoint(self.unanswered)

    def stop(self, items: Collection[int]) -> bool:
        """Stop items that have not been answered for; return whether there are any."""
        found = set(items).intersection(self.unanswered)
        self.stopped |= found
        return bool(found)

    def answer(self, place: int, count: int) -> Sequence[int] | None:
        """Return the items of an answer; None if it is not the answer that comes next."""
        if place != self.answered or place + count > len(self.tasks):
            return None
        self.answered += count
        return self.tasks.numbers[place : self.answered]

    def cut(self, count: int) -> Batch | None:
        """Remove the last items, which have not started; return those that were not stopped."""
        if count == 0:
            return None
        size, tasks = len(self.tasks) - count, self.tasks
        self.tasks = tasks.slice(0, size)
        return Batch(self.job, tasks.slice(size, size + count)).remove(self.stopped)

    def remove(self, items: Collection[int]) -> Batch | None:
        """Return the batch without some items, given that no worker has it; None if it is empty."""
        removed = set(items).intersection(self.tasks.numbers) if items else items
        if not removed:
            return self
        if len(removed) == len(self.tasks):
            return None
        return Batch(self.job, self.tasks.without(removed))


# If a worker answers for no item for this long, in seconds, what waits behind it goes to others.
_PATIENCE_SECONDS = 0.05
#: A worker that runs short items of which some were stopped has this long, in seconds, to answer
#: for those that are done. Then it is killed.
GRACE_SECONDS = 1.0
# A worker that is not ready after this long, in seconds, is replaced.
_START_SECONDS = 120.0
# A worker that closes its connection usually ends. If it does not, it is killed after this long.
_EXIT_SECONDS = 0.2

_LOST_RESULT = "its result cannot be received: there are too many open files"


class Reply(NamedTuple):
    """A worker's answer for items that have ended: all with results, or one with an error."""

    batch: Batch
    items: Sequence[int]
    seconds: Sequence[float]
    results: Sequence[Pickled]
    error: str | None = None
    details: ErrorDetails = NO_DETAILS


class WorkerProcess:
    """A worker. It runs its batches one after another."""

    servers = 1

    def __init__(
        self,
        number: int,
        supervision: Supervision,
        directory: str | None,
        variables: Mapping[str, str],
    ) -> None:
        self.number, self.variables = number, variables  # added to its environment
        self.pid: int | None = None  # not known at first
        self.batches: deque[Batch] = deque()  # with items that it has not answered for
        self.unstarted: list[Batch] = []  # what it had not started when it was gone
        self.is_ready = False  # whether it has started
        self.is_late = False  # whether it took too long to start
        self.has_to_end = False  # whether it has sent its last answer
        self.is_ending = False  # whether it is being killed
        self.error: str | None = None  # why it is to be killed while it runs an item
        self.details = NO_DETAILS  # of this error
        self.busy_since = inf  # since when it has been busy without an answer
        self.is_slow = False  # whether what waited behind the running item was withdrawn
        self.stop_by = inf  # when to kill it, because items were stopped that may be running
        self._exit_by = inf  # when to kill it, if it has closed its connection
        self._has_left = False  # whether it went on without its connection, and was killed
        self._functions: set[int] = set()  # the numbers of those it has
        self._given = 0  # how many batches it was given, modulo 256
        with contextlib.ExitStack() as on_error:
            ours, theirs = socket.socketpair()
            on_error.callback(ours.close)
            on_error.callback(theirs.close)
            self._tokens = os.pipe()
            os.set_blocking(self._tokens[0], False)
            fds = list(self._tokens)
            on_error.callback(close_all, fds)
            self._capture = create_output_file()
            fds.append(self._capture)
            fds.extend(map(_duplicate, (1, 2, self._tokens[0], self._capture)))
            on_error.pop_all()
        ours.setblocking(False)
        self.channel = Channel(ours, has_fds=True)
        out, err, tokens, output = fds[3:]
        supervision.start(
            number,
            build_python_command("worker", "run_worker"),
            fds=[out, err, theirs.detach(), tokens, output],
            directory=directory,
            variables=variables,
        )
        # The key opens connections to the managers and queues of multiprocessing.
        key = bytes(multiprocessing.current_process().authkey)
        self.channel.send(("arguments", list(sys.argv), key))

    @property
    def holds_resources(self) -> bool:
        """Whether its items hold resources besides its server."""
        return any(batch.holds_resources for batch in self.batches)

    @property
    def is_busy(self) -> bool:
        """Whether it holds a server."""
        return bool(self.batches) or self.is_ending

    @property
    def can_prefetch(self) -> bool:
        """Whether to give it another batch before it has done the one that it has."""
        return (
            len(self.batches) == 1
            and not self.is_ending
            and not self.is_slow
            and self.stop_by == inf
        )

    @property
    def may_have_results(self) -> bool:
        """Whether it may have results that it has not sent yet."""
        return not all(batch.is_single for batch in self.batches)

    # --- giving and withdrawing -----------------------------------------------------------------

    def give(self, batch: Batch) -> None:
        """Give the worker a batch."""
        function: PackedFunction = batch.tasks.function
        is_new = function.number not in self._functions
        # First what may fail because there are too many open files.
        copies = duplicate_all(function.fds) if is_new else []
        if not self.batches:
            self.busy_since, self.is_slow = time.monotonic(), False
        if is_new:
            self._functions.add(function.number)
            head = ("function", function.number, function.path, function.is_in_file)
            self.channel.send(head, function.pickled, copies)
        self._given = (self._given + 1) % 256
        batch.token, tasks = bytes((self._given,)), batch.tasks
        os.write(self._tokens[1], batch.token * len(tasks))
        logs = None if tasks.logs is None else (tuple(tasks.logs), list(tasks.numbers))
        values = (batch.number, batch.token, function.number, batch.is_single, logs)
        self.batches.append(batch)
        self.channel.send(("batch", *values), dump_arguments(tasks.arguments))

    def withdraw(self) -> list[Batch]:
        """Take back the items that it has not started, and return those that were not stopped."""
        tokens = b""
        with contextlib.suppress(BlockingIOError):
            tokens = os.read(self._tokens[0], 2**16)
        counts = Counter(tokens)
        unstarted = [batch.cut(counts[batch.token[0]]) for batch in self.batches]
        self.batches = deque(batch for batch in self.batches if not batch.has_ended)
        if self.stop_by < inf and not self.is_stopping:
            self.stop_by = inf
        return [batch for batch in unstarted if batch is not None]

    def forget(self, function: int) -> None:
        """Let the worker release a function."""
        if function in self._functions:
            self._functions.discard(function)
            self.channel.send(("forget", function))

    @property
    def is_stopping(self) -> bool:
        """Whether it has items that were stopped, and may have ended before."""
        return any(batch.is_stopping for batch in self.batches)

    # --- time limits ----------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When it is to be killed, on the monotonic clock."""
        if self.channel.is_closed:
            return self._exit_by
        if self.is_ending or not self.batches:
            return inf
        if not self.is_ready:
            return self.busy_since + _START_SECONDS
        timeout = self.batches[0].tasks.timeout
        if timeout is None or self.channel.incoming:
            return self.stop_by
        # The running item may have started after others whose results were not sent yet.
        gathering = 0.0 if self.batches[0].is_single else GATHER_SECONDS
        return min(self.stop_by, self.busy_since + gathering + timeout)

    @property
    def patience_end(self) -> float:
        """When to withdraw what waits behind the running item."""
        if not self.batches or not self.is_ready or self.is_slow or self.is_ending:
            return inf
        if len(self.batches) == 1 and self.batches[0].answered == len(self.batches[0].tasks) - 1:
            return inf  # nothing waits
        return self.busy_since + _PATIENCE_SECONDS

    def expire(self) -> None:
        """Record why the worker is killed at its deadline."""
        if self.channel.is_closed:
            self._has_left, self._exit_by = True, inf
        elif not self.is_ready:
            self.is_late = True
        elif self.stop_by > time.monotonic():
            timeout = self.batches[0].tasks.timeout
            assert timeout is not None
            self.error, self.details = create_timeout_report(timeout)

    # --- answers --------------------------------------------------------------------------------

    def receive(self, *, is_gone: bool = False) -> list[Reply]:
        """Return answers that have arrived; if the process is gone, all that it has left.

        After its last answer, a worker has to be killed. If that is an error, the item has left
        processes behind, and its answer is held back until they are gone.
        """
        replies: list[Reply] = []
        messages = self.channel.receive(everything=is_gone)
        if self.channel.is_closed:
            self.is_ending, self._exit_by = True, time.monotonic() + _EXIT_SECONDS
        for (kind, *values), body, fds in messages:
            if kind == "ready":
                self.is_ready, self.busy_since = True, time.monotonic()
                continue
            number, place, seconds, content, self.has_to_end = values
            if kind == "failed" and self.has_to_end:
                self.error, self.details = content[0], ErrorDetails(*content[1:])
                break
            seconds = seconds if kind == "done" else [seconds]
            batch = self.batches[0] if self.batches else None
            is_due = batch is not None and batch.number == number
            items = batch.answer(place, len(seconds)) if batch is not None and is_due else None
            if batch is None or items is None:
                self.channel.is_garbled = True
                break
            if batch.has_ended:
                self.batches.popleft()
            results: Sequence[Pickled] = ()
            error, details = None, NO_DETAILS
            if kind == "done":
                results = content
            elif kind == "failed":
                error, details = content[0], ErrorDetails(*content[1:])
            elif content and not fds:
                error = _LOST_RESULT
            else:
                results = [read_shared_file(fds[0]) if content else body]
            replies.append(Reply(batch, items, seconds, results, error, details))
        if self.channel.is_garbled and self.error is None:
            self.error = "something was written to the connection of its worker"
            self.has_to_end = True
        if replies:
            self.busy_since, self.is_slow = time.monotonic(), False
            if self.stop_by < inf and not self.is_stopping:
                self.stop_by = inf
        if is_gone and self.batches:
            self.unstarted = self.withdraw()
            # Move what the item has printed that was running at the end to its log.
            if self.batches and (logs := self.batches[-1].tasks.logs) is not None:
                with contextlib.suppress(OSError):
                    move_output(self._capture, logs, self.batches[-1].tasks.numbers[-1])
        return replies

    def describe_failure(self, report: GoneReport) -> str:
        """Return why the running item failed."""
        if self.error is not None:
            return self.error
        if self._has_left and report.status == signal.SIGKILL:
            return "the process left the scheduler (by exec, for instance) before the item ended"
        return f"the process ended ({report.describe_end()}) before the item did"

    # --- output ---------------------------------------------------------------------------------

    def limit_output(self) -> None:
        """Cut the output of the running item if that has become too large."""
        limit_output(self._capture)
        if self.batches and (batch := self.batches[0]).is_single and batch.tasks.logs is not None:
            limit_log(batch.tasks.logs.get(batch.tasks.numbers[0]))

    # --- the end --------------------------------------------------------------------------------

    def close_files(self) -> None:
        """Close its connection, and the files that it shares."""
        self.channel.close()
        close_all((*self._tokens, self._capture))

    close = close_files


def _duplicate(fd: int) -> int:
    """Return a copy of a file, or of an empty one if it is a standard file that is closed."""
    try:
        return os.dup(fd)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


# --- commands -------------------------------------------------------------------------------------


class CommandStartError(Exception):
    """A command could not be started."""


class CommandProcess:
    """One attempt to run a command: it waits for servers, and then is a process with its output."""

    is_busy = True

    def __init__(self, job: str, item: int, task: CommandTask, servers: int = 1) -> None:
        self.job, self.item, self.task, self.servers = job, item, task, servers
        self.key = job, item
        self.holds_resources = task.holds_resources  # besides servers
        self.is_stopped = False  # reported only if it is done nevertheless
        self.is_suspended = False  # it goes on, or starts, only when it is resumed
        self.number = 0  # until it starts
        self.pid: int | None = None  # not known at first
        self.cores: Sequence[int] = ()  # to which it is pinned
        self.is_ending = False  # whether it is to be killed
        self.error: str | None = None  # why it is to be killed
        self.details = NO_DETAILS  # of this error
        self.started = inf  # later by as long as it was suspended
        self.suspended_at: float | None = None  # None: it runs

    def start(
        self, number: int, supervision: Supervision, *, threads: int, cores: Sequence[int] = ()
    ) -> None:
        """Let the supervisor start it; raise CommandStartError if that is impossible."""
        task = self.task
        try:
            fd = create_output_file() if task.log is None else open_log(task.log)
            self.output = os.fdopen(fd, "a+b")
        except OSError as error:
            raise _explain(error) from None
        self._earlier = self.output.seek(0, os.SEEK_END)  # the log may hold earlier attempts
        fds: list[int] = []
        try:
            fds.extend(os.dup(self.output.fileno()) for _ in range(2))
            if task.stdin is not None:
                fds.append(write_shared_file([os.fsencode(task.stdin)]))
                os.lseek(fds[-1], 0, os.SEEK_SET)
            command = task.command
            supervision.start(
                number,
                (*task.shell, "-c", command) if isinstance(command, str) else command,
                fds=fds,
                directory=task.directory,
                has_input=task.stdin is not None,
                input_file=task.stdin_file,
                variables=task.variables,
                cores=cores,
                threads=threads,
            )
        except OSError as error:
            close_all(fds)
            self.output.close()
            raise _explain(error) from None
        except ValueError as error:
            self.output.close()
            raise CommandStartError(f"cannot be started: {error}") from None
        self.number, self.cores, self.started = number, cores, time.monotonic()

    @property
    def deadline(self) -> float:
        """When the command exceeds its time limit, on the monotonic clock."""
        if self.is_ending or self.task.timeout is None or self.suspended_at is not None:
            return inf
        return self.started + self.task.timeout

    def expire(self) -> None:
        """Record why the command is killed at its deadline."""
        assert self.task.timeout is not None
        self.error, self.details = create_timeout_report(self.task.timeout)

    def describe_failure(self, report: GoneReport) -> str | None:
        """Return why the command failed, with the last lines of its output; None if it did not."""
        if report.error is not None:
            return f"cannot be started: {report.error}"
        if report.status == 0 and self.error is None:
            return None
        tail = read_tail(self.output, 4096, skip=self._earlier).decode("utf-8", "replace")
        return "\n".join([self.error or report.describe_end(), *tail.splitlines()[-10:]])

    def limit_output(self) -> None:
        """Cut its output if that has become too large."""
        with contextlib.suppress(OSError):
            self._earlier = max(self._earlier - limit_output(self.output.fileno()), 0)

    def measure_seconds(self, report: GoneReport) -> float:
        """Return how long the command itself ran, without the time while it was suspended."""
        ended = report.ended or time.monotonic()
        return max(min(ended, self.suspended_at or inf) - self.started, 0.0)

    def suspend(self) -> None:
        """Record that the command is suspended: it needs no servers, and its clock stands still."""
        self.is_suspended, self.servers, self.cores = True, 0, ()
        if self.number:
            self.suspended_at = time.monotonic()

    def go_on(self, servers: int) -> None:
        """Record that the command is no longer suspended."""
        self.is_suspended, self.servers = False, servers
        if self.suspended_at is not None:
            self.started += time.monotonic() - self.suspended_at
            self.suspended_at = None

    def close(self) -> None:
        """Close its output, and remove its log if that is empty."""
        self.close_files()
        if self.task.log is not None:
            finish_log(self.task.log)

    def close_files(self) -> None:
        """Close its output, and do nothing else."""
        self.output.close()


def _explain(error: OSError) -> Exception:
    """Return what to raise if the output of a command cannot be opened."""
    if is_about_open_files(error):
        return error  # the command can start later
    return CommandStartError(f"its input or output cannot be written: {error}")
