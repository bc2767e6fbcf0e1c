"""Simulates one policy on one workload, from event to event.

The loop itself is compiled (:mod:`hesrpt.simulator.kernel`). When it needs a row or a decision, it
returns to its caller here, which asks the policy and continues the loop. Policies whose rates are
products have a faster loop (:mod:`hesrpt.simulator.ranked_loop`). The timeline of a simulation runs
the same loop again, up to the times that it is asked about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import get_args

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import create_record
from hesrpt.errors import PolicyError
from hesrpt.objectives import weight_of_each_job
from hesrpt.optimal.recursion_kernel import EXACT
from hesrpt.optimal.response_kernel import COLUMNS
from hesrpt.parallel import stop_if_requested
from hesrpt.policies import RankedPolicy, Rule, RuleKind, State, as_ranked, find_rule, round_fairly
from hesrpt.policies.calibration_kernel import LEVELS, scale_level
from hesrpt.policies.optimal import MAX_VALUED
from hesrpt.policies.pricing import count_resizes
from hesrpt.policies.pricing_kernel import create_price_search
from hesrpt.policies.sharing import Leftover, usable_servers
from hesrpt.schedule import Timeline
from hesrpt.simulator import kernel, rules_kernel
from hesrpt.simulator.kernel import Counts, Jobs, LoopState, Rows, Settings
from hesrpt.simulator.ranked_loop import (
    RankedLoop,
    create_calibration,
    create_ranked_loop,
    find_arrival_order,
)
from hesrpt.simulator.rules_kernel import Decisions, JobFacts, RuleSettings, Values, Workspace
from hesrpt.simulator.runs import EVENTS_AT_A_TIME, Capacity, Outcome, Progress, Run, Tally
from hesrpt.speedups import SpeedupVector
from hesrpt.units import format_count
from hesrpt.workload import Workload

# Sums of servers may exceed N by this fraction, for rounding.
_ROUNDING = 1e-9
# The table of rows is emptied when it would grow beyond this many entries.
_MAX_ENTRIES = 1 << 24
# Rules of these kinds round shares of servers that could be divided.
_ROUNDED = RuleKind.EQUAL, RuleKind.CLOSED_FORM, RuleKind.KNEE


def create_loop(run: Run) -> GeneralLoop | RankedLoop:
    """Return the loop that executes this run, at its start."""
    return create_ranked_loop(run) or GeneralLoop(run)


class GeneralLoop:
    """The caller of the compiled loop, for one run."""

    def __init__(self, run: Run) -> None:
        self.config = run
        workload, policy, jobs = run.workload, run.policy, len(run.workload)
        # Rows and rules are for a number of servers that stays the same.
        counts_resizes = run.resize_cost > 0 and policy.counts_resizes
        rule = self.ranked = None
        if run.capacity is None and not counts_resizes:
            self.ranked = as_ranked(policy, workload.speedups)
        if self.ranked is None and run.capacity is None:
            rule = find_rule(policy, workload.speedups, run.whole)
        if rule is not None and rule.kind == RuleKind.CLOSED_FORM and counts_resizes:
            rule = replace(rule, kind=RuleKind.VALUE)
        by_size = self.ranked is not None and self.ranked.ranks_by_size(run.whole)
        self.is_exact = run.estimates is None
        estimates = np.ones(jobs) if run.estimates is None else run.estimates
        self.seen_sizes = workload.sizes if self.is_exact else workload.sizes * estimates
        self.weights = np.ones(jobs) if workload.weights is None else workload.weights
        self.speedups = workload.speedups.tabulate(run.servers)
        # With size errors or pauses, jobs may overtake each other in the order of sizes.
        keeps_order = self.is_exact and run.resize_cost == 0
        # Arrays that this run does not use take no space.
        tracks_resizes = run.tallying or run.resize_cost > 0
        tracked, counted = jobs if tracks_resizes else 1, jobs if run.tallying else 1
        decisions = jobs if self.ranked is None and rule is None else 1
        keys = jobs if by_size and not keeps_order else 0
        order = find_arrival_order(workload.arrivals, self.seen_sizes, by_size)
        order = np.arange(jobs) if order is None else order
        self.jobs = Jobs(
            arrivals=np.array(workload.arrival_times),
            remaining=np.array(workload.sizes),
            estimate=np.array(estimates),
            completion=np.full(jobs, np.nan),
            target=np.empty(jobs),
            rate=np.empty(jobs),
            held=np.zeros(jobs),
            resizes=np.full(tracked, -1),
            paused_until=np.zeros(tracked),
            by_arrival=order,
            present=np.empty(jobs, dtype=np.int64),
            decided_servers=np.empty(decisions),
            decided_rates=np.empty(decisions),
            key=np.empty(keys),
            tie=_invert(np.argsort(workload.arrival_times[:keys], kind="stable")[::-1]),
            scratch=np.empty(keys, dtype=np.int64),
        )
        is_learning = policy.is_calibrated and (self.ranked is not None or rule is not None)
        levels = LEVELS + 1 if is_learning and self.ranked is not None else 1
        self.table = _RowTable(self.ranked, jobs, levels)
        self.rule: Decisions | None = None
        weights = np.empty(0)
        if rule is not None:
            self.rule = _prepare_rule(rule, run, self.speedups, self.seen_sizes, order)
            weights = self.rule.facts.weight
            weights = weights[:0] if np.all(weights == 1) else weights
        self.calibration = create_calibration(jobs, weights) if is_learning else None
        self.before: State | None = None  # the state of the previous decision
        self.decision_times: list[float] = []
        asked = run.servers if workload.requested is None else workload.requested[:counted]
        most, seconds, beyond, lost = np.zeros((4, counted))
        self.counts = Counts(most, seconds, beyond, lost, np.full(counted, asked))
        review_every = inf if policy.review_every is None else float(policy.review_every)
        self.settings = create_record(
            Settings,
            by_rank=self.ranked is not None,
            sorted_by_size=by_size,
            keeps_order=keeps_order,
            counts_servers=run.tallying,
            tracks_resizes=tracks_resizes,
            max_servers=run.servers * (1 + _ROUNDING),
            resize_cost=run.resize_cost,
            review_every=review_every,
            max_job_seconds=run.max_flow_time,
            max_events=EVENTS_AT_A_TIME,
        )
        self.state = create_record(LoopState, next_review=review_every)
        # Views of the fields that each decision needs: looking them up by name is slower.
        self._stage, self._present = self.state["stage"], self.state["present"]
        self._now = self.state["now"]

    def execute(self, stop_at: float = inf, progress: Progress | None = None) -> Outcome:
        """Continue until all jobs have ended or until ``stop_at``, and return what happened."""
        self.settings["stop_at"] = stop_at
        while True:
            reason = kernel.run(
                self.jobs,
                self.table.rows,
                self.counts,
                self.state,
                self.settings,
                self.rule,
                self.calibration,
            )
            if reason == kernel.NEEDS_DECISION:
                self._decide()
            elif reason == kernel.NEEDS_ROW:
                self._add_row()
            elif reason == kernel.TOO_MANY_SERVERS:
                held, servers = float(self.state["held"][0]), self.config.servers
                raise self._error(f"assigns {held!r} servers, but there are {servers!r}")
            elif reason == kernel.STARVED:
                raise self._error("serves none of the remaining jobs, and never will")
            stop_if_requested()
            if progress is not None:
                progress(int(self.state["arrived"][0]), len(self.config.workload))
            if reason in (kernel.DONE, kernel.STOPPED):
                return self._outcome()

    def _outcome(self) -> Outcome:
        state, completion_times = self.state[0], self.jobs.completion
        running = self.jobs.present[state["present"] - state["running"] : state["present"]]
        held, remaining = np.zeros(len(completion_times)), self.jobs.remaining.copy()
        held[running] = self.jobs.held[running]
        # The run may have stopped between two events.
        passed = float(self.settings["stop_at"][0] - state["now"]) if len(running) else 0.0
        if 0 < passed < inf:
            rates = self.jobs.rate[running]
            is_served = rates > 0  # the others never reach their target
            served = running[is_served]
            to_go = np.maximum(self.jobs.target[served] - passed, 0.0) * rates[is_served]
            remaining[served] = np.minimum(remaining[served], to_go)
        else:
            passed = 0.0
        resizes, seconds = np.maximum(self.jobs.resizes, 0), self.counts[:4]
        return Outcome(
            completion_times=completion_times,
            events=int(state["events"]),
            server_seconds=float(state["server_seconds"] + state["held"] * passed),
            job_seconds=float(state["job_seconds"]),
            held=held,
            remaining=remaining,
            tally=Tally(resizes, *seconds) if self.config.tallying else None,
            decision_times=tuple(self.decision_times),
        )

    def _add_row(self) -> None:
        speedup = self.speedups.shared
        assert self.ranked is not None
        assert speedup is not None
        present, run = int(self._present[0]), self.config
        policy, level = self.ranked, 0
        if self.calibration is not None:
            level = scale_level(int(self.calibration.sums["level"][0]), self.calibration.estimates)
            policy = policy.at_level(level)
        row = policy.row(present, run.servers, speedup, run.whole)
        self._check(row)
        self.table.add(present, row, speedup.rate(row), level)

    def _decide(self) -> None:
        run, jobs = self.config, self.jobs
        present = int(self._present[0])
        listed = jobs.present[:present].copy()
        remaining = jobs.remaining[listed]
        if not self.is_exact:
            remaining = remaining * jobs.estimate[listed]
        speedups = self.speedups.take(listed)
        servers = run.servers
        if run.capacity is not None:
            servers = self._follow_capacity(run.capacity)
        now = float(self._now[0])
        self.decision_times.append(now)
        # Positional arguments save half a microsecond here.
        state = State(
            now,
            servers,
            run.whole,
            listed,
            remaining,
            self.seen_sizes[listed],
            jobs.arrivals[listed],
            self.weights[listed],
            speedups,
        )
        if not self.is_exact:
            state.attained = run.workload.sizes[listed] - jobs.remaining[listed]
            if self.before is not None:
                before = self.before.jobs
                ended = before[~np.isnan(jobs.completion[before])]
                state.ended_sizes = run.workload.sizes[ended]
        if run.resize_cost > 0:
            costs = np.where(jobs.resizes[listed] >= 0, run.resize_cost, 0.0)
            state.resizes = count_resizes(speedups, remaining, jobs.held[listed], costs)
        try:
            state.calibration = run.policy.calibrate(self.before, state)
            if state.calibration is not None:
                self.before = state
            decision = run.policy(state) if servers > 0 else np.zeros(present)
        except Exception as error:
            error.add_note(f"in policy {run.policy.name} at time {state.time:.6g}")
            raise
        held = np.asarray(decision)
        if held.dtype.kind not in "fiub":
            raise self._error(f"returned {decision!r}, but must return an array of numbers")
        if held.shape != remaining.shape:
            raise self._error(
                f"returned an array of shape {held.shape}, but must return one number for each of "
                f"the {format_count(present, 'job')}"
            )
        self._check(held)
        if not held.sum() <= servers * (1 + _ROUNDING):
            raise self._error(f"assigns {float(held.sum())!r} servers, but there are {servers!r}")
        if run.whole:
            held = round_fairly(held, servers)
        elif held.dtype.kind != "f":
            held = held.astype(np.float64)
        np.maximum(held, 0.0, out=jobs.decided_servers[:present])  # rounding errors may be negative
        # Calling a shared speedup directly saves a microsecond.
        rate = speedups.rate if speedups.shared is None else speedups.shared.rate
        jobs.decided_rates[:present] = rate(jobs.decided_servers[:present])
        self._stage[0] = kernel.DECIDED

    def _follow_capacity(self, capacity: Capacity) -> float:
        """Return the servers that are left now, and let the loop decide again when they change."""
        now = float(self._now[0])
        self.state["next_review"] = min(
            float(self.state["next_review"][0]), capacity.next_change(now)
        )
        return capacity.at(now)

    def _check(self, held: FloatArray) -> None:
        """Raise an error if a job's servers are negative or NaN."""
        if not held.min() >= -_ROUNDING * self.config.servers:
            bad = ~(held >= -_ROUNDING * self.config.servers)
            place = int(np.argmax(bad))
            raise self._error(
                f"returned {float(held[place])!r} for job {place} of the {len(held)} in the "
                "system, but must return at least 0"
            )

    def _error(self, problem: str) -> PolicyError:
        time = float(self._now[0])
        return PolicyError(f"policy {self.config.policy.name} at time {time:.6g} {problem}")


