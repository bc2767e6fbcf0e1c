"""The event loop, compiled. It knows jobs, clocks and rates, and nothing of policies or speedups.

It runs from event to event: arrivals, departures, reviews. At each one servers are handed out anew.
Where they depend on nothing but how many jobs there are, they stand in a table of rows, and the
loop goes on by itself; a row that is missing, or a decision that depends on more, is asked for by
returning to the caller, who fills it in and calls again.

One virtual clock drives all jobs, and a job ends when the clock shows its target. Under some
policies a departure changes all rates by the same factor: then only the clock goes faster, and it
costs nothing per job that stays.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from numba import njit

from hesrpt.arrays import FloatArray, IntArray

# Why the loop has returned.
DONE, NEEDS_ROW, NEEDS_DECISION, PAUSED, STARVED, STOPPED, RECORD_FULL, TOO_MANY = range(8)

# Departures this close together, relative to the time or to the clock, are at the same time.
SAME_TIME = 1e-14
# Of more jobs than this the row is looked up again when half of them have left.
MANY = 64
# A common factor beyond this might overflow: the row is looked up instead.
LARGEST_FACTOR = 1e50
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
(
    PRESENT,
    ARRIVED,
    ADMITTED,
    EVENTS,
    WINDOW,  # jobs at the end of the list that hold servers
    STAGE,
    ROW_FOR,  # how many jobs there were at the last decision
    WINDOW_FOR,  # and how many of them held servers
    IDLE,
    PHASES,
    ENTRIES,
    WORK,
) = range(12)
COUNTS = 12
# … and of clocks.
NOW, VIRTUAL, PACE, HELD_FACTOR, HELD, BUSY, AREA, REVIEW = range(8)
# Stages of a decision: something has happened, the list is up to date, the caller has decided, all
# is handed out.
CHANGED, LISTED, OFFERED, DECIDED = range(4)


@njit(cache=True, nogil=True, error_model="numpy")
def run(
    jobs: Jobs,
    rows: Rows,
    record: Record,
    counters: Counters,
    by_rank: bool,
    uniform: bool,
    sorted_by_size: bool,
    keeps_order: bool,
    most_servers: float,
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
                if sorted_by_size and not keeps_order:
                    _sort(jobs, count[PRESENT])
                count[STAGE] = LISTED
            if count[PRESENT] > 0 and by_rank and rows.start[count[PRESENT]] < 0:
                return NEEDS_ROW
            if count[PRESENT] > 0 and not by_rank and count[STAGE] != OFFERED:
                return NEEDS_DECISION
            _hand_out(jobs, rows, count, clock, by_rank, resize_cost)
            if not clock[HELD] <= most_servers:
                return TOO_MANY
            count[STAGE] = DECIDED

        if by_rank and not recording and rows.rate_factor[count[PRESENT]] > 0.0:
            _coast(jobs, rows, count, clock, uniform, stop_at, events_at_start + most_events)

        # --- find the next event ----------------------------------------------------------------
        present = count[PRESENT]
        first = present - count[WINDOW]
        target = inf
        for place in range(first, present):
            target = min(target, jobs.target[jobs.present[place]])
        departs = max(clock[NOW] + (target - clock[VIRTUAL]) * clock[PACE], clock[NOW])
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
                record.held[count[ENTRIES]] = jobs.held[job]
                count[ENTRIES] += 1
            record.ends[count[PHASES]] = now
            record.start[count[PHASES] + 1] = count[ENTRIES]
            count[PHASES] += 1
        count[WORK] += count[WINDOW]
        passed = now - clock[NOW]
        clock[AREA] += present * passed
        clock[BUSY] += clock[HELD] * passed
        clock[VIRTUAL] = target if now == departs else clock[VIRTUAL] + passed / clock[PACE]
        clock[NOW] = now
        if now == departs:
            _depart(jobs, count, clock, now)
        while (
            count[ARRIVED] < total and jobs.arrivals[jobs.by_arrival[count[ARRIVED]]] <= clock[NOW]
        ):
            count[ARRIVED] += 1
            count[EVENTS] += 1
        if now == review:
            count[EVENTS] += 1
            clock[REVIEW] = now + review_every
        elif present == 0:
            clock[REVIEW] = now + review_every
        count[STAGE] = CHANGED


@njit(cache=True, nogil=True, error_model="numpy")
def _coast(
    jobs: Jobs,
    rows: Rows,
    count: IntArray,
    clock: FloatArray,
    uniform: bool,
    stop_at: float,
    most_events: int,
) -> None:
    """Go on as long as events change nothing but the pace of the clock.

    These are departures of the last job in the list; and arrivals, if all jobs have the same rate.
    """
    present, window, arrived = count[PRESENT], count[WINDOW], count[ARRIVED]
    events, work = count[EVENTS], count[WORK]
    now, virtual, pace = clock[NOW], clock[VIRTUAL], clock[PACE]
    held_factor, area = clock[HELD_FACTOR], clock[AREA]
    busy, start = 0.0, clock[NOW]  # how long servers were held before they were last idle
    # Now and then the row is looked up again, so that rounding does not add up.
    fewest = count[ROW_FOR] // 2 if count[ROW_FOR] > MANY else 0
    # Others than those in the window hold next to nothing, until half of it is gone.
    least_window = count[WINDOW_FOR] // 2 if count[WINDOW_FOR] < count[ROW_FOR] else 0
    latest = count[EVENTS] + max(1000, 4 * count[ROW_FOR])
    limit = min(stop_at, clock[REVIEW])
    total = jobs.by_arrival.size
    arrives = jobs.arrivals[jobs.by_arrival[arrived]] if arrived < total else inf
    rate, held = jobs.rate[jobs.present[present - 1]], jobs.held[jobs.present[present - 1]]
    while events < most_events:
        job = jobs.present[present - 1]
        target = jobs.target[job]
        departs = max(now + (target - virtual) * pace, now)
        if departs < arrives:
            factor = rows.rate_factor[present]
            if present == 1:
                # The next job finds an empty system, and has the rate that this one had.
                if not uniform or arrives >= limit:
                    break
                jobs.completion[job] = departs
                area += departs - now
                busy += departs - start
                work += 1
                events += 1
                virtual, now, start = target, arrives, arrives
                present = window = 0
                departs = arrives
            elif (
                departs >= limit
                or present - 1 <= fewest
                or window - 1 <= least_window
                or factor > LARGEST_FACTOR
            ):
                break
            else:
                area += present * (departs - now)
                work += window
                now, virtual = departs, target
                jobs.completion[job] = now
                pace /= factor
                held_factor *= rows.held_factor[present]
                present -= 1
                window -= 1
        elif not uniform or departs == arrives or arrives >= limit or events >= latest:
            break
        if departs >= arrives:
            area += present * (arrives - now)
            work += window
            virtual += (arrives - now) / pace
            now = arrives
            job = jobs.by_arrival[arrived]
            target = virtual + jobs.left[job] / rate
            at = present
            while at > 0 and jobs.target[jobs.present[at - 1]] <= target:
                jobs.present[at] = jobs.present[at - 1]
                at -= 1
            jobs.present[at] = job
            jobs.target[job], jobs.rate[job], jobs.held[job] = target, rate, held
            present += 1
            window += 1
            if present > 1:
                pace *= rows.rate_factor[present]
                held_factor /= rows.held_factor[present]
            arrived += 1
            arrives = jobs.arrivals[jobs.by_arrival[arrived]] if arrived < total else inf
        events += 1
    count[PRESENT], count[WINDOW], count[ARRIVED] = present, window, arrived
    count[ADMITTED] = arrived
    count[EVENTS], count[WORK] = events, work
    clock[BUSY] += clock[HELD] * (busy + now - start)
    clock[NOW], clock[VIRTUAL], clock[PACE] = now, virtual, pace
    clock[HELD_FACTOR], clock[AREA] = held_factor, area


@njit(cache=True, nogil=True, error_model="numpy")
def _refresh(jobs: Jobs, count: IntArray, clock: FloatArray) -> None:
    """Work out what is left of the jobs that have worked since the last decision."""
    for place in range(count[PRESENT] - count[WINDOW], count[PRESENT]):
        job = jobs.present[place]
        # A job that stood still for a while has not begun to work before the clock says so.
        to_go = max(jobs.target[job] - clock[VIRTUAL], 0.0) * jobs.rate[job]
        jobs.left[job] = min(jobs.left[job], to_go)
    count[WINDOW] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def _depart(jobs: Jobs, count: IntArray, clock: FloatArray, now: float) -> None:
    """Take out the jobs that end now."""
    first = count[PRESENT] - count[WINDOW]
    due = clock[VIRTUAL] + SAME_TIME * (now / clock[PACE] + clock[VIRTUAL])
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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
    count[WINDOW_FOR] = window
    clock[HELD] = total
    clock[VIRTUAL] = 0.0
    clock[PACE] = 1.0  # seconds for each unit of the clock
    clock[HELD_FACTOR] = 1.0


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
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
