"""Simulates one policy on one workload, from event to event.

The loop itself is compiled (:mod:`hesrpt.simulator.kernel`). When it needs a row or a decision, it
returns to its caller here, which asks the policy and continues the loop. Policies whose rates are
products have a faster loop (:mod:`hesrpt.simulator.ranked_loop`). The timeline of a simulation runs
it again when phases are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import inf
from typing import get_args

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import create_record
from hesrpt.errors import InputError, PolicyError
from hesrpt.objectives import weight_of_each_job
from hesrpt.optimal.recursion_kernel import EXACT
from hesrpt.optimal.response_kernel import COLUMNS
from hesrpt.parallel import stop_if_requested
from hesrpt.policies import (
    RankedPolicy,
    Rule,
    RuleKind,
    State,
    as_ranked,
    find_rule,
    round_fairly,
)
from hesrpt.policies.calibration_kernel import LEVELS
from hesrpt.policies.optimal import MAX_VALUED
from hesrpt.policies.pricing import estimate_gains
from hesrpt.policies.sharing import Leftover, usable_servers
from hesrpt.schedule import Timeline
from hesrpt.simulator import kernel
from hesrpt.simulator.beside_rigid import Capacity
from hesrpt.simulator.kernel import (
    Decisions,
    Jobs,
    LoopState,
    Phases,
    Rows,
    RuleSettings,
    Settings,
)
from hesrpt.simulator.pricing_kernel import PriceSearch
from hesrpt.simulator.ranked_loop import (
    create_calibration,
    create_ranked_loop,
    find_arrival_order,
)
from hesrpt.simulator.runs import EVENTS_AT_A_TIME, Outcome, Progress, Run
from hesrpt.simulator.sharing_kernel import JobFacts, Workspace
from hesrpt.simulator.tally import TallyCounter
from hesrpt.simulator.valuing_kernel import Values
from hesrpt.speedups import SpeedupVector
from hesrpt.units import format_count
from hesrpt.workload import Workload

# Sums of servers may exceed N by this fraction, for rounding.
_ROUNDING = 1e-9
# The record of the phases grows by at least this many.
_PHASES_AT_A_TIME = 4096
# The table of rows is emptied when it would grow beyond this many entries.
_MAX_ENTRIES = 1 << 24
# With several levels, the table first has room for rows of fewer jobs than this.
_FEW_JOBS = 1024
# Rules of these kinds round shares of servers that could be divided.
_ROUNDED = RuleKind.EQUAL, RuleKind.CLOSED_FORM, RuleKind.KNEE
_PLANNED = RuleKind.PRICE, RuleKind.VALUE
# Runs with more allocations than this (running jobs, summed over phases) are not recorded.
_MAX_ALLOCATIONS = 20_000_000


def run_loop(
    run: Run,
    *,
    recording: bool = False,
    tallying: bool = False,
    stop_at: float = inf,
    max_flow_time: float = inf,
    progress: Progress | None = None,
) -> Outcome:
    """Simulate until all jobs have ended, until ``stop_at``, or beyond a total flow time.

    With ``tallying``, phases are counted instead of recorded.
    """
    is_general = recording or tallying or run.capacity is not None
    if not is_general and (loop := create_ranked_loop(run, stop_at)) is not None:
        return loop.execute(progress)
    return _Loop(run, recording, stop_at, tallying, max_flow_time).execute(progress)


class _Loop:
    """The caller of the compiled loop, for one run."""

    def __init__(
        self, run: Run, recording: bool, stop_at: float, tallying: bool, max_flow_time: float
    ) -> None:
        self.config = run
        self.tally = None
        if tallying:
            asked = run.workload.requested
            asked = np.full(len(run.workload), run.servers) if asked is None else asked
            self.tally, recording = TallyCounter(asked, run.resize_cost), True
        workload, policy, jobs = run.workload, run.policy, len(run.workload)
        # Rows and rules are for a number of servers that stays the same.
        self.ranked = as_ranked(policy, workload.speedups) if run.capacity is None else None
        rule = None
        if self.ranked is None and run.capacity is None:
            rule = find_rule(policy, workload.speedups, run.whole)
        by_size = self.ranked is not None and self.ranked.ranks_by_size(run.whole)
        self.is_exact = run.estimates is None
        estimates = np.ones(jobs) if run.estimates is None else run.estimates
        self.seen_sizes = workload.sizes if self.is_exact else workload.sizes * estimates
        self.weights = np.ones(jobs) if workload.weights is None else workload.weights
        self.speedups = workload.speedups.tabulate(run.servers)
        # With size errors or pauses, jobs may overtake each other in the order of sizes.
        keeps_order = self.is_exact and run.resize_cost == 0
        # Arrays that this run does not use take no space.
        pauses = jobs if run.resize_cost > 0 else 1
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
            started=np.zeros(pauses, dtype=np.int64),
            paused_until=np.zeros(pauses),
            by_arrival=order,
            present=np.empty(jobs, dtype=np.int64),
            decided_servers=np.empty(decisions),
            decided_rates=np.empty(decisions),
            key=np.empty(keys),
            tie=_invert(np.argsort(workload.arrival_times[:keys], kind="stable")[::-1]),
            scratch=np.empty(keys, dtype=np.int64),
        )
        constant_from = None
        if self.ranked is not None and (speedup := self.speedups.shared) is not None:
            constant_from = self.ranked.constant_from(run.servers, speedup, run.whole)
        is_learning = policy.is_calibrated and (self.ranked is not None or rule is not None)
        levels = LEVELS + 1 if is_learning and self.ranked is not None else 1
        self.table = _RowTable(jobs if self.ranked is not None else 0, constant_from, levels)
        self.rule: Decisions | None = None
        weights = np.empty(0)
        if rule is not None:
            self.rule = _prepare_rule(rule, run, self.speedups, self.seen_sizes, order)
            weights = self.rule.facts.weight
            weights = weights[:0] if np.all(weights == 1) else weights
        self.calibration = create_calibration(jobs, weights) if is_learning else None
        self.by_level: dict[int, RankedPolicy] = {}
        self.before: State | None = None  # the state of the previous decision
        self.phases = Phases(
            ends=np.empty(_PHASES_AT_A_TIME if recording else 1),
            start=np.zeros(_PHASES_AT_A_TIME + 1 if recording else 2, dtype=np.int64),
            job=np.empty(_PHASES_AT_A_TIME if recording else 1, dtype=np.int64),
            held=np.empty(_PHASES_AT_A_TIME if recording else 1),
        )
        review_every = inf if policy.review_every is None else float(policy.review_every)
        self.settings = create_record(
            Settings,
            by_rank=self.ranked is not None,
            sorted_by_size=by_size,
            keeps_order=keeps_order,
            recording=recording,
            max_servers=run.servers * (1 + _ROUNDING),
            resize_cost=run.resize_cost,
            review_every=review_every,
            stop_at=stop_at,
            max_job_seconds=max_flow_time,
            max_events=EVENTS_AT_A_TIME,
        )
        self.state = create_record(LoopState, next_review=review_every)
        # Views of the fields that each decision needs: looking them up by name is slower.
        self._stage, self._present = self.state["stage"], self.state["present"]
        self._now = self.state["now"]

    def execute(self, progress: Progress | None) -> Outcome:
        while True:
            reason = kernel.run(
                self.jobs,
                self.table.rows,
                self.phases,
                self.state,
                self.settings,
                self.rule,
                self.calibration,
            )
            if reason == kernel.NEEDS_DECISION:
                self._decide()
            elif reason == kernel.NEEDS_ROW:
                self._add_row()
            elif reason == kernel.PHASES_FULL:
                self._make_room_for_phases()
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
        state = self.state[0]
        phases = None
        if self.tally is not None:
            self.tally.add(self.phases, int(state["phases"]))
        elif self.settings["recording"][0]:
            phases = Phases(
                ends=self.phases.ends[: state["phases"]],
                start=self.phases.start[: state["phases"] + 1],
                job=self.phases.job[: state["entries"]],
                held=self.phases.held[: state["entries"]],
            )
        running = self.jobs.present[state["present"] - state["running"] : state["present"]]
        held = np.zeros(len(self.config.workload))
        held[running] = self.jobs.held[running]
        return Outcome(
            completion_times=self.jobs.completion,
            events=int(state["events"]),
            server_seconds=float(state["server_seconds"]),
            job_seconds=float(state["job_seconds"]),
            allocations=int(state["allocations"]),
            phases=phases,
            tally=None if self.tally is None else self.tally.finish(),
            held=held,
            remaining=self._remaining(running),
        )

    def _remaining(self, running: IntArray) -> FloatArray:
        """Return what remains of each job at the end, which may lie between two events."""
        state, remaining = self.state[0], self.jobs.remaining.copy()
        remaining[np.isfinite(self.jobs.completion)] = 0.0
        if len(running):
            stop_at = float(self.settings["stop_at"][0])
            passed = stop_at - state["now"] if stop_at < inf else 0.0
            to_target = np.maximum(self.jobs.target[running] - passed, 0.0)
            rates = self.jobs.rate[running]
            is_served = rates > 0  # the others never reach their target
            served = running[is_served]
            to_go = to_target[is_served] * rates[is_served]
            remaining[served] = np.minimum(remaining[served], to_go)
        return remaining

    def _add_row(self) -> None:
        speedup = self.speedups.shared
        assert self.ranked is not None
        assert speedup is not None
        present, run = int(self._present[0]), self.config
        policy, level = self.ranked, 0
        if self.calibration is not None:
            level = int(self.calibration.sums["level"][0])
            if level not in self.by_level:
                self.by_level[level] = self.ranked.at_level(level)
            policy = self.by_level[level]
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
        # Positional arguments save half a microsecond here.
        state = State(
            float(self._now[0]),
            servers,
            run.whole,
            listed,
            remaining,
            self.seen_sizes[listed],
            jobs.arrivals[listed],
            self.weights[listed],
            speedups,
        )
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

    def _make_room_for_phases(self) -> None:
        if self.tally is not None and self.state["phases"][0] > 0:
            self.tally.add(self.phases, int(self.state["phases"][0]))
            self.state["phases"] = self.state["entries"] = 0
            return
        phases = int(self.state["phases"][0]) + _PHASES_AT_A_TIME
        entries = int(self.state["entries"][0] + self.state["present"][0]) + _PHASES_AT_A_TIME
        self.phases = Phases(
            ends=np.append(self.phases.ends, np.empty(phases)),
            start=np.append(self.phases.start, np.zeros(phases, dtype=np.int64)),
            job=np.append(self.phases.job, np.empty(entries, dtype=np.int64)),
            held=np.append(self.phases.held, np.empty(entries)),
        )


class _RowTable:
    """A table that grows as the loop asks for rows, which it reads from ``rows``.

    A policy that is calibrated has rows for each of several levels.
    """

    def __init__(self, jobs: int, constant_from: int | None, levels: int = 1) -> None:
        self._entries = 0
        self._constant_from = constant_from
        self._levels = levels
        # The table of a calibrated policy grows with the number of jobs in the system.
        room = jobs + 1 if levels == 1 else min(jobs + 1, _FEW_JOBS)
        self.rows = Rows(
            room=room,
            start=np.full(levels * room, -1, dtype=np.int64),
            length=np.zeros(levels * room, dtype=np.int64),
            held=np.empty(64),
            rate=np.empty(64),
        )

    def add(self, jobs: int, held: FloatArray, rate: FloatArray, level: int = 0) -> None:
        """Add the row for this number of jobs, at this level."""
        if jobs >= self.rows.room:
            self._add_room(2 * jobs)
        if self._entries + len(held) > _MAX_ENTRIES:
            self.rows.start[:] = -1
            self._entries = 0
        if (missing := self._entries + len(held) - len(self.rows.held)) > 0:
            more = np.empty(max(missing, len(self.rows.held)))
            self.rows = self.rows._replace(
                held=np.concatenate((self.rows.held, more)),
                rate=np.concatenate((self.rows.rate, more)),
            )
        end = self._entries + len(held)
        self.rows.held[self._entries : end] = held
        self.rows.rate[self._entries : end] = rate
        same: int | slice = level * self.rows.room + jobs  # the numbers of this row
        if self._constant_from is not None and jobs >= self._constant_from:
            same = slice(self._constant_from, None)
        self.rows.start[same], self.rows.length[same] = self._entries, len(held)
        self._entries = end

    def _add_room(self, jobs: int) -> None:
        """Make room for rows of up to this many jobs at each level."""

        def widen(old: IntArray, empty: int) -> IntArray:
            wide = np.full((self._levels, jobs + 1), empty, dtype=np.int64)
            by_level = old.reshape(self._levels, -1)
            wide[:, : by_level.shape[1]] = by_level
            return wide.ravel()

        self.rows = self.rows._replace(
            room=jobs + 1,
            start=widen(self.rows.start, -1),
            length=widen(self.rows.length, 0),
        )


def _prepare_rule(
    rule: Rule, run: Run, speedups: SpeedupVector, sizes: FloatArray, by_arrival: IntArray
) -> Decisions:
    """Return what a rule needs to decide on jobs with these sizes, as the policy sees them."""
    jobs, servers, whole = len(run.workload), run.servers, run.whole
    deciding = speedups.on_whole_servers() if whole and rule.kind not in _ROUNDED else speedups
    usable = usable_servers(deciding, servers, jobs)
    # Arrays that this rule does not use take no space.
    planned = jobs if rule.kind in _PLANNED else 0
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
            gain=estimate_gains(speedups) if planned else numbers(),
            fastest=deciding.rate(usable) if planned else numbers(),
            arrival_rank=_invert(by_arrival),
            key=numbers(jobs),
            held=numbers(jobs),
            order=places(),
            planned=places(),
        ),
        shapes=shapes,
        deciding=deciding.shapes(servers, tabulated=True) if planned else shapes,
        work=Workspace(numbers(jobs), numbers(jobs), places(), places()),
        search=PriceSearch(
            np.zeros(2), numbers(), numbers(), numbers(), numbers(), places(planned)
        ),
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
            kind=getattr(kernel, rule.kind.name),
            is_whole=whole,
            shares_speedup=shared is not None,
            max_valued=MAX_VALUED,
            exponent=rule.exponent or 0.0,
            focus=1.0 if rule.focus is None else rule.focus,
            alpha=rule.alpha,
            leftover=get_args(Leftover).index(rule.leftover),
            servers=servers,
            max_slope=np.inf if shared is None else shared.max_slope(),
        ),
    )


def _invert(order: IntArray) -> IntArray:
    """Return the place of each entry in a permutation."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


