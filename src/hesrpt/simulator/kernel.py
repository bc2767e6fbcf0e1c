"""The event loop, compiled. It knows jobs, clocks and rates, and nothing of policies or speedups.

It runs from event to event: arrivals, departures, reviews. At each one servers are handed out anew.
Where they depend on nothing but how many jobs there are, they stand in a table of rows, and the
loop goes on by itself; a row that is missing, or a decision that depends on more, is asked for by
returning to the caller, who fills it in and calls again.

Between decisions all rates change by a common factor at most. So one virtual clock drives all jobs:
it runs g times as fast as time, and a job ends when the clock shows its target. A departure that
only speeds up the clock costs nothing per job that stays.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from numba import njit

from hesrpt.arrays import FloatArray, IntArray

# Why the loop has returned.
DONE, NEEDS_ROW, NEEDS_DECISION, PAUSED, STARVED, STOPPED, RECORD_FULL = range(7)

# Departures this close together, relative to the time or to the clock, are at the same time.
SAME_TIME = 1e-14
# A common factor beyond this would lose digits: the row is looked up instead.
LARGEST_FACTOR = 2.0
# A policy that serves nobody at so many reviews in a row never will.
IDLE_REVIEWS = 1000


class Jobs(NamedTuple):
    """The jobs, each array in the order they were given."""

    arrivals: FloatArray
    left: FloatArray  # work that remained at the last decision
    estimate: FloatArray  # what the policy believes a job's work to be, relative to the truth
    completion: FloatArray
    target: FloatArray  # what the virtual clock shows when the job ends
    rate: FloatArray  # since the last decision, per unit of the virtual clock
    held: FloatArray  # servers, since the last decision
    started: IntArray  # whether the job has held servers
    ready: FloatArray  # until when the job stands still, because its servers have changed
    by_arrival: IntArray  # the jobs as they arrive; at one time, the largest estimate first
    present: IntArray  # the jobs in the system: so many entries as there are jobs
    offered: FloatArray  # the caller's decision: servers of the jobs present …
    offered_rate: FloatArray  # … and their rates


class Rows(NamedTuple):
    """Servers and rates by rank, for each number of jobs: where a row starts, and how long it is.

    A row begins with the last job of the list; those that it does not reach hold nothing.
    """

    start: IntArray
    length: IntArray
    held: FloatArray
    rate: FloatArray
    rate_factor: FloatArray  # by which all rates grow when the last of m jobs leaves; 0: unknown
    held_factor: FloatArray


class Record(NamedTuple):
    """Who held how many servers in each phase, as far as it is wanted."""

    ends: FloatArray
    start: IntArray  # where the entries of a phase begin
    job: IntArray
    held: FloatArray


class Counters(NamedTuple):
    """The state of the loop apart from the jobs."""

    counts: IntArray  # see the indices below
    clocks: FloatArray


# Indices of counts …
PRESENT, ARRIVED, ADMITTED, EVENTS, WINDOW, STAGE, ROW_FOR, IDLE, PHASES, ENTRIES, WORK = range(11)
# … and of clocks.
NOW, VIRTUAL, SPEED, HELD_FACTOR, HELD, BUSY, AREA, REVIEW = range(8)
# Stages of a decision: something has happened, the list is up to date, the caller has decided, all
# is handed out.
CHANGED, LISTED, OFFERED, DECIDED = range(4)


@njit(cache=True, nogil=True)
def run(
    jobs: Jobs,
    rows: Rows,
    record: Record,
    counters: Counters,
    by_rank: bool,
    sorted_by_size: bool,
    exact: bool,
    resize_cost: float,
    review_every: float,
    stop_at: float,
    recording: bool,
    most_events: int,
) -> int:
    """Run until there is a reason to return, and return it."""
    count, clock = counters.counts, counters.clocks
    total = jobs.by_arrival.size
    events_at_start = count[EVENTS]
    while True:
        # --- decide -----------------------------------------------------------------------------
        if count[STAGE] != DECIDED:
            if count[STAGE] == CHANGED:
                _refresh(jobs, count, clock)
                _admit(jobs, count, sorted_by_size)
                if sorted_by_size and not exact:
                    _sort(jobs, count[PRESENT])
                count[STAGE] = LISTED
            if count[PRESENT] > 0 and by_rank and rows.start[count[PRESENT]] < 0:
                return NEEDS_ROW
            if count[PRESENT] > 0 and not by_rank and count[STAGE] != OFFERED:
                return NEEDS_DECISION
            _hand_out(jobs, rows, count, clock, by_rank, resize_cost)
            count[STAGE] = DECIDED

        # --- find the next event ----------------------------------------------------------------
        present = count[PRESENT]
        first = present - count[WINDOW]
        scaling = by_rank and rows.rate_factor[present] > 0.0
        target = inf
        if scaling and count[WINDOW] > 0:
            target = jobs.target[jobs.present[present - 1]]
        else:
            for place in range(first, present):
                target = min(target, jobs.target[jobs.present[place]])
        departs = clock[NOW] + (target - clock[VIRTUAL]) / clock[SPEED]
        arrives = jobs.arrivals[jobs.by_arrival[count[ARRIVED]]] if count[ARRIVED] < total else inf
        review = clock[REVIEW] if present > 0 else inf
        if departs == inf and arrives == inf:
            if present == 0:
                return DONE
            count[IDLE] += 1
            if review == inf or count[IDLE] > IDLE_REVIEWS:
                return STARVED
        else:
            count[IDLE] = 0
        departs = max(departs, clock[NOW])
        now = min(departs, arrives, review)
        if now > stop_at:
            return STOPPED
        if recording and (
            count[PHASES] + 2 > record.ends.size or count[ENTRIES] + count[WINDOW] > record.job.size
        ):
            return RECORD_FULL
        if count[EVENTS] - events_at_start >= most_events:
            return PAUSED

        # --- go there ---------------------------------------------------------------------------
        if recording:
            for place in range(first, present):
                job = jobs.present[place]
                record.job[count[ENTRIES]] = job
                record.held[count[ENTRIES]] = jobs.held[job] * clock[HELD_FACTOR]
                count[ENTRIES] += 1
            record.ends[count[PHASES]] = now
            record.start[count[PHASES] + 1] = count[ENTRIES]
            count[PHASES] += 1
        count[WORK] += count[WINDOW]
        passed = now - clock[NOW]
        clock[AREA] += present * passed
        clock[BUSY] += clock[HELD] * passed
        clock[VIRTUAL] = target if now == departs else clock[VIRTUAL] + clock[SPEED] * passed
        clock[NOW] = now
        if now == departs:
            if scaling and now != arrives and now != review:
                job = jobs.present[present - 1]
                jobs.completion[job] = now
                factor = rows.rate_factor[present]
                count[PRESENT] -= 1
                count[WINDOW] -= 1
                count[EVENTS] += 1
                # Every so often, and where the factor is large, look the row up again.
                halved = 2 * count[PRESENT] <= count[ROW_FOR]
                if factor > LARGEST_FACTOR or halved or rows.rate_factor[present - 1] == 0.0:
                    count[STAGE] = CHANGED
                else:
                    clock[SPEED] *= factor
                    clock[HELD_FACTOR] *= rows.held_factor[present]
                continue
            _depart(jobs, count, clock, now)
        if now == arrives:
            while (
                count[ARRIVED] < total
                and jobs.arrivals[jobs.by_arrival[count[ARRIVED]]] <= clock[NOW]
            ):
                count[ARRIVED] += 1
                count[EVENTS] += 1
        if now == review:
            count[EVENTS] += 1
            clock[REVIEW] = now + review_every
        elif present == 0:
            clock[REVIEW] = now + review_every
        count[STAGE] = CHANGED


@njit(cache=True, nogil=True)
def _refresh(jobs: Jobs, count: IntArray, clock: FloatArray) -> None:
    """Work out what is left of the jobs that have worked since the last decision."""
    for place in range(count[PRESENT] - count[WINDOW], count[PRESENT]):
        job = jobs.present[place]
        # A job that stood still for a while has not begun to work before the clock says so.
        to_go = max(jobs.target[job] - clock[VIRTUAL], 0.0) * jobs.rate[job]
        jobs.left[job] = min(jobs.left[job], to_go)
    count[WINDOW] = 0


@njit(cache=True, nogil=True)
def _depart(jobs: Jobs, count: IntArray, clock: FloatArray, now: float) -> None:
    """Take out the jobs that end now."""
    first = count[PRESENT] - count[WINDOW]
    due = clock[VIRTUAL] + SAME_TIME * (now * clock[SPEED] + clock[VIRTUAL])
    kept = first
    for place in range(first, count[PRESENT]):
        job = jobs.present[place]
        if jobs.target[job] <= due:
            jobs.completion[job] = now
            jobs.left[job] = 0.0
            jobs.held[job] = 0.0
            count[EVENTS] += 1
        else:
            jobs.present[kept] = job
            kept += 1
    count[WINDOW] -= count[PRESENT] - kept
    count[PRESENT] = kept


@njit(cache=True, nogil=True)
def _admit(jobs: Jobs, count: IntArray, sorted_by_size: bool) -> None:
    """Put the jobs that have arrived into the list: at its end, or in their place by size."""
    admitted = count[ADMITTED]
    new = count[ARRIVED] - admitted
    old = count[PRESENT]
    if not sorted_by_size:
        for place in range(new):
            jobs.present[old + place] = jobs.by_arrival[admitted + place]
    else:
        # Merge two lists, largest first, from the back. Of equal ones, the newcomer is behind.
        last_old, last_new = old - 1, count[ARRIVED] - 1
        for place in range(old + new - 1, -1, -1):
            if last_new < admitted:
                break
            newcomer = jobs.by_arrival[last_new]
            if last_old >= 0:
                job = jobs.present[last_old]
                if (
                    jobs.left[job] * jobs.estimate[job]
                    <= jobs.left[newcomer] * jobs.estimate[newcomer]
                ):
                    jobs.present[place] = job
                    last_old -= 1
                    continue
            jobs.present[place] = newcomer
            last_new -= 1
    count[PRESENT] = old + new
    count[ADMITTED] = count[ARRIVED]


@njit(cache=True, nogil=True)
def _sort(jobs: Jobs, present: int) -> None:
    """Sort the list by estimated size, largest first. It is nearly sorted: by insertion."""
    for place in range(1, present):
        job = jobs.present[place]
        size = jobs.left[job] * jobs.estimate[job]
        at = place
        while at > 0:
            before = jobs.present[at - 1]
            if jobs.left[before] * jobs.estimate[before] >= size:
                break
            jobs.present[at] = before
            at -= 1
        jobs.present[at] = job


@njit(cache=True, nogil=True)
def _hand_out(
    jobs: Jobs,
    rows: Rows,
    count: IntArray,
    clock: FloatArray,
    by_rank: bool,
    resize_cost: float,
) -> None:
    """Give all jobs their servers: by rank from the last job of the list on, or as offered."""
    present = count[PRESENT]
    total = 0.0
    window = present
    if by_rank and present > 0:
        start, window = rows.start[present], rows.length[present]
        for rank in range(window):
            held = rows.held[start + rank]
            job = jobs.present[present - 1 - rank]
            _assign(jobs, job, held, rows.rate[start + rank], clock[NOW], resize_cost)
            total += held
        if resize_cost > 0.0:
            for place in range(present - window):
                jobs.held[jobs.present[place]] = 0.0
    else:
        for place in range(present):
            held = jobs.offered[place]
            _assign(
                jobs, jobs.present[place], held, jobs.offered_rate[place], clock[NOW], resize_cost
            )
            total += held
    count[WINDOW] = window
    count[ROW_FOR] = present
    clock[HELD] = total
    clock[VIRTUAL] = 0.0
    clock[SPEED] = 1.0
    clock[HELD_FACTOR] = 1.0


@njit(cache=True, nogil=True)
def _assign(jobs: Jobs, job: int, held: float, rate: float, now: float, resize_cost: float) -> None:
    """Give a job its servers. If their number has changed, it stands still for a while."""
    wait = 0.0
    if resize_cost > 0.0 and held > 0.0:
        if jobs.started[job] != 0 and abs(held - jobs.held[job]) > 1e-12 * held:
            jobs.ready[job] = now + resize_cost
        jobs.started[job] = 1
        wait = max(jobs.ready[job] - now, 0.0)
    jobs.held[job] = held
    jobs.rate[job] = rate
    jobs.target[job] = wait + jobs.left[job] / rate if rate > 0.0 else inf
