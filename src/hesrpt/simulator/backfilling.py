"""Rigid disciplines, compiled: first come, first served, and EASY backfilling.

Jobs hold the servers they ask for from start to end, so a job's end is known when it starts. Only
starts must be decided, at every submission and every end.
"""

from __future__ import annotations

from math import inf

import numpy as np
from numba import njit

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies import Easy, RigidDiscipline
from hesrpt.workload import Workload


def find_start_times(
    workload: Workload, servers: float, discipline: RigidDiscipline
) -> tuple[FloatArray, FloatArray]:
    """Return when each job starts, and the start time of its reservation.

    EASY makes a reservation for a job that is the first in the queue and has to wait. NaN means
    that a job never had one.
    """
    assert workload.requested is not None
    jobs = len(workload)
    arrivals = workload.arrival_times
    runtimes = run_times(workload)
    estimates = runtimes
    if workload.estimates is not None:
        estimates = np.maximum(workload.estimates, runtimes)
    order = np.argsort(arrivals, kind="stable")
    starts, reservations = np.empty(jobs), np.empty(jobs)
    starts[order], reservations[order] = _find_start_times(
        arrivals[order],
        workload.requested[order],
        runtimes[order],
        estimates[order],
        float(servers),
        isinstance(discipline, Easy),
    )
    return starts, reservations


def run_times(workload: Workload) -> FloatArray:
    """Return how long each job runs on the servers that it asks for."""
    assert workload.requested is not None
    times = workload.sizes / workload.speedups.rate(workload.requested)
    # Sizes are r·s(q), and r·s(q)/s(q) is not r to the last digit. Rounding makes equal run times
    # equal again, so that such jobs end at the same time.
    digits = 10.0 ** (12 - np.floor(np.log10(times)))
    return np.rint(times * digits) / digits


@njit(cache=True, nogil=True, error_model="numpy")
def _find_start_times(
    submitted: FloatArray,
    requested: FloatArray,
    runtime: FloatArray,
    estimate: FloatArray,
    servers: float,
    backfill: bool,
) -> tuple[FloatArray, FloatArray]:
    jobs = len(submitted)
    starts, reservations = np.full(jobs, np.nan), np.full(jobs, np.nan)
    behind = np.full(jobs, -1)  # the next job in the queue, a linked list
    first, last, arrived = -1, -1, 0
    running = np.empty(jobs, dtype=np.int64)  # sorted by estimated end
    count, free = 0, servers
    now = 0.0
    while arrived < jobs or first >= 0:
        # --- advance to the next end or submission
        next_end = inf
        for place in range(count):
            next_end = min(next_end, starts[running[place]] + runtime[running[place]])
        now = min(next_end, submitted[arrived]) if arrived < jobs else next_end
        still_running = 0
        for place in range(count):
            job = running[place]
            if starts[job] + runtime[job] <= now:
                free += requested[job]
            else:
                running[still_running] = job
                still_running += 1
        count = still_running
        while arrived < jobs and submitted[arrived] <= now:
            if first < 0:
                first = arrived
            else:
                behind[last] = arrived
            last = arrived
            arrived += 1
        # --- start jobs in the order of the queue
        while first >= 0 and requested[first] <= free:
            starts[first] = now
            free -= requested[first]
            count = _insert(running, count, first, starts, estimate)
            first = behind[first]
        if first < 0 or not backfill:
            continue
        # --- reserve: when will the first job fit, and how many servers will it leave over?
        reserved, spare = now, free
        for place in range(count):
            job = running[place]
            reserved = starts[job] + estimate[job]
            spare += requested[job]
            if spare >= requested[first]:
                break
        # Other jobs that end at the same time free their servers as well.
        place += 1
        while place < count and starts[running[place]] + estimate[running[place]] <= reserved:
            spare += requested[running[place]]
            place += 1
        spare -= requested[first]
        if np.isnan(reservations[first]):
            reservations[first] = reserved
        # --- backfill: start jobs that end before the reservation, or fit beside it
        before, job = first, behind[first]
        while job >= 0 and free > 0:
            ends_in_time = now + estimate[job] <= reserved
            if requested[job] <= free and (ends_in_time or requested[job] <= spare):
                starts[job] = now
                free -= requested[job]
                if not ends_in_time:
                    spare -= requested[job]
                count = _insert(running, count, job, starts, estimate)
                behind[before] = behind[job]
                if job == last:
                    last = before
            else:
                before = job
            job = behind[job]
    return starts, reservations


@njit(cache=True, nogil=True, error_model="numpy")
def _insert(
    running: IntArray, count: int, job: int, starts: FloatArray, estimate: FloatArray
) -> int:
    """Insert a job into the running jobs by its estimated end; return their new number."""
    end = starts[job] + estimate[job]
    place = count
    while place > 0 and starts[running[place - 1]] + estimate[running[place - 1]] > end:
        running[place] = running[place - 1]
        place -= 1
    running[place] = job
    return count + 1
