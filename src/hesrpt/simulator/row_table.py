"""The rows of a ranked policy in a table that the compiled loop reads."""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.simulator.kernel_data import Rows

# The table is emptied when it would grow beyond this many entries.
_MAX_ENTRIES = 1 << 24
# With several levels, the table first has room for rows of fewer jobs than this.
_FEW_JOBS = 1024


class RowTable:
    """A table that grows as the loop asks for rows, which it reads from ``rows``.

    A policy that is calibrated has rows for each of several levels.
    """

    def __init__(self, jobs: int, constant_from: int | None, levels: int = 1) -> None:
        self._entries = 0
        self._constant_from = constant_from
        self._levels = levels
        # The table of a calibrated policy grows with the number of jobs in the system.
        self.room = jobs + 1 if levels == 1 else min(jobs + 1, _FEW_JOBS)  # rows of each level
        self.rows = Rows(
            start=np.full(levels * self.room, -1, dtype=np.int64),
            length=np.zeros(levels * self.room, dtype=np.int64),
            held=np.empty(64),
            rate=np.empty(64),
        )

    def add(self, jobs: int, held: FloatArray, rate: FloatArray, level: int = 0) -> None:
        """Add the row for this number of jobs, at this level."""
        if jobs >= self.room:
            self._add_room(2 * jobs)
        if self._entries + len(held) > _MAX_ENTRIES:
            self.rows.start[:] = -1
            self._entries = 0
        if (missing := self._entries + len(held) - len(self.rows.held)) > 0:
            more = np.empty(max(missing, len(self.rows.held)))
            self.rows = self.rows._replace(
                held=np.concatenate((self.rows.held, more)),
                rate=np.concatenate((self.rows.rate, more)),
            )
        end = self._entries + len(held)
        self.rows.held[self._entries : end] = held
        self.rows.rate[self._entries : end] = rate
        same: int | slice = level * self.room + jobs  # the numbers of this row
        if self._constant_from is not None and jobs >= self._constant_from:
            same = slice(self._constant_from, None)
        self.rows.start[same], self.rows.length[same] = self._entries, len(held)
        self._entries = end

    def _add_room(self, jobs: int) -> None:
        """Make room for rows of up to this many jobs at each level."""

        def widen(old: IntArray, empty: int) -> IntArray:
            wide = np.full((self._levels, jobs + 1), empty, dtype=np.int64)
            by_level = old.reshape(self._levels, -1)
            wide[:, : by_level.shape[1]] = by_level
            return wide.ravel()

        self.rows = self.rows._replace(
            start=widen(self.rows.start, -1),
            length=widen(self.rows.length, 0),
        )
        self.room = jobs + 1
