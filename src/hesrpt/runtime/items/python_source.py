"""The items of a Python function: an iterable of its arguments, read while the job runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hesrpt.errors import InputError
from hesrpt.runtime.engines.engine import PythonTasks, Task
from hesrpt.runtime.engines.error_details import Refusal, describe_pickling_problem
from hesrpt.runtime.engines.pickling import load_harmless
from hesrpt.runtime.identity.earlier_items import EarlierItems, Matches, create_key
from hesrpt.runtime.identity.fingerprints import fingerprint_item
from hesrpt.runtime.items.source import SourceListener
from hesrpt.runtime.storage.logs import LogPaths
from hesrpt.runtime.text import describe_value

# Beyond the minimum, arguments are read ahead only while they take up less memory than this.
_MAX_READ_AHEAD_BYTES = 32 * 2**20
# Larger arguments are not unpickled to describe them.
_MAX_DESCRIBED_BYTES = 2**20


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
            problem = f"cannot read its items: {type(error).__name__}: {error}"
            frames = error.__traceback__.tb_next if error.__traceback__ else None  # not this one
            listener.report_failure(problem, error.with_traceback(frames))
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

    def create_tasks(
        self, items: Sequence[int], servers: int, logs: LogPaths | None
    ) -> Mapping[int, Task]:
        return PythonTasks(
            items,
            [self.unfinished[item].packed for item in items],
            function=self.function,
            timeout=self.timeout,
            logs=logs,
            keep_results=self.keep_results,
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

    def finish_items(self, items: Sequence[int], results: Sequence[bytes]) -> None:
        with self.changed:
            for item in items:
                if (finished := self.unfinished.pop(item, None)) is not None:
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
