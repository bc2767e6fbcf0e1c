"""Carrying out the value recursion: hand out servers, wait for a departure, decide again."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.recursion import Values, job_values
from hesrpt.schedule import Timeline
from hesrpt.speedups import SpeedupVector

# Departures this close together, relative to the time since the start, are at the same time.
_SAME_TIME = 1e-12


@dataclass(frozen=True)
class _Change:
    """What was decided anew when a job had ended before its turn: the values from its place on."""

    phase: int
    place: int
    values: FloatArray
    low: FloatArray
    high: FloatArray


class DecisionTimeline(Timeline):
    """A timeline that keeps the values and works the allocations out again on demand.

    Of each decision it keeps only what has changed, which is little: a job that ends early stood
    near the end of the list anyway.
    """

    def __init__(
        self,
        first_values: Values,
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
        start, held = self._values_in(phase, places).allocation(len(places))
        servers = np.zeros(len(self.last_to_first))
        servers[self.last_to_first[places[start:]]] = held
        return servers

    def _values_in(self, phase: int, places: IntArray) -> Values:
        due = bisect_right(self.changes, phase, key=lambda change: change.phase)
        if due == 0:
            return self.first_values
        self._apply(due)
        weights = self.weights[self.last_to_first[places]]
        speedups = self.first_values.speedups.take(places)
        values, low, high = self._changed
        known = replace(self.first_values, values=values, low=low, high=high)
        return job_values(speedups, known.servers, weights, keep=known, known=len(places))

    def _apply(self, due: int) -> None:
        """Bring the values up to date with the first ``due`` changes, from where they stand."""
        if due == 0 or due < self._applied:
            first = self.first_values
            self._changed = first.values.copy(), first.low.copy(), first.high.copy()
            self._applied = 0
        for change in self.changes[self._applied : due]:
            tails = change.values, change.low, change.high
            for array, tail in zip(self._changed, tails, strict=True):
                array[change.place : change.place + len(tail)] = tail
        self._applied = due


@dataclass(frozen=True)
class Outcome:
    """What came of the decisions."""

    completion_times: FloatArray  # in the order the jobs were given
    first_to_last: IntArray
    timeline: DecisionTimeline
    values: Values  # of the first decision


def decide(
    sizes: FloatArray,
    speedups: SpeedupVector,
    servers: float,
    weights: FloatArray,
    first_to_last: IntArray,
    in_order: bool,
) -> Outcome:
    """Hand out servers by the values of the jobs in a wished completion order.

    Where the recursion follows its own order, its values hold to the end; it is known to do so if
    ``in_order``. Otherwise a job that ends before its turn leaves a list whose values, from its
    place on, are found again.
    """
    present = first_to_last[::-1]
    values = first_values = job_values(speedups.take(present), servers, weights[present])
    remaining, now = sizes.copy(), 0.0
    completion = np.empty(len(sizes))
    ended: list[int] = []
    ends: list[float] = []
    changes: list[_Change] = []
    while len(present):
        start, held = values.allocation(len(present))
        rates = values.speedups.entries(slice(start, len(present))).rate(held)
        left = remaining[present[start:]]
        place, until_end = _next_to_end(left, rates, now, in_order)
        remaining[present[start:]] = np.maximum(left - rates * until_end, 0.0)

        now += until_end
        place += start
        completion[present[place]] = now
        ended.append(int(present[place]))
        ends.append(now)
        if place < len(present) - 1:
            present = np.delete(present, place)
            values = job_values(
                speedups.take(present), servers, weights[present], keep=values, known=place
            )
            tails = (array[place:] for array in (values.values, values.low, values.high))
            changes.append(_Change(len(ended), place, *(tail.copy() for tail in tails)))
        else:
            present = present[:-1]
    timeline = DecisionTimeline(
        first_values, weights, first_to_last[::-1], ended, np.array(ends), changes
    )
    return Outcome(completion, np.array(ended), timeline, first_values)


def _next_to_end(
    left: FloatArray, rates: FloatArray, now: float, in_order: bool
) -> tuple[int, float]:
    """Return which job ends next, the last of the list if tied, and how long that takes."""
    last = len(left) - 1
    if rates[last] > 0:
        until_end = float(left[last] / rates[last])
        # Compare work rather than times: a job may hold no servers, or have nothing left.
        if in_order or not np.any(rates * (until_end - _SAME_TIME * (now + until_end)) > left):
            return last, until_end
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(left > 0, left / rates, 0.0)
    first = int(np.argmin(times))
    return first, float(times[first])
