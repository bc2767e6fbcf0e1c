"""Streams of a job's results, which are yielded while the job runs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import length_hint
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, get_args

import cloudpickle

from hesrpt.errors import InputError, JobError
from hesrpt.pickling import Pickled
from hesrpt.scheduler.driver import Driver, Watch
from hesrpt.scheduler.live_job import DONE_BEFORE, FAILED, UNFINISHED, LiveJob
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import StoredResult

# --- waiting for jobs in an event loop, without a thread for each job -----------------------------

if TYPE_CHECKING:
    import asyncio


async def wait_async(
    driver: Driver, job: LiveJob, is_ready: Callable[[], bool], timeout: float | None = None
) -> bool:
    """Wait until ``is_ready()``, which depends on a job, and return whether it is.

    If the task that waits is cancelled, the job goes on.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        """Wake the task, in the driver's thread."""
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(_finish, woken)

    watch = Watch(job, is_ready, wake)
    if driver.watch(watch):
        try:
            async with asyncio.timeout(timeout):
                await woken
        except TimeoutError:
            return is_ready()
        finally:
            driver.unwatch(watch)
    if not is_ready():
        driver.raise_failure()
    return is_ready()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# --- which items a stream of results yields next --------------------------------------------------
#
# A cursor is a place among the items of a job. Taking items looks at no item twice, and returns
# None if there will never be any more. Once the job has ended, they include those not done.


@dataclass
class OrderedCursor:
    """Takes an item as soon as it and all before it have ended."""

    _job: LiveJob
    _next: int = 0  # item

    def can_move(self) -> bool:
        """Return whether there are items to take, or there will never be any."""
        state = self._job.completions.get_state(self._next)
        return self._job.has_ended or state != UNFINISHED

    def take(self, limit: int) -> Sequence[int] | None:
        """Return the next items, at most ``limit``."""
        has_ended = self._job.has_ended  # before looking: then all that has ended is there
        start, stop = self._next, self._next + limit
        stop = max(
            self._job.completions.find_unfinished(start, stop),
            min(stop, _count_items(self._job)) if has_ended else start,
        )
        self._next = stop
        return None if has_ended and start == stop else range(start, stop)


@dataclass
class CompletionCursor:
    """Takes items in the order of their ends. Those that were not done are the last ones."""

    _job: LiveJob
    _next: int = 0  # place in this order
    _unfinished: int = 0  # the first item that may not have been done, once the job has ended

    def can_move(self) -> bool:
        """Return whether there are items to take, or there will never be any."""
        return self._job.has_ended or self._next < len(self._job.completions.order)

    def take(self, limit: int) -> Sequence[int] | None:
        """Return the next items, at most ``limit``."""
        job, completions = self._job, self._job.completions
        has_ended = job.has_ended
        taken = completions.order[self._next : self._next + limit]
        self._next += len(taken)
        if not taken and has_ended:
            return self._take_unfinished(limit) or None
        if taken and min(taken) >= 0:  # none has failed
            return taken
        items = []
        for item in taken:
            if item >= 0:
                items.append(item)
            elif completions.get_state(~item) == FAILED:  # it has not been retried since
                items.append(~item)
        return items

    def _take_unfinished(self, limit: int) -> list[int]:
        completions, count = self._job.completions, _count_items(self._job)
        items: list[int] = []
        while len(items) < limit:
            known = len(completions.states)
            found = completions.states.find(UNFINISHED, self._unfinished)
            item = max(self._unfinished, known) if found < 0 else found
            if item >= count:
                self._unfinished = count
                break
            items.append(item)
            self._unfinished = item + 1
        return items


def _count_items(job: LiveJob) -> int:
    """Return how many items there are, or are known of a job that ended before all were read."""
    return max(job.items or 0, len(job.completions.states))


# --- reading results: from memory, from the journal, or from a cluster --------------------------

# Results of up to this many bytes in all are unpickled together.
_SMALL_BYTES = 2**22


