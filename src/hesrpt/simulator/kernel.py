"""The general event loop, compiled. It serves every policy.

It runs from event to event: arrivals, departures, reviews. Each event leads to a new decision on
the servers of all jobs, which comes from one of three sources:

- a table of *rows*, if decisions depend only on the number of jobs and on their order. If a row is
  missing, the loop returns to its caller, which adds it and calls again.
- a compiled *rule*, such as that of a policy for jobs that differ. Most rules list the jobs by a
  key, such as what remains of them. The lists are kept from event to event, so that they are nearly
  sorted.
- the *caller*: the loop returns for each decision.

If the policy is calibrated, the loop also keeps the sums of
:class:`hesrpt.policies.calibration.Calibration`. What a run does not need is None, ``rule`` or
``calibration``, and numba compiles a loop without it.

Policies whose rates are products have a loop of their own, which is much faster:
:mod:`hesrpt.simulator.ranked_kernel`.
"""

from __future__ import annotations

from math import inf, log
from typing import Any, NamedTuple, Protocol

import hesrpt.policies.calibration_kernel as formulas
from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled, inlined
from hesrpt.policies.calibration_kernel import LEVELS
from hesrpt.simulator.rules_kernel import Decisions, JobFacts, decide, sort_by_key
from hesrpt.speedups.shape_kernel import POWER, Shapes, find_rate

# Why the loop has returned.
DONE, NEEDS_ROW, NEEDS_DECISION, PAUSED, STARVED, STOPPED, TOO_MANY_SERVERS = range(7)
# Stages of a decision: an event has happened, the list of jobs is up to date, the caller has
# decided, the servers are assigned.
CHANGED, LISTED, DECIDED, ASSIGNED = range(4)

# Departures closer together than this, relative to the time, are simultaneous.
SAME_TIME = 1e-14
# A job whose servers change by no more than this part is not resized: prices are not more exact.
SAME_SERVERS = 1e-10
# A policy that serves no job at this many reviews in a row never will.
MAX_IDLE_REVIEWS = 1000

# Plain functions, compiled here.
sum_work = inlined(formulas.sum_work)
count_end = inlined(formulas.count_end)
raise_focus = inlined(formulas.raise_focus)
compare_sizes = inlined(formulas.compare_sizes)
scale_level = inlined(formulas.scale_level)
update_focus = inlined(formulas.update_focus)
weigh_size = inlined(formulas.weigh_size)


class Jobs(NamedTuple):
    """The jobs; arrays are in the order of the workload unless stated otherwise."""

    arrivals: FloatArray
    remaining: FloatArray  # work that remained at the last decision
    estimate: FloatArray  # the size that the policy sees, relative to the true one
    completion: FloatArray
    target: FloatArray  # when the job ends, counted from the last decision
    rate: FloatArray  # since the last decision
    held: FloatArray  # servers, since the last decision
    resizes: IntArray  # changes of its servers; -1 before it has held any
    paused_until: FloatArray  # the end of the pause that follows a change of servers
    by_arrival: IntArray  # the jobs as they arrive; of simultaneous ones, the largest first
    present: IntArray  # the jobs in the system, at the front of this array
    decided_servers: FloatArray  # the caller's decision: the servers of the jobs present …
    decided_rates: FloatArray  # … and their rates
    key: FloatArray  # for sorting: minus the size that the policy sees …
    tie: IntArray  # … and, for equal sizes, the order of the list
    scratch: IntArray


class Rows(NamedTuple):
    """Servers and rates by rank; row m, for m jobs, starts at ``start[m]``.

    A row starts with the last job in the list. Jobs that it does not reach hold nothing. If rows
    depend on a calibration, the ``room`` rows of each level follow those of the level below.
    """

    room: int
    start: IntArray
    length: IntArray  # 0 if the row is missing
    held: FloatArray
    rate: FloatArray


class Counts(NamedTuple):
    """The server time of each job, if it is counted."""

    most_servers: FloatArray
    server_seconds: FloatArray
    server_seconds_beyond: FloatArray  # … of the servers beyond those that it asked for
    server_seconds_lost: FloatArray  # … while the job paused after a resize
    requested: FloatArray


class Settings(Protocol):
    """Settings, which stay the same during a run."""

    by_rank: bool  # decisions come from the table of rows, not from the caller
    sorted_by_size: bool  # the list of jobs is sorted, largest first
    keeps_order: bool  # running jobs cannot overtake each other in that order
    counts_servers: bool  # whether server time is counted
    tracks_resizes: bool  # whether anything depends on changes of servers
    max_servers: float
    resize_cost: float
    review_every: float
    stop_at: float
    max_job_seconds: float  # stop after this many
    max_events: int  # return to the caller after this many


