"""When jobs start that hold the servers they asked for from start to end.

First come, first served, and EASY backfilling, compiled. A job's end is known when it starts, so
there is nothing but starts to decide, at every submission and every end.
"""

from __future__ import annotations

from functools import cached_property
from math import inf

import numpy as np
from numba import njit

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies import Easy, RigidDiscipline
from hesrpt.schedule import Timeline
from hesrpt.workload import Workload


def find_start_times(
    workload: Workload, servers: float, discipline: RigidDiscipline
) -> tuple[FloatArray, FloatArray]:
    """Return when each job starts, and the start time of its reservation.

    EASY makes a reservation when a job becomes the first in the queue and has to wait. NaN means
    that there was none.
    """
    assert workload.requested is not None
    jobs = len(workload)
    arrivals = np.zeros(jobs) if workload.arrivals is None else workload.arrivals
    runtime = run_times(workload)
    estimates = runtime
    if workload.estimates is not None:
        estimates = np.maximum(workload.estimates, runtime)
    order = np.argsort(arrivals, kind="stable")
    in_order = _start_times(
        arrivals[order], workload.requested[order], runtime[order], estimates[order],
        float(servers), isinstance(discipline, Easy),
    )  # fmt: skip
    starts, told = np.empty(jobs), np.empty(jobs)
    starts[order], told[order] = in_order
    return starts, told


def run_times(workload: Workload) -> FloatArray:
    """Return how long each job runs on the servers that it asked for."""
    assert workload.requested is not None
    times = workload.sizes / workload.speedups.rate(workload.requested)
    # The last digit is lost in r·s(q)/s(q): what ends at the same time should do so.
    digits = 10.0 ** (12 - np.floor(np.log10(times)))
    return np.rint(times * digits) / digits


@njit(cache=True, nogil=True, error_model="numpy")
def _start_times(
    submitted: FloatArray,
    requested: FloatArray,
    runtime: FloatArray,
    estimate: FloatArray,
    servers: float,
    backfill: bool,
) -> tuple[FloatArray, FloatArray]:
    jobs = len(submitted)
    starts, told = np.full(jobs, np.nan), np.full(jobs, np.nan)
    behind = np.full(jobs, -1)  # the next job in the queue
    first, last, arrived = -1, -1, 0
    running = np.empty(jobs, dtype=np.int64)  # by when they end, as far as estimates tell
    count, free = 0, servers
    now = 0.0
    while arrived < jobs or first >= 0:
        # --- the next end or submission
        ends = inf
        for place in range(count):
            ends = min(ends, starts[running[place]] + runtime[running[place]])
        now = min(ends, submitted[arrived]) if arrived < jobs else ends
        kept = 0
        for place in range(count):
            job = running[place]
            if starts[job] + runtime[job] <= now:
                free += requested[job]
            else:
                running[kept] = job
                kept += 1
        count = kept
        while arrived < jobs and submitted[arrived] <= now:
            if first < 0:
                first = arrived
            else:
                behind[last] = arrived
            last = arrived
            arrived += 1
        # --- first come, first served
        while first >= 0 and requested[first] <= free:
            starts[first] = now
            free -= requested[first]
            count = _add(running, count, first, starts, estimate)
            first = behind[first]
        if first < 0 or not backfill:
            continue
        # --- from when on will there be enough for the first, and how many will be left over?
        then, spare = now, free
        for place in range(count):
            job = running[place]
            then = starts[job] + estimate[job]
            spare += requested[job]
            if spare >= requested[first]:
                break
        # Those that end at the same time are free as well.
        place += 1
        while place < count and starts[running[place]] + estimate[running[place]] <= then:
            spare += requested[running[place]]
            place += 1
        spare -= requested[first]
        if np.isnan(told[first]):
            told[first] = then
        # --- may others run until then, or on what is left over?
        before, job = first, behind[first]
        while job >= 0 and free > 0:
            if requested[job] <= free and (now + estimate[job] <= then or requested[job] <= spare):
                starts[job] = now
                free -= requested[job]
                if now + estimate[job] > then:
                    spare -= requested[job]
                count = _add(running, count, job, starts, estimate)
                behind[before] = behind[job]
                if job == last:
                    last = before
            else:
                before = job
            job = behind[job]
    return starts, told


@njit(cache=True, nogil=True, error_model="numpy")
def _add(running: IntArray, count: int, job: int, starts: FloatArray, estimate: FloatArray) -> int:
    """Put a job in its place among those that run; return how many there are."""
    ends = starts[job] + estimate[job]
    place = count
    while place > 0 and starts[running[place - 1]] + estimate[running[place - 1]] > ends:
        running[place] = running[place - 1]
        place -= 1
    running[place] = job
    return count + 1


class RigidTimeline(Timeline):
    """Each job holds its servers from its start to its end."""

    def __init__(self, starts: FloatArray, completion_times: FloatArray, held: FloatArray) -> None:
        self.starts, self.completion_times, self.held = starts, completion_times, held

    @cached_property
    def ends(self) -> FloatArray:  # type: ignore[override]
        times = np.unique(np.concatenate((self.starts, self.completion_times)))
        return times[times > 0]

    def servers(self, phase: int) -> FloatArray:
        return self.servers_at(0.0 if phase == 0 else float(self.ends[phase - 1]))

    def servers_at(self, time: float) -> FloatArray:
        runs = (self.starts <= time) & (time < self.completion_times)
        return np.where(runs, self.held, 0.0)

    def servers_of(self, job: int) -> FloatArray:
        begins = np.concatenate(([0.0], self.ends[:-1]))
        runs = (self.starts[job] <= begins) & (begins < self.completion_times[job])
        return np.where(runs, self.held[job], 0.0)

    def totals(self) -> FloatArray:
        begins = np.concatenate(([0.0], self.ends[:-1]))
        begun = np.cumsum(self.held[np.argsort(self.starts, kind="stable")])
        ended = np.cumsum(self.held[np.argsort(self.completion_times, kind="stable")])
        return _up_to(begins, np.sort(self.starts), begun) - _up_to(
            begins, np.sort(self.completion_times), ended
        )

    def server_seconds(self) -> float:
        return float(self.held @ (self.completion_times - self.starts))


def _up_to(times: FloatArray, at: FloatArray, sums: FloatArray) -> FloatArray:
    """Return what has come together by each time."""
    return np.concatenate(([0.0], sums))[np.searchsorted(at, times, side="right")]
