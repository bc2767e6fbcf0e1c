"""The event loop, compiled. It knows jobs, clocks and rates, but neither policies nor speedups.

It runs from event to event: arrivals, departures, reviews. Each event leads to a new decision on
the servers of all jobs. If decisions depend only on the number of jobs, the loop reads them from a
table of rows. If a row is missing, or if decisions depend on more, the loop returns to its caller,
which provides the row or decision and calls again.

If rows depend on a calibration, the loop also keeps the sums of
:class:`hesrpt.policies.calibration.Calibration`, and chooses the level of the rows. Without one,
``calibration`` is None, and numba compiles a loop of its own, from which all of that is left out.

Policies whose rates are products have a loop of their own, which is much faster:
:mod:`hesrpt.simulator.ranked_kernel`.
"""

from __future__ import annotations

from math import inf, log

from hesrpt.compiled import compiled, inlined
from hesrpt.simulator.calibration_kernel import (
    choose_level,
    find_row,
    observe_arrivals,
    observe_ends,
    observe_work,
)
from hesrpt.simulator.calibration_kernel_data import CalibrationData
from hesrpt.simulator.kernel_data import Jobs, LoopState, Phases, Rows, Settings

# Why the loop has returned.
DONE, NEEDS_ROW, NEEDS_DECISION, PAUSED, STARVED, STOPPED, PHASES_FULL, TOO_MANY_SERVERS = range(8)
# Stages of a decision: an event has happened, the list of jobs is up to date, the caller has
# decided, the servers are assigned.
CHANGED, LISTED, DECIDED, ASSIGNED = range(4)

# Departures closer together than this, relative to the time, are simultaneous.
SAME_TIME = 1e-14
# A job whose servers change by no more than this part is not resized: prices are not more exact.
SAME_SERVERS = 1e-10
# A policy that serves no job at this many reviews in a row never will.
MAX_IDLE_REVIEWS = 1000


@compiled
def run(
    jobs: Jobs,
    rows: Rows,
    phases: Phases,
    state_array: list[LoopState],
    settings_array: list[Settings],
    calibration: CalibrationData | None,
) -> int:
    """Run until there is a reason to return to the caller, and return that reason.

    State and settings are arrays with one record.
    """
    state, settings = state_array[0], settings_array[0]
    total = jobs.by_arrival.size
    recording = settings.recording
    last_event = state.events + settings.max_events
    while True:
        # --- decide -----------------------------------------------------------------------------
        if state.stage != ASSIGNED:
            if state.stage == CHANGED:
                if calibration is not None:
                    observe_work(jobs, state, calibration)
                    if state.arrived > state.admitted:
                        now_present = state.present + state.arrived - state.admitted
                        observe_arrivals(jobs, state, calibration, log(float(now_present)))
                    else:
                        choose_level(state.arrived, calibration.state[0], calibration.settings[0])
                _update_remaining(jobs, state)
                _admit(jobs, state, settings.sorted_by_size)
                if settings.sorted_by_size and not settings.keeps_order:
                    _sort(jobs, state.present)
                state.stage = LISTED
            row = state.present
            if calibration is not None:
                row = find_row(state.present, calibration)
            if state.present > 0 and settings.by_rank and (row < 0 or rows.start[row] < 0):
                return NEEDS_ROW
            if state.present > 0 and not settings.by_rank and state.stage != DECIDED:
                return NEEDS_DECISION
            _assign_servers(jobs, rows, row, state, settings.by_rank, settings.resize_cost)
            if not state.held <= settings.max_servers:
                return TOO_MANY_SERVERS
            state.stage = ASSIGNED

        # --- find the next event ----------------------------------------------------------------
        present = state.present
        first = present - state.running
        target = inf
        for place in range(first, present):
            target = min(target, jobs.target[jobs.present[place]])
        departs = state.now + target
        arrives = jobs.arrivals[jobs.by_arrival[state.arrived]] if state.arrived < total else inf
        review = state.next_review if present > 0 else inf
        if departs == inf and arrives == inf:
            if present == 0:
                return DONE
            state.idle_reviews += 1
            if review == inf or state.idle_reviews > MAX_IDLE_REVIEWS:
                return STARVED
        else:
            state.idle_reviews = 0
        now = min(departs, arrives, review)
        if now > settings.stop_at:
            return STOPPED
        if recording and (
            state.phases + 2 > phases.ends.size or state.entries + state.running > phases.job.size
        ):
            return PHASES_FULL
        if state.events >= last_event:
            return PAUSED

        # --- advance to it ----------------------------------------------------------------------
        if recording:
            for place in range(first, present):
                job = jobs.present[place]
                phases.job[state.entries] = job
                phases.held[state.entries] = jobs.held[job]
                state.entries += 1
            phases.ends[state.phases] = now
            phases.start[state.phases + 1] = state.entries
            state.phases += 1
        state.allocations += state.running
        passed = now - state.now
        state.job_seconds += present * passed
        state.server_seconds += state.held * passed
        state.elapsed = target if now == departs else passed
        state.now = now
        if now == departs:
            due = state.elapsed + SAME_TIME * (now + state.elapsed)
            if calibration is not None:
                observe_ends(jobs, state, calibration, due)
            _remove_ended(jobs, state, due)
        while state.arrived < total and jobs.arrivals[jobs.by_arrival[state.arrived]] <= now:
            state.arrived += 1
            state.events += 1
        if now == review:
            state.events += 1
            state.next_review = now + settings.review_every
        elif present == 0:
            state.next_review = now + settings.review_every
        state.stage = CHANGED