class LoopState(Protocol):
    """The state of the loop apart from the jobs."""

    stage: int
    present: int  # jobs in the system
    running: int  # jobs that may hold servers, at the end of the list
    arrived: int
    admitted: int  # jobs that have arrived and are in the list, or have left it
    events: int
    idle_reviews: int  # reviews in a row at which the policy served no job
    now: float
    until_end: float  # from the last decision to the next departure
    held: float  # servers, at the last decision
    next_review: float
    server_seconds: float
    job_seconds: float  # the number of jobs in the system, integrated over time


class CalibrationData(NamedTuple):
    """All of a calibration."""

    #: Of each job: spread, lean and height, what a unit of work counts, and ln of its size.
    samples: FloatArray
    weight: FloatArray  # of each job; empty if each counts 1
    log_rank: FloatArray  # ln 0 (unused), ln 1, ln 2, …
    sums: Any  # an array with one record: see :class:`hesrpt.policies.calibration_kernel.Sums`
    estimates: FloatArray  # sums that tell how good estimates of sizes are


@compiled
def run(
    jobs: Jobs,
    rows: Rows,
    counts: Counts,
    state_array: list[LoopState],
    settings_array: list[Settings],
    rule: Decisions | None,
    calibration: CalibrationData | None,
) -> int:
    """Run until there is a reason to return to the caller, and return that reason.

    State and settings are arrays with one record.
    """
    state, settings = state_array[0], settings_array[0]
    total = jobs.by_arrival.size
    last_event = state.events + settings.max_events
    while True:
        # --- decide -----------------------------------------------------------------------------
        if state.stage != ASSIGNED:
            level = 0
            if calibration is not None:
                if state.stage == CHANGED:
                    differ = False
                    if rule is not None:
                        differ = not rule.settings[0].shares_speedup
                    _choose_level(jobs, state, calibration, differ)
                level = scale_level(calibration.sums[0].level, calibration.estimates)
            if state.stage == CHANGED:
                if rule is not None:
                    _add_to_lists(jobs, rule.facts, state)
                _admit(jobs, state, settings.sorted_by_size)
                if settings.sorted_by_size and not settings.keeps_order:
                    _sort(jobs, state.present)
                state.stage = LISTED
            if rule is not None:
                if state.present > 0:
                    focus = rule.settings[0].focus
                    if calibration is not None:
                        focus = (level / LEVELS) ** 2
                    for place in range(state.present):
                        job = jobs.present[place]
                        rule.facts.seen[job] = jobs.remaining[job] * jobs.estimate[job]
                    if rule.settings[0].has_losses:
                        _find_losses(jobs, rule.facts, rule.shapes, state, settings.resize_cost)
                    decide(jobs.present, state.present, rule, focus)
                _assign_by_rule(jobs, rule.facts, rule.shapes, state, settings)
            else:
                row = level * rows.room + state.present
                if state.present > 0 and settings.by_rank and rows.length[row] == 0:
                    return NEEDS_ROW
                if state.present > 0 and not settings.by_rank and state.stage != DECIDED:
                    return NEEDS_DECISION
                _assign_servers(jobs, rows, row, state, settings)
            if not state.held <= settings.max_servers:
                return TOO_MANY_SERVERS
            state.stage = ASSIGNED

        # --- find the next event ----------------------------------------------------------------
        present = state.present
        first = present - state.running
        departs = state.now + state.until_end
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
        if now > settings.stop_at or state.job_seconds > settings.max_job_seconds:
            return STOPPED
        if state.events >= last_event:
            return PAUSED

        # --- advance to it ----------------------------------------------------------------------
        passed = now - state.now
        state.job_seconds += present * passed
        state.server_seconds += state.held * passed
        if settings.counts_servers:
            _count_servers(jobs, counts, first, present, state.now, now)
        state.now = now
        due = -inf
        if now == departs:
            passed = state.until_end
            due = passed + SAME_TIME * (now + passed)
        if calibration is not None and present > 0:
            if rule is None:
                _observe(jobs, calibration, jobs.present, first, present, 1, passed, due)
            else:
                _observe(jobs, calibration, rule.facts.order, present - 1, -1, -1, passed, due)
        _serve(jobs, first, present, passed)
        if now == departs:
            if rule is not None:
                _remove_from_lists(jobs, rule.facts, present, due)
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


# --- the list of jobs -----------------------------------------------------------------------------


