"""First come, first served, and EASY backfilling, compiled: when each rigid job starts."""

from __future__ import annotations

from math import inf

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled


@compiled
def find_starts_of_sorted_jobs(
    submitted: FloatArray,
    requested: FloatArray,
    runtime: FloatArray,
    estimate: FloatArray,
    servers: float,
    backfill: bool,
) -> tuple[FloatArray, FloatArray]:
    """Return the start times and reservations of jobs that are sorted by submission time."""
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
            # A job that has run past its estimate is expected to end at any moment.
            reserved = max(starts[job] + estimate[job], now)
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


@compiled
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