class _RowTable:
    """A table that grows as the loop asks for rows, which it reads from ``rows``.

    A policy that is calibrated has rows for each of several levels.
    """

    def __init__(self, policy: RankedPolicy | None, jobs: int, levels: int) -> None:
        self._entries = 0
        self._serves_first_only = policy is not None and policy.serves_first_only
        room = 0 if policy is None else jobs + 1
        # Zeros take no space before they are changed.
        start, length = np.zeros((2, levels * room), dtype=np.int64)
        self.rows = Rows(room, start, length, held=np.empty(64), rate=np.empty(64))

    def add(self, jobs: int, held: FloatArray, rate: FloatArray, level: int) -> None:
        """Add the row for this number of jobs, at this level."""
        if self._entries + len(held) > _MAX_ENTRIES:
            self.rows.length[:] = 0
            self._entries = 0
        end = self._entries + len(held)
        if (missing := end - len(self.rows.held)) > 0:
            more = np.empty(max(missing, len(self.rows.held)))
            self.rows = self.rows._replace(
                held=np.concatenate((self.rows.held, more)),
                rate=np.concatenate((self.rows.rate, more)),
            )
        self.rows.held[self._entries : end] = held
        self.rows.rate[self._entries : end] = rate
        same: int | slice = level * self.rows.room + jobs  # the numbers of this row
        if self._serves_first_only and len(held) < jobs:
            same = slice(len(held), None)
        self.rows.start[same], self.rows.length[same] = self._entries, len(held)
        self._entries = end