@compiled
def _update_remaining(jobs: Jobs, state: LoopState) -> None:
    """Compute what remains of the jobs that have run since the last decision."""
    for place in range(state.present - state.running, state.present):
        job = jobs.present[place]
        # The target of a paused job includes its pause, in which no work is done.
        to_target = max(jobs.target[job] - state.elapsed, 0.0) * jobs.rate[job]
        jobs.remaining[job] = min(jobs.remaining[job], to_target)
    state.running = 0


@compiled
def _remove_ended(jobs: Jobs, state: LoopState, due: float) -> None:
    """Remove the jobs that end now from the list."""
    first = state.present - state.running
    staying = first
    for place in range(first, state.present):
        job = jobs.present[place]
        if jobs.target[job] <= due:
            jobs.completion[job] = state.now
            jobs.remaining[job] = 0.0
            jobs.held[job] = 0.0
            state.events += 1
        else:
            jobs.present[staying] = job
            staying += 1
    state.running -= state.present - staying
    state.present = staying


@compiled
def _admit(jobs: Jobs, state: LoopState, sorted_by_size: bool) -> None:
    """Add the jobs that have arrived to the list: at its end, or in their place by size."""
    admitted = state.admitted
    new = state.arrived - admitted
    old = state.present
    if not sorted_by_size:
        for place in range(new):
            jobs.present[old + place] = jobs.by_arrival[admitted + place]
    else:
        # Merge two lists, largest first, from the back. Ties put the new job last.
        last_old, last_new = old - 1, state.arrived - 1
        for place in range(old + new - 1, -1, -1):
            if last_new < admitted:
                break
            newcomer = jobs.by_arrival[last_new]
            if last_old >= 0:
                job = jobs.present[last_old]
                if (
                    jobs.remaining[job] * jobs.estimate[job]
                    <= jobs.remaining[newcomer] * jobs.estimate[newcomer]
                ):
                    jobs.present[place] = job
                    last_old -= 1
                    continue
            jobs.present[place] = newcomer
            last_new -= 1
    state.present = old + new
    state.admitted = state.arrived


@compiled
def _sort(jobs: Jobs, present: int) -> None:
    """Sort the list by estimated size, largest first, by insertion: it is nearly sorted."""
    for place in range(1, present):
        job = jobs.present[place]
        size = jobs.remaining[job] * jobs.estimate[job]
        at = place
        while at > 0:
            before = jobs.present[at - 1]
            if jobs.remaining[before] * jobs.estimate[before] >= size:
                break
            jobs.present[at] = before
            at -= 1
        jobs.present[at] = job


@compiled
def _assign_servers(
    jobs: Jobs, rows: Rows, row: int, state: LoopState, by_rank: bool, resize_cost: float
) -> None:
    """Give all jobs their servers: by rank, from the last job in the list, or as decided."""
    present = state.present
    total = 0.0
    running = present
    if by_rank and present > 0:
        start, running = rows.start[row], rows.length[row]
        for rank in range(running):
            held = rows.held[start + rank]
            job = jobs.present[present - 1 - rank]
            _assign(jobs, job, held, rows.rate[start + rank], state.now, resize_cost)
            total += held
        if resize_cost > 0.0:
            for place in range(present - running):
                jobs.held[jobs.present[place]] = 0.0
    else:
        for place in range(present):
            held = jobs.decided_servers[place]
            job = jobs.present[place]
            _assign(jobs, job, held, jobs.decided_rates[place], state.now, resize_cost)
            total += held
    state.running = running
    state.present_at_decision = present
    state.held = total
    state.elapsed = 0.0


@inlined
def _assign(jobs: Jobs, job: int, held: float, rate: float, now: float, resize_cost: float) -> None:
    """Give a job its servers. If their number has changed, it pauses for ``resize_cost``."""
    wait = 0.0
    if resize_cost > 0.0 and held > 0.0:
        if jobs.started[job] != 0 and abs(held - jobs.held[job]) > SAME_SERVERS * held:
            jobs.paused_until[job] = now + resize_cost
        jobs.started[job] = 1
        wait = max(jobs.paused_until[job] - now, 0.0)
    jobs.held[job] = held
    jobs.rate[job] = rate
    jobs.target[job] = wait + jobs.remaining[job] / rate if rate > 0.0 else inf
