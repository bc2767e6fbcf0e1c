"""Which items of a job are in flight, and in which batch."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hesrpt.runtime.item_runs import find_runs


@dataclass(eq=False)
class BatchInFlight:
    """An item that was given to the engine and has not ended, or several, one after another."""

    started: float  # when the item started that runs now
    width: int  # how many servers its job held when it started, including its own
    servers: int  # 0 while it waits in the engine for a server, or is suspended
    items_left: int = 1  # how many of its items have not ended
    suspended_at: float | None = None  # None: it is not suspended
    suspended_servers: int = 0  # how many servers it had before
    gpus: tuple[int, ...] = ()  # the indices of those that it holds

    @property
    def last_servers(self) -> int:
        """How many servers it has; if it is suspended, how many it had before."""
        return self.servers if self.suspended_at is None else self.suspended_servers

    def measure_seconds(self, time: float) -> float:
        """Return how long it has run, not counting the time during which it was suspended."""
        return (time if self.suspended_at is None else self.suspended_at) - self.started


class _Run(NamedTuple):
    """Consecutive items of one batch."""

    start: int
    stop: int
    batch: BatchInFlight


class ItemsInFlight(Mapping[int, BatchInFlight]):
    """The items in flight, in ascending order, each with its batch.

    Consecutive items of a batch share an entry, so the cost does not grow with their number.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._count = 0

    def add(self, items: Sequence[int], batch: BatchInFlight) -> None:
        """Add the items of a batch, none of which is in flight."""
        for run in find_runs(items):
            place = bisect_right(self._runs, run.start, key=_get_start)
            self._runs.insert(place, _Run(run.start, run.stop, batch))
        self._count += len(items)

    def remove(self, items: Sequence[int]) -> Counter[BatchInFlight]:
        """Remove items, whether they are in flight or not; return how many of each batch were."""
        removed: Counter[BatchInFlight] = Counter()
        for run in find_runs(items):
            self._remove_run(run, removed)
        self._count -= removed.total()
        return removed

    def _remove_run(self, items: range, removed: Counter[BatchInFlight]) -> None:
        first = max(bisect_right(self._runs, items.start, key=_get_start) - 1, 0)
        last = first
        left: list[_Run] = []  # what is left of the runs from the first to the last
        while last < len(self._runs) and self._runs[last].start < items.stop:
            run = self._runs[last]
            start, stop = max(run.start, items.start), min(run.stop, items.stop)
            if start >= stop:
                left.append(run)
            else:
                removed[run.batch] += stop - start
                pieces = (run._replace(stop=start), run._replace(start=stop))
                left += [piece for piece in pieces if piece.start < piece.stop]
            last += 1
        self._runs[first:last] = left

    def list_runs(self) -> list[range]:
        """Return the runs of consecutive items that belong to one batch."""
        return [range(start, stop) for start, stop, _ in self._runs]

    def clear(self) -> None:
        """Remove all items."""
        self._runs.clear()
        self._count = 0

    def __getitem__(self, item: int) -> BatchInFlight:
        place = bisect_right(self._runs, item, key=_get_start) - 1
        if place < 0 or item >= self._runs[place].stop:
            raise KeyError(item)
        return self._runs[place].batch

    def __iter__(self) -> Iterator[int]:
        for start, stop, _ in self._runs:
            yield from range(start, stop)

    def __len__(self) -> int:
        return self._count


def _get_start(run: _Run) -> int:
    return run.start