def _prepare_rule(
    rule: Rule, run: Run, speedups: SpeedupVector, sizes: FloatArray, by_arrival: IntArray
) -> Decisions:
    """Return what a rule needs to decide on jobs with these sizes, as the policy sees them."""
    jobs, servers, whole = len(run.workload), run.servers, run.whole
    deciding = speedups.on_whole_servers() if whole and rule.kind not in _ROUNDED else speedups
    usable = usable_servers(deciding, servers, jobs)
    # Arrays that this rule does not use take no space.
    planned = jobs if rule.kind == RuleKind.VALUE else 0
    shapes = speedups.shapes(servers)
    shared = deciding.shared

    def numbers(count: int = planned) -> FloatArray:
        return np.empty(count)

    def places(count: int = jobs) -> IntArray:
        return np.empty(count, dtype=np.int64)

    return Decisions(
        facts=JobFacts(
            usable=usable,
            weight=np.array(weight_of_each_job(rule.objective, sizes, run.workload.weights)),
            fastest=deciding.rate(usable) if planned else numbers(),
            arrival_rank=_invert(by_arrival),
            seen=numbers(jobs),
            now=np.zeros(jobs),
            loss=np.zeros(jobs),
            key=numbers(jobs),
            held=numbers(jobs),
            order=places(),
            by_knee=places(),
        ),
        shapes=shapes,
        deciding=deciding.shapes(servers, tabulated=True) if planned else shapes,
        work=Workspace(numbers(jobs), numbers(jobs), places(), places()),
        search=create_price_search(planned),
        values=Values(
            line=np.empty((planned, COLUMNS)),
            listed=places(planned),
            known=np.zeros(1, dtype=np.int64),
            price_by_weight=np.zeros(planned),
            held=numbers(),
            rates=numbers(),
        ),
        precision=EXACT,
        settings=create_record(
            RuleSettings,
            kind=getattr(rules_kernel, rule.kind.name),
            is_whole=whole,
            shares_speedup=shared is not None,
            max_valued=MAX_VALUED,
            exponent=rule.exponent or 0.0,
            focus=1.0 if rule.focus is None else rule.focus,
            alpha=rule.alpha,
            leftover=get_args(Leftover).index(rule.leftover),
            servers=servers,
            has_losses=run.resize_cost > 0,
            max_slope=np.inf if shared is None else shared.max_slope(),
        ),
    )


