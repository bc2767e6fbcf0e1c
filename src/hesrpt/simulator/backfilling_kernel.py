"""First come, first served, and EASY backfilling, compiled: when each job starts, and how wide.

A rigid job runs on the servers that it asked for. A moldable job chooses its width when it starts:
at most an equal share of the machine among all jobs in the system.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.speedups.shape_kernel import Shapes, find_rate


class QueuedJobs(NamedTuple):
    """The jobs, sorted by submission time."""

    submitted: FloatArray
    width: FloatArray  # servers: as asked for, or as chosen when a moldable job was last considered
    runtime: FloatArray  # on that many servers
    estimate: FloatArray  # of the run time
    is_moldable: BoolArray
    most: FloatArray  # the most servers that a moldable job can use
    size: FloatArray
    estimated_size: FloatArray
    shapes: Shapes
    start: FloatArray  # NaN before the job starts
    reservation: FloatArray  # when the job was first expected to start; NaN if it never waited
    behind: IntArray  # the next job in the queue, a linked list
    running: IntArray  # the running jobs, sorted by estimated end


@compiled
def schedule_jobs(jobs: QueuedJobs, servers: float, backfill: bool) -> None:
    """Start all jobs, in the order of submission or with backfilling."""
    total = len(jobs.submitted)
    first, last, arrived, waiting = -1, -1, 0, 0
    count, free = 0, servers
    now = 0.0
    while arrived < total or first >= 0:
        # --- advance to the next end or submission
        next_end = inf
        for place in range(count):
            job = jobs.running[place]
            next_end = min(next_end, jobs.start[job] + jobs.runtime[job])
        now = min(next_end, jobs.submitted[arrived]) if arrived < total else next_end
        still_running = 0
        for place in range(count):
            job = jobs.running[place]
            if jobs.start[job] + jobs.runtime[job] <= now:
                free += jobs.width[job]
            else:
                jobs.running[still_running] = job
                still_running += 1
        count = still_running
        while arrived < total and jobs.submitted[arrived] <= now:
            if first < 0:
                first = arrived
            else:
                jobs.behind[last] = arrived
            last = arrived
            arrived += 1
            waiting += 1
        share = max(np.floor(servers / max(count + waiting, 1)), 1.0)
        # --- start jobs in the order of the queue
        reserved, spare = inf, 0.0
        while first >= 0:
            if jobs.is_moldable[first]:
                _set_width(jobs, first, min(share, jobs.most[first]))
            if jobs.width[first] > free:
                reserved, spare = _reserve(jobs, jobs.width[first], count, free, now)
                if not jobs.is_moldable[first] or free < 1.0:
                    break
                # Start on what is free, unless the job would end sooner if it waited.
                waited, wanted = reserved + jobs.estimate[first], jobs.width[first]
                _set_width(jobs, first, np.floor(free))
                if now + jobs.estimate[first] > waited:
                    _set_width(jobs, first, wanted)
                    break
            jobs.start[first] = now
            free -= jobs.width[first]
            count = _insert(jobs, count, first)
            first = jobs.behind[first]
            waiting -= 1
        if first < 0 or not backfill:
            continue
        if np.isnan(jobs.reservation[first]):
            jobs.reservation[first] = reserved
        # --- backfill: start jobs that end before the reservation, or fit beside it
        before, job = first, jobs.behind[first]
        while job >= 0 and free > 0:
            if jobs.is_moldable[job]:
                _set_width(jobs, job, min(share, jobs.most[job]))
            ends_in_time = now + jobs.estimate[job] <= reserved
            if jobs.width[job] <= free and (ends_in_time or jobs.width[job] <= spare):
                jobs.start[job] = now
                free -= jobs.width[job]
                if not ends_in_time:
                    spare -= jobs.width[job]
                count = _insert(jobs, count, job)
                waiting -= 1
                jobs.behind[before] = jobs.behind[job]
                if job == last:
                    last = before
            else:
                before = job
            job = jobs.behind[job]


@compiled
def _reserve(
    jobs: QueuedJobs, width: float, count: int, free: float, now: float
) -> tuple[float, float]:
    """Return when a job of this width is expected to fit, and how many servers it leaves over."""
    reserved, spare = now, free
    place = 0
    while place < count and spare < width:
        job = jobs.running[place]
        # A job that has run past its estimate is expected to end at any moment.
        reserved = max(jobs.start[job] + jobs.estimate[job], now)
        spare += jobs.width[job]
        place += 1
    # Other jobs that end at the same time free their servers as well.
    while place < count:
        job = jobs.running[place]
        if jobs.start[job] + jobs.estimate[job] > reserved:
            break
        spare += jobs.width[job]
        place += 1
    return reserved, spare - width


@compiled
def _set_width(jobs: QueuedJobs, job: int, width: float) -> None:
    """Let a moldable job run on this many servers."""
    records, corners, shape_of_job = jobs.shapes
    rate = find_rate(records[shape_of_job[job]], corners, width)
    jobs.width[job] = width
    jobs.runtime[job] = jobs.size[job] / rate
    jobs.estimate[job] = jobs.estimated_size[job] / rate


@compiled
def _insert(jobs: QueuedJobs, count: int, job: int) -> int:
    """Insert a job into the running jobs by its estimated end; return their new number."""
    end = jobs.start[job] + jobs.estimate[job]
    place = count
    while place > 0:
        other = jobs.running[place - 1]
        if jobs.start[other] + jobs.estimate[other] <= end:
            break
        jobs.running[place] = other
        place -= 1
    jobs.running[place] = job
    return count + 1
