"""A worker: a process that calls one function at a time, and sends back what it returns.

A worker has a connection of its own to the scheduler, and shares nothing with other workers. It
receives functions once each, then items, which name their function by number.

With each item comes a token, through a pipe of its own. The worker takes the token when it starts
the item. The scheduler takes tokens back to withdraw items that have not started, and those of a
dead worker tell it which items these are. Only one of the two can get a token.

This module must start quickly, so it imports little.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.context import set_spawning_popen
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import cloudpickle

from hesrpt.runtime.engines.channel import Channel, Message, close_all
from hesrpt.runtime.engines.error_details import (
    NO_DETAILS,
    ErrorDetails,
    dump_result,
    report_exception,
)
from hesrpt.runtime.engines.output import redirect_output
from hesrpt.runtime.engines.processes import list_children, set_process_name
from hesrpt.runtime.text import describe_value

T = TypeVar("T")

# Items may replace the functions of the module, to test how something behaves over time.
_read_clock = time.perf_counter

#: The file descriptors of a worker: its connection, and the pipe with tokens.
CONNECTION_FD, TOKENS_FD = 3, 4
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
    for fd in (CONNECTION_FD, TOKENS_FD):
        os.set_inheritable(fd, False)
    Worker(socket.socket(fileno=CONNECTION_FD)).run()


class Worker:
    """Runs the items that come through a connection, in this order."""

    def __init__(self, connection: socket.socket) -> None:
        self.channel = Channel(connection, has_fds=True)
        self.pid, self.files = os.getpid(), _identify_files()
        self.functions: dict[int, Any] = {}  # messages until the first call
        self.token = b""  # taken from the pipe, but of an item that is still to come

    def run(self) -> None:
        """Work until the connection is closed."""
        self.channel.send(("ready",))
        while not self.channel.is_closed:
            for message in self.channel.receive():
                (kind, *values), body, _ = message
                if kind == "item":
                    token, number, log = values
                    if self._take_token(token):
                        self._run_item(number, log, body)
                elif kind == "function":
                    number, sys.path[:] = values
                    self.functions[number] = message
                elif kind == "forget":
                    self._forget(*values)
                else:
                    sys.argv[:], multiprocessing.current_process().authkey = values

    def _forget(self, number: int) -> None:
        function = self.functions.pop(number)
        if isinstance(function, Message):
            close_all(function.fds)

    def _take_token(self, token: bytes) -> bool:
        """Take the token of an item; return False if the scheduler has withdrawn the item."""
        if not self.token:
            with contextlib.suppress(BlockingIOError):
                self.token = os.read(TOKENS_FD, 1)
        if self.token != token:
            return False
        self.token = b""
        return True

    def _run_item(self, function: int, log: str | None, argument: bytes) -> None:
        def work() -> bytes:
            try:
                return dump_result(self._get_function(function)(cloudpickle.loads(argument)))
            finally:
                if os.getpid() != self.pid:
                    os._exit(0)  # the item forked, and this is the child

        seconds, result, error, details = run_and_report(
            work, log, lambda: describe_value(cloudpickle.loads(argument))
        )
        if error is not None:
            # The item may run again elsewhere; it must not meet what it has started.
            is_last = self._has_left_processes()
        else:
            called = self.functions[function]
            # Ask its class, because objects of others may do anything when they are asked.
            is_last = hasattr(type(called), "needs_new_worker") and called.needs_new_worker
            if is_last:
                _run_exit_functions()  # before the reply, so that they are done when it arrives
        if _identify_files() != self.files:
            os._exit(1)  # the item closed our files, and maybe opened others
        failure = None if error is None else (error, *details)
        self.channel.send(("ended", seconds, failure, is_last), result or b"")
        while is_last:
            time.sleep(60)  # until the scheduler kills this process with its children

    def _has_left_processes(self) -> bool:
        """Return whether items have left processes behind: our children, or those of our keeper."""
        return bool(list_children(self.pid)) or list_children(os.getppid()) != [self.pid]

    def _get_function(self, number: int) -> Callable[[Any], Any]:
        function = self.functions[number]
        if isinstance(function, Message):
            pickled, fds = function.body, function.fds
            # Objects of multiprocessing look for their files there.
            set_spawning_popen(fds)  # type: ignore[arg-type]
            try:
                function = self.functions[number] = cloudpickle.loads(pickled)
            finally:
                set_spawning_popen(None)
            close_all(fds)
        return function  # type: ignore[no-any-return]


def _run_exit_functions() -> None:
    """Do what Python does at exit, such as sending what is in queues, unless it takes too long."""
    thread = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    thread.start()
    thread.join(_EXIT_SECONDS)


def _identify_files() -> list[int]:
    """Return what the file descriptors of a worker refer to; nothing if one is closed."""
    try:
        return [os.fstat(fd).st_ino for fd in (CONNECTION_FD, TOKENS_FD)]
    except OSError:
        return []


def run_and_report(
    work: Callable[[], T], log: str | Path | None, describe_item: Callable[[], str]
) -> CallReport[T]:
    """Call ``work`` with its output redirected to a log, and time it.

    If it fails, the report says which item it was.
    """
    start = _read_clock()
    try:
        with redirect_output(log):
            try:
                result = work()
                return CallReport(_read_clock() - start, result)
            except BaseException as error:  # even sys.exit(): an item must not end its worker
                seconds = _read_clock() - start
                if log is not None:
                    traceback.print_exc()
                item = ""
                with contextlib.suppress(BaseException):  # this runs the user's code
                    item = describe_item()
                return CallReport(seconds, None, *report_exception(error, item))
    except OSError as error:
        return CallReport(0.0, None, f"its output cannot be written: {error}")
