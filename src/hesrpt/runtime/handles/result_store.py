"""The results of a job in memory, while there is no journal that has them.

A job may have millions of small results, so those of items that ended together are joined: this
takes a few bytes for each besides the result.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from hesrpt.runtime.engines.shared_files import Pickled

# So many results at least are joined, if they have no more than so many bytes in all.
_MIN_JOINED, _MAX_JOINED_BYTES = 8, 2**20


class _Run(NamedTuple):
    """The results of consecutive items."""

    start: int
    stop: int
    joined: bytes
    ends: array[int]  # where each result ends in the joined ones


class ResultStore:
    """Pickled results by item. One thread adds them, and others read them meanwhile."""

    def __init__(self) -> None:
        self._single: dict[int, Pickled] = {}
        self._runs: list[_Run] = []  # in the order of their items

    def add(self, items: Sequence[int], results: Sequence[Pickled]) -> None:
        """Add the results of items in ascending order."""
        start, stop = items[0], items[-1] + 1
        is_run = stop - start == len(items) >= _MIN_JOINED
        if is_run and sum(map(len, results)) <= _MAX_JOINED_BYTES:
            ends = array("I", accumulate(map(len, results)))
            insort(self._runs, _Run(start, stop, b"".join(results), ends))
        else:
            self._single.update(zip(items, results, strict=True))

    def read(self, items: Sequence[int]) -> list[Pickled]:
        """Return the results of items."""
        found: list[Pickled] = []
        run = _Run(0, 0, b"", array("I"))
        for item in items:
            if not run.start <= item < run.stop:
                if (single := self._single.get(item)) is not None:
                    found.append(single)
                    continue
                run = self._runs[bisect_right(self._runs, (item, inf)) - 1]
            place = item - run.start
            begin = run.ends[place - 1] if place else 0
            found.append(run.joined[begin : run.ends[place]])
        return found