def _invert(order: IntArray) -> IntArray:
    """Return the place of each entry in a permutation."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


class SimulatedTimeline(Timeline):
    """The allocations of a simulation: its loop runs again, up to the times that are asked for."""

    def __init__(self, run: Run, outcome: Outcome) -> None:
        self.run = run
        self._completion_times, self._server_seconds = (
            outcome.completion_times,
            outcome.server_seconds,
        )
        self._decision_times = outcome.decision_times

    @cached_property
    def ends(self) -> FloatArray:  # type: ignore[override]
        arrivals = self.run.workload.arrival_times
        times = np.concatenate((arrivals, self._completion_times, self._decision_times))
        return np.unique(times[times > 0])

    def _run_up_to(self, times: FloatArray) -> Iterator[Outcome]:
        loop = create_loop(self.run)
        for time in times.tolist():
            yield loop.execute(time)

    def servers_at_each(self, times: FloatArray) -> Iterator[FloatArray]:
        return (outcome.held for outcome in self._run_up_to(times))

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        return (outcome.remaining for outcome in self._run_up_to(times))

    def server_seconds_until(self, times: FloatArray) -> FloatArray:
        return np.array([outcome.server_seconds for outcome in self._run_up_to(times)])

    def server_seconds(self) -> float:
        return self._server_seconds
