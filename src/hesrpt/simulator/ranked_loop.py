"""Simulates policies whose rates are products, such as EQUI and heSRPT.

The loop itself is compiled (:mod:`hesrpt.simulator.ranked_kernel`).
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import create_record
from hesrpt.optimal.closed_form import sort_by_size
from hesrpt.parallel import stop_if_requested
from hesrpt.policies import Calibration, RankedPolicy, as_ranked
from hesrpt.policies.calibration_kernel import ESTIMATE_SUMS, LEVELS, Sums, weigh_size
from hesrpt.policies.policy import RankRates
from hesrpt.simulator import ranked_kernel
from hesrpt.simulator.kernel import CalibrationData
from hesrpt.simulator.ranked_kernel import (
    AT_A_TIME,
    EVENTS_UNTIL_RESET,
    Passed,
    Queue,
    RankedState,
    RateTable,
    Stream,
)
from hesrpt.simulator.runs import EVENTS_AT_A_TIME, Outcome, Progress, Run
from hesrpt.speedups import Speedup

# The first rates are for at least this many jobs in the system.
_FEW_JOBS = 255
# If p is close to 1, each rates hold for few numbers of jobs: this many are kept.
_MAX_CACHED = 1000


def create_ranked_loop(run: Run) -> RankedLoop | None:
    """Return the loop for this run, or None if its rates are not products or more is asked for."""
    policy, speedups = as_ranked(run.policy, run.workload.speedups), run.workload.speedups
    if policy is None or run.whole or run.tallying or run.capacity is not None:
        return None
    # With size errors or pauses, jobs may overtake each other in the order of sizes.
    if run.estimates is not None or run.resize_cost > 0 or not policy.ranks_by_size(whole=False):
        return None
    speedup = speedups.tabulate(run.servers).shared
    assert speedup is not None
    rates = policy.rank_rates(1, 1, run.servers, speedup)
    return None if rates is None else RankedLoop(run, policy, speedup, rates.uniform)


def find_arrival_order(
    arrivals: FloatArray | None, sizes: FloatArray, by_size: bool
) -> IntArray | None:
    """Return the jobs as they arrive, or None if that is how they were given.

    Jobs that arrive together are listed with the largest first, or as they were given.
    """
    if not by_size:
        return None if arrivals is None else np.argsort(arrivals, kind="stable")
    if arrivals is None:
        return np.ascontiguousarray(sort_by_size(sizes)[0][::-1])
    if np.all(arrivals[1:] > arrivals[:-1]):
        return None
    # Of equal sizes, the job given first comes last, so that it ends first.
    return np.lexsort((-np.arange(len(sizes)), -sizes, arrivals))


def create_calibration(jobs: int, weights: FloatArray, ranks: int | None = None) -> CalibrationData:
    """Return the calibration at the start of a run, with the sums of this many jobs."""
    starts: dict[str, Any] = {each.name: each.default for each in fields(Calibration)}
    return CalibrationData(
        samples=np.zeros((jobs, 5)),
        weight=weights,
        log_rank=list_logarithms(jobs + 1 if ranks is None else ranks),
        sums=create_record(Sums, **{name: starts[name] for name in Sums.__annotations__}),
        estimates=np.zeros(ESTIMATE_SUMS),
    )


def list_logarithms(ranks: int) -> FloatArray:
    """Return 0 and the logarithms of 1, 2 and so on."""
    return np.log(np.maximum(np.arange(ranks), 1.0))


class RankedLoop:
    """The caller of the compiled loop, for one run."""

    def __init__(self, run: Run, policy: RankedPolicy, speedup: Speedup, uniform: bool) -> None:
        workload, jobs = run.workload, len(run.workload)
        self.run, self.policy, self.speedup = run, policy, speedup
        self.order = find_arrival_order(workload.arrivals, workload.sizes, by_size=True)
        arrivals, sizes = workload.arrival_times, workload.sizes
        if self.order is not None:
            arrivals, sizes = arrivals[self.order], sizes[self.order]
        arrivals.flags.writeable = sizes.flags.writeable = False  # as those of the workload are
        self.stream = Stream(
            arrivals=arrivals,
            sizes=sizes,
            completion=np.full(jobs, np.nan),
            weights=self._weigh_work(arrivals, sizes) if policy.is_calibrated else np.empty(0),
        )
        self.levels = LEVELS + 1 if policy.is_calibrated else 1
        first = int(np.searchsorted(arrivals, arrivals[0], side="right"))
        # This many jobs may arrive before more room is made, and loops handle this many at a time.
        at_once = 1 if self.order is None else _count_most_at_once(arrivals)
        self._places_behind = at_once + AT_A_TIME + 1
        room = max(min(_FEW_JOBS, jobs), first)
        self.table, self.queue = self._create_table(room), self._create_queue(room)
        self._compute_rates = lru_cache(_MAX_CACHED)(self._compute_rates_again)
        self.calibration = None
        if policy.is_calibrated:
            self.calibration = create_calibration(0, np.empty(0), room + self._places_behind)
        self.state = create_record(
            RankedState,
            uniform=uniform,
            max_events=EVENTS_AT_A_TIME,
            next_reset=EVENTS_UNTIL_RESET,
        )
        self.passed = np.zeros(len(Passed._fields))
        self._add_rates(first)

    def _weigh_work(self, arrivals: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return what a unit of work of each job counts in the calibration."""
        log_sizes = np.log(sizes)
        usual = np.cumsum(log_sizes)
        usual /= np.arange(1, len(sizes) + 1)
        if self.order is not None:
            # Jobs that arrive at the same time all know the mean up to the last of them.
            last = np.flatnonzero(np.diff(arrivals, append=inf))
            usual = np.repeat(usual[last], np.diff(last, prepend=-1))
        return weigh_size(log_sizes, usual) / sizes

    def execute(self, stop_at: float = inf, progress: Progress | None = None) -> Outcome:
        """Continue until all jobs have ended or until ``stop_at``, and return what happened."""
        self.state["stop_at"] = stop_at
        while True:
            reason = ranked_kernel.run_ranked(
                self.stream, self.queue, self.table, self.state, self.passed, self.calibration
            )
            if reason == ranked_kernel.NEEDS_RATES:
                self._add_rates(int(self.state["present"][0]))
            stop_if_requested()
            if progress is not None:
                progress(int(self.state["arrived"][0]), len(self.run.workload))
            if reason in (ranked_kernel.DONE, ranked_kernel.STOPPED):
                return self._outcome()

    def _outcome(self) -> Outcome:
        state, jobs, level = self.state[0], len(self.run.workload), self._level
        present, arrived = int(state["present"]), int(state["arrived"])
        held, remaining, completion_times = np.zeros(jobs), np.zeros(jobs), self.stream.completion
        waiting, listed = np.arange(arrived, jobs), self.queue.number[:present]
        if self.order is not None:
            completion_times = np.empty(jobs)
            completion_times[self.order] = self.stream.completion
            waiting, listed = self.order[waiting], self.order[listed]
        remaining[waiting] = self.stream.sizes[arrived:]
        busy_seconds = float(state["busy_seconds"])
        if present > 0:
            policy = self.policy if self.calibration is None else self.policy.at_level(level)
            row = policy.row(present, self.run.servers, self.speedup, whole=False)
            held[listed[::-1][: len(row)]] = row
            passed = float(state["stop_at"] - state["now"])
            busy_seconds += passed
            virtual_time = state["virtual_time"] + passed * self.table.speed[level, present]
            done = virtual_time * self.table.base[level, 1 : present + 1]
            remaining[listed] = np.maximum(self.queue.work[:present] - done, 0.0)
        return Outcome(
            completion_times=completion_times,
            events=int(state["events"]),
            server_seconds=busy_seconds * self.run.servers,
            job_seconds=float(state["job_seconds"]),
            held=held,
            remaining=remaining,
        )

    # --- rates ------------------------------------------------------------------------------------

    @property
    def _level(self) -> int:
        return 0 if self.calibration is None else int(self.calibration.sums["level"][0])

    def _create_table(self, room: int) -> RateTable:
        """Return a table without rates; memory that is not used takes no space."""
        shape, wide = (self.levels, room + 1), (self.levels, room + self._places_behind)
        return RateTable(
            base=np.zeros(wide),
            inverse=np.empty(shape),
            pace=np.empty(shape),
            speed=np.empty(shape),
            fewest=np.ones(self.levels, dtype=np.int64),
            most=np.zeros(self.levels, dtype=np.int64),
            idle=np.zeros(self.levels, dtype=np.int64),
        )

    def _create_queue(self, room: int) -> Queue:
        """Return a queue with room for this many jobs."""
        places = room + self._places_behind
        sums = places if self.policy.is_calibrated else 1
        # Zeros, because the loop also changes entries behind the last job.
        spread, lean, height = np.zeros((3, sums))
        return Queue(np.zeros(places, dtype=np.int64), np.zeros(places), spread, lean, height)

    def _add_room(self, room: int) -> None:
        """Make room for this many jobs in the system."""
        before, present = self.queue, int(self.state["present"][0])
        self.table, self.queue = self._create_table(room), self._create_queue(room)
        for array, old in zip(self.queue, before, strict=True):
            array[:present] = old[:present]
        if self.calibration is not None:
            log_rank = list_logarithms(room + self._places_behind)
            self.calibration = self.calibration._replace(log_rank=log_rank)

    def _add_rates(self, jobs: int) -> None:
        """Add the rates for this number of jobs, at the present level."""
        if jobs >= self.table.pace.shape[1]:
            self._add_room(min(2 * jobs, len(self.run.workload)))
        level, room = self._level, self.table.pace.shape[1] - 1
        rates = self._compute_rates(level, jobs, room)
        table, here = self.table, slice(rates.first, rates.most + 1)
        table.base[level, : rates.first] = 0.0
        table.base[level, here], table.pace[level, here] = rates.base, rates.pace
        with np.errstate(divide="ignore", over="ignore"):
            np.divide(1.0, rates.base, out=table.inverse[level, here])
            np.divide(1.0, rates.pace, out=table.speed[level, here])
        table.fewest[level], table.most[level] = rates.fewest, rates.most
        table.idle[level] = rates.first - 1

    def _compute_rates_again(self, level: int, jobs: int, room: int) -> RankRates:
        policy = self.policy if self.calibration is None else self.policy.at_level(level)
        rates = policy.rank_rates(jobs, room, self.run.servers, self.speedup)
        assert rates is not None
        return rates


def _count_most_at_once(arrivals: FloatArray) -> int:
    """Return the most jobs that arrive at the same time."""
    starts = np.flatnonzero(np.diff(arrivals, prepend=-np.inf))
    return int(np.diff(starts, append=len(arrivals)).max())
