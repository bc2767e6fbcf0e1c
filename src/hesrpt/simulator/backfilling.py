"""Disciplines for jobs that are never resized: FCFS, EASY backfilling, and moldable jobs.

A job holds its servers from start to end, so its end is known when it starts. Only starts and
widths must be decided, at every submission and every end. Disciplines know only the users'
estimates: they do not foresee that a job runs longer than estimated.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.policies import Fcfs, Moldable, RigidDiscipline
from hesrpt.policies.sharing import usable_servers
from hesrpt.schedule import Timeline
from hesrpt.simulator.backfilling_kernel import QueuedJobs, schedule_jobs
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
    is_moldable = find_moldable_jobs(workload, discipline)
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
        is_moldable=is_moldable[order],
        most=most[order],
        size=workload.sizes[order],
        estimated_size=(workload.sizes * estimates / on_requested)[order],
        shapes=shapes.records,
        corners=shapes.corners,
        shape_of_job=shapes.of_job[order],
        start=np.full(jobs, np.nan),
        reservation=np.full(jobs, np.nan),
        behind=np.full(jobs, -1),
        running=np.empty(jobs, dtype=np.int64),
    )
    schedule_jobs(queued, float(servers), not isinstance(discipline, Fcfs))
    place = np.empty(jobs, dtype=np.int64)
    place[order] = np.arange(jobs)
    ends = queued.start + queued.runtime
    return Starts(queued.start[place], queued.width[place], ends[place], queued.reservation[place])


def find_moldable_jobs(workload: Workload, discipline: RigidDiscipline) -> BoolArray:
    """Return which jobs choose their width when they start."""
    if not isinstance(discipline, Moldable):
        return np.zeros(len(workload), dtype=np.bool_)
    if workload.rigid is None:
        return np.ones(len(workload), dtype=np.bool_)
    return ~workload.rigid


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

    @property
    def _phase_starts(self) -> FloatArray:
        return np.concatenate(([0.0], self.ends[:-1]))

    def servers(self, phase: int) -> FloatArray:
        return self.servers_at(float(self._phase_starts[phase]))

    def servers_at(self, time: float) -> FloatArray:
        is_running = (self.starts <= time) & (time < self.completion_times)
        return np.where(is_running, self.held, 0.0)

    def servers_of(self, job: int) -> FloatArray:
        times = self._phase_starts
        is_running = (self.starts[job] <= times) & (times < self.completion_times[job])
        return np.where(is_running, self.held[job], 0.0)

    def total_servers(self) -> FloatArray:
        times = self._phase_starts
        acquired = _sum_up_to(times, self.starts, self.held)
        return acquired - _sum_up_to(times, self.completion_times, self.held)

    def server_seconds(self) -> float:
        return float(self.held @ (self.completion_times - self.starts))


def _sum_up_to(times: FloatArray, events: FloatArray, amounts: FloatArray) -> FloatArray:
    """Return the sum of the amounts of all events up to each time."""
    order = np.argsort(events, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(amounts[order])))
    return sums[np.searchsorted(events[order], times, side="right")]
