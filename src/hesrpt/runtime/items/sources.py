"""Where the items of a job come from: an iterable of arguments, or the items of a command.

A third kind of source, calls submitted to an executor, is in
:mod:`~hesrpt.runtime.items.call_source`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hesrpt.errors import InputError
from hesrpt.runtime.commands.command_template import CommandTemplate
from hesrpt.runtime.engines.engine import CommandTask, Outcome, PythonTask, Task
from hesrpt.runtime.engines.error_details import Refusal, describe_pickling_problem
from hesrpt.runtime.engines.pickling import load_harmless
from hesrpt.runtime.identity.earlier_items import EarlierItems, Match, Matches, create_key
from hesrpt.runtime.identity.fingerprints import fingerprint_command_items, fingerprint_item
from hesrpt.runtime.text import describe_value

# Beyond the minimum, arguments are read ahead only while they take up less memory than this.
_MAX_READ_AHEAD_BYTES = 32 * 2**20
# Larger arguments are not unpickled to describe them.
_MAX_DESCRIBED_BYTES = 2**20


class SourceListener(Protocol):
    """Receives what a source reports about its items, from any thread."""

    def report_items(self, items: int) -> None:
        """Report that this many items have been read, not counting those done before."""

    def report_match(self, match: Match, item: int) -> None:
        """Report that an item was read which was done before."""

    def report_removed(self, keys: Iterable[bytes]) -> None:
        """Report the keys of results whose items the job no longer has."""

    def report_end(self, count_items: Callable[[], int]) -> None:
        """Report that there are no more items; ``count_items`` returns how many there were."""

    def report_failure(self, error: str) -> None:
        """Report that no further items can be read."""


class Source(Protocol):
    """Creates the tasks of a job as its items are started."""

    #: Whether the source itself delivers the results, so that nobody else has to store them.
    delivers_results: bool
    #: Whether everything was released.
    is_closed: bool

    def resume(self, earlier: EarlierItems, run: int) -> Matches:
        """Find items that were done in earlier runs; those read later are reported then."""

    def open(self, listener: SourceListener) -> None:
        """Start reading items."""

    def create_task(self, item: int, servers: int, log: Path | None) -> Task:
        """Return the task of an item."""

    def describe_value(self, item: int) -> str:
        """Return an item that is not done as a short text; an empty one if that is not known."""

    def get_key(self, item: int) -> bytes:
        """Return what identifies an item in the journal, while it is not done."""

    def finish_item(self, outcome: Outcome) -> None:
        """Release an item that is done: no task will be created for it again."""

    def drop_item(self, item: int, error: str) -> None:
        """Release an item that has failed; it may be retried later."""

    def retry_items(self) -> None:
        """Take back the items that have failed: tasks will be created for them again."""

    def close(self, reason: str = "the job has ended") -> None:
        """Release everything: no task will be created again, and no item can be retried."""


class ReadAhead(NamedTuple):
    """How many items to read before servers are free for them."""

    minimum: int
    maximum: int  # for items that take up little memory


class UnfinishedItem(NamedTuple):
    """An item that was read and is not done."""

    packed: Any  # the argument, as the engine needs it
    fingerprint: bytes
    value: str = ""  # the argument as a short text, if it cannot be pickled


class PythonSource:
    """A function and an iterable of its arguments, read while the job runs.

    A thread reads the iterable, which may be slow, and stays only a few items ahead of the servers.
    So a million arguments are never in memory at once. The thread also finds the items that were
    done in an earlier run; those of a list are found before it starts.
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
        has_journal: bool = False,
    ) -> None:
        self.function, self.arguments = function, arguments
        self.pack_argument, self.read_ahead = pack_argument, read_ahead
        self.timeout, self.keep_results = timeout, keep_results
        self.has_journal = has_journal
        self.earlier, self.run = EarlierItems(), 0
        self.done_before: deque[range] = deque()  # items of a list that were done in earlier runs
        self.unfinished: dict[int, UnfinishedItem] = {}
        self.failed: dict[int, UnfinishedItem] = {}
        self.unfinished_bytes = 0
        self.changed = threading.Condition()
        self.is_closed = False

    def resume(self, earlier: EarlierItems, run: int) -> Matches:
        self.run = run
        if not isinstance(self.arguments, list | tuple | range):
            self.earlier = earlier
            return Matches()
        if not isinstance(self.arguments, range):
            self.arguments = tuple(self.arguments)  # what is matched here must be read later
        matches = earlier.match_all(map(fingerprint_item, self.arguments))
        self.done_before.extend(matches.done)
        return matches

    def open(self, listener: SourceListener) -> None:
        threading.Thread(
            target=self._read, args=(listener,), name="hesrpt-items", daemon=True
        ).start()

    def _read(self, listener: SourceListener) -> None:
        items = startable = 0
        try:
            for argument in self.arguments:
                if not self._skip(items):
                    fingerprint = fingerprint_item(argument) if self.has_journal else b""
                    if (match := self.earlier.match(fingerprint, items)) is not None:
                        listener.report_match(match, items)
                    elif self._add(items, self._pack(argument, fingerprint)):
                        startable += 1
                        listener.report_items(startable)
                    else:
                        return
                items += 1
        except BaseException as error:  # the user's iterable may raise anything
            listener.report_failure(f"cannot read its items: {type(error).__name__}: {error}")
        else:
            listener.report_removed(self.earlier.list_unmatched())
            listener.report_end(lambda: items)
        self.earlier = EarlierItems()

    def _pack(self, argument: Any, fingerprint: bytes) -> UnfinishedItem:
        try:
            return UnfinishedItem(self.pack_argument(argument), fingerprint)
        except InputError as error:
            # Only this item fails, when its turn comes.
            problem = describe_pickling_problem("argument", argument, error.__cause__ or error)
            refusal = self.pack_argument(Refusal(problem))
            return UnfinishedItem(refusal, fingerprint, describe_value(argument))

    def _skip(self, item: int) -> bool:
        """Return whether an item of a list was done in an earlier run."""
        while self.done_before and self.done_before[0].stop <= item:
            self.done_before.popleft()
        return bool(self.done_before) and item in self.done_before[0]

    def _add(self, item: int, unfinished: UnfinishedItem) -> bool:
        """Add an item to do, as soon as there is room for it; return False if that is never."""
        with self.changed:
            while not self.is_closed and not self._has_room():
                self.changed.wait(1.0)  # more servers may allow for more items
            if not self.is_closed:
                self.unfinished[item] = unfinished
                self.unfinished_bytes += _count_bytes(unfinished.packed)
            return not self.is_closed

    def _has_room(self) -> bool:
        minimum, maximum = self.read_ahead()
        is_small = self.unfinished_bytes < _MAX_READ_AHEAD_BYTES
        return len(self.unfinished) < (maximum if is_small else minimum)

    def create_task(self, item: int, servers: int, log: Path | None) -> Task:
        return PythonTask(
            function=self.function,
            argument=self.unfinished[item].packed,
            timeout=self.timeout,
            log=log,
            keep_result=self.keep_results,
        )

    def describe_value(self, item: int) -> str:
        unfinished = self.unfinished[item]
        if unfinished.value or not isinstance(unfinished.packed, bytes):
            return unfinished.value or describe_value(unfinished.packed)
        if len(unfinished.packed) > _MAX_DESCRIBED_BYTES:
            return ""
        try:
            return describe_value(load_harmless(unfinished.packed))
        except Exception:  # the argument needs the user's code, which must not run here
            return ""

    def get_key(self, item: int) -> bytes:
        return create_key(self.unfinished[item].fingerprint, self.run, item)

    def finish_item(self, outcome: Outcome) -> None:
        with self.changed:
            finished = self.unfinished.pop(outcome.item, None)
            if finished is not None:
                self.unfinished_bytes -= _count_bytes(finished.packed)
            self.changed.notify()

    def drop_item(self, item: int, error: str) -> None:
        with self.changed:
            self.failed[item] = failed = self.unfinished.pop(item)
            self.unfinished_bytes -= _count_bytes(failed.packed)
            self.changed.notify()  # others can be read in its place

    def retry_items(self) -> None:
        with self.changed:
            self.unfinished |= self.failed
            self.unfinished_bytes += sum(_count_bytes(each.packed) for each in self.failed.values())
            self.failed = {}

    def close(self, reason: str = "") -> None:
        with self.changed:
            self.is_closed = True
            self.unfinished.clear()
            self.failed.clear()
            self.function, self.arguments = None, ()  # they may hold large data
            self.changed.notify()


