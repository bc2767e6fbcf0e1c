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
from hesrpt.optimal.recursion_kernel import Precision
from hesrpt.policies.calibration_kernel import LEVELS
from hesrpt.simulator.pricing_kernel import PriceSearch, share_by_price
from hesrpt.simulator.sharing_kernel import (
    JobFacts,
    Workspace,
    round_fairly,
    serve_in_order,
    share_by_rank,
    share_equally,
    share_up_to_knees,
    sort_by_key,
)
from hesrpt.simulator.valuing_kernel import Values, has_rising_weights, share_by_value
from hesrpt.speedups.shape_kernel import POWER, Shapes, find_rate

# Why the loop has returned.
DONE, NEEDS_ROW, NEEDS_DECISION, PAUSED, STARVED, STOPPED, PHASES_FULL, TOO_MANY_SERVERS = range(8)
# Stages of a decision: an event has happened, the list of jobs is up to date, the caller has
# decided, the servers are assigned.
CHANGED, LISTED, DECIDED, ASSIGNED = range(4)
#: Kinds of rules, as in :class:`hesrpt.policies.RuleKind`.
EQUAL, FIRST_COME, SMALLEST_FIRST, CLOSED_FORM, PRICE, VALUE, KNEE = range(7)

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
    started: IntArray  # whether the job has ever held servers
    paused_until: FloatArray  # the end of the pause that follows a change of servers
    by_arrival: IntArray  # the jobs as they arrive; of simultaneous ones, the largest first
    present: IntArray  # the jobs in the system, at the front of this array
    decided_servers: FloatArray  # the caller's decision: the servers of the jobs present …
    decided_rates: FloatArray  # … and their rates
    key: FloatArray  # for sorting: minus the size that the policy sees …
    tie: IntArray  # … and, for equal sizes, the order of the list
    scratch: IntArray


class Rows(NamedTuple):
    """Servers and rates by rank; row m, for m jobs, starts at ``start[m]``, or is missing at -1.

    A row starts with the last job in the list. Jobs that it does not reach hold nothing. If rows
    depend on a calibration, the ``room`` rows of each level follow those of the level below.
    """

    room: int
    start: IntArray
    length: IntArray
    held: FloatArray
    rate: FloatArray


class Phases(NamedTuple):
    """The jobs that held servers in each phase, and how many, if the run is recorded."""

    ends: FloatArray
    start: IntArray  # where the entries of a phase start
    job: IntArray
    held: FloatArray


class Settings(Protocol):
    """Settings, which stay the same during a run."""

    by_rank: bool  # decisions come from the table of rows, not from the caller
    sorted_by_size: bool  # the list of jobs is sorted, largest first
    keeps_order: bool  # running jobs cannot overtake each other in that order
    recording: bool
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
    phases: int  # recorded so far …
    entries: int  # … and their entries
    allocations: int  # running jobs, summed over phases
    now: float
    until_end: float  # from the last decision to the next departure
    held: float  # servers, at the last decision
    next_review: float
    server_seconds: float
    job_seconds: float  # the number of jobs in the system, integrated over time


class RuleSettings(Protocol):
    """The rule of the policy (:class:`hesrpt.policies.Rule`), and the system that it shares."""

    kind: int
    is_whole: bool
    shares_speedup: bool  # whether all jobs have the same speedup
    max_valued: int  # with more jobs than this, values take too long
    exponent: float  # of the closed form
    focus: float  # of the closed form or the price, if it is not calibrated
    alpha: float  # of KNEE …
    leftover: int  # … and what it does with servers beyond all knees
    servers: float
    max_slope: float  # of the speedup that all jobs share


class Decisions(NamedTuple):
    """All that a rule needs apart from the state of the loop."""

    facts: JobFacts
    shapes: Shapes
    deciding: Shapes  # the same speedups, but on whole servers if only those are assigned
    work: Workspace
    search: PriceSearch
    values: Values
    precision: Precision
    settings: Any  # an array with one record: see :class:`RuleSettings`


class CalibrationData(NamedTuple):
    """All of a calibration."""

    samples: FloatArray  # of each job: spread, lean and height, and what a unit of work counts
    weight: FloatArray  # of each job; empty if each counts 1
    log_rank: FloatArray  # ln 0 (unused), ln 1, ln 2, …
    sums: Any  # an array with one record: see :class:`hesrpt.policies.calibration_kernel.Sums`


