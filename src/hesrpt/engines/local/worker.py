"""A worker: a process that calls one function at a time, and sends back what it returns.

A worker has a connection of its own to the scheduler, and shares nothing with other workers. It
receives functions once each, then batches of items, which name their function by number.

An answer names the batch, the place of an item in it, and carries the results of this item and the
next ones. Results of short items are gathered for a moment and sent together, so that an item that
takes longer than that moment is answered for as soon as it has ended. Whatever a worker has not
sent when it dies is lost, and its items run again.

With each batch come *tokens*, one for each item, through a pipe of their own. The worker takes a
token just before it starts an item. The scheduler takes tokens back to withdraw items that have not
started, and those left in the pipe of a dead worker tell it which these are. Only one of the two
can get a token.

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
from typing import Any, NamedTuple

import cloudpickle

from hesrpt.engines.item_reports import (
    CallReport,
    call_with_log,
    dump_result_pieces,
    read_clock,
    report_unwritable_output,
    time_call,
)
from hesrpt.engines.local.channel import (
    LARGE_BYTES,
    Channel,
    close_all,
    read_shared_file,
    write_shared_file,
)
from hesrpt.engines.local.output import flush_output, move_output, redirect_output
from hesrpt.engines.local.processes import list_children, set_process_name
from hesrpt.jobs.text import describe_value
from hesrpt.pickling import Pickled
from hesrpt.storage.logs import LogPaths

#: The file descriptors of a worker: its connection, the pipe with tokens, and the file for the
#: output of items that run one after another.
CONNECTION_FD, TOKENS_FD, CAPTURE_FD = 3, 4, 5
#: How long results of short items are gathered before they are sent together, in seconds.
GATHER_SECONDS = 0.01
# How long functions may take that are to be called at exit, in seconds.
_EXIT_SECONDS = 2.0


def run_worker() -> None:
    """Run items until the scheduler closes the connection."""
    set_process_name("hesrpt-worker")
    for fd in (CONNECTION_FD, TOKENS_FD, CAPTURE_FD):
        os.set_inheritable(fd, False)
    for standard in (sys.stdout, sys.stderr):
        standard.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    Worker(socket.socket(fileno=CONNECTION_FD), TOKENS_FD, CAPTURE_FD).run()


class _PickledFunction(NamedTuple):
    """A function that was received, and the files that it needs."""

    pickled: Pickled
    fds: list[int]


class Worker:
    """Runs the batches that come through a connection, in this order."""

    def __init__(self, connection: socket.socket, tokens: int, capture: int) -> None:
        self.channel = Channel(connection, has_fds=True)
        self._tokens, self._capture = tokens, capture
        self._fds = (connection.fileno(), tokens, capture)
        self._files = self._identify_files()
        self._functions: dict[int, Any] = {}  # pickled until the first call
        self._counting: set[int] = set()  # those that may want this process to be replaced
        self._token = b""  # taken from the pipe, but of a batch that is still to come
        self._pid = os.getpid()
        self._is_fork = False  # whether an item has forked, and this is the child
        os.register_at_fork(after_in_child=partial(setattr, self, "_is_fork", True))

    def run(self) -> None:
        """Work until the connection is closed."""
        self.channel.send(("ready",))
        while not self.channel.is_closed:
            for (kind, *values), body, fds in self.channel.receive():
                if kind == "batch":
                    self._run_batch(body, *values)
                elif kind == "function":
                    if self.channel.has_lost_files:  # items have opened too many
                        sys.exit("hesrpt: too many open files")
                    number, sys.path[:], is_in_file = values
                    pickled = read_shared_file(fds.pop()) if is_in_file else body
                    self._functions[number] = _PickledFunction(pickled, fds)
                elif kind == "forget":
                    self._forget(*values)
                else:
                    sys.argv[:], multiprocessing.current_process().authkey = values

    # --- functions ------------------------------------------------------------------------------

    def _forget(self, number: int) -> None:
        """Release a function; when this returns, nothing here refers to it."""
        self._counting.discard(number)
        function = self._functions.pop(number)
        if isinstance(function, _PickledFunction):
            close_all(function.fds)

    def _unpickle(self, number: int, received: _PickledFunction) -> Callable[[Any], Any]:
        """Unpickle a function, before its first call."""
        # Objects of multiprocessing look for their files there.
        set_spawning_popen(received.fds)  # type: ignore[arg-type]
        try:
            function = self._functions[number] = cloudpickle.loads(received.pickled)
        finally:
            set_spawning_popen(None)
        close_all(received.fds)
        # Ask its class, because objects of others may do anything when they are asked.
        if hasattr(type(function), "needs_new_worker"):
            self._counting.add(number)
        return function  # type: ignore[no-any-return]

    # --- items ----------------------------------------------------------------------------------

    def _run_batch(
        self,
        body: bytes,
        number: int,
        token: bytes,
        function: int,
        is_single: bool,
        logs: tuple[tuple[str, str | None], Sequence[int]] | None,
    ) -> None:
        """Run the items of a batch, with the output of each in its log, if they have logs.

        The body is the pickled argument of a single item, or the pickled list of all arguments. In
        the list, bytes are pickled arguments, and everything else is an argument itself. The items
        come with their numbers only if they have logs.
        """
        arguments = [body] if is_single else pickle.loads(body)
        # The output of a single item goes directly to its log, where others can follow it.
        paths, items = (None, ()) if logs is None else (LogPaths(*logs[0]), logs[1])
        log = paths.get(items[0]) if paths is not None and is_single else None
        captures = paths if log is None else None
        answers, call = _Answers(self, number), partial(self._call, function)
        with contextlib.nullcontext() if captures is None else redirect_output(self._capture):
            for place, argument in enumerate(arguments):
                if not self._take_token(token):
                    break  # the scheduler has withdrawn the item, and those after it
                if log is not None:
                    report = call_with_log(call, argument, _describe, log)
                else:
                    report = time_call(call, argument, _describe, is_logged=captures is not None)
                if captures is not None:
                    try:
                        move_output(self._capture, captures, items[place])
                    except OSError as error:
                        report = report_unwritable_output(error)
                is_last = function in self._counting and self._functions[function].needs_new_worker
                answers.add(place, report, is_last)
            answers.send()
            if captures is not None:
                with contextlib.suppress(OSError):
                    move_output(self._capture, captures, items[-1])

    def _take_token(self, token: bytes) -> bool:
        """Take the token of an item; return False if the scheduler has taken it back."""
        if not self._token:
            try:
                self._token = os.read(self._tokens, 1)
            except BlockingIOError:
                return False
        if self._token != token:
            return False  # it belongs to the next batch
        self._token = b""
        return True

    def _call(self, number: int, argument: Any) -> list[Pickled]:
        """Return what a function returns, pickled."""
        try:
            function = self._functions[number]
            if type(function) is _PickledFunction:
                function = self._unpickle(number, function)
            result = function(pickle.loads(argument) if type(argument) is bytes else argument)
            return dump_result_pieces(result)
        finally:
            if self._is_fork:
                os._exit(0)  # whoever has forked the process runs the other items

    # --- files and processes --------------------------------------------------------------------

    def check_files(self) -> None:
        """End this process if an item has closed our files, and maybe opened others."""
        if self._identify_files() != self._files:
            os._exit(1)

    def _identify_files(self) -> list[int]:
        """Return what the file descriptors of a worker refer to; nothing if one is closed."""
        try:
            return [os.fstat(fd).st_ino for fd in self._fds]
        except OSError:
            return []

    def has_left_processes(self) -> bool:
        """Return whether items have left processes behind: our children, or those of our keeper."""
        return bool(list_children(self._pid)) or list_children(os.getppid()) != [self._pid]

    def run_exit_functions(self) -> None:
        """Do what Python does at exit, such as sending what is in queues, unless it takes long."""
        thread = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
        thread.start()
        thread.join(_EXIT_SECONDS)

    def wait_for_end(self) -> None:
        """Wait until the scheduler kills this process with its children."""
        while True:
            time.sleep(60)


class _Answers:
    """What a worker answers for the items of a batch."""

    def __init__(self, worker: Worker, batch: int) -> None:
        self._worker, self._batch = worker, batch
        self._place = 0  # of the first item whose result was not sent
        self._seconds: list[float] = []
        self._results: list[bytes] = []
        self._bytes = 0
        self._sent_at = read_clock()

    def add(self, place: int, report: CallReport[list[Pickled]], is_last: bool) -> None:
        """Answer for an item, now or soon; after the last one, this process ends."""
        if report.error is not None:
            self._send_failure(place, report, is_last=is_last)
            return
        assert report.result is not None
        if is_last:  # before the answer, so that it is done when the answer arrives
            self._worker.run_exit_functions()
        pieces = report.result
        size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        if size > LARGE_BYTES:
            self._send_large(place, report.seconds, pieces, is_last=is_last)
        else:
            if not self._results:
                self._place = place
            self._seconds.append(report.seconds)
            self._results.append(b"".join(pieces))
            self._bytes += size
            is_due = read_clock() >= self._sent_at + GATHER_SECONDS
            if is_due or is_last or self._bytes > LARGE_BYTES:
                self.send(is_last=is_last)
        if is_last:
            self._worker.wait_for_end()

    def send(self, *, is_last: bool = False) -> None:
        """Send the results that were gathered, after what their items have printed."""
        flush_output()
        self._worker.check_files()
        if self._results:
            answer = (self._batch, self._place, self._seconds, self._results, is_last)
            self._worker.channel.send(("done", *answer))
            self._seconds, self._results, self._bytes = [], [], 0
            self._sent_at = read_clock()

    def _send_large(
        self, place: int, seconds: float, pieces: list[Pickled], *, is_last: bool
    ) -> None:
        """Send a large result in a file, or through the connection if that fails."""
        self.send()
        body, fds = pieces, []
        with contextlib.suppress(OSError):
            body, fds = [], [write_shared_file(pieces)]
        answer = (self._batch, place, seconds, bool(fds), is_last)
        self._worker.channel.send(("large", *answer), body, fds)
        self._sent_at = read_clock()

    def _send_failure(self, place: int, report: CallReport[Any], *, is_last: bool) -> None:
        self.send()
        # The item may run again elsewhere; it must not meet what it has started.
        is_last = is_last or self._worker.has_left_processes()
        error = (report.error, *report.details)
        self._worker.channel.send(("failed", self._batch, place, report.seconds, error, is_last))
        self._sent_at = read_clock()
        if is_last:
            self._worker.wait_for_end()


def _describe(argument: Any) -> str:
    return describe_value(pickle.loads(argument) if type(argument) is bytes else argument)
