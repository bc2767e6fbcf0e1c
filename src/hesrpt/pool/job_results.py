"""Streams of a job's results, which are yielded while the job runs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from operator import length_hint
from pickle import UnpicklingError
from typing import Any, Literal, Self, TypeAlias, TypeVar, get_args

from hesrpt.errors import InputError, JobError
from hesrpt.pool.async_waiting import pause, run_in_thread, wait_async
from hesrpt.pool.item_cursors import CompletionCursor, ItemCursor, OrderedCursor
from hesrpt.pool.result_reader import ResultReader
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_job import LiveJob

#: What to do about items without a result: raise a JobError, or return exceptions in their places.
Errors: TypeAlias = Literal["raise", "return"]

# How many results to read at once: more and more, as long as they are small. If all are wanted at
# once, nothing else waits for the first of them.
_MIN_CHUNK, _MAX_CHUNK, _MAX_COLLECTED, _CHUNK_GROWTH = 256, 16_384, 65_536, 4
# The least time between two waits, in seconds: waking up for each of many short items would slow
# the scheduler down.
_GATHER_SECONDS = 0.005

_NOTHING = object()

V_co = TypeVar("V_co", covariant=True)


class ResultStream(Iterator[V_co], AsyncIterator[V_co]):
    """Yields the results of a job as its items end, to ``for`` and to ``async for``.

    The job never waits for it, and it can be dropped at any time. If waiting for a result is
    cancelled or times out, the stream can still be used.

    Parameters
    ----------
    as_pairs
        Whether to yield items with their results.
    """

    def __init__(
        self,
        job: LiveJob,
        driver: Driver,
        *,
        timeout: float | None,
        ordered: bool,
        errors: Errors,
        as_pairs: bool,
        on_end: Callable[[], None],
    ) -> None:
        if errors not in get_args(Errors):
            raise InputError(f"must be 'raise' or 'return', got {errors!r}", argument="errors")
        self._reader = ResultReader(job, driver)
        self._job, self._driver, self._errors = job, driver, errors
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._is_ordered = ordered
        self._cursor: ItemCursor = OrderedCursor(job) if ordered else CompletionCursor(job)
        self._pairs, self._on_end = as_pairs, on_end
        #: What to yield next: results that are at hand; then items, and why they have no result if
        #: they have none.
        self._ready: Iterator[Any] = iter(())
        self._items: deque[tuple[int, BaseException | None]] = deque()
        self._chunk, self._max_chunk = _MIN_CHUNK, _MAX_CHUNK
        self._advancing = threading.Lock()  # a task that was cancelled may have left a thread
        self._is_at_end = False
        self._woken_at = -_GATHER_SECONDS

    def __iter__(self) -> Iterator[V_co]:
        while True:
            yield from self._ready  # this is quicker than one by one
            try:
                result = next(self)
            except StopIteration:
                return
            yield result

    def collect(self) -> list[V_co]:
        """Return all results that are left, as ``list`` would, but more quickly."""
        results: list[V_co] = []
        self._max_chunk = _MAX_COLLECTED
        while True:
            results.extend(self._ready)
            try:
                results.append(next(self))
            except StopIteration:
                return results

    def __aiter__(self) -> Self:
        return self

    def __next__(self) -> V_co:
        while (ready := next(self._ready, _NOTHING)) is _NOTHING and not self._items:
            if self._is_at_end:
                raise StopIteration
            if not self._advance():
                self._wait()
        if ready is not _NOTHING:
            return ready  # type: ignore[return-value]
        return self._yield(self._read(*self._items[0]))

    async def __anext__(self) -> V_co:
        while (ready := next(self._ready, _NOTHING)) is _NOTHING and not self._items:
            if self._is_at_end:
                raise StopAsyncIteration
            if self._reader.has_journal:
                has_advanced = await run_in_thread(self._advance)
            else:
                has_advanced = self._advance()
                await pause(0)  # let other tasks run, however many results there are
            if not has_advanced:
                await self._wait_async()
        if ready is not _NOTHING:
            return ready  # type: ignore[return-value]
        item, problem = self._items[0]
        if problem is not None or self._reader.is_prepared(item):
            return self._yield(self._read(item, problem))
        return self._yield(await run_in_thread(self._read, item, problem))

    # --- reading --------------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Take the next items, and prepare their results; return whether there were any."""
        with self._advancing:
            if self._items or length_hint(self._ready) or self._is_at_end:
                return True
            items = self._cursor.take(self._chunk)
            if items is None:
                self._end()
                self._raise_error_of_job()
                return True
            problems = {
                item: self._explain(item) for item in self._job.completions.list_undone(items)
            }
            done = [item for item in items if item not in problems] if problems else items
            try:
                self._reader.prepare(done)
            except BaseException:
                self._end()
                raise
            if not problems and (values := self._reader.read_small(done)) is not None:
                self._chunk = min(_CHUNK_GROWTH * self._chunk, self._max_chunk)
                self._ready = iter(list(zip(done, values, strict=True)) if self._pairs else values)
                return bool(items)
            self._chunk = _MIN_CHUNK
            is_complete = self._is_ordered or self._errors == "return"
            self._items.extend((i, problems.get(i)) for i in (items if is_complete else done))
            return bool(items)

    def _read(self, item: int, problem: BaseException | None) -> Any:
        """Return the result of an item, or why it has none."""
        if problem is None:
            try:
                return self._reader.read(item)
            except UnpicklingError as error:
                if self._errors == "return":
                    return error
                self._end()
                raise
        if self._errors == "return":
            return problem
        self._end()
        self._raise_error_of_job()
        raise JobError(f"job {self._job.name!r}: item {item} has failed: {problem}") from problem

    def _raise_error_of_job(self) -> None:
        """Raise an error if the job failed or was cancelled, unless errors are returned."""
        with self._driver.condition:  # the error and the end of a job are set together
            if self._errors == "raise" and self._job.error is not None:
                raise self._job.create_error()

    def _explain(self, item: int) -> BaseException:
        """Return why an item has no result."""
        with self._driver.condition:
            if (failure := self._job.failures.get(item)) is not None:
                return failure.exception
            reason = "it is tried again" if self._job.error is None else self._job.create_error()
        return JobError(f"item {item} was not done: {reason}")

    def _yield(self, value: Any) -> V_co:
        item, _ = self._items.popleft()
        return (item, value) if self._pairs else value  # type: ignore[return-value]

    def _end(self) -> None:
        """Yield nothing more."""
        self._is_at_end = True
        self._items.clear()
        self._ready = iter(())
        self._reader.close()
        self._on_end()

    # --- waiting --------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait for further items."""
        time.sleep(self._choose_pause())
        is_ready = self._driver.wait(self._cursor.can_move, self._get_remaining_time())
        self._note_waking(is_ready)

    async def _wait_async(self) -> None:
        await pause(self._choose_pause())
        is_ready = await wait_async(
            self._driver, self._job, self._cursor.can_move, self._get_remaining_time()
        )
        self._note_waking(is_ready)

    def _choose_pause(self) -> float:
        """Return for how long to let results gather."""
        seconds = self._woken_at + _GATHER_SECONDS - time.monotonic()
        remaining = self._get_remaining_time()
        return max(seconds if remaining is None else min(seconds, remaining), 0.0)

    def _get_remaining_time(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def _note_waking(self, is_ready: bool) -> None:
        self._woken_at = time.monotonic()
        if not is_ready:
            raise TimeoutError(
                f"job {self._job.name!r} has not yielded all results after {self._timeout:g} s"
            )
