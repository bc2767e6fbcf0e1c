"""Simulates one policy on one workload, from event to event.

The loop itself is compiled (:mod:`hesrpt.simulator.kernel`). When it needs a row or a decision, it
returns to its caller here, which asks the policy and continues the loop. Policies whose rates are
products have a faster loop (:mod:`hesrpt.simulator.ranked_loop`).
"""

from __future__ import annotations

from math import inf

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import PolicyError
from hesrpt.parallel import stop_if_requested
from hesrpt.policies import RankedPolicy, State, as_ranked, calibration, find_rule, round_fairly
from hesrpt.simulator import kernel
from hesrpt.simulator.beside_rigid import Capacity
from hesrpt.simulator.calibration_kernel_data import create_calibration
from hesrpt.simulator.kernel_data import Jobs, LoopState, Phases, Settings, create_record
from hesrpt.simulator.mixed_loop import MixedLoop, create_mixed_loop
from hesrpt.simulator.ranked_loop import create_ranked_loop
from hesrpt.simulator.row_table import RowTable
from hesrpt.simulator.runs import EVENTS_AT_A_TIME, Outcome, Progress, Run, find_arrival_order
from hesrpt.simulator.tally import TallyCounter
from hesrpt.units import format_count

# Sums of servers may exceed N by this fraction, for rounding.
_ROUNDING = 1e-9
# The record of the phases grows by at least this many.
_PHASES_AT_A_TIME = 4096


def run_loop(
    run: Run,
    *,
    recording: bool = False,
    tallying: bool = False,
    stop_at: float = inf,
    progress: Progress | None = None,
) -> Outcome:
    """Simulate until all jobs have ended or until ``stop_at``.

    With ``tallying``, phases are counted instead of recorded.
    """
    is_general = recording or tallying or run.capacity is not None
    if not is_general and (loop := create_ranked_loop(run, stop_at)) is not None:
        return loop.execute(progress)
    return _Loop(run, recording, stop_at, tallying).execute(progress)


class _Loop:
    """The caller of the compiled loop, for one run."""

    def __init__(self, run: Run, recording: bool, stop_at: float, tallying: bool) -> None:
        self.config = run
        self.tally = None
        if tallying:
            asked = run.workload.requested
            asked = np.full(run.jobs, run.servers) if asked is None else asked
            self.tally, recording = TallyCounter(asked, run.resize_cost), True
        workload, policy, jobs = run.workload, run.policy, run.jobs
        # Rows are for a number of servers that stays the same.
        self.ranked = as_ranked(policy, workload.speedups) if run.capacity is None else None
        by_size = self.ranked is not None and self.ranked.ranks_by_size(run.whole)
        self.is_exact = run.estimates is None
        estimates = np.ones(jobs) if run.estimates is None else run.estimates
        self.seen_sizes = workload.sizes if self.is_exact else workload.sizes * estimates
        self.weights = np.ones(jobs) if workload.weights is None else workload.weights
        self.speedups = workload.speedups.tabulate(run.servers)
        # Arrays that this run does not use take no space.
        pauses = jobs if run.resize_cost > 0 else 1
        decisions = jobs if self.ranked is None else 1
        is_calibrated = self.ranked is not None and self.ranked.is_calibrated
        by_arrival = find_arrival_order(workload.arrivals, self.seen_sizes, by_size)
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
            by_arrival=np.arange(jobs) if by_arrival is None else by_arrival,
            present=np.empty(jobs, dtype=np.int64),
            decided_servers=np.empty(decisions),
            decided_rates=np.empty(decisions),
        )
        # With size errors or pauses, jobs may overtake each other in the order of sizes.
        keeps_order = self.is_exact and run.resize_cost == 0
        constant_from = None
        levels = calibration.LEVELS + 1 if is_calibrated else 1
        if self.ranked is not None and (speedup := self.speedups.shared) is not None:
            constant_from = self.ranked.constant_from(run.servers, speedup, run.whole)
        self.table = RowTable(jobs, constant_from, levels)
        self.calibration = None
        if is_calibrated:
            self.calibration = create_calibration(jobs, self.table.room)
        self.by_level: dict[int, RankedPolicy] = {}
        self.before: State | None = None  # the state of the previous decision
        self.mixed: MixedLoop | None = None
        rule = find_rule(policy, workload.speedups, run.whole) if run.capacity is None else None
        if self.ranked is None and rule is not None:
            self.mixed = create_mixed_loop(
                rule,
                self.speedups,
                run.servers,
                run.whole,
                self.seen_sizes,
                self.weights,
                self.jobs.by_arrival,
            )
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
            max_events=EVENTS_AT_A_TIME,
        )
        self.state = create_record(LoopState, next_review=review_every)
        # Views of the fields that each decision needs: looking them up by name is slower.
        self._stage, self._present = self.state["stage"], self.state["present"]
        self._now = self.state["now"]

    def execute(self, progress: Progress | None) -> Outcome:
        while True:
            reason = self._run()
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
                progress(int(self.state["arrived"][0]), self.config.jobs)
            if reason in (kernel.DONE, kernel.STOPPED):
                return self._outcome()

    def _run(self) -> int:
        if self.mixed is not None:
            return self.mixed.run(self.jobs, self.phases, self.state, self.settings)
        return kernel.run(
            self.jobs, self.table.rows, self.phases, self.state, self.settings, self.calibration
        )

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
        held = np.zeros(self.config.jobs)
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
            passed = self.settings["stop_at"][0] - state["now"]
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
            level = self.calibration.level
            if level not in self.by_level:
                self.by_level[level] = self.ranked.at_level(level)
            policy = self.by_level[level]
        row = policy.row(present, run.servers, speedup, run.whole)
        self._check(row)
        self.table.add(present, row, speedup.rate(row), level)
        if self.calibration is not None:
            self.calibration = self.calibration.with_room(self.table.room)

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
