"""From job values to a schedule: allocate servers, wait until a job ends, allocate again."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.recursion import JobValues, compute_job_values
from hesrpt.schedule import Timeline
from hesrpt.speedups import SpeedupVector

# Two completions this close, relative to the time since the start, are simultaneous.
_SAME_TIME = 1e-12


@dataclass(frozen=True)
class _Change:
    """New values from ``place`` on, computed because a job ended before its turn."""

    phase: int
    place: int
    values: FloatArray
    low_prices: FloatArray
    high_prices: FloatArray


class ExecutionTimeline(Timeline):
    """A timeline that keeps job values and computes allocations from them on demand.

    For each change of values it keeps only the part that changed. That part is small: a job that
    ends early was near the end of the list anyway.
    """

    def __init__(
        self,
        first_values: JobValues,
        weights: FloatArray,
        last_to_first: IntArray,
        ended: list[int],
        ends: FloatArray,
        changes: list[_Change],
    ) -> None:
        self.first_values, self.weights, self.ends = first_values, weights, ends
        self.last_to_first, self.changes = last_to_first, changes
        phase_of_end = np.empty(len(ended), dtype=np.int64)
        phase_of_end[ended] = np.arange(len(ended))
        self.last_phases = phase_of_end[last_to_first]
        self._applied = 0
        self._apply(0)

    def servers(self, phase: int) -> FloatArray:
        places = np.flatnonzero(self.last_phases >= phase)
        start, held = self._values_in(phase, places).allocate(len(places))
        servers = np.zeros(len(self.last_to_first))
        servers[self.last_to_first[places[start:]]] = held
        return servers

    def _values_in(self, phase: int, places: IntArray) -> JobValues:
        """Return the values of the jobs present in a phase, at these places of the list."""
        due = bisect_right(self.changes, phase, key=lambda change: change.phase)
        if due == 0:
            return self.first_values
        self._apply(due)
        weights = self.weights[self.last_to_first[places]]
        speedups = self.first_values.speedups.take(places)
        values, low, high = self._changed
        known = replace(self.first_values, values=values, low_prices=low, high_prices=high)
        return compute_job_values(speedups, known.servers, weights, known, len(places))

    def _apply(self, due: int) -> None:
        """Apply the first ``due`` changes, except those that have been applied already."""
        if due == 0 or due < self._applied:
            first = self.first_values
            self._changed = first.values.copy(), first.low_prices.copy(), first.high_prices.copy()
            self._applied = 0
        for change in self.changes[self._applied : due]:
            tails = change.values, change.low_prices, change.high_prices
            for array, tail in zip(self._changed, tails, strict=True):
                array[change.place : change.place + len(tail)] = tail
        self._applied = due


@dataclass(frozen=True)
class Execution:
    """The schedule that follows from job values."""

    completion_times: FloatArray  # in the order in which the jobs were given
    first_to_last: IntArray
    timeline: ExecutionTimeline
    values: JobValues  # at the start


def execute(
    sizes: FloatArray,
    speedups: SpeedupVector,
    servers: float,
    weights: FloatArray,
    first_to_last: IntArray,
    ends_in_order: bool,
) -> Execution:
    """Allocate servers by job values for an intended completion order, until all jobs have ended.

    If the jobs do end in that order, the values stay valid to the end. ``ends_in_order`` states
    that this is certain. Otherwise, whenever a job ends before its turn, the values from its place
    on are computed again.
    """
    present = first_to_last[::-1]
    values = first_values = compute_job_values(speedups.take(present), servers, weights[present])
    remaining, now = sizes.copy(), 0.0
    completion = np.empty(len(sizes))
    ended: list[int] = []
    ends: list[float] = []
    changes: list[_Change] = []
    while len(present):
        start, held = values.allocate(len(present))
        rates = values.speedups.entries(slice(start, len(present))).rate(held)
        remaining_here = remaining[present[start:]]
        place, until_end = _find_next_end(remaining_here, rates, now, ends_in_order)
        remaining[present[start:]] = np.maximum(remaining_here - rates * until_end, 0.0)

        now += until_end
        place += start
        completion[present[place]] = now
        ended.append(int(present[place]))
        ends.append(now)
        if place < len(present) - 1:
            present = np.delete(present, place)
            values = compute_job_values(
                speedups.take(present), servers, weights[present], values, known=place
            )
            arrays = values.values, values.low_prices, values.high_prices
            changes.append(_Change(len(ended), place, *(array[place:].copy() for array in arrays)))
        else:
            present = present[:-1]
    timeline = ExecutionTimeline(
        first_values, weights, first_to_last[::-1], ended, np.array(ends), changes
    )
    return Execution(completion, np.array(ended), timeline, first_values)


def _find_next_end(
    remaining: FloatArray, rates: FloatArray, now: float, ends_in_order: bool
) -> tuple[int, float]:
    """Return the job that ends next, the last of the list if tied, and the time until then."""
    last = len(remaining) - 1
    if rates[last] > 0:
        until_end = float(remaining[last] / rates[last])
        # Compare work rather than times: a job may hold no servers, or have no work remaining.
        earlier = until_end - _SAME_TIME * (now + until_end)
        if ends_in_order or not np.any(rates * earlier > remaining):
            return last, until_end
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(remaining > 0, remaining / rates, 0.0)
    first = int(np.argmin(times))
    return first, float(times[first])
