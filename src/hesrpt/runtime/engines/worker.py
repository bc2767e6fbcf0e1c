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

import contextlib
import multiprocessing
import os
import pickle
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.context import set_spawning_popen
from typing import Any, NamedTuple

import cloudpickle

from hesrpt.runtime.engines.channel import Channel, close_all
from hesrpt.runtime.engines.item_loop import FORK, ItemLoop
from hesrpt.runtime.engines.output import OutputCapture, flush_output, note_output
from hesrpt.runtime.engines.processes import set_process_name
from hesrpt.runtime.engines.replies import Replies
from hesrpt.runtime.engines.result_board import ResultBoard
from hesrpt.runtime.engines.shared_files import Pickled, read_shared_file
from hesrpt.runtime.item_runs import join_items
from hesrpt.runtime.storage.logs import LogPaths

#: The file descriptors of a worker: its connection, the pipe with tokens, the memory that it shares
#: with the scheduler, and the file for the output of items that run together.
CONNECTION_FD, TOKENS_FD, BOARD_FD, CAPTURE_FD = 3, 4, 5, 6
_OWN_FDS = (CONNECTION_FD, TOKENS_FD, BOARD_FD, CAPTURE_FD)


def run_worker() -> None:
    """Run items until the scheduler closes the connection."""
    set_process_name("hesrpt-worker")
    notes: set[object] = set()
    note_output(notes)
    for fd in _OWN_FDS:
        os.set_inheritable(fd, False)
    Worker(socket.socket(fileno=CONNECTION_FD), notes).run()


class _PickledFunction(NamedTuple):
    """A function that was received, and the files that it needs."""

    pickled: Pickled
    fds: list[int]


class Worker:
    """Runs the items that come through a connection, in this order.

    Parameters
    ----------
    notes
        What happens in this process that its items may not pass over in silence.
    """

    def __init__(self, connection: socket.socket, notes: set[object]) -> None:
        self.channel = Channel(connection, has_fds=True)
        board = ResultBoard(BOARD_FD)
        self.replies = Replies(self.channel, board, _OWN_FDS)
        os.register_at_fork(after_in_child=partial(notes.add, FORK))
        self.loop = ItemLoop(board, self.replies, notes)
        self.functions: dict[int, Any] = {}  # pickled until the first call
        self.token = b""  # taken from the pipe, but of a group that is still to come

    def run(self) -> None:
        """Work until the connection is closed."""
        self.channel.send(("ready",))
        while not self.channel.is_closed:
            for (kind, *values), body, fds in self.channel.receive():
                if kind == "items":
                    token, *group = values
                    if self._take_token(token):
                        self._run_items(body, *group)
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
            self.replies.send_results()

    def _forget(self, number: int) -> None:
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

    def _run_items(
        self,
        body: bytes,
        number: int,
        runs: Sequence[tuple[int, int]],
        logs: tuple[str, str | None] | None,
        is_one: bool,
        has_pickled: bool,
    ) -> None:
        """Run the items of a group, with the output of each in its log, if they have logs."""
        load_function = partial(self._load_function, number)
        arguments = [body] if is_one else pickle.loads(body)
        items = join_items([range(*run) for run in runs])
        if logs is None:
            self.loop.run_group(load_function, arguments, has_pickled=has_pickled)
            flush_output()
        elif is_one:
            self.loop.run_alone(load_function, body, LogPaths(*logs).get(items[0]))
        else:
            with OutputCapture(CAPTURE_FD, LogPaths(*logs), items) as output:
                self.loop.run_group(
                    load_function, arguments, has_pickled=has_pickled, output=output
                )
        self.replies.check_files()

    def _load_function(self, number: int) -> Callable[[Any], Any]:
        """Return a function, and unpickle it before its first call."""
        received = self.functions[number]
        if type(received) is not _PickledFunction:
            return received  # type: ignore[no-any-return]
        # Objects of multiprocessing look for their files there.
        set_spawning_popen(received.fds)  # type: ignore[arg-type]
        try:
            function = self.functions[number] = cloudpickle.loads(received.pickled)
        finally:
            set_spawning_popen(None)
        close_all(received.fds)
        return function  # type: ignore[no-any-return]
