"""A real run as a :class:`~hesrpt.schedule.Schedule`, like a plan or a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.schedule import Schedule, Timeline
from hesrpt.speedups import PowerLaw, Speedup
from hesrpt.storage.journal_entries import Holding, JobRecord
from hesrpt.workload import Workload

# The journal keeps only power laws; any other speedup is taken to be almost linear.
_UNKNOWN_SPEEDUP = PowerLaw(0.99)


class RecordedTimeline(Timeline):
    """The servers that each job held, as recorded whenever a number changed.

    A job's progress is assumed to follow its speedup function. The learned speedup is only an
    estimate, so progress is scaled to bring the remaining size to zero exactly when the job ended.
    """

    def __init__(
        self, numbers: Sequence[int], holdings: Sequence[Holding], completion_times: FloatArray
    ) -> None:
        self._columns = {number: column for column, number in enumerate(numbers)}
        self._changes = [change for change in holdings if change.job in self._columns]
        times = np.array([change.time for change in self._changes])
        self.starts: FloatArray = np.unique(np.concatenate((times, completion_times, [0.0])))
        self.ends: FloatArray = np.append(self.starts[1:], self.starts[-1])
        self.completion_times = completion_times

    @cached_property
    def table(self) -> FloatArray:
        """The servers of each job in each phase; large if there are thousands of jobs."""
        table = np.zeros((len(self.starts), len(self._columns)))
        held_now = np.zeros(len(self._columns))
        next_change = 0
        for phase, start in enumerate(self.starts):
            while next_change < len(self._changes) and self._changes[next_change].time <= start:
                change = self._changes[next_change]
                held_now[self._columns[change.job]] = change.servers
                next_change += 1
            table[phase] = held_now
        return table

    def total_servers(self) -> FloatArray:
        gains = np.zeros(len(self.starts))
        held: dict[int, int] = {}
        for change in self._changes:
            phase = np.searchsorted(self.starts, change.time)
            gains[phase] += change.servers - held.get(change.job, 0)
            held[change.job] = change.servers
        total: FloatArray = np.cumsum(gains)
        return total

    def servers(self, phase: int) -> FloatArray:
        row: FloatArray = self.table[phase]
        return row

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        rates = np.array([workload.speedups.rate(held) for held in self.table])
        rates *= self.starts[:, None] < self.completion_times
        done = np.cumsum(rates * (self.ends - self.starts)[:, None], axis=0)
        # A job without a recorded server is assumed to do all its work at the moment it ends.
        scale = workload.sizes / np.where(done[-1] > 0, done[-1], np.inf)
        for time in times:
            phase = min(np.searchsorted(self.ends, time, side="right"), len(self.ends) - 1)
            left = max(float(self.ends[phase] - time), 0.0) * rates[phase]
            remaining = np.maximum(workload.sizes - scale * (done[phase] - left), 0.0)
            yield np.where(time < self.completion_times, remaining, 0.0)


def get_measured_size(record: JobRecord) -> float:
    """Return the measured size of a job that has ended, in seconds on one server."""
    return max(record.size or 0.0, 1e-9)


def get_measured_speedup(record: JobRecord) -> Speedup:
    """Return the measured speedup of a job that has ended."""
    return record.speedup or _UNKNOWN_SPEEDUP


def build_schedule(
    records: Sequence[JobRecord], holdings: Sequence[Holding], servers: int
) -> Schedule:
    """Return the schedule of jobs that have ended."""
    if not records:
        raise InputError("no job has ended yet, so there is no schedule")
    workload = Workload(
        [get_measured_size(record) for record in records],
        [get_measured_speedup(record) for record in records],
        arrivals=[record.arrived for record in records],
        weights=[record.spec.weight for record in records],
        names=[record.name for record in records],
    )
    completion_times = np.array([record.ended for record in records], dtype=np.float64)
    numbers = [record.number for record in records]
    timeline = RecordedTimeline(numbers, holdings, completion_times)
    return Schedule(workload, float(servers), completion_times, timeline)
