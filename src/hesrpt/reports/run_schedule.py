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
        total = sum(self._compute_progress(workload, phase) for phase in range(len(self.ends)))
        # A job without a recorded server is assumed to do all its work at the moment it ends.
        scale = workload.sizes / np.where(total > 0, total, np.inf)
        done = np.zeros(len(workload))
        phase = 0
        for time in times:
            while phase < len(self.ends) - 1 and self.ends[phase] <= time:
                done += self._compute_progress(workload, phase)
                phase += 1
            part = self._compute_progress(workload, phase, until=float(time))
            remaining = np.maximum(workload.sizes - scale * (done + part), 0.0)
            yield np.where(time < self.completion_times, remaining, 0.0)

    def _compute_progress(
        self, workload: Workload, phase: int, until: float = np.inf
    ) -> FloatArray:
        """Return the work that each job does in a phase, or in the part of it before a time."""
        length = min(float(self.ends[phase]), until) - float(self.starts[phase])
        running = self.starts[phase] < self.completion_times
        work: FloatArray = workload.speedups.rate(self.table[phase]) * running * max(length, 0.0)
        return work


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
