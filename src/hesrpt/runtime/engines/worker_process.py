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
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from hesrpt.runtime.engines.attempts import describe_end
from hesrpt.runtime.engines.board_view import BoardView, ItemResults, parse_results
from hesrpt.runtime.engines.channel import Channel, close_all, duplicate_all
from hesrpt.runtime.engines.engine import PackedFunction
from hesrpt.runtime.engines.error_details import NO_DETAILS, ErrorDetails, create_timeout_report
from hesrpt.runtime.engines.item_groups import ItemGroup
from hesrpt.runtime.engines.launching import build_python_command
from hesrpt.runtime.engines.output import create_capture_file, move_output
from hesrpt.runtime.engines.pickling import dump_arguments
from hesrpt.runtime.engines.result_board import create_board_file
from hesrpt.runtime.engines.shared_files import Pickled, read_shared_file
from hesrpt.runtime.engines.supervision import Supervision
from hesrpt.runtime.engines.supervisor import GoneReport
from hesrpt.runtime.item_runs import find_runs
from hesrpt.runtime.storage.logs import limit_log, limit_output

# If an item takes longer than this, in seconds, those after it go to other workers.
_PATIENCE_SECONDS = 0.05
# A worker is given another batch when it has at most so many groups of the last one left.
_PREFETCH_GROUPS = 4
# A worker that is not ready after this long, in seconds, is replaced.
_START_SECONDS = 120.0
# A worker that closes its connection usually ends. If it does not, it is killed after this long.
_EXIT_SECONDS = 0.2

_LOST_RESULT = "its result cannot be received: there are too many open files"


class Reply(NamedTuple):
    """A worker's report of items that have ended: all with results, or one with an error."""

    group: ItemGroup
    items: Sequence[int]
    seconds: Sequence[float]
    results: Sequence[Pickled]
    error: str | None = None
    details: ErrorDetails = NO_DETAILS


