"""A worker: a process that calls one function at a time, and sends back what it returns.

A worker has a connection of its own to the scheduler, and shares nothing with other workers. It
receives functions once each, then items, which name their function by number.

Items come in groups. With each group comes a token, through a pipe of its own. The worker takes the
token when it starts the first item of the group. The scheduler takes tokens back to withdraw groups
that have not started, and those of a dead worker tell it which groups these are. Only one of the
two can get a token. What a worker has done of a group, and results that it has not sent yet, are in
memory that it shares with the scheduler.

This module must start quickly, so it imports little.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.context import set_spawning_popen
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import cloudpickle

from hesrpt.runtime.engines.channel import Channel, close_all
from hesrpt.runtime.engines.error_details import (
    NO_DETAILS,
    ErrorDetails,
    dump_result_pieces,
    report_exception,
)
from hesrpt.runtime.engines.output import OutputCapture, flush_output, redirect_output
from hesrpt.runtime.engines.processes import list_children, set_process_name
from hesrpt.runtime.engines.result_board import ResultBoard
from hesrpt.runtime.engines.shared_files import (
    LARGE_BYTES,
    Pickled,
    read_shared_file,
    write_shared_file,
)
from hesrpt.runtime.storage.logs import LogPaths
from hesrpt.runtime.text import describe_value

T = TypeVar("T")

# Items may replace the functions of the module, to test how something behaves over time.
_read_clock = time.monotonic

#: The file descriptors of a worker: its connection, the pipe with tokens, the memory that it shares
#: with the scheduler, and the file for the output of items that run together.
CONNECTION_FD, TOKENS_FD, BOARD_FD, CAPTURE_FD = 3, 4, 5, 6
_OWN_FDS = (CONNECTION_FD, TOKENS_FD, BOARD_FD, CAPTURE_FD)
# How long results of short items are gathered before they are sent together, in seconds.
_GATHER_SECONDS = 0.005
# So many seconds do functions get that are to be called at exit.
_EXIT_SECONDS = 2.0


class CallReport(NamedTuple, Generic[T]):
    """How a call went: its duration, and its result or its error."""

    seconds: float
    result: T | None
    error: str | None = None
    details: ErrorDetails = NO_DETAILS


def run_worker() -> None:
    """Run items until the scheduler closes the connection."""
    set_process_name("hesrpt-worker")
    # Items that print lines have printed them even if the next item ends this process.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for fd in _OWN_FDS:
        os.set_inheritable(fd, False)
    Worker(socket.socket(fileno=CONNECTION_FD)).run()


class GroupLogs(NamedTuple):
    """The logs of the items of a group; see :class:`~hesrpt.runtime.storage.logs.LogPaths`."""

    prefix: str
    suffix: str | None
    items: tuple[int, ...]

    def get(self, place: int) -> Path:
        """Return the log of the item at a place in the group."""
        return LogPaths(self.prefix, self.suffix).get(self.items[place])


class _PickledFunction(NamedTuple):
    """A function that was received, and the files that it needs."""

    pickled: Pickled
    fds: list[int]


class Worker:
    """Runs the items that come through a connection, in this order."""

    def __init__(self, connection: socket.socket) -> None:
        self.channel = Channel(connection, has_fds=True)
        self.board = ResultBoard(BOARD_FD)
        self.pid, self.files = os.getpid(), _identify_files()
        self.is_fork = False  # whether this process was forked from a worker
        os.register_at_fork(after_in_child=self._note_fork)
        self.functions: dict[int, Any] = {}  # pickled until the first call
        self.counting: set[int] = set()  # the numbers of those that may need a new worker
        self.token = b""  # taken from the pipe, but of a group that is still to come
        self.sent_at = 0.0  # when results were sent last

    def _note_fork(self) -> None:
        self.is_fork = True

    def run(self) -> None:
        """Work until the connection is closed."""
        self.channel.send(("ready",))
        while not self.channel.is_closed:
            for (kind, *values), body, fds in self.channel.receive():
                if kind == "items":
                    token, number, logs, is_one = values
                    if self._take_token(token):
                        arguments = [body] if is_one else pickle.loads(body)
                        self._run_items(number, logs and GroupLogs(*logs), arguments)
                elif kind == "function":
                    if self.channel.has_lost_files:  # items have opened too many
                        sys.exit("hesrpt: too many open files")
                    number, sys.path[:], is_in_file = values
                    pickled = read_shared_file(fds.pop()) if is_in_file else body
                    self.functions[number] = _PickledFunction(pickled, fds)
                elif kind == "forget":
                    self._forget(*values)
                else:
                    sys.argv[:], multiprocessing.current_process().authkey = values
            self._send_results()

    def _forget(self, number: int) -> None:
        self.counting.discard(number)
        function = self.functions.pop(number)
        if isinstance(function, _PickledFunction):
            close_all(function.fds)

    def _take_token(self, token: bytes) -> bool:
        """Take the token of a group; return False if the scheduler has withdrawn the group."""
        if not self.token:
            with contextlib.suppress(BlockingIOError):
                self.token = os.read(TOKENS_FD, 1)
        if self.token != token:
            return False
        self.token = b""
        return True

    # --- running items --------------------------------------------------------------------------

    def _run_items(self, number: int, logs: GroupLogs | None, arguments: Sequence[Any]) -> None:
        """Run the items of a group, with the output of each in its log, if they have logs.

        An argument is pickled if it is bytes.
        """
        if logs is None:
            self._run_group(number, arguments)
            flush_output()
        elif len(arguments) == 1:
            (argument,) = arguments
            self.board.start(_read_clock())
            work, describe = partial(self._call, number, argument), partial(_describe, argument)
            self._report(number, run_and_report(work, logs.get(0), describe))
        else:
            with OutputCapture(CAPTURE_FD, logs.get) as output:
                self._run_group(number, arguments, output.save)
        self._check_files()

    def _run_group(
        self,
        number: int,
        arguments: Sequence[Any],
        save_output: Callable[[int], None] | None = None,
    ) -> None:
        """Run items one after another. There may be millions of them, so this is quick.

        ``save_output`` is called with the place of each item that has ended.
        """
        board, call, add_result = self.board, self._call, self._add_result
        ended = _read_clock()
        for place, argument in enumerate(arguments):
            board.start(started := ended)
            try:
                result = call(number, argument)
                ended = _read_clock()
            except BaseException as error:  # even sys.exit(): an item must not end its worker
                is_logged = save_output is not None
                report = _report_error(error, started, is_logged, partial(_describe, argument))
                if save_output is not None:
                    with contextlib.suppress(OSError):
                        save_output(place)
                self._report(number, report)
                ended = _read_clock()
                continue
            if save_output is not None:
                try:
                    save_output(place)
                except OSError as error:
                    self._report(number, _report_unwritable_output(error))
                    continue
            add_result(number, ended - started, result, ended)

    def _call(self, number: int, argument: Any) -> list[Pickled]:
        """Return the pickled result of an item, in pieces."""
        try:
            function = self.functions[number]
            if type(function) is _PickledFunction:
                function = self._load_function(number, function)
            value = pickle.loads(argument) if type(argument) is bytes else argument
            return dump_result_pieces(function(value))
        finally:
            if self.is_fork:
                os._exit(0)  # the item forked, and this is the child

    def _load_function(self, number: int, received: _PickledFunction) -> Callable[[Any], Any]:
        # Objects of multiprocessing look for their files there.
        set_spawning_popen(received.fds)  # type: ignore[arg-type]
        try:
            function = self.functions[number] = cloudpickle.loads(received.pickled)
        finally:
            set_spawning_popen(None)
        close_all(received.fds)
        # Ask its class, because objects of others may do anything when they are asked.
        if hasattr(type(function), "needs_new_worker"):
            self.counting.add(number)
        return function  # type: ignore[no-any-return]

    # --- replies --------------------------------------------------------------------------------

    def _report(self, number: int, report: CallReport[list[Pickled]]) -> None:
        if report.error is None:
            self._add_result(number, report.seconds, report.result or [], _read_clock())
            return
        self._send_results()
        # The item may run again elsewhere; it must not meet what it has started.
        is_last = self._has_left_processes()
        self._check_files()
        failure = (report.error, *report.details)
        self.channel.send(("failed", report.seconds, failure, is_last))
        if is_last:
            self._wait_for_end()

    def _add_result(self, number: int, seconds: float, pieces: list[Pickled], now: float) -> None:
        """Send a result, now or together with those of the next items if these are short."""
        is_last = number in self.counting and self.functions[number].needs_new_worker
        if is_last:
            _run_exit_functions()  # before the reply, so that they are done when it arrives
        is_whole = len(pieces) == 1
        if (len(pieces[0]) if is_whole else sum(map(len, pieces))) > LARGE_BYTES:
            self._send_results()
            self._check_files()
            self._send_large_result(seconds, pieces, is_last)
        else:
            result = pieces[0] if is_whole else b"".join(pieces)
            if not self.board.add(seconds, result):
                self._send_results()
                self.board.add(seconds, result)
            if is_last or now - self.sent_at > _GATHER_SECONDS:
                self._send_results(is_last)
        if is_last:
            self._wait_for_end()

    def _send_large_result(self, seconds: float, pieces: list[Pickled], is_last: bool) -> None:
        """Send a result in a file, or through the connection if no file can be written."""
        body, fds = pieces, []
        with contextlib.suppress(OSError):
            body, fds = [], [write_shared_file(pieces)]
        self.channel.send(("large", seconds, is_last, bool(fds)), body, fds)

    def _send_results(self, is_last: bool = False) -> None:
        """Send the results that are on the board."""
        if self.board.finished:
            self._check_files()
            self.channel.send(("ended", self.board.finished, is_last), self.board.dump())
            self.board.clear()
            self.sent_at = _read_clock()

    def _check_files(self) -> None:
        """End this process if an item has closed our files, and maybe opened others."""
        if _identify_files() != self.files:
            if self.board.finished:
                self.board.remove_last()  # blame the last item
            os._exit(1)

    def _wait_for_end(self) -> None:
        while True:
            time.sleep(60)  # until the scheduler kills this process with its children

    def _has_left_processes(self) -> bool:
        """Return whether items have left processes behind: our children, or those of our keeper."""
        return bool(list_children(self.pid)) or list_children(os.getppid()) != [self.pid]


def _run_exit_functions() -> None:
    """Do what Python does at exit, such as sending what is in queues, unless it takes too long."""
    thread = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    thread.start()
    thread.join(_EXIT_SECONDS)


def _identify_files() -> list[int]:
    """Return what the file descriptors of a worker refer to; nothing if one is closed."""
    try:
        return [os.fstat(fd).st_ino for fd in _OWN_FDS]
    except OSError:
        return []


def run_and_report(
    work: Callable[[], T], log: str | Path | None, describe_item: Callable[[], str]
) -> CallReport[T]:
    """Call ``work`` with its output redirected to a log, and time it.

    If it fails, the report says which item it was.
    """
    started = _read_clock()
    try:
        with redirect_output(log):
            try:
                result = work()
                return CallReport(_read_clock() - started, result)
            except BaseException as error:  # even sys.exit(): an item must not end its worker
                return _report_error(error, started, log is not None, describe_item)
    except OSError as error:
        return _report_unwritable_output(error)


def _report_error(
    error: BaseException, started: float, is_logged: bool, describe_item: Callable[[], str]
) -> CallReport[Any]:
    seconds = _read_clock() - started
    item = ""
    with contextlib.suppress(BaseException):  # this runs the user's code
        item = describe_item()
    report = report_exception(error, item)
    if is_logged:
        sys.stderr.write(report.details.traceback)
    return CallReport(seconds, None, *report)


def _report_unwritable_output(error: OSError) -> CallReport[Any]:
    return CallReport(0.0, None, f"its output cannot be written: {error}")


def _describe(argument: Any) -> str:
    return describe_value(pickle.loads(argument) if type(argument) is bytes else argument)
