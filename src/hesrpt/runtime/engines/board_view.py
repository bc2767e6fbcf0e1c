"""The board of a worker, as the scheduler sees it, and the results that workers send."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hesrpt.runtime.engines.packed_results import PICKLED, PackedResults
from hesrpt.runtime.engines.result_board import (
    BASE,
    BEGAN_AT,
    BOARD_BYTES,
    CODE,
    HEADER_BYTES,
    IDLE_AT,
    MAX_RESULTS,
    NOTED,
    SENT,
    STARTED,
    dump_board,
    get_end,
)
from hesrpt.runtime.engines.shared_files import Pickled


class ItemResults(NamedTuple):
    """The results of items, and how long each took."""

    seconds: Sequence[float]
    results: Sequence[Pickled]


class BoardView:
    """The board. Its worker may write to it at any time."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, BOARD_BYTES, access=mmap.ACCESS_READ)
        self._memory = memoryview(self._map)
        self._header = self._memory[:HEADER_BYTES].cast("Q")
        self._times = self._memory[:HEADER_BYTES].cast("d")

    @property
    def started(self) -> int:
        """How many items the worker has ever started."""
        return self._header[STARTED]

    @property
    def started_at(self) -> float:
        """When the last one was started, on the monotonic clock.

        At the moment when the worker sends results, this may be when an item before it started.
        """
        count = self._count()
        last_end = get_end(self._memory, count - 1) if 0 < count <= MAX_RESULTS else 0.0
        return max(last_end, self._times[BEGAN_AT])

    def _count(self, *, is_last_blamed: bool = False) -> int:
        """Return how many results are on the board."""
        started = self._header[STARTED]
        is_running = is_last_blamed or self._header[IDLE_AT] != started
        return max(started - is_running - self._header[BASE], 0)

    def read(self, sent: int, *, is_last_blamed: bool) -> ItemResults | None:
        """Return the results on the board; None if the worker has sent others meanwhile.

        ``sent`` says how often it has sent results, as far as the scheduler knows. If the item that
        was started last is blamed for something, its result is left out.
        """
        # First: all that is read later belongs to these results at least.
        count = self._count(is_last_blamed=is_last_blamed)
        noted, code = self._header[NOTED], chr(self._header[CODE])
        if self._header[SENT] != sent:
            return None
        dumped = dump_board(self._memory, count, noted, code)
        return parse_results(dumped, count, noted, code) if self._header[SENT] == sent else None

    def close(self) -> None:
        """Release the memory."""
        for view in (self._header, self._times, self._memory):
            view.release()
        self._map.close()


def parse_results(dumped: bytes, count: int, noted: int, code: str) -> ItemResults:
    """Return results, given the bytes to which they were dumped."""
    starts_at, ends_at, sizes_at = 8 * noted, 16 * noted, 16 * noted + 8 * count
    places = np.frombuffer(dumped, np.uint64, noted)
    times = np.frombuffer(dumped, np.float64, noted, starts_at)
    ends = np.frombuffer(dumped, np.float64, count, ends_at)
    starts = np.empty(count)
    starts[1:] = ends[:-1]
    is_here = places < count  # the last one may be running
    starts[places[is_here].astype(np.intp)] = times[is_here]
    seconds = array("d", np.maximum(ends - starts, 0.0).tobytes())
    content_at = sizes_at + (8 * count if code == PICKLED else 0)
    sizes = array("Q", dumped[sizes_at:content_at])
    return ItemResults(seconds, PackedResults(code, dumped[content_at:], sizes))
