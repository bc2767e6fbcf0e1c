"""Memory that a worker shares with the scheduler: what it has started, and results not yet sent.

A worker that runs many short items sends their results together. Until then they are on its board,
so that the scheduler can read them when the next item takes long, and when the worker has died. The
worker writes, the scheduler only reads. An entry is complete before it is counted.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from hesrpt.runtime.engines.shared_files import Pickled, create_shared_file

# How many results fit on a board, and how many bytes all of them may have.
_MAX_RESULTS, _MAX_BYTES = 4096, 2**20
_HEADER_BYTES = 64
_DURATIONS = _HEADER_BYTES
_SIZES = _DURATIONS + 8 * _MAX_RESULTS
_CONTENT = _SIZES + 8 * _MAX_RESULTS
_BOARD_BYTES = _CONTENT + _MAX_BYTES
# Places in the header: how often results were sent, how many items were started in all, how many
# results are on the board, and when the last item was started.
_SENT, _STARTED, _FINISHED, _STARTED_AT = range(4)


class ItemResults(NamedTuple):
    """The pickled results of items, and how long each took."""

    seconds: Sequence[float]
    results: Sequence[Pickled]


def create_board_file() -> int:
    """Create the memory of a board; return its file descriptor."""
    fd = create_shared_file("hesrpt-board")
    os.ftruncate(fd, _BOARD_BYTES)
    return fd


class ResultBoard:
    """The board, as the worker uses it."""

    def __init__(self, fd: int) -> None:
        memory = memoryview(mmap.mmap(fd, _BOARD_BYTES))
        self._memory = memory
        self._counts = memory[:_HEADER_BYTES].cast("Q")
        self._times = memory[:_HEADER_BYTES].cast("d")
        self._durations = memory[_DURATIONS:_SIZES].cast("d")
        self._sizes = memory[_SIZES:_CONTENT].cast("Q")
        self._started = self.finished = 0
        self._end = _CONTENT

    def start(self, time: float) -> None:
        """Note that an item starts."""
        self._started += 1
        self._times[_STARTED_AT] = time
        self._counts[_STARTED] = self._started

    def add(self, seconds: float, result: Pickled) -> bool:
        """Add the result of the item that was started last; return False if there is no room."""
        finished, start = self.finished, self._end
        end = start + len(result)
        if finished == _MAX_RESULTS or end > _BOARD_BYTES:
            return False
        self._memory[start:end] = result
        self._durations[finished], self._sizes[finished] = seconds, end - start
        self._end = end
        self._counts[_FINISHED] = self.finished = finished + 1
        return True

    def remove_last(self) -> None:
        """Remove the last result: its item is to count as failed."""
        self._counts[_FINISHED] = self.finished = self.finished - 1

    def dump(self) -> bytes:
        """Return all results as bytes for :func:`parse_results`."""
        durations = self._memory[_DURATIONS : _DURATIONS + 8 * self.finished]
        sizes = self._memory[_SIZES : _SIZES + 8 * self.finished]
        return b"".join((durations, sizes, self._memory[_CONTENT : self._end]))

    def clear(self) -> None:
        """Remove all results, which have been sent."""
        self._counts[_FINISHED] = self.finished = 0
        self._counts[_SENT] += 1
        self._end = _CONTENT


class BoardView:
    """The board, as the scheduler sees it."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _BOARD_BYTES, access=mmap.ACCESS_READ)
        self._memory = memoryview(self._map)
        self._counts = self._memory[:_HEADER_BYTES].cast("Q")
        self._times = self._memory[:_HEADER_BYTES].cast("d")

    @property
    def started(self) -> int:
        """How many items the worker has ever started."""
        return self._counts[_STARTED]

    @property
    def started_at(self) -> float:
        """When the last one was started, on the monotonic clock."""
        return self._times[_STARTED_AT]

    def read(self, sent: int) -> ItemResults | None:
        """Return the results on the board; None if the worker has sent others meanwhile.

        ``sent`` says how often it has sent results, as far as the scheduler knows.
        """
        count = self._counts[_FINISHED]
        if self._counts[_SENT] != sent:
            return None
        sizes = self._memory[_SIZES : _SIZES + 8 * count].cast("Q")
        durations = self._memory[_DURATIONS : _DURATIONS + 8 * count]
        content = self._memory[_CONTENT : _CONTENT + sum(sizes)]
        dumped = b"".join((durations, sizes, content))
        return parse_results(dumped, count) if self._counts[_SENT] == sent else None

    def close(self) -> None:
        """Release the memory."""
        for view in (self._counts, self._times, self._memory):
            view.release()
        self._map.close()


def parse_results(dumped: bytes, count: int) -> ItemResults:
    """Return what :meth:`ResultBoard.dump` has dumped."""
    durations, sizes = array("d", dumped[: 8 * count]), array("Q", dumped[8 * count : 16 * count])
    return ItemResults(durations, split(dumped, sizes, 16 * count))


def split(joined: bytes, sizes: Sequence[int], start: int = 0) -> list[bytes]:
    """Return parts of the given sizes that are joined from some place on."""
    return [joined[a:b] for a, b in pairwise(accumulate(sizes, initial=start))]
