"""The items of a Python function: an iterable of its arguments, read while the job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from hesrpt.engines.engine import PythonTasks, Task
from hesrpt.engines.item_reports import Refusal, describe_pickling_problem
from hesrpt.errors import InputError
from hesrpt.jobs.fingerprints import fingerprint_item
from hesrpt.jobs.text import describe_value
from hesrpt.pickling import Pickled, load_harmless
from hesrpt.scheduler.source import Source, SourceListener
from hesrpt.storage.earlier_items import EarlierItems, Matches, create_keys
from hesrpt.storage.logs import LogPaths

# Beyond the minimum, arguments are read ahead only while they take up less memory than this.
_MAX_READ_AHEAD_BYTES = 32 * 2**20
# No more items than this are read ahead, unless they are in memory already.
_MAX_READ_AHEAD_ITEMS = 60_000
# Items that are in memory already are read together: at most this many, and not many more bytes
# than this. Others are taken one by one, because the next one may be long in coming.
_ITEMS_AT_ONCE, _BYTES_AT_ONCE = 1024, 2**16
_SIZED = (bytes, str)
# Larger arguments are not unpickled to describe them.
_MAX_DESCRIBED_BYTES = 2**20


class ReadAhead(NamedTuple):
    """How many items to read before servers are free for them."""

    minimum: int
    maximum: int  # for items that take up little memory


@dataclass(eq=False)
class PythonSource(Source):
    """A function and an iterable of its arguments, read while the job runs.

    A thread reads the iterable, which may be slow, and stays only a few items ahead of the servers.
    So a million arguments are never in memory at once. The thread also finds the items that were
    done in an earlier run; those of a list are found before it starts.
    """

    function: Any
    arguments: Iterable[Any]
    _: KW_ONLY
    pack_argument: Callable[[Any], Any]
    read_ahead: Callable[[], ReadAhead]
    timeout: float | None = None
    keep_results: bool = False
    has_journal: bool = False
    earlier: EarlierItems | None = None  # not found yet
    run: int = 0
    done_before: Sequence[range] = ()  # items of a list that were done in earlier runs
    unfinished: dict[int, Any] = field(default_factory=dict)  # arguments as the engine needs them
    unfinished_bytes: int = 0  # that these take up in memory
    failed: dict[int, Any] = field(default_factory=dict)  # likewise
    fingerprints: dict[int, bytes] = field(default_factory=dict)  # of both, if there is a journal
    values: dict[int, str] = field(default_factory=dict)  # that cannot be pickled, as short texts
    count: int = 0  # how many items were read, those done before included
    is_at_hand: bool = False  # whether all are in memory, and any part of them can be taken
    changed: threading.Condition = field(default_factory=threading.Condition)

    def resume(self, earlier: EarlierItems, run: int) -> Matches:
        self.run = run
        if not isinstance(self.arguments, list | tuple | range):
            self.earlier = earlier
            return Matches()
        if not isinstance(self.arguments, range):
            self.arguments = tuple(self.arguments)  # what is matched here must be read later
        matches = earlier.match_all(map(fingerprint_item, self.arguments))
        self.done_before = tuple(matches.done)
        return matches

    # --- reading --------------------------------------------------------------------------------

    def open(self, listener: SourceListener) -> None:
        # Other classes may do anything when they are asked for a part of them.
        self.is_at_hand = type(self.arguments) in (list, tuple, range)
        threading.Thread(
            target=self._read, args=(listener,), name="hesrpt-items", daemon=True
        ).start()

    def _read(self, listener: SourceListener) -> None:
        try:
            is_open = (self._read_all if self.is_at_hand else self._read_one_by_one)(listener)
        except BaseException as error:  # the user's iterable may raise anything
            problem = f"cannot read its items: {type(error).__name__}: {error}"
            listener.report_failure(problem, error.with_traceback(_skip_own_frames(error)))
        else:
            if not is_open:
                return
            count = self.count
            removed = () if self.earlier is None else self.earlier.list_unmatched()
            listener.report_end(lambda: count, removed)
        self.earlier = None

    def _read_one_by_one(self, listener: SourceListener) -> bool:
        """Read an iterable; return False if nobody wants its items any more."""
        startable = 0
        for argument in self.arguments:
            fingerprint = fingerprint_item(argument) if self.has_journal else b""
            match = None
            if self.earlier is not None:
                match = self.earlier.match(fingerprint, self.count)
            if match is not None:
                listener.report_match(match, self.count)
            else:
                if self.has_journal:
                    self.fingerprints[self.count] = fingerprint
                if not self._wait_for_room({self.count: self._pack(self.count, argument)}):
                    return False
                startable += 1
                listener.report_items(startable)
            self.count += 1
        return True

    def _read_all(self, listener: SourceListener) -> bool:
        """Read a list; return False if nobody wants its items any more."""
        startable, arguments = 0, self.arguments
        assert isinstance(arguments, list | tuple | range)
        for done in (*self.done_before, None):
            while items := self._read_some(arguments, None if done is None else done.start):
                if not self._wait_for_room(items):
                    return False
                startable += len(items)
                listener.report_items(startable)
            self.count = self.count if done is None else done.stop
        return True

    def _read_some(self, arguments: Sequence[Any], stop: int | None) -> dict[int, Any]:
        """Return some of the next items of a list, up to a position or to its end."""
        end = self.count + _ITEMS_AT_ONCE
        items: dict[int, Any] = {}
        size = 0
        for argument in arguments[self.count : end if stop is None else min(end, stop)]:
            if self.has_journal:
                self.fingerprints[self.count] = fingerprint_item(argument)
            items[self.count] = packed = self._pack(self.count, argument)
            size += _count_bytes(packed)
            self.count += 1
            if size >= _BYTES_AT_ONCE:
                break
        return items

    def _pack(self, item: int, argument: Any) -> Any:
        try:
            return self.pack_argument(argument)
        except InputError as error:
            # Only this item fails, when its turn comes.
            problem = describe_pickling_problem("argument", argument, error.__cause__ or error)
            self.values[item] = describe_value(argument)
            return self.pack_argument(Refusal(problem))

    def _wait_for_room(self, items: Mapping[int, Any]) -> bool:
        """Add items to do as soon as there is room for them; return False if that is never."""
        with self.changed:
            while not self.is_closed and not self._has_room():
                self.changed.wait(1.0)  # more servers may allow for more items
            if not self.is_closed:
                self.unfinished.update(items)
                self.unfinished_bytes += sum(map(_count_bytes, items.values()))
            return not self.is_closed

    def _has_room(self) -> bool:
        minimum, maximum = self.read_ahead()
        if self.unfinished_bytes >= _MAX_READ_AHEAD_BYTES:
            maximum = minimum
        elif not self.is_at_hand:
            maximum = min(maximum, _MAX_READ_AHEAD_ITEMS)
        return len(self.unfinished) < maximum

    # --- called by the driver -------------------------------------------------------------------

    def create_tasks(
        self, items: Sequence[int], servers: int, logs: LogPaths | None
    ) -> Mapping[int, Task]:
        with self.changed:
            arguments = list(map(self.unfinished.__getitem__, items))
        return PythonTasks(
            items,
            arguments,
            function=self.function,
            timeout=self.timeout,
            logs=logs,
            keep_results=self.keep_results,
        )

    def describe_value(self, item: int) -> str:
        with self.changed:
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
        with self.changed:
            fingerprints = [self.fingerprints[item] for item in items]
        return create_keys(fingerprints, self.run, items)

    def finish_items(self, items: Sequence[int], results: Sequence[Pickled]) -> None:
        with self.changed:
            for item in items:
                self.unfinished_bytes -= _count_bytes(self.unfinished.pop(item, None))
                self.values.pop(item, None)
                self.fingerprints.pop(item, None)
            self.changed.notify()  # there may be room for others

    def drop_item(self, item: int, error: str) -> None:
        with self.changed:
            self.failed[item] = failed = self.unfinished.pop(item)
            self.unfinished_bytes -= _count_bytes(failed)
            self.changed.notify()

    def retry_items(self) -> None:
        with self.changed:
            self.unfinished.update(self.failed)
            self.unfinished_bytes += sum(map(_count_bytes, self.failed.values()))
            self.failed.clear()

    def close(self, reason: str = "") -> None:
        with self.changed:
            self.is_closed = True
            for table in (self.unfinished, self.failed, self.values, self.fingerprints):
                table.clear()
            self.function, self.arguments = None, ()  # they may hold large data
            self.changed.notify()


def _count_bytes(packed: Any) -> int:
    """Return how much memory an argument takes up, if it may take up much."""
    return len(packed) if type(packed) in _SIZED else 0


def _skip_own_frames(error: BaseException) -> TracebackType | None:
    """Return the frames of what was called from here."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames
