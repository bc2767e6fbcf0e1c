"""The rows of a ranked policy in a table that the compiled loop reads."""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies.ranked import RowFactors
from hesrpt.simulator.kernel_data import Rows

# The table is emptied when it would grow beyond this many entries.
_MAX_ENTRIES = 1 << 24


class RowTable:
    """A table that grows as the loop asks for rows, which it reads from ``rows``."""

    def __init__(self, jobs: int, factors: RowFactors | None, constant_from: int | None) -> None:
        self._entries = 0
        self._constant_from = constant_from
        none = np.zeros(jobs + 1)
        self.rows = Rows(
            start=np.full(jobs + 1, -1, dtype=np.int64),
            length=np.zeros(jobs + 1, dtype=np.int64),
            held=np.empty(64),
            rate=np.empty(64),
            rate_factor=none if factors is None else factors.rates,
            held_factor=none if factors is None else factors.servers,
        )

    def add(self, jobs: int, held: FloatArray, rate: FloatArray) -> None:
        """Add the row for this number of jobs."""
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
        same: int | slice = jobs  # the numbers of jobs that have this row
        if self._constant_from is not None and jobs >= self._constant_from:
            same = slice(self._constant_from, None)
        self.rows.start[same], self.rows.length[same] = self._entries, len(held)
        self._entries = end