def _count_bytes(packed: Any) -> int:
    return len(packed) if isinstance(packed, bytes) else 0


class CommandSource:
    """A command for each item, or one command on all servers of the job."""

    delivers_results = False

    def __init__(
        self, template: CommandTemplate, *, pin_cores: bool = False, max_servers: int | None = None
    ) -> None:
        self.template, self.pin_cores, self.max_servers = template, pin_cores, max_servers
        self.run, self.is_closed = 0, False

    @cached_property
    def fingerprints(self) -> Sequence[bytes]:
        """The fingerprints of all items."""
        return fingerprint_command_items(self.template)

    def resume(self, earlier: EarlierItems, run: int) -> Matches:
        self.run = run
        return earlier.match_all(self.fingerprints)

    def open(self, listener: SourceListener) -> None:
        """Do nothing: all items are known from the start."""

    def create_task(self, item: int, servers: int, log: Path | None) -> Task:
        template = self.template
        filled = template.fill_in(item, servers)
        return CommandTask(
            filled.command,
            shell=template.shell,
            variables=filled.variables,
            directory=filled.directory,
            stdin=filled.stdin,
            stdin_file=filled.stdin_file,
            timeout=template.timeout,
            log=log,
            pin_cores=self.pin_cores,
            max_servers=self.max_servers,
        )

    def describe_value(self, item: int) -> str:
        return describe_value(self.template.items[item]) if self.template.items else ""

    def get_key(self, item: int) -> bytes:
        return create_key(self.fingerprints[item], self.run, item)

    def finish_item(self, outcome: Outcome) -> None:
        """Do nothing: the template holds all items."""

    def drop_item(self, item: int, error: str) -> None:
        """Do nothing: the template holds all items."""

    def retry_items(self) -> None:
        """Do nothing: the template holds all items."""

    def close(self, reason: str = "") -> None:
        self.is_closed = True
