"""Results of a job in memory: all of them, if there is no journal, or those read from it.

A job may have millions of small results, so those of consecutive items that ended together stay
together: this takes few bytes for each besides the result.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import cloudpickle

from hesrpt.runtime.engines.packed_results import PackedResults
from hesrpt.runtime.engines.shared_files import Pickled
from hesrpt.runtime.item_runs import find_runs

# So many results at least are packed, if they have no more than so many bytes in all.
_MIN_PACKED, _MAX_PACKED_BYTES = 8, 2**20


class _Run(NamedTuple):
    """The results of consecutive items."""

    start: int
    stop: int
    results: PackedResults


class ResultStore:
    """Pickled results by item. One thread adds them, and others read them meanwhile."""

    def __init__(self) -> None:
        self._single: dict[int, Pickled] = {}
        self._runs: list[_Run] = []  # in the order of their items

    def add(self, items: Sequence[int], results: Sequence[Pickled]) -> None:
        """Add the results of items in ascending order."""
        start, stop = items[0], items[-1] + 1
        is_run = stop - start == len(items) >= _MIN_PACKED
        if not isinstance(results, PackedResults) and is_run:
            if sum(map(len, results)) > _MAX_PACKED_BYTES:
                is_run = False
            else:
                results = PackedResults.from_pickled(results)
        if is_run and isinstance(results, PackedResults):
            insort(self._runs, _Run(start, stop, results), key=_get_start)
        else:
            self._single.update(zip(items, results, strict=True))

    def read(self, item: int) -> Pickled:
        """Return the pickled result of an item."""
        (part,) = self._find_parts(range(item, item + 1))
        return part[0]

    def load_small(self, items: Sequence[int], max_bytes: int) -> list[Any] | None:
        """Return the results of items; None if they have more bytes in all, or one is missing."""
        try:
            parts = [part for run in find_runs(items) for part in self._find_parts(run)]
        except KeyError:
            return None
        if sum(map(_measure, parts)) > max_bytes:
            return None
        values: list[Any] = []
        for part in parts:
            if isinstance(part, PackedResults):
                values += part.load(cloudpickle.loads)
            else:
                values += map(cloudpickle.loads, part)
        return values

    def _find_parts(self, items: range) -> Iterator[Sequence[Pickled]]:
        """Yield the results of consecutive items, together as far as they are packed."""
        item = items.start
        while item < items.stop:
            if (single := self._single.get(item)) is not None:
                yield (single,)
                item += 1
                continue
            place = bisect_right(self._runs, item, key=_get_start) - 1
            if place < 0 or item >= self._runs[place].stop:
                raise KeyError(item)
            start, stop, results = self._runs[place]
            stop = min(stop, items.stop)
            yield results[item - start : stop - start]
            item = stop


def _get_start(run: _Run) -> int:
    return run.start


def _measure(results: Sequence[Pickled]) -> int:
    if isinstance(results, PackedResults):
        return len(results.content)
    return sum(map(len, results))