@compiled
def run(
    jobs: Jobs,
    rows: Rows,
    phases: Phases,
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
    recording = settings.recording
    last_event = state.events + settings.max_events
    while True:
        # --- decide -----------------------------------------------------------------------------
        if state.stage != ASSIGNED:
            level = 0
            if calibration is not None:
                if state.stage == CHANGED:
                    _choose_level(jobs, state, calibration)
                level = calibration.sums[0].level
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
                    _decide(jobs, rule, state.present, focus)
                _assign_by_rule(jobs, rule.facts, rule.shapes, state, settings.resize_cost)
            else:
                row = level * rows.room + state.present if state.present < rows.room else -1
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
        facts.order[place] = facts.planned[place] = jobs.by_arrival[number]
        place += 1


@inlined
def _remove_from_lists(jobs: Jobs, facts: JobFacts, present: int, due: float) -> None:
    """Remove the jobs that end now from the rule's lists."""
    ordered = planned = 0
    for place in range(present):
        job = facts.order[place]
        if jobs.target[job] > due:
            facts.order[ordered] = job
            ordered += 1
        job = facts.planned[place]
        if jobs.target[job] > due:
            facts.planned[planned] = job
            planned += 1


# --- decisions ------------------------------------------------------------------------------------


@compiled
def _assign_servers(
    jobs: Jobs, rows: Rows, row: int, state: LoopState, by_rank: bool, resize_cost: float
) -> None:
    """Give all jobs their servers: by rank, from the last job in the list, or as decided."""
    present = state.present
    total, until_end = 0.0, inf
    running = present
    if by_rank and present > 0:
        start, running = rows.start[row], rows.length[row]
        for rank in range(running):
            held = rows.held[start + rank]
            job = jobs.present[present - 1 - rank]
            _assign(jobs, job, held, rows.rate[start + rank], state.now, resize_cost)
            until_end = min(until_end, jobs.target[job])
            total += held
        if resize_cost > 0.0:
            for place in range(present - running):
                jobs.held[jobs.present[place]] = 0.0
    else:
        for place in range(present):
            held = jobs.decided_servers[place]
            job = jobs.present[place]
            _assign(jobs, job, held, jobs.decided_rates[place], state.now, resize_cost)
            until_end = min(until_end, jobs.target[job])
            total += held
    state.running = running
    state.held = total
    state.until_end = until_end


@inlined
def _assign_by_rule(
    jobs: Jobs, facts: JobFacts, shapes: Shapes, state: LoopState, resize_cost: float
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
        _assign(jobs, job, held, rate, state.now, resize_cost)
        until_end = min(until_end, jobs.target[job])
        total += held
    state.running = state.present
    state.held = total
    state.until_end = until_end


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


@inlined
def _decide(jobs: Jobs, rule: Decisions, count: int, focus: float) -> None:
    """Decide on the servers of all jobs in the system as the rule's policy does, up to rounding."""
    facts, settings, work = rule.facts, rule.settings[0], rule.work
    kind, servers = settings.kind, settings.servers
    if kind == EQUAL:
        share_equally(jobs.present, count, facts, servers)
    elif kind == FIRST_COME:
        serve_in_order(jobs.present, count, facts, servers)
    elif kind in (PRICE, VALUE):
        listed = facts.order
        if kind == PRICE:
            _list_by_time(jobs, rule, count)
        is_priced = kind == PRICE and focus < 1.0
        if not is_priced:
            # As if no more jobs arrived: see hesrpt.policies.Optimal.
            listed = facts.planned
            _list_by_time_alone(jobs, rule, count)
            is_rising = settings.shares_speedup and has_rising_weights(listed, count, facts)
            if count <= settings.max_valued or is_rising:
                share_by_value(
                    listed,
                    count,
                    facts,
                    rule.deciding,
                    rule.values,
                    servers,
                    settings.max_slope,
                    rule.precision,
                    is_rising,
                )
            else:
                is_priced, focus = True, 1.0
        if is_priced:
            search, deciding = rule.search, rule.deciding
            share_by_price(
                listed, count, facts, deciding, search, servers, focus, settings.is_whole
            )
    else:
        for place in range(count):
            job = jobs.present[place]
            facts.key[job] = jobs.remaining[job] * jobs.estimate[job] / facts.weight[job]
        sort_by_key(facts.order, count, facts.key, facts.arrival_rank, work.scratch)
        if kind == SMALLEST_FIRST:
            serve_in_order(facts.order, count, facts, servers)
        elif kind == CLOSED_FORM:
            exponent = settings.exponent
            if focus != 1.0:  # see hesrpt.policies.adaptive.effective_exponent
                exponent = focus * exponent / (1.0 - exponent + focus * exponent)
            share_by_rank(facts.order, count, facts, servers, exponent, work.sums)
        elif kind == KNEE:
            share_up_to_knees(
                facts.order,
                count,
                facts,
                rule.shapes,
                servers,
                settings.alpha,
                settings.leftover,
                settings.is_whole,
                work,
            )
    if settings.is_whole:
        round_fairly(jobs.present, count, facts, servers, work)


@compiled
def _list_by_time(jobs: Jobs, rule: Decisions, count: int) -> None:
    """List jobs by the time that they take on a share that suits them, over their weight."""
    facts, shapes, settings = rule.facts, rule.shapes, rule.settings[0]
    total_gain = 0.0
    for place in range(count):
        total_gain += facts.gain[jobs.present[place]]
    for place in range(count):
        job = jobs.present[place]
        time = jobs.remaining[job] * jobs.estimate[job]
        if not settings.shares_speedup:
            share = settings.servers * facts.gain[job] / total_gain
            time /= find_rate(shapes.records[shapes.of_job[job]], shapes.corners, share)
        facts.key[job] = time / facts.weight[job]
    sort_by_key(facts.order, count, facts.key, facts.arrival_rank, rule.work.scratch)


@compiled
def _list_by_time_alone(jobs: Jobs, rule: Decisions, count: int) -> None:
    """List jobs by the time that they take alone on all servers, over their weight."""
    facts = rule.facts
    for place in range(count):
        job = jobs.present[place]
        time_alone = jobs.remaining[job] * jobs.estimate[job] / facts.fastest[job]
        facts.key[job] = time_alone / facts.weight[job]
    sort_by_key(facts.planned, count, facts.key, facts.arrival_rank, rule.work.scratch)


# --- learning -------------------------------------------------------------------------------------


@compiled
def _choose_level(jobs: Jobs, state: LoopState, calibration: CalibrationData) -> None:
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
        calibration.samples[job, 3] = weigh_size(log_size, usual) / jobs.remaining[job]
    update_focus(sums, state.present, end - first, log(total))


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


# --- counts ---------------------------------------------------------------------------------------


class Counts(NamedTuple):
    """What is counted for each job, and what is needed to continue with the next phases."""

    resizes: IntArray  # changes of the number of servers since the start, resumptions included
    most_servers: FloatArray
    server_seconds: FloatArray
    server_seconds_beyond: FloatArray  # … beyond a number of servers, one for each job
    server_seconds_lost: FloatArray  # … while the job paused after a resize
    held: FloatArray  # at the last phase in which the job was listed …
    listed: IntArray  # … and that phase, from 1; 0 if there was none
    paused_until: FloatArray


@compiled
def count_phases(
    recorded: Phases,
    phases: int,
    counted: int,
    now: float,
    resize_cost: float,
    beyond: FloatArray,
    counts: Counts,
) -> None:
    """Count more phases, given how many have been counted and when the last of these ended."""
    ends = recorded.ends
    for phase in range(phases):
        number = counted + phase + 1
        for entry in range(recorded.start[phase], recorded.start[phase + 1]):
            which, servers = recorded.job[entry], recorded.held[entry]
            if servers <= 0.0:
                continue
            before = counts.held[which] if counts.listed[which] == number - 1 else 0.0
            if counts.listed[which] > 0 and abs(servers - before) > SAME_SERVERS * servers:
                counts.resizes[which] += 1
                counts.paused_until[which] = now + resize_cost
            counts.listed[which] = number
            counts.held[which] = servers
            counts.most_servers[which] = max(counts.most_servers[which], servers)
            passed = ends[phase] - now
            counts.server_seconds[which] += servers * passed
            if servers > beyond[which]:
                counts.server_seconds_beyond[which] += (servers - beyond[which]) * passed
            paused = min(ends[phase], counts.paused_until[which]) - now
            if paused > 0.0:
                counts.server_seconds_lost[which] += servers * paused
        now = ends[phase]