class ResultReader:
    """Reads results of items that are done."""

    def __init__(self, job: LiveJob, driver: Driver) -> None:
        self._journal: Journal | None = None
        self._read: dict[int, Pickled] = {}  # results that were read from it
        self._large: dict[int, StoredResult] = {}  # large ones, which have still to be read
        self._job, self._driver = job, driver
        if job.source.delivers_results:
            raise InputError(f"job {job.name!r}: its results are in the futures of its executor")
        if job.are_results_freed and driver.journal is None:
            raise InputError(
                f"job {job.name!r}: its results were freed, because they had been read or yielded "
                "and nobody held the job"
            )

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the journal; the next read opens it again."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def prepare(self, items: Sequence[int]) -> None:
        """Read the results of items from the journal together, unless they are large.

        If there are none, the journal is closed: more may come much later.
        """
        if not items:
            self.close()
            return
        if self._journal is None:  # the other connection is the thread's
            assert self._driver.journal is not None
            self._journal = Journal.read(self._driver.journal.directory)
        self._read, self._large = {}, {}
        for run, numbers, positions in _group(map(self._locate, items)):
            for stored in self._journal.read_results(self._job.number, run, numbers, positions):
                if stored.pickled is None:
                    self._large[stored.position] = stored
                else:
                    self._read[stored.position] = stored.pickled

    def _locate(self, item: int) -> tuple[int, int, int]:
        """Return the run that has done an item, its position then, and its position now."""
        if self._job.completions.get_state(item) == DONE_BEFORE:
            return (*self._job.completions.places.find(item), item)
        return self._job.spec.resumed, item, item

    def is_prepared(self, item: int) -> bool:
        """Return whether :meth:`read` need not wait for a disk or a cluster."""
        if self._driver.journal is None:
            return item not in self._job.references
        return item not in self._large

    def read_small(self, items: Sequence[int]) -> list[Any] | None:
        """Return the results of items that are small and at hand; None if one is not.

        Also None if one cannot be unpickled, which :meth:`read` tells when its turn comes.
        """
        if self._job.references:
            return None
        store = self._job.results if self._driver.journal is None else self._read
        try:
            pickled = list(map(store.__getitem__, items))
            if sum(map(len, pickled)) > _SMALL_BYTES:
                return None
            return list(map(cloudpickle.loads, pickled))
        except Exception:
            return None

    def read(self, item: int) -> Any:
        """Return the result of an item; those in the journal must have been prepared."""
        if item in self._job.references:
            return self._driver.engine.fetch(self._job.references[item])
        if self._driver.journal is None:
            pickled = self._job.results[item]
        else:
            assert self._journal is not None
            large = self._large.get(item)
            if large is None:
                pickled = self._read[item]
            else:
                pickled = self._journal.load(self._job.number, large)
        try:
            return cloudpickle.loads(pickled)
        except Exception as error:  # unpickling runs the user's code
            raise UnpicklingError(
                f"job {self._job.name!r}: the result of item {item} cannot be unpickled: "
                f"{type(error).__name__}: {error}"
            ) from error


def _group(items: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, range, list[int]]]:
    """Group items that are next to each other in the journal, given their places there.

    It has them in the order of the runs that have done them, and of their positions then.
    """
    ordered = sorted(items)
    # All items of a group have the same difference between the position then and the index here.
    for (run, offset), group in groupby(
        enumerate(ordered), key=lambda each: (each[1][0], each[1][1] - each[0])
    ):
        members = list(group)
        start = members[0][0] + offset
        yield run, range(start, start + len(members)), [item for _, (_, _, item) in members]


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
        on_end: Callable[[], None],
        timeout: float | None,
        *,
        errors: Errors,
        ordered: bool = False,
        as_pairs: bool = False,
    ) -> None:
        if errors not in get_args(Errors):
            raise InputError(f"must be 'raise' or 'return', got {errors!r}", argument="errors")
        self._reader = ResultReader(job, driver)
        self._job, self._driver, self._errors = job, driver, errors
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._is_ordered = ordered
        self._cursor = OrderedCursor(job) if ordered else CompletionCursor(job)
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
        """Return all results that are left, read in larger chunks."""
        self._max_chunk = _MAX_COLLECTED
        return list(self)

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
        import asyncio

        while (ready := next(self._ready, _NOTHING)) is _NOTHING and not self._items:
            if self._is_at_end:
                raise StopAsyncIteration
            if self._driver.journal is not None:  # then it reads from a disk
                has_advanced = await asyncio.to_thread(self._advance)
            else:
                has_advanced = self._advance()
                await asyncio.sleep(0)  # let other tasks run, however many results there are
            if not has_advanced:
                await self._wait_async()
        if ready is not _NOTHING:
            return ready  # type: ignore[return-value]
        item, problem = self._items[0]
        if problem is not None or self._reader.is_prepared(item):
            return self._yield(self._read(item, problem))
        return self._yield(await asyncio.to_thread(self._read, item, problem))

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
            undone = self._job.completions.list_undone(items)
            problems = dict(zip(undone, map(self._explain, undone), strict=True))
            done = [item for item in items if item not in problems] if problems else items
            if self._driver.journal is not None:
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
        import asyncio

        await asyncio.sleep(self._choose_pause())
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