@inlined
def _serve(jobs: Jobs, first: int, present: int, passed: float) -> None:
    """Compute what remains of running jobs after some time."""
    for place in range(first, present):
        job = jobs.present[place]
        # The target of a paused job includes its pause, in which no work is done.
        if jobs.rate[job] > 0.0:
            to_target = max(jobs.target[job] - passed, 0.0) * jobs.rate[job]
            jobs.remaining[job] = min(jobs.remaining[job], to_target)


@inlined
def _count_servers(
    jobs: Jobs, counts: Counts, first: int, present: int, since: float, now: float
) -> None:
    """Add the server time of running jobs since the last event."""
    for place in range(first, present):
        job = jobs.present[place]
        servers = jobs.held[job]
        if servers > 0.0:
            counts.most_servers[job] = max(counts.most_servers[job], servers)
            counts.server_seconds[job] += servers * (now - since)
            beyond = max(servers - counts.requested[job], 0.0)
            counts.server_seconds_beyond[job] += beyond * (now - since)
            paused = max(min(now, jobs.paused_until[job]) - since, 0.0)
            counts.server_seconds_lost[job] += servers * paused


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


@inlined
def _sort(jobs: Jobs, present: int) -> None:
    """Sort the list by estimated size, largest first."""
    for place in range(present):
        job = jobs.present[place]
        jobs.key[job] = -jobs.remaining[job] * jobs.estimate[job]
    sort_by_key(jobs.present, present, jobs.key, jobs.tie, jobs.scratch)


@inlined
def _add_to_lists(jobs: Jobs, facts: JobFacts, state: LoopState) -> None:
    """Add the jobs that have arrived to the ends of the rule's lists."""
    place = state.present
    for number in range(state.admitted, state.arrived):
        facts.order[place] = facts.by_knee[place] = jobs.by_arrival[number]
        place += 1


@inlined
def _remove_from_lists(jobs: Jobs, facts: JobFacts, present: int, due: float) -> None:
    """Remove the jobs that end now from the rule's lists."""
    ordered = by_knee = 0
    for place in range(present):
        job = facts.order[place]
        if jobs.target[job] > due:
            facts.order[ordered] = job
            ordered += 1
        job = facts.by_knee[place]
        if jobs.target[job] > due:
            facts.by_knee[by_knee] = job
            by_knee += 1


# --- decisions ------------------------------------------------------------------------------------


@inlined
def _find_losses(
    jobs: Jobs, facts: JobFacts, shapes: Shapes, state: LoopState, cost: float
) -> None:
    """Find what resizes would cost each job, as :func:`hesrpt.policies.pricing.count_resizes`."""
    first_end = inf
    for place in range(state.present):
        job = jobs.present[place]
        facts.now[job], facts.loss[job] = jobs.held[job], inf
        if jobs.held[job] > 0.0:
            rate = find_rate(shapes.records[shapes.of_job[job]], shapes.corners, jobs.held[job])
            facts.loss[job] = facts.seen[job] / rate
            first_end = min(first_end, facts.loss[job])
    lasts = 4.0 * cost + first_end / 4.0
    for place in range(state.present):
        job = jobs.present[place]
        until_end = facts.loss[job]
        facts.loss[job] = 0.0
        if jobs.resizes[job] >= 0:
            facts.loss[job] = 1.0 if until_end <= cost else cost / min(lasts, until_end)


@compiled
def _assign_servers(jobs: Jobs, rows: Rows, row: int, state: LoopState, settings: Settings) -> None:
    """Give all jobs their servers: by rank, from the last job in the list, or as decided."""
    present = state.present
    total, until_end = 0.0, inf
    running = present
    if settings.by_rank and present > 0:
        start, running = rows.start[row], rows.length[row]
        for rank in range(running):
            held = rows.held[start + rank]
            job = jobs.present[present - 1 - rank]
            _assign(jobs, job, held, rows.rate[start + rank], state.now, settings)
            until_end = min(until_end, jobs.target[job])
            total += held
        if settings.tracks_resizes:
            for place in range(present - running):
                jobs.held[jobs.present[place]] = 0.0
    else:
        for place in range(present):
            held = jobs.decided_servers[place]
            job = jobs.present[place]
            _assign(jobs, job, held, jobs.decided_rates[place], state.now, settings)
            until_end = min(until_end, jobs.target[job])
            total += held
    state.running = running
    state.held = total
    state.until_end = until_end


@inlined
def _assign_by_rule(
    jobs: Jobs, facts: JobFacts, shapes: Shapes, state: LoopState, settings: Settings
) -> None:
    """Give all jobs the servers that the rule has decided on."""
    records, of_job, corners = shapes.records, shapes.of_job, shapes.corners
    total, until_end = 0.0, inf
    for place in range(state.present):
        job = jobs.present[place]
        held = facts.held[job]
        rate = 0.0
        if held > 0.0:
            shape = records[of_job[job]]
            if shape.family == POWER and shape.low <= held < shape.high and not shape.is_whole:
                rate = held**shape.parameter  # the most frequent case, without a call
            else:
                rate = find_rate(shape, corners, held)
        _assign(jobs, job, held, rate, state.now, settings)
        until_end = min(until_end, jobs.target[job])
        total += held
    state.running = state.present
    state.held = total
    state.until_end = until_end


