"""Jobs that are never resized: FCFS, EASY backfilling, moldable jobs, and malleable ones beside.

A job holds its servers from start to end, so its end is known when it starts. Only starts and
widths must be decided, at every submission and every end. Disciplines know only the users'
estimates: they do not foresee that a job runs longer than estimated.

If other jobs are malleable, EASY schedules the rigid ones on the whole machine, as if they were
alone: malleable jobs give back whatever a rigid job needs, at once, down to no server at all. So
rigid jobs never wait for malleable ones, and their schedule does not depend on the malleable
policy. It is found first. The malleable jobs are then simulated on a number of servers that changes
whenever a rigid job starts or ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies import Fcfs, Moldable, RigidDiscipline
from hesrpt.policies.sharing import usable_servers
from hesrpt.schedule import Timeline
from hesrpt.simulator.backfilling_kernel import QueuedJobs, schedule_jobs
from hesrpt.simulator.runs import Capacity
from hesrpt.workload import Workload


class Starts(NamedTuple):
    """When jobs start, on how many servers, and when they end."""

    starts: FloatArray
    widths: FloatArray
    ends: FloatArray
    reservations: FloatArray  # when jobs were first expected to start; NaN if they never waited


def find_starts(workload: Workload, servers: float, discipline: RigidDiscipline) -> Starts:
    """Return when each job starts, on how many servers, and when it ends.

    EASY makes a reservation for a job that is the first in the queue and has to wait.
    """
    jobs = len(workload)
    chooses_width = np.full(jobs, isinstance(discipline, Moldable))
    if workload.rigid is not None:
        chooses_width &= ~workload.rigid
    assert workload.requested is not None
    on_requested = run_times(workload)
    estimates = on_requested if workload.estimates is None else workload.estimates
    order = np.argsort(workload.arrival_times, kind="stable")
    shapes = workload.speedups.shapes(float(servers))
    most = np.maximum(np.floor(usable_servers(workload.speedups, servers, jobs)), 1.0)
    queued = QueuedJobs(
        submitted=workload.arrival_times[order],
        width=workload.requested[order],
        runtime=on_requested[order],
        estimate=estimates[order],
        is_moldable=chooses_width[order],
        most=most[order],
        size=workload.sizes[order],
        estimated_size=(workload.sizes * estimates / on_requested)[order],
        shapes=shapes._replace(of_job=shapes.of_job[order]),
        start=np.full(jobs, np.nan),
        reservation=np.full(jobs, np.nan),
        behind=np.full(jobs, -1),
        running=np.empty(jobs, dtype=np.int64),
    )
    schedule_jobs(queued, float(servers), not isinstance(discipline, Fcfs))
    place = np.argsort(order)
    ends = queued.start + queued.runtime
    return Starts(queued.start[place], queued.width[place], ends[place], queued.reservation[place])


def run_times(workload: Workload) -> FloatArray:
    """Return how long each job runs on the servers that it asks for."""
    assert workload.requested is not None
    times = workload.sizes / workload.speedups.rate(workload.requested)
    # Sizes are r·s(q), and r·s(q)/s(q) is not r to the last digit. Rounding makes equal run times
    # equal again, so that such jobs end at the same time.
    digits = 10.0 ** (12 - np.floor(np.log10(times)))
    return np.rint(times * digits) / digits


class RigidTimeline(Timeline):
    """Each job holds the servers that it asked for, from its start to its end."""

    def __init__(self, starts: FloatArray, completion_times: FloatArray, held: FloatArray) -> None:
        self.starts, self.completion_times, self.held = starts, completion_times, held

    @cached_property
    def ends(self) -> FloatArray:  # type: ignore[override]
        times = np.unique(np.concatenate((self.starts, self.completion_times)))
        return times[times > 0]

    def servers_at_each(self, times: FloatArray) -> Iterator[FloatArray]:
        for time in times.tolist():
            is_running = (self.starts <= time) & (time < self.completion_times)
            yield np.where(is_running, self.held, 0.0)

    def total_servers(self) -> FloatArray:
        capacity = find_capacity(0.0, self)
        place = np.searchsorted(capacity.times, self.phase_starts, side="right")
        return -np.concatenate(([0.0], capacity.servers))[place]

    def server_seconds(self) -> float:
        return float(self.held @ (self.completion_times - self.starts))


def find_capacity(servers: float, rigid: RigidTimeline) -> Capacity:
    """Return how many of these servers rigid jobs leave."""
    times, place = np.unique(
        np.concatenate((rigid.starts, rigid.completion_times)), return_inverse=True
    )
    changes = np.bincount(place, weights=np.concatenate((-rigid.held, rigid.held)))
    left = servers + np.cumsum(changes)
    # Where a job starts the moment that another one of its width ends, nothing changes.
    is_change = np.diff(left, prepend=servers) != 0
    return Capacity(times[is_change], left[is_change], servers)


class CombinedTimeline(Timeline):
    """The timelines of different jobs that share a machine, each with the numbers of its jobs."""

    def __init__(self, jobs: int, parts: tuple[tuple[IntArray, Timeline], ...]) -> None:
        self._jobs, self._parts = jobs, parts

    @cached_property
    def ends(self) -> FloatArray:  # type: ignore[override]
        return np.unique(np.concatenate([timeline.ends for _, timeline in self._parts]))

    def _combine(self, values: list[Iterator[FloatArray]]) -> Iterator[FloatArray]:
        """Yield what the parts yield, as one array for all jobs."""
        for of_parts in zip(*values, strict=True):
            combined = np.zeros(self._jobs)
            for (jobs, _), of_part in zip(self._parts, of_parts, strict=True):
                combined[jobs] = of_part
            yield combined

    def servers_at_each(self, times: FloatArray) -> Iterator[FloatArray]:
        return self._combine([timeline.servers_at_each(times) for _, timeline in self._parts])

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        return self._combine(
            [timeline.remaining(workload.take(jobs), times) for jobs, timeline in self._parts]
        )

    def server_seconds_until(self, times: FloatArray) -> FloatArray:
        total = np.zeros(len(times))
        for _, timeline in self._parts:
            total += timeline.server_seconds_until(times)
        return total
