"""From job values to a schedule: allocate servers, wait until a job ends, allocate again.

Jobs are listed from the last to end to the first, as in :mod:`hesrpt.optimal.recursion_kernel`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.execution_kernel import run_phases, run_phases_together
from hesrpt.optimal.recursion import JobValues, can_be_summed, compute_job_values
from hesrpt.optimal.recursion_kernel import EXACT, value_places
from hesrpt.optimal.response_kernel import PRICE, VALUE, create_response_sums
from hesrpt.schedule import Timeline
from hesrpt.speedups import SpeedupVector


@dataclass(frozen=True)
class _Change:
    """New values from ``place`` on, computed because a job ended before its turn."""

    phase: int
    place: int
    values: FloatArray
    prices: FloatArray


class ExecutionTimeline(Timeline):
    """A timeline that keeps job values and computes allocations from them on demand.

    For each change of values it keeps only the part that changed. That part is small: a job that
    ends early was near the end of the list anyway.
    """

    def __init__(
        self,
        first_values: JobValues,
        last_to_first: IntArray,
        first_to_last: IntArray,
        ends: FloatArray,
        prices: FloatArray,
        changes: list[_Change],
    ) -> None:
        self.first_values, self.ends, self.prices = first_values, ends, prices
        self.last_to_first, self.changes = last_to_first, changes
        phase_of_end = np.empty(len(ends), dtype=np.int64)
        phase_of_end[first_to_last] = np.arange(len(ends))
        self.last_phases = phase_of_end[last_to_first]
        self._applied = 0
        self._changed: FloatArray | None = None  # the line after the changes that are applied

    def servers(self, phase: int) -> FloatArray:
        servers = np.zeros(len(self.last_to_first))
        places = np.flatnonzero(self.last_phases >= phase)
        if len(places):  # otherwise somebody has changed them, and the kernel needs a job
            start, held = self._values_in(phase, places).allocate(len(places))
            servers[self.last_to_first[places[start:]]] = held
        return servers

    def _values_in(self, phase: int, places: IntArray) -> JobValues:
        """Return the values of the jobs present in a phase, at these places of the list."""
        due = bisect_right(self.changes, phase, key=lambda change: change.phase)
        if due == 0:
            return self.first_values
        first = self.first_values
        speedups, weights = first.speedups.take(places), first.batch.weights[places]
        known = replace(first, line=self._apply(due))
        return compute_job_values(speedups, first.batch.servers, weights, known, len(places))

    def _apply(self, due: int) -> FloatArray:
        """Apply the first ``due`` changes, except those that have been applied; return the line."""
        if self._changed is None or due < self._applied:
            self._changed = self.first_values.line.copy()
            self._applied = 0
        for change in self.changes[self._applied : due]:
            changed = self._changed[change.place : change.place + len(change.values)]
            changed[:, VALUE], changed[:, PRICE] = change.values, change.prices
        self._applied = due
        return self._changed


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
    listed = np.ascontiguousarray(first_to_last[::-1])
    first_values = compute_job_values(speedups.take(listed), servers, weights[listed])
    batch, line, places = first_values.batch, first_values.line, first_values.places
    jobs = present = len(listed)
    remaining = sizes[listed]
    ended, ends, prices = np.empty(jobs, dtype=np.int64), np.empty(jobs), np.empty(jobs)
    changes: list[_Change] = []
    if ends_in_order and can_be_summed(batch):
        run_phases_together(batch, line, remaining, ended, ends)
        prices = first_values.prices[::-1]
        present = 0
    now = 0.0
    while present:
        present, place, now = run_phases(
            batch, line, places, present, now, ends_in_order, remaining, ended, ends, prices
        )
        if place < 0:
            break
        present -= 1
        places, remaining = np.delete(places[: present + 1], place), np.delete(remaining, place)
        line = np.delete(line[: present + 1], place, axis=0)
        response_sums = create_response_sums(present)
        value_places(batch, line, places, place, present, EXACT, response_sums)
        changed = line[place:, VALUE].copy(), line[place:, PRICE].copy()
        changes.append(_Change(jobs - present, place, *changed))
    completed = listed[ended]
    completion = np.empty(jobs)
    completion[completed] = ends
    timeline = ExecutionTimeline(first_values, listed, completed, ends, prices, changes)
    return Execution(completion, completed, timeline, first_values)
