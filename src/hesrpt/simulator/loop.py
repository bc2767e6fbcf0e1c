"""The simulation of one policy on one workload, from event to event.

The loop itself is compiled (:mod:`hesrpt.simulator.kernel`). This is the caller that it returns to:
it looks up rows and asks policies, in the same way for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from threading import Event
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import PolicyError
from hesrpt.optimal.closed_form import shortest_first
from hesrpt.policies import Policy, State, as_ranked, round_fairly
from hesrpt.simulator import kernel
from hesrpt.workload import Workload

# The table of rows starts again when it has grown to so many entries.
_MOST_ROW_ENTRIES = 1 << 24
# Sums of servers may exceed N by this much, for rounding.
_ROUNDING = 1e-9
# The loop returns after so many events, to show progress.
_EVENTS_AT_A_TIME = 200_000

Progress = Callable[[int, int], None]
#: A run ends early when this is set, in the thread that it runs in.
stopped: ContextVar[Event | None] = ContextVar("stopped", default=None)


class Stopped(Exception):  # noqa: N818 (nothing is wrong: it was asked for)
    """A simulation was asked to end early."""


@dataclass(frozen=True)
class Run:
    """Everything that determines a simulation."""

    workload: Workload
    servers: float
    policy: Policy
    whole: bool
    resize_cost: float
    estimates: FloatArray | None  # of sizes, relative to the true ones

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return len(self.workload)


class Recorded(NamedTuple):
    """Who held servers in each phase."""

    ends: FloatArray
    start: IntArray
    job: IntArray
    held: FloatArray


class Outcome(NamedTuple):
    """What came of a simulation."""

    completion_times: FloatArray
    events: int
    busy: float  # server-seconds handed out
    area: float  # jobs in the system, integrated over time
    work: int  # jobs holding servers, summed over phases
    recorded: Recorded | None
    held: FloatArray  # when it stopped
    left: FloatArray  # of the work, when it stopped


def simulate(
    run: Run,
    *,
    recording: bool = False,
    stop_at: float = inf,
    progress: Progress | None = None,
) -> Outcome:
    """Carry out a simulation, to its end or up to a time."""
    return _Engine(run, recording).run(stop_at, progress)


class _Engine:
    def __init__(self, run: Run, recording: bool) -> None:
        self.given, self.recording = run, recording
        workload, policy, jobs = run.workload, run.policy, run.jobs
        self.row_policy = as_ranked(policy, workload.speedups)
        self.by_size = self.row_policy is not None and self.row_policy.ranks_by_size(run.whole)
        arrivals = np.zeros(jobs) if workload.arrivals is None else workload.arrivals
        exact = run.estimates is None
        estimates = np.ones(jobs) if run.estimates is None else run.estimates
        self.seen_sizes = workload.sizes if exact else workload.sizes * estimates
        self.weights = np.ones(jobs) if workload.weights is None else workload.weights
        self.speedups = workload.speedups.known_on(run.servers)
        # What a run has no use for takes no room.
        resized = jobs if run.resize_cost > 0 else 1
        asked = jobs if self.row_policy is None else 1
        self.jobs = kernel.Jobs(
            arrivals=np.array(arrivals),
            left=np.array(workload.sizes),
            estimate=np.array(estimates),
            completion=np.full(jobs, np.nan),
            target=np.empty(jobs),
            rate=np.empty(jobs),
            held=np.zeros(jobs),
            started=np.zeros(resized, dtype=np.int64),
            ready=np.zeros(resized),
            by_arrival=_arrival_order(workload.arrivals, self.seen_sizes, self.by_size),
            present=np.empty(jobs, dtype=np.int64),
            offered=np.empty(asked),
            offered_rate=np.empty(asked),
        )
        self.rows = self._empty_rows(exact)
        self.row_entries = 0
        self.settled: int | None = None
        if self.row_policy is not None and (speedup := self.speedups.shared) is not None:
            self.settled = self.row_policy.constant_from(run.servers, speedup, run.whole)
        room = 4096 if recording else 1
        self.record = kernel.Record(
            np.empty(room), np.zeros(room + 1, dtype=np.int64), np.empty(room, dtype=np.int64),
            np.empty(room),
        )  # fmt: skip
        self.counters = kernel.Counters(np.zeros(kernel.COUNTS, dtype=np.int64), np.zeros(8))
        self.counters.clocks[kernel.PACE] = self.counters.clocks[kernel.HELD_FACTOR] = 1.0
        self.review_every = inf if policy.review_every is None else float(policy.review_every)
        self.counters.clocks[kernel.REVIEW] = self.review_every
        self.exact = exact
        # Otherwise a job may overtake another one that is smaller, or that stands still.
        self.keeps_order = exact and run.resize_cost == 0

    def run(self, stop_at: float, progress: Progress | None) -> Outcome:
        count = self.counters.counts
        while True:
            why = kernel.run(
                self.jobs,
                self.rows,
                self.record,
                self.counters,
                self.row_policy is not None,
                self.uniform,
                self.by_size,
                self.keeps_order,
                self.given.servers * (1 + _ROUNDING),
                self.given.resize_cost,
                self.review_every,
                stop_at,
                self.recording,
                _EVENTS_AT_A_TIME,
            )
            if why == kernel.NEEDS_DECISION:
                self._decide()
            elif why == kernel.NEEDS_ROW:
                self._add_row(int(count[kernel.PRESENT]))
            elif why == kernel.RECORD_FULL:
                self._enlarge_record()
            elif why == kernel.TOO_MANY:
                total = float(self.counters.clocks[kernel.HELD])
                raise self._error(f"hands out {total!r} servers of {self.given.servers!r}")
            elif why == kernel.STARVED:
                raise self._error("serves none of the jobs that are left, and never will")
            elif why in (kernel.DONE, kernel.STOPPED):
                break
            if (stop := stopped.get()) is not None and stop.is_set():
                raise Stopped
            if progress is not None:
                progress(int(count[kernel.ARRIVED]), self.given.jobs)
        if progress is not None:
            progress(int(count[kernel.ARRIVED]), self.given.jobs)
        return self._outcome(stop_at)

    def _outcome(self, stop_at: float) -> Outcome:
        count, clock = self.counters.counts, self.counters.clocks
        recorded = None
        if self.recording:
            phases, entries = int(count[kernel.PHASES]), int(count[kernel.ENTRIES])
            recorded = Recorded(
                self.record.ends[:phases],
                self.record.start[: phases + 1],
                self.record.job[:entries],
                self.record.held[:entries],
            )
        held = np.zeros(self.given.jobs)
        present, window = int(count[kernel.PRESENT]), int(count[kernel.WINDOW])
        holding = self.jobs.present[present - window : present]
        held[holding] = self.jobs.held[holding] * clock[kernel.HELD_FACTOR]
        return Outcome(
            self.jobs.completion,
            int(count[kernel.EVENTS]),
            float(clock[kernel.BUSY]),
            float(clock[kernel.AREA]),
            int(count[kernel.WORK]),
            recorded,
            held,
            self._left(holding, stop_at),
        )

    def _left(self, holding: IntArray, now: float) -> FloatArray:
        """Return what is left of each job, at a time after the last event and before the next."""
        left, clock = self.jobs.left.copy(), self.counters.clocks
        left[np.isfinite(self.jobs.completion)] = 0.0
        if len(holding):
            shown = clock[kernel.VIRTUAL] + (now - clock[kernel.NOW]) / clock[kernel.PACE]
            to_go = np.maximum(self.jobs.target[holding] - shown, 0.0) * self.jobs.rate[holding]
            left[holding] = np.minimum(left[holding], to_go)
        return left

    # --- rows ---------------------------------------------------------------------------------

    def _empty_rows(self, exact: bool) -> kernel.Rows:
        run, jobs = self.given, self.given.jobs
        factors = None
        scales = exact and not run.whole and run.resize_cost == 0
        if self.row_policy is not None and scales and (speedup := self.speedups.shared) is not None:
            factors = self.row_policy.factors(jobs, run.servers, speedup)
        none = np.zeros(jobs + 1)
        self.uniform = factors is not None and factors.uniform
        return kernel.Rows(
            start=np.full(jobs + 1, -1, dtype=np.int64),
            length=np.zeros(jobs + 1, dtype=np.int64),
            held=np.empty(64),
            rate=np.empty(64),
            rate_factor=none if factors is None else factors.rates,
            held_factor=none if factors is None else factors.servers,
        )

    def _add_row(self, present: int) -> None:
        speedup = self.speedups.shared
        assert self.row_policy is not None
        assert speedup is not None
        run, rows = self.given, self.rows
        row = self.row_policy.row(present, run.servers, speedup, run.whole)
        self._check(row)
        if self.row_entries + len(row) > _MOST_ROW_ENTRIES:
            rows.start[:] = -1
            self.row_entries = 0
        if (missing := self.row_entries + len(row) - len(rows.held)) > 0:
            more = np.empty(max(missing, len(rows.held)))
            held, rate = (np.concatenate((old, more)) for old in (rows.held, rows.rate))
            self.rows = rows = rows._replace(held=held, rate=rate)
        here = slice(self.row_entries, self.row_entries + len(row))
        rows.held[here], rows.rate[here] = row, speedup.rate(row)
        alike: int | slice = present
        if self.settled is not None and present >= self.settled:
            alike = slice(self.settled, None)
        rows.start[alike], rows.length[alike] = self.row_entries, len(row)
        self.row_entries += len(row)

    # --- decisions ----------------------------------------------------------------------------

    def _decide(self) -> None:
        run, jobs = self.given, self.jobs
        present = int(self.counters.counts[kernel.PRESENT])
        who = jobs.present[:present].copy()
        remaining = jobs.left[who]
        if not self.exact:
            remaining = remaining * jobs.estimate[who]
        speedups = self.speedups.take(who)
        state = State(
            float(self.counters.clocks[kernel.NOW]),
            run.servers,
            run.whole,
            who,
            remaining,
            self.seen_sizes[who],
            jobs.arrivals[who],
            self.weights[who],
            speedups,
        )
        try:
            decision = run.policy(state)
        except Exception as error:
            error.add_note(f"in policy {run.policy.name} at time {state.time:.6g}")
            raise
        held = np.asarray(decision)
        if held.dtype.kind not in "fiub":
            raise self._error(f"returned {decision!r}, an array of numbers expected")
        if held.shape != remaining.shape:
            raise self._error(
                f"returned an array of shape {held.shape} for {present} jobs, one number each "
                "expected"
            )
        self._check(held)
        if run.whole:
            held = round_fairly(held, run.servers)
        elif held.dtype.kind != "f":
            held = held.astype(np.float64)
        np.maximum(held, 0.0, out=jobs.offered[:present])  # not below, by rounding
        jobs.offered_rate[:present] = speedups.rate(jobs.offered[:present])
        self.counters.counts[kernel.STAGE] = kernel.OFFERED

    def _check(self, held: FloatArray) -> None:
        if not held.min() >= -_ROUNDING * self.given.servers:  # NaN is not
            bad = ~(held >= -_ROUNDING * self.given.servers)
            place = int(np.argmax(bad))
            raise self._error(
                f"returned {float(held[place])!r} for job {place} of the {len(held)} in the "
                "system, a number of at least 0 expected"
            )

    def _error(self, what: str) -> PolicyError:
        time = float(self.counters.clocks[kernel.NOW])
        return PolicyError(f"policy {self.given.policy.name} at time {time:.6g} {what}")

    # --- the record ---------------------------------------------------------------------------

    def _enlarge_record(self) -> None:
        record, entries = self.record, int(self.counters.counts[kernel.ENTRIES])
        phases = int(self.counters.counts[kernel.PHASES])
        present = int(self.counters.counts[kernel.PRESENT])
        more_phases = phases + 4096
        more = entries + present + 4096
        self.record = kernel.Record(
            np.append(record.ends, np.empty(more_phases)),
            np.append(record.start, np.zeros(more_phases, dtype=np.int64)),
            np.append(record.job, np.empty(more, dtype=np.int64)),
            np.append(record.held, np.empty(more)),
        )


def _arrival_order(arrivals: FloatArray | None, sizes: FloatArray, by_size: bool) -> IntArray:
    """Return the jobs as they arrive; those of one time largest first, or as they were given."""
    if not by_size:
        if arrivals is None:
            return np.arange(len(sizes))
        return np.argsort(arrivals, kind="stable")
    if arrivals is None:
        return np.ascontiguousarray(shortest_first(sizes)[0][::-1])
    if np.all(arrivals[1:] > arrivals[:-1]):
        return np.arange(len(sizes))
    # Of equal sizes the one given first is to end first: it comes last.
    return np.lexsort((-np.arange(len(sizes)), -sizes, arrivals))
