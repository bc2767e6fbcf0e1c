"""Memory that a worker shares with the scheduler: what it has started, and results not yet sent.

A worker that runs many short items sends their results together. Until then they are on its board,
so that the scheduler can read them when the next item takes long, and when the worker has died. The
worker writes, the scheduler only reads. An entry is complete before it is counted.

The results on a board are all of one kind (see :mod:`~hesrpt.runtime.engines.packed_results`).
Each has the time at which its item ended. That is when the next item started, except for the items
that are noted as having started later.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

from hesrpt.runtime.engines.packed_results import FLOATS, INTEGERS, PICKLED
from hesrpt.runtime.engines.shared_files import Pickled, create_shared_file

# How many results fit on a board, how many bytes all of them may have, and of how many items it is
# noted when they started.
MAX_RESULTS, _MAX_BYTES, _MAX_STARTS = 32_768, 2**20, 512
HEADER_BYTES = 64
_STARTS = HEADER_BYTES
_START_TIMES = _STARTS + 8 * _MAX_STARTS
_ENDS = _START_TIMES + 8 * _MAX_STARTS
_SIZES = _ENDS + 8 * MAX_RESULTS
_CONTENT = _SIZES + 8 * MAX_RESULTS
BOARD_BYTES = _CONTENT + _MAX_BYTES
#: Places in the header: how often results were sent; how many items were started in all; that
#: number, if the last of them has ended; how many had ended when results were sent last; what kind
#: of results are on the board; how many starts are noted; and when the last noted item started.
SENT, STARTED, IDLE_AT, BASE, CODE, NOTED, BEGAN_AT = range(7)


def create_board_file() -> int:
    """Create the memory of a board; return its file descriptor."""
    fd = create_shared_file("hesrpt-board")
    os.ftruncate(fd, BOARD_BYTES)
    return fd


class ResultBoard:
    """The board, as the worker uses it.

    An item *begins*, and the next ones *follow* it without a pause. They have ended when the next
    one follows, or when the worker *pauses*. Until then, the last one is running.
    """

    def __init__(self, fd: int) -> None:
        self._memory = memory = memoryview(mmap.mmap(fd, BOARD_BYTES))
        self._header = memory[:HEADER_BYTES].cast("Q")
        self._header_times = memory[:HEADER_BYTES].cast("d")
        self._starts = memory[_STARTS:_START_TIMES].cast("Q")
        self._start_times = memory[_START_TIMES:_ENDS].cast("d")
        self._sizes = memory[_SIZES:_CONTENT].cast("Q")
        self._end = _CONTENT
        self._is_running = False
        self.code = PICKLED  # of the results on the board
        #: To be quick, the worker writes some things to the board by itself: how many items were
        #: started, when each ended, and results that are numbers.
        self.started = memory[8 * STARTED : 8 * STARTED + 8].cast("Q")
        self.ends = memory[_ENDS:_SIZES].cast("d")
        self.numbers: dict[str, memoryview[Any]] = {
            INTEGERS: memory[_CONTENT:].cast("q"),
            FLOATS: memory[_CONTENT:].cast("d"),
        }

    @property
    def base(self) -> int:
        """How many items had ended when results were sent last."""
        return self._header[BASE]

    @property
    def finished(self) -> int:
        """How many results are on the board; the running item will have this place."""
        return self.started[0] - self._is_running - self.base

    @property
    def can_begin(self) -> bool:
        """Whether there is room for another item."""
        return self._header[NOTED] < _MAX_STARTS and self.finished < MAX_RESULTS

    def begin(self, time: float) -> None:
        """Note that an item starts, after a pause."""
        self.note_start(time)
        self.started[0] += 1
        self._is_running = True

    def note_start(self, time: float) -> None:
        """Note when the next item starts, or when the running one has started."""
        noted = self._header[NOTED]
        self._starts[noted], self._start_times[noted] = self.finished, time
        self._header[NOTED] = noted + 1
        self._header_times[BEGAN_AT] = time

    def pause(self) -> None:
        """Note that the running item has ended, and its result is on the board."""
        self._is_running = False
        self._header[IDLE_AT] = self.started[0]

    def drop(self) -> None:
        """Note that the running item has ended. The board is empty, and its result is elsewhere."""
        self._header[BASE] = self.started[0]
        self._header[NOTED] = 0
        self.pause()

    def blame_last(self) -> None:
        """Remove the last result: its item is to count as running."""
        self._header[IDLE_AT] = 0

    def use(self, code: str) -> None:
        """Say of which kind the results will be that are added to an empty board."""
        self.code = code
        self._header[CODE] = ord(code)

    def add_pickled(self, result: Pickled, place: int) -> bool:
        """Add the pickled result of the running item; return False if there is no room."""
        start, end = self._end, self._end + len(result)
        if end > BOARD_BYTES:
            return False
        self._memory[start:end] = result
        self._sizes[place], self._end = end - start, end
        return True

    def dump(self) -> bytes:
        """Return all results as bytes."""
        return dump_board(self._memory, self.finished, self._header[NOTED], self.code)

    @property
    def noted(self) -> int:
        """Of how many items it is noted when they started."""
        return self._header[NOTED]

    def clear(self) -> None:
        """Remove all results, which have been sent."""
        self._header[SENT] += 1  # first: who has not received them must not read the board
        self._header[BASE] = self.started[0] - self._is_running
        self._header[NOTED] = 0
        self._end = _CONTENT


def dump_board(memory: memoryview, count: int, noted: int, code: str) -> bytes:
    """Return results on a board as bytes: noted starts, ends of items, sizes of results, results.

    Only pickled results have sizes.
    """
    sizes = memory[_SIZES : _SIZES + 8 * count]
    length = sum(sizes.cast("Q")) if code == PICKLED else 8 * count
    return b"".join(
        (
            memory[_STARTS : _STARTS + 8 * noted],
            memory[_START_TIMES : _START_TIMES + 8 * noted],
            memory[_ENDS : _ENDS + 8 * count],
            sizes if code == PICKLED else b"",
            memory[_CONTENT : _CONTENT + length],
        )
    )


def get_end(memory: memoryview, place: int) -> float:
    """Return when the item at a place has ended."""
    start = _ENDS + 8 * place
    end: float = memory[start : start + 8].cast("d")[0]
    return end