class WorkerProcess:
    """A worker. It runs its groups of items one after another."""

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
        self.groups: deque[ItemGroup] = deque()  # with items without a reply
        self.is_ready = False  # whether it has started
        self.is_late = False  # whether it took too long to start
        self.has_to_end = False  # whether it has sent its last reply
        self.is_ending = False  # whether it is being killed
        self.error: str | None = None  # why it is to be killed while it runs an item
        self.details = NO_DETAILS  # of this error
        self._exit_by = inf  # when to kill it, if it has closed its connection
        self._has_left = False  # whether it went on without its connection, and was killed
        self._functions: set[int] = set()  # the numbers of those it has
        self._generation = 0  # of tokens: those of withdrawn groups are not valid any more
        self._busy_since = inf  # when it was given something while it had nothing to do
        self._looked_since = 0.0  # since when it had been busy with an item that took long
        self._sent = 0  # how often it has sent results
        self._replied = 0  # for how many items it has sent a reply, or their results were read
        self._read_early = 0  # how many of the results were read before they were sent
        with contextlib.ExitStack() as on_error:
            ours, theirs = socket.socketpair()
            on_error.callback(ours.close)
            on_error.callback(theirs.close)
            self._tokens = os.pipe()
            os.set_blocking(self._tokens[0], False)
            fds = list(self._tokens)
            on_error.callback(close_all, fds)
            fds.append(board := create_board_file())
            fds.append(capture := create_capture_file())
            for copy, fd in (
                (_duplicate, 1),
                (_duplicate, 2),
                (os.dup, self._tokens[0]),
                (os.dup, capture),
            ):
                fds.append(copy(fd))
            self._board, self._capture = BoardView(board), capture
            on_error.pop_all()
        ours.setblocking(False)
        self.channel = Channel(ours, has_fds=True)
        out, err, tokens, output = fds[4:]
        supervision.start(
            number,
            build_python_command("worker", "run_worker"),
            fds=[out, err, theirs.detach(), tokens, board, output],
            directory=directory,
            variables=variables,
        )
        # The key opens connections to the managers and queues of multiprocessing.
        key = bytes(multiprocessing.current_process().authkey)
        self.channel.send(("arguments", list(sys.argv), key))

    @property
    def holds_resources(self) -> bool:
        """Whether its items hold resources besides its server."""
        return any(group.tasks.holds_resources for group in self.groups)

    @property
    def is_busy(self) -> bool:
        """Whether it holds a server."""
        return bool(self.groups) or self.is_ending

    @property
    def can_prefetch(self) -> bool:
        """Whether to give it further items before it has done those that it has."""
        if self.is_ending or not self.groups or self._is_slow:
            return False
        has_one_batch = self.groups[0].batch is self.groups[-1].batch
        return has_one_batch and len(self.groups) <= _PREFETCH_GROUPS

    @property
    def busy_since(self) -> float:
        """When it started what it is doing now, on the monotonic clock."""
        return max(self._board.started_at, self._busy_since) if self.groups else inf

    @property
    def _is_slow(self) -> bool:
        """Whether the running item takes long, and those after it were withdrawn."""
        return self.busy_since == self._looked_since

    @property
    def deadline(self) -> float:
        """When it is to be killed, on the monotonic clock."""
        if self.channel.is_closed:
            return self._exit_by
        if self.is_ending or not self.groups:
            return inf
        if not self.is_ready:
            return self.busy_since + _START_SECONDS
        if self.channel.has_partial_message or all(each.timeout is None for each in self.groups):
            return inf
        timeout = self._find_running_group().timeout
        return inf if timeout is None else self.busy_since + timeout

    def _find_running_group(self) -> ItemGroup:
        """Return the group that it has started last."""
        ahead = self._board.started - self._replied
        for group in self.groups:
            if ahead <= len(group):
                return group
            ahead -= len(group)
        return self.groups[-1]

    @property
    def patience_end(self) -> float:
        """When to look for results that were not sent, and to withdraw what waits."""
        if not self.groups or not self.is_ready or self._is_slow:
            return inf
        if len(self.groups) == len(self.groups[0]) == 1:
            return inf
        return self.busy_since + _PATIENCE_SECONDS

    def expire(self) -> None:
        """Record why the worker is killed at its deadline."""
        if self.channel.is_closed:
            self._has_left, self._exit_by = True, inf
        elif not self.is_ready:
            self.is_late = True
        else:
            timeout = self._find_running_group().timeout
            assert timeout is not None
            self.error, self.details = create_timeout_report(timeout)

    def give(self, groups: Sequence[ItemGroup]) -> None:
        """Give the worker groups of items, to run one after another."""
        functions: dict[int, PackedFunction] = {
            group.tasks.function.number: group.tasks.function for group in groups
        }
        # First what may fail because there are too many open files.
        copies = {
            number: duplicate_all(function.all_fds)
            for number, function in functions.items()
            if number not in self._functions
        }
        if not self.groups:
            self._busy_since = time.monotonic()
        token = bytes([self._generation])
        os.write(self._tokens[1], token * len(groups))
        for group in groups:
            tasks = group.tasks
            function: PackedFunction = tasks.function
            if function.number not in self._functions:
                self._functions.add(function.number)
                head = ("function", function.number, function.path, function.file is not None)
                self.channel.add(head, function.pickled, copies[function.number])
            runs = tuple((run.start, run.stop) for run in find_runs(tasks.numbers))
            logs = None if tasks.logs is None else tuple(tasks.logs)
            dumped, has_pickled = dump_arguments(tasks.arguments)
            group_head = (function.number, runs, logs, len(tasks) == 1, has_pickled)
            self.channel.add(("items", token, *group_head), dumped)
        self.groups.extend(groups)
        self.channel.flush()

    @property
    def stopped_jobs(self) -> set[str]:
        """The jobs with items that were stopped, and may have ended before."""
        return {group.job for group in self.groups if group.has_stopped_items}

    def withdraw(self) -> list[ItemGroup]:
        """Take back the groups that it has not started, and return them."""
        self._generation = (self._generation + 1) % 256
        tokens = b""
        with contextlib.suppress(BlockingIOError):
            tokens = os.read(self._tokens[0], 2**16)
        unstarted = [self.groups.pop() for _ in tokens]
        return unstarted[::-1]

    def look(self) -> list[Reply]:
        """Return results that it has not sent, because it is busy with an item that takes long."""
        self._looked_since = self.busy_since
        return self._read_board()

    def forget(self, function: int) -> None:
        """Let the worker release a function."""
        if function in self._functions:
            self._functions.discard(function)
            self.channel.send(("forget", function))

    # --- replies --------------------------------------------------------------------------------

    def receive(self, *, is_gone: bool = False) -> list[Reply]:
        """Return replies that have arrived; if the process is gone, all that it has left.

        After its last reply, a worker has to be killed. If that is an error, the item has left
        processes behind, and its reply is held back until they are gone.
        """
        replies: list[Reply] = []
        messages = self.channel.receive_all() if is_gone else self.channel.receive()
        if self.channel.is_closed:
            self.is_ending, self._exit_by = True, time.monotonic() + _EXIT_SECONDS
        for (kind, *values), body, fds in messages:
            if kind == "ready":
                self.is_ready, self._busy_since = True, time.monotonic()
            elif kind == "ended":
                *facts, self.has_to_end = values
                self._sent += 1
                replies += self._take(parse_results(body, *facts), self._read_early)
                self._read_early = 0
            elif kind == "large":
                seconds, self.has_to_end, is_in_file = values
                result: Pickled = body
                if is_in_file and fds:
                    result = read_shared_file(fds[0])
                ended = self._take(ItemResults((seconds,), (result,)), 0)
                if is_in_file and not fds:
                    ended = [each._replace(error=_LOST_RESULT) for each in ended]
                replies += ended
            else:
                seconds, (error, *details), self.has_to_end = values
                if self.has_to_end:
                    self.error, self.details = error, ErrorDetails(*details)
                    break
                failed = self._take(ItemResults((seconds,), (b"",)), 0)
                replies += [
                    each._replace(error=error, details=ErrorDetails(*details)) for each in failed
                ]
        if self.channel.is_garbled and self.error is None:
            self.error = "something was written to the connection of its worker"
            self.has_to_end = True
        if is_gone:
            replies += self._read_board()
            self._save_output()
        return replies

    def _read_board(self) -> list[Reply]:
        """Return results that are on its board, and were not read before."""
        # An item that disturbs the connection may return before its worker is killed.
        results = self._board.read(self._sent, is_last_blamed=self.channel.is_garbled)
        if results is None:
            return []
        replies = self._take(results, self._read_early)
        self._read_early = len(results.seconds)
        return replies

    def _take(self, results: ItemResults, start: int) -> list[Reply]:
        """Return the results from some place on as replies to the items that come next."""
        replies = []
        while start < len(results.seconds):
            group, items = self._take_items(len(results.seconds) - start)
            while start + len(items) < len(results.seconds) and group.is_followed_by(
                items, self.groups[0]
            ):  # what ended together stays together
                _, others = self._take_items(len(results.seconds) - start - len(items))
                items = range(items[0], others[-1] + 1)
            stop = start + len(items)
            part = results.seconds[start:stop], results.results[start:stop]
            replies.append(Reply(group, items, *part))
            start = stop
        return replies

    def _take_items(self, most: int) -> tuple[ItemGroup, Sequence[int]]:
        """Remove the next items of a group, for which there is a reply; return both."""
        group = self.groups[0]
        items = group.take(min(len(group), most))
        self._replied += len(items)
        if not len(group):
            self.groups.popleft()
        return group, items

    def describe_failure(self, report: GoneReport) -> str:
        """Return why the running item failed."""
        if self.error is not None:
            return self.error
        if self._has_left and report.status == signal.SIGKILL:
            return "the process left the scheduler (by exec, for instance) before the item ended"
        return f"the process ended ({describe_end(report.status)}) before the item did"

    def limit_output(self) -> None:
        """Cut the log of the running item if that has become too large."""
        limit_output(self._capture)
        if self.groups and self.groups[0].tasks.logs is not None:
            limit_log(self.groups[0].tasks.logs.get(self.groups[0].next_item))

    def _save_output(self) -> None:
        """Move what its last item has printed to the log of the item."""
        if self.groups and self.groups[0].tasks.logs is not None:
            with contextlib.suppress(OSError):
                log = self.groups[0].tasks.logs.get(self.groups[0].next_item)
                move_output(self._capture, log)

    @property
    def has_started_item(self) -> bool:
        """Whether an item was running when the process ended."""
        return self._board.started > self._replied

    def close(self) -> None:
        """Release it after its end."""
        self.close_files()

    def close_files(self) -> None:
        """Close its connection, and the files that it shares."""
        self.channel.close()
        self._board.close()
        close_all((*self._tokens, self._capture))


def _duplicate(fd: int) -> int:
    """Return a copy of one of our standard files, or an empty file if it is closed."""
    try:
        return os.dup(fd)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
