"""The items of a Python function: an iterable of its arguments, read while the job runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

from hesrpt.errors import InputError
from hesrpt.runtime.engines.engine import PythonTasks, Task
from hesrpt.runtime.engines.error_details import Refusal, describe_pickling_problem
from hesrpt.runtime.engines.pickling import load_harmless
from hesrpt.runtime.engines.shared_files import Pickled
from hesrpt.runtime.identity.earlier_items import EarlierItems, Matches, create_keys
from hesrpt.runtime.identity.fingerprints import fingerprint_item
from hesrpt.runtime.items.source import SourceListener
from hesrpt.runtime.storage.logs import LogPaths
from hesrpt.runtime.text import describe_value

# Beyond the minimum, arguments are read ahead only while they take up less memory than this.
_MAX_READ_AHEAD_BYTES = 32 * 2**20
# Items that are in memory already are read in chunks of at most so many items, and of not much more
# than so many bytes. Others are taken one by one, because the next one may be long in coming.
_CHUNK_ITEMS, _CHUNK_BYTES = 256, 2**16
_NUMBERS = frozenset({int, float, bool})
# The types of packed arguments that may be large.
_SIZED = frozenset({bytes, str})
# Larger arguments are not unpickled to describe them.
_MAX_DESCRIBED_BYTES = 2**20


class ReadAhead(NamedTuple):
    """How many items to read before servers are free for them."""

    minimum: int
    maximum: int  # for items that take up little memory


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
        # The arguments of items that were read and are not done, as the engine needs them.
        self.unfinished: dict[int, Any] = {}
        self.failed: dict[int, Any] = {}
        self.fingerprints: dict[int, bytes] = {}  # of both, if there is a journal
        self.values: dict[int, str] = {}  # arguments that cannot be pickled, as short texts
        self.unfinished_bytes = 0
        self.is_waiting = False  # whether the thread waits for room
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
        is_at_hand = isinstance(self.arguments, list | tuple | range)
        chunk = _Chunk(_CHUNK_ITEMS if is_at_hand else 1)
        try:
            arguments = iter(self.arguments)
            rest: Sequence[Any] = ()
            items = startable = 0
            while is_at_hand and not self.done_before:  # numbers need no care: this is quicker
                rest = tuple(islice(arguments, _CHUNK_ITEMS))
                if not rest or not _NUMBERS.issuperset(map(type, rest)):
                    break
                fingerprints = map(fingerprint_item, rest) if self.has_journal else ()
                chunk.add_all(items, list(map(self.pack_argument, rest)), fingerprints)
                if not self._add(chunk):
                    return
                items = startable = items + len(rest)
                listener.report_items(startable)
                chunk.clear()
            for argument in chain(rest, arguments):
                if not self._skip(items):
                    fingerprint = fingerprint_item(argument) if self.has_journal else b""
                    if (match := self.earlier.match(fingerprint, items)) is not None:
                        listener.report_match(match, items)
                    else:
                        chunk.add(items, self._pack(items, argument), fingerprint)
                        if chunk.is_full:
                            if not self._add(chunk):
                                return
                            startable += len(chunk.packed)
                            listener.report_items(startable)
                            chunk.clear()
                items += 1
            if not self._add(chunk):
                return
            listener.report_items(startable + len(chunk.packed))
        except BaseException as error:  # the user's iterable may raise anything
            problem = f"cannot read its items: {type(error).__name__}: {error}"
            frames = error.__traceback__.tb_next if error.__traceback__ else None  # not this one
            listener.report_failure(problem, error.with_traceback(frames))
        else:
            listener.report_removed(self.earlier.list_unmatched())
            listener.report_end(lambda: items)
        self.earlier = EarlierItems()

    def _pack(self, item: int, argument: Any) -> Any:
        try:
            return self.pack_argument(argument)
        except InputError as error:
            # Only this item fails, when its turn comes.
            problem = describe_pickling_problem("argument", argument, error.__cause__ or error)
            self.values[item] = describe_value(argument)
            return self.pack_argument(Refusal(problem))

    def _skip(self, item: int) -> bool:
        """Return whether an item of a list was done in an earlier run."""
        while self.done_before and self.done_before[0].stop <= item:
            self.done_before.popleft()
        return bool(self.done_before) and item in self.done_before[0]

    def _add(self, chunk: _Chunk) -> bool:
        """Add items to do, as soon as there is room for them; return False if that is never."""
        with self.changed:
            while not self.is_closed and not self._has_room():
                self.is_waiting = True
                self.changed.wait(1.0)  # more servers may allow for more items
            self.is_waiting = False
            if not self.is_closed:
                self.unfinished.update(chunk.packed)
                self.fingerprints.update(chunk.fingerprints)
                self.unfinished_bytes += chunk.bytes
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
            list(map(self.unfinished.__getitem__, items)),
            function=self.function,
            timeout=self.timeout,
            logs=logs,
            keep_results=self.keep_results,
        )

    def describe_value(self, item: int) -> str:
        packed, value = self.unfinished[item], self.values.get(item, "")
        if value or not isinstance(packed, bytes):
            return value or describe_value(packed)
        if len(packed) > _MAX_DESCRIBED_BYTES:
            return ""
        try:
            return describe_value(load_harmless(packed))
        except Exception:  # the argument needs the user's code, which must not run here
            return ""

    def get_keys(self, items: Sequence[int]) -> Sequence[bytes]:
        return create_keys(map(self.fingerprints.__getitem__, items), self.run, items)

    def finish_items(self, items: Sequence[int], results: Sequence[Pickled]) -> None:
        with self.changed:
            self._remove(list(map(self.unfinished.pop, items, repeat(b""))))
            for table in (self.fingerprints, self.values):
                if table:
                    deque(map(table.pop, items, repeat(None)), maxlen=0)

    def drop_item(self, item: int, error: str) -> None:
        with self.changed:
            self.failed[item] = failed = self.unfinished.pop(item)
            self._remove((failed,))

    def _remove(self, packed: Sequence[Any]) -> None:
        """Make room for other items in place of those that were removed."""
        self.unfinished_bytes -= _sum_bytes(packed)
        if self.is_waiting and self._has_room():
            self.changed.notify()

    def retry_items(self) -> None:
        with self.changed:
            self.unfinished |= self.failed
            self.unfinished_bytes += _sum_bytes(list(self.failed.values()))
            self.failed = {}

    def close(self, reason: str = "") -> None:
        with self.changed:
            self.is_closed = True
            for table in (self.unfinished, self.failed, self.fingerprints, self.values):
                table.clear()
            self.function, self.arguments = None, ()  # they may hold large data
            self.changed.notify()


class _Chunk:
    """Items that were read and are added together."""

    def __init__(self, max_items: int) -> None:
        self.max_items = max_items
        self.clear()

    def clear(self) -> None:
        self.packed: dict[int, Any] = {}
        self.fingerprints: dict[int, bytes] = {}
        self.bytes = 0

    def add(self, item: int, packed: Any, fingerprint: bytes) -> None:
        self.packed[item] = packed
        if fingerprint:
            self.fingerprints[item] = fingerprint
        self.bytes += _sum_bytes((packed,))

    def add_all(self, start: int, packed: Sequence[Any], fingerprints: Iterable[bytes]) -> None:
        """Add consecutive items; there are no fingerprints if there is no journal."""
        self.packed.update(enumerate(packed, start))
        self.fingerprints.update(enumerate(fingerprints, start))
        self.bytes += _sum_bytes(packed)

    @property
    def is_full(self) -> bool:
        return len(self.packed) >= self.max_items or self.bytes >= _CHUNK_BYTES


def _sum_bytes(packed: Sequence[Any]) -> int:
    """Return how much memory arguments take up that may take up much."""
    return sum(map(len, [each for each in packed if type(each) in _SIZED]))
