"""Where the items of a job come from: an iterable of arguments, or the items of a command.

A third kind of source, calls submitted to an executor, is in :mod:`~hesrpt.runtime.executor`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hesrpt.runtime.command_template import CommandTemplate
from hesrpt.runtime.engines.engine import CommandTask, Outcome, PythonTask, Task

# Beyond the minimum, arguments are read ahead only while they take up less memory than this.
_MAX_READ_AHEAD_BYTES = 32 * 2**20


class SourceListener(Protocol):
    """Receives what a source reports about its items, from any thread."""

    def report_items(self, items: int) -> None:
        """Report that this many items have been read, not counting those done before."""

    def report_end(self, count_items: Callable[[], int]) -> None:
        """Report that there are no more items; ``count_items`` returns how many there were."""

    def report_failure(self, error: str) -> None:
        """Report that no further items can be read."""


class Source(Protocol):
    """Creates the tasks of a job as its items are started."""

    #: Whether the source itself delivers the results, so that nobody else has to store them.
    delivers_results: bool

    def open(self, listener: SourceListener, done_before: frozenset[int]) -> None:
        """Start reading items, skipping those done before."""

    def create_task(self, item: int, servers: int, log: Path | None) -> Task:
        """Return the task of an item."""

    def finish_item(self, outcome: Outcome) -> None:
        """Release an item that is done: no task will be created for it again."""

    def drop_item(self, item: int, error: str) -> None:
        """Release an item that has failed for good, in a job that continues."""

    def close(self, reason: str = "the job has ended") -> None:
        """Release everything: no task will be created again."""


class ReadAhead(NamedTuple):
    """How many items to read before servers are free for them."""

    minimum: int
    maximum: int  # for items that take up little memory


class PythonSource:
    """A function and an iterable of its arguments, read while the job runs.

    A thread reads the iterable, which may be slow, and stays only a few items ahead of the servers.
    So a million arguments are never in memory at once.
    """

    delivers_results = False

    def __init__(
        self,
        function: Any,
        arguments: Iterable[Any],
        *,
        pack_argument: Callable[[Any], Any],
        read_ahead: Callable[[], ReadAhead],
        timeout: float | None = None,
        keep_results: bool = False,
    ) -> None:
        self.function, self.arguments = function, arguments
        self.pack_argument, self.read_ahead = pack_argument, read_ahead
        self.timeout, self.keep_results = timeout, keep_results
        self.unfinished: dict[int, Any] = {}  # packed arguments of items read and not done
        self.unfinished_bytes = 0
        self.changed = threading.Condition()
        self.is_closed = False

    def open(self, listener: SourceListener, done_before: frozenset[int]) -> None:
        threading.Thread(
            target=self._read, args=(listener, done_before), name="hesrpt-items", daemon=True
        ).start()

    def _read(self, listener: SourceListener, done_before: frozenset[int]) -> None:
        items = startable = 0
        try:
            for argument in self.arguments:
                if items not in done_before:
                    packed = self.pack_argument(argument)
                    with self.changed:
                        while not self.is_closed and not self._has_room():
                            self.changed.wait(1.0)  # more servers may allow for more items
                        if self.is_closed:
                            return
                        self.unfinished[items] = packed
                        self.unfinished_bytes += _count_bytes(packed)
                    startable += 1
                    listener.report_items(startable)
                items += 1
        except BaseException as error:  # the user's iterable may raise anything
            listener.report_failure(f"cannot read its items: {type(error).__name__}: {error}")
        else:
            listener.report_end(lambda: items)

    def _has_room(self) -> bool:
        minimum, maximum = self.read_ahead()
        is_small = self.unfinished_bytes < _MAX_READ_AHEAD_BYTES
        return len(self.unfinished) < (maximum if is_small else minimum)

    def create_task(self, item: int, servers: int, log: Path | None) -> Task:
        return PythonTask(
            function=self.function,
            argument=self.unfinished[item],
            timeout=self.timeout,
            log=log,
            keep_result=self.keep_results,
        )

    def finish_item(self, outcome: Outcome) -> None:
        with self.changed:
            self.unfinished_bytes -= _count_bytes(self.unfinished.pop(outcome.item, b""))
            self.changed.notify()

    def drop_item(self, item: int, error: str) -> None:
        """Never called: a failed item fails the job."""

    def close(self, reason: str = "") -> None:
        with self.changed:
            self.is_closed = True
            self.unfinished.clear()
            self.function, self.arguments = None, ()  # they may hold large data
            self.changed.notify()


def _count_bytes(packed: Any) -> int:
    return len(packed) if isinstance(packed, bytes) else 0


class CommandSource:
    """A command for each item, or one command on all servers of the job."""

    delivers_results = False

    def __init__(self, template: CommandTemplate, pin_cores: bool = False) -> None:
        self.template, self.pin_cores = template, pin_cores

    def open(self, listener: SourceListener, done_before: frozenset[int]) -> None:
        """Do nothing: all items are known from the start."""

    def create_task(self, item: int, servers: int, log: Path | None) -> Task:
        template = self.template
        return CommandTask(
            template.fill_in(item, servers),
            timeout=template.timeout,
            log=log,
            directory=None if template.directory is None else Path(template.directory),
            pin_cores=self.pin_cores,
        )

    def finish_item(self, outcome: Outcome) -> None:
        """Do nothing: the template holds all items."""

    def drop_item(self, item: int, error: str) -> None:
        """Never called: a failed item fails the job."""

    def close(self, reason: str = "") -> None:
        """Do nothing: there is nothing to release."""
