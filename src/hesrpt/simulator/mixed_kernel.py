"""The event loop for jobs that differ, compiled: a rule decides on the servers of each job.

It runs as the loop of :mod:`hesrpt.simulator.kernel` does, from event to event, but never returns
to its caller for a decision. Apart from the search for prices and values, an event takes a time in
proportion to the number of jobs in the system.

Most rules list the jobs by a key, such as what remains of them. The list is kept from event to
event, so that it is nearly sorted.

If the focus of the rule is calibrated, the loop also keeps the sums of
:class:`hesrpt.policies.calibration.Calibration`.
"""

from __future__ import annotations

from math import inf, log

from hesrpt.compiled import compiled, inlined
from hesrpt.simulator.calibration_kernel import choose_level, observe_arrivals
from hesrpt.simulator.kernel import (
    ASSIGNED,
    CHANGED,
    DONE,
    PAUSED,
    PHASES_FULL,
    SAME_SERVERS,
    SAME_TIME,
    STARVED,
    STOPPED,
    TOO_MANY_SERVERS,
)
from hesrpt.simulator.kernel_data import Jobs, LoopState, Phases, Settings
from hesrpt.simulator.mixed_calibration_kernel import observe_phase, sum_weights
from hesrpt.simulator.mixed_decision_kernel import decide
from hesrpt.simulator.mixed_kernel_data import Decisions, MixedJobs
from hesrpt.speedups.shape_kernel import find_rate
from hesrpt.speedups.shape_kernel_data import POWER, Shapes


@compiled
def run(
    jobs: Jobs,
    decisions: Decisions,
    phases: Phases,
    state_array: list[LoopState],
    settings_array: list[Settings],
) -> int:
    """Run until there is a reason to return to the caller, and return that reason.

    State and settings are arrays with one record.
    """
    state, settings, rule = state_array[0], settings_array[0], decisions.rule[0]
    mixed, shapes, calibration = decisions.jobs, decisions.shapes, decisions.calibration
    total = jobs.by_arrival.size
    last_event = state.events + settings.max_events
    while True:
        # --- decide -----------------------------------------------------------------------------
        if state.stage != ASSIGNED:
            if rule.is_calibrated:
                _choose_focus(jobs, decisions, state)
            _admit(jobs, mixed, state)
            if state.present > 0:
                decide(jobs, decisions, state.present)
            _assign_servers(jobs, mixed, shapes, state, settings.resize_cost)
            if not state.held <= settings.max_servers:
                return TOO_MANY_SERVERS
            state.stage = ASSIGNED

        # --- find the next event ----------------------------------------------------------------
        present = state.present
        until_end = inf
        for place in range(present):
            until_end = min(until_end, jobs.target[jobs.present[place]])
        departs = state.now + until_end
        arrives = jobs.arrivals[jobs.by_arrival[state.arrived]] if state.arrived < total else inf
        now = min(departs, arrives)
        if now == inf:
            return DONE if present == 0 else STARVED
        if now > settings.stop_at:
            return STOPPED
        if settings.recording and (
            state.phases + 2 > phases.ends.size or state.entries + present > phases.job.size
        ):
            return PHASES_FULL
        if state.events >= last_event:
            return PAUSED

        # --- advance to it ----------------------------------------------------------------------
        if settings.recording:
            for place in range(present):
                job = jobs.present[place]
                phases.job[state.entries] = job
                phases.held[state.entries] = jobs.held[job]
                state.entries += 1
            phases.ends[state.phases] = now
            phases.start[state.phases + 1] = state.entries
            state.phases += 1
        state.allocations += present
        passed = now - state.now
        state.job_seconds += present * passed
        state.server_seconds += state.held * passed
        state.now = now
        if now == departs:
            passed = until_end
        due = passed + SAME_TIME * (now + passed) if now == departs else -inf
        if rule.is_calibrated and present > 0:
            observe_phase(jobs, mixed, calibration, present, passed, due)
        _serve(jobs, passed, state.present)
        if now == departs:
            _remove_ended(jobs, mixed, due, state)
        while state.arrived < total and jobs.arrivals[jobs.by_arrival[state.arrived]] <= now:
            state.arrived += 1
            state.events += 1
        state.stage = CHANGED


@inlined
def _choose_focus(jobs: Jobs, decisions: Decisions, state: LoopState) -> None:
    """Choose the level of the focus after an event, before new jobs are admitted."""
    calibration = decisions.calibration
    if state.arrived > state.admitted:
        weight = sum_weights(jobs.present, decisions.jobs, 0, state.present)
        weight += sum_weights(jobs.by_arrival, decisions.jobs, state.admitted, state.arrived)
        observe_arrivals(jobs, state, calibration, log(weight))
    else:
        choose_level(state.arrived, calibration.state[0], calibration.settings[0])


@inlined
def _serve(jobs: Jobs, passed: float, present: int) -> None:
    """Compute what remains of the jobs after some time."""
    for place in range(present):
        job = jobs.present[place]
        # The target of a paused job includes its pause, in which no work is done.
        if jobs.rate[job] > 0.0:
            to_target = max(jobs.target[job] - passed, 0.0) * jobs.rate[job]
            jobs.remaining[job] = min(jobs.remaining[job], to_target)


@inlined
def _remove_ended(jobs: Jobs, mixed: MixedJobs, due: float, state: LoopState) -> None:
    """Remove the jobs that end now from the lists."""
    staying = ordered = planned = 0
    for place in range(state.present):
        job = jobs.present[place]
        if jobs.target[job] <= due:
            jobs.completion[job] = state.now
            jobs.remaining[job] = 0.0
            jobs.held[job] = 0.0
            state.events += 1
        else:
            jobs.present[staying] = job
            staying += 1
    for place in range(state.present):
        job = mixed.order[place]
        if jobs.target[job] > due:
            mixed.order[ordered] = job
            ordered += 1
        job = mixed.planned[place]
        if jobs.target[job] > due:
            mixed.planned[planned] = job
            planned += 1
    state.present = state.running = staying


@inlined
def _admit(jobs: Jobs, mixed: MixedJobs, state: LoopState) -> None:
    """Add the jobs that have arrived to the ends of the lists."""
    present = state.present
    for number in range(state.admitted, state.arrived):
        job = jobs.by_arrival[number]
        jobs.present[present] = mixed.order[present] = mixed.planned[present] = job
        present += 1
    state.present = state.running = present
    state.admitted = state.arrived


@inlined
def _assign_servers(
    jobs: Jobs, mixed: MixedJobs, shapes: Shapes, state: LoopState, resize_cost: float
) -> None:
    """Give all jobs the servers decided on. A job whose number changes pauses for a while."""
    records, of_job, corners = shapes.records, shapes.of_job, shapes.corners
    total = 0.0
    for place in range(state.present):
        job = jobs.present[place]
        held = mixed.held[job]
        wait = 0.0
        if resize_cost > 0.0 and held > 0.0:
            if jobs.started[job] != 0 and abs(held - jobs.held[job]) > SAME_SERVERS * held:
                jobs.paused_until[job] = state.now + resize_cost
            jobs.started[job] = 1
            wait = max(jobs.paused_until[job] - state.now, 0.0)
        rate = 0.0
        if held > 0.0:
            shape = records[of_job[job]]
            if shape.family == POWER and shape.low <= held < shape.high and not shape.is_whole:
                rate = held**shape.parameter  # the most frequent case, without a call
            else:
                rate = find_rate(shape, corners, held)
        jobs.held[job], jobs.rate[job] = held, rate
        jobs.target[job] = wait + jobs.remaining[job] / rate if rate > 0.0 else inf
        total += held
    state.held = total
