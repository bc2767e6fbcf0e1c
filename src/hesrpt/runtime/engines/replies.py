"""What a worker tells the scheduler about its items.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from hesrpt.runtime.engines.call_reports import CallReport, read_clock
from hesrpt.runtime.engines.channel import Channel
from hesrpt.runtime.engines.processes import list_children
from hesrpt.runtime.engines.result_board import ResultBoard
from hesrpt.runtime.engines.shared_files import Pickled, write_shared_file

# So many seconds do functions get that are to be called at exit.
_EXIT_SECONDS = 2.0


class Replies:
    """Sends the results on a worker's board, and errors and results that cannot be on it."""

    def __init__(self, channel: Channel, board: ResultBoard, fds: Sequence[int]) -> None:
        self._channel, self._board, self._fds = channel, board, fds
        self._pid, self._files = os.getpid(), self._identify_files()
        self.sent_at = 0.0  # when results were sent last

    def send_results(self) -> None:
        """Send the results that are on the board."""
        self._send_results(is_last=False)

    def _send_results(self, *, is_last: bool) -> None:
        board = self._board
        if board.finished:
            self.check_files()
            self._channel.send(
                ("ended", board.finished, board.noted, board.code, is_last), board.dump()
            )
            board.clear()
            self.sent_at = read_clock()

    def send_last_results(self) -> None:
        """Send the results that are on the board, and let this process end."""
        _run_exit_functions()  # before the reply, so that they are done when it arrives
        self._send_results(is_last=True)
        self._wait_for_end()

    def send_large_result(self, seconds: float, pieces: list[Pickled], *, is_last: bool) -> None:
        """Send the running item's result in a file, or through the connection if that fails."""
        if is_last:
            _run_exit_functions()
        self.send_results()
        self.check_files()
        body, fds = pieces, []
        with contextlib.suppress(OSError):
            body, fds = [], [write_shared_file(pieces)]
        self._channel.send(("large", seconds, is_last, bool(fds)), body, fds)
        self._board.drop()
        if is_last:
            self._wait_for_end()

    def send_failure(self, report: CallReport[Any]) -> None:
        """Send the error of the running item."""
        self.send_results()
        # The item may run again elsewhere; it must not meet what it has started.
        is_last = self._has_left_processes()
        self.check_files()
        self._channel.send(("failed", report.seconds, (report.error, *report.details), is_last))
        self._board.drop()
        if is_last:
            self._wait_for_end()

    def check_files(self) -> None:
        """End this process if an item has closed our files, and maybe opened others."""
        if self._identify_files() != self._files:
            if self._board.finished:
                self._board.blame_last()
            os._exit(1)

    def _identify_files(self) -> list[int]:
        """Return what the file descriptors of a worker refer to; nothing if one is closed."""
        try:
            return [os.fstat(fd).st_ino for fd in self._fds]
        except OSError:
            return []

    def _has_left_processes(self) -> bool:
        """Return whether items have left processes behind: our children, or those of our keeper."""
        return bool(list_children(self._pid)) or list_children(os.getppid()) != [self._pid]

    def _wait_for_end(self) -> None:
        while True:
            time.sleep(60)  # until the scheduler kills this process with its children


def _run_exit_functions() -> None:
    """Do what Python does at exit, such as sending what is in queues, unless it takes too long."""
    thread = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    thread.start()
    thread.join(_EXIT_SECONDS)