@inlined
def _assign(jobs: Jobs, job: int, held: float, rate: float, now: float, settings: Settings) -> None:
    """Give a job its servers. If their number has changed, it pauses, except at its start."""
    wait = 0.0
    if settings.tracks_resizes and held > 0.0:
        if abs(held - jobs.held[job]) > SAME_SERVERS * held:
            jobs.resizes[job] += 1
            if jobs.resizes[job] > 0:
                jobs.paused_until[job] = now + settings.resize_cost
        wait = max(jobs.paused_until[job] - now, 0.0)
    jobs.held[job] = held
    jobs.rate[job] = rate
    jobs.target[job] = wait + jobs.remaining[job] / rate if rate > 0.0 else inf


# --- learning -------------------------------------------------------------------------------------


@compiled
def _choose_level(jobs: Jobs, state: LoopState, calibration: CalibrationData, differ: bool) -> None:
    """Choose the level after an event, and weigh the jobs that have arrived."""
    sums, first, end = calibration.sums[0], state.admitted, state.arrived
    if end == first:
        raise_focus(sums)
        return
    weight = calibration.weight
    total = float(state.present + end - first)
    if weight.size > 0:
        total = 0.0
        for place in range(state.present):
            total += weight[jobs.present[place]]
        for number in range(first, end):
            total += weight[jobs.by_arrival[number]]
    sums.jobs_seen += end - first
    for number in range(first, end):
        job = jobs.by_arrival[number]
        sums.log_sizes += log(jobs.remaining[job] * jobs.estimate[job])
    usual = sums.log_sizes / sums.jobs_seen
    for number in range(first, end):
        job = jobs.by_arrival[number]
        log_size = log(jobs.remaining[job] * jobs.estimate[job])
        calibration.samples[job, 4] = log(jobs.remaining[job])
        calibration.samples[job, 3] = weigh_size(log_size, usual) / jobs.remaining[job]
    update_focus(sums, state.present, end - first, log(total), differ)


@compiled
def _observe(
    jobs: Jobs,
    calibration: CalibrationData,
    listed: IntArray,
    first: int,
    end: int,
    step: int,
    passed: float,
    due: float,
) -> None:
    """Add the work done in a phase, and count the jobs that end with it: those with targets due.

    From ``first`` to ``end`` in steps, the list has the jobs from the last to end to the first. If
    each counts 1, larger ones that do not run may be before them.
    """
    sums, weight, samples = calibration.sums[0], calibration.weight, calibration.samples
    is_counted = weight.size == 0
    rank, total = 0, 0.0
    if step > 0:
        rank = first
    if is_counted:
        log_jobs = calibration.log_rank[rank + abs(end - first)]
    else:
        for place in range(first, end, step):
            total += weight[listed[place]]
        log_jobs = log(total)
    up_to, ends = 0.0, 0
    for place in range(first, end, step):
        job = listed[place]
        rank += 1
        if not is_counted:
            up_to += weight[job]
        if jobs.rate[job] <= 0.0:
            continue
        done = jobs.remaining[job]
        if jobs.target[job] > due:
            to_target = max(jobs.target[job] - passed, 0.0) * jobs.rate[job]
            done -= min(done, to_target)
        else:
            ends += 1
        if is_counted:
            log_rank = calibration.log_rank[rank]
        else:
            log_rank = log(up_to) if up_to < total else log_jobs
        sample = samples[job]
        spread, lean, height = sum_work(done * sample[3], log_rank, log_jobs, sums.usual)
        sample[0] += spread
        sample[1] += lean
        sample[2] += height
    if ends == 0:
        return
    for place in range(end - step, first - step, -step):
        job = listed[place]
        if jobs.target[job] <= due:
            if is_counted:
                log_jobs = calibration.log_rank[rank]
                rank -= 1
            else:
                log_jobs = log(max(total, weight[job]))
                total -= weight[job]
            count_end(sums, samples[job, 0], samples[job, 1], samples[job, 2], log_jobs)
            log_size, usual = samples[job, 4], sums.log_sizes / sums.jobs_seen
            given, weight_of_size = log_size + log(jobs.estimate[job]), weigh_size(log_size, usual)
            compare_sizes(calibration.estimates, given, log_size, weight_of_size)