class SimulatedTimeline(Timeline):
    """The phases of a simulation, which is run again to record them when they are needed."""

    def __init__(self, run: Run, outcome: Outcome) -> None:
        self.run = run
        self.completion_times = outcome.completion_times
        self._allocations, self._server_seconds = outcome.allocations, outcome.server_seconds

    @property
    def _is_recordable(self) -> bool:
        return self._allocations <= _MAX_ALLOCATIONS

    @cached_property
    def _phases(self) -> Phases:
        if not self._is_recordable:
            raise InputError(
                f"the simulation has {self._allocations:,} allocations, too many to list them all; "
                "servers_at(time) and remaining_at(time) return those at one time"
            )
        phases = run_loop(self.run, recording=True).phases
        assert phases is not None
        return phases

    @property
    def ends(self) -> FloatArray:  # type: ignore[override]
        return self._phases.ends

    def sample_ends(self, limit: int) -> FloatArray:
        if self._is_recordable:
            return super().sample_ends(limit)
        # The run is simulated again for each of these times.
        half = min(limit, max(2_000_000 // len(self.run.workload), 60)) // 2
        even = np.linspace(0.0, self.completion_times.max(), half + 1)[1:]
        return np.union1d(even, np.quantile(self.completion_times, np.linspace(0, 1, half)))

    def servers(self, phase: int) -> FloatArray:
        phases = self._phases
        entries = slice(int(phases.start[phase]), int(phases.start[phase + 1]))
        held = np.zeros(len(self.run.workload))
        held[phases.job[entries]] = phases.held[entries]
        return held

    def servers_at(self, time: float) -> FloatArray:
        if self._is_recordable:
            held = super().servers_at(time)
        else:
            held = run_loop(self.run, stop_at=time).held
        # The second run may differ in the last digit of an end.
        return np.where(self.completion_times > time, held, 0.0)

    def total_servers(self) -> FloatArray:
        sums = np.concatenate(([0.0], np.cumsum(self._phases.held)))
        return sums[self._phases.start[1:]] - sums[self._phases.start[:-1]]

    def server_seconds(self) -> float:
        return self._server_seconds

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        if self._is_recordable and self.run.resize_cost == 0:
            yield from super().remaining(workload, times)
            return
        for time in times:
            yield run_loop(self.run, stop_at=float(time)).remaining
