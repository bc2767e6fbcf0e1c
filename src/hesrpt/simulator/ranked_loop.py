"""Simulates policies whose rates are products, such as EQUI and heSRPT.

The loop itself is compiled (:mod:`hesrpt.simulator.ranked_kernel`).
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import create_record
from hesrpt.optimal.closed_form import sort_by_size
from hesrpt.parallel import stop_if_requested
from hesrpt.policies import Calibration, RankedPolicy, as_ranked
from hesrpt.policies.calibration_kernel import LEVELS, Sums, weigh_size
from hesrpt.policies.policy import RankRates
from hesrpt.simulator import ranked_kernel
from hesrpt.simulator.kernel import CalibrationData
from hesrpt.simulator.ranked_kernel import (
    AT_A_TIME,
    Queue,
    RankedState,
    RateTable,
    Stream,
    find_usual_sizes,
)
from hesrpt.simulator.runs import EVENTS_AT_A_TIME, Outcome, Progress, Run
from hesrpt.speedups import Speedup

# The first rates are for at least this many jobs in the system.
_FEW_JOBS = 255
# Weights are computed for this many jobs at a time.
_JOBS_AT_A_TIME = 8192
# If p is close to 1, each rates hold for few numbers of jobs: this many are kept.
_MAX_CACHED = 1000


def create_ranked_loop(run: Run, stop_at: float) -> RankedLoop | None:
    """Return the loop for this run, or None if its rates are not products."""
    policy, speedup = as_ranked(run.policy, run.workload.speedups), run.workload.speedups.shared
    if policy is None or speedup is None or run.whole or policy.review_every is not None:
        return None
    # With size errors or pauses, jobs may overtake each other in the order of sizes.
    if run.estimates is not None or run.resize_cost > 0 or not policy.ranks_by_size(whole=False):
        return None
    speedup = run.workload.speedups.tabulate(run.servers).shared or speedup
    rates = policy.rank_rates(1, 1, run.servers, speedup)
    return None if rates is None else RankedLoop(run, policy, speedup, rates.uniform, stop_at)


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
        samples=np.zeros((jobs, 4)),
        weight=weights,
        log_rank=list_logarithms(jobs + 1 if ranks is None else ranks),
        sums=create_record(Sums, **{name: starts[name] for name in Sums.__annotations__}),
    )


def list_logarithms(ranks: int) -> FloatArray:
    """Return 0 and the logarithms of 1, 2 and so on."""
    return np.log(np.maximum(np.arange(ranks), 1.0))


class RankedLoop:
    """The caller of the compiled loop, for one run."""

    def __init__(
        self, run: Run, policy: RankedPolicy, speedup: Speedup, uniform: bool, stop_at: float
    ) -> None:
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
            weights=_weigh_work(arrivals, sizes) if policy.is_calibrated else np.empty(0),
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
            RankedState, uniform=uniform, stop_at=stop_at, max_events=EVENTS_AT_A_TIME
        )
        self._add_rates(first)

    def execute(self, progress: Progress | None) -> Outcome:
        while True:
            reason = ranked_kernel.run_ranked(
                self.stream, self.queue, self.table, self.state, self.calibration
            )
            if reason == ranked_kernel.NEEDS_RATES:
                self._add_rates(int(self.state["present"][0]))
            stop_if_requested()
            if progress is not None:
                progress(int(self.state["arrived"][0]), len(self.run.workload))
            if reason in (ranked_kernel.DONE, ranked_kernel.STOPPED):
                return self._outcome()

    def _outcome(self) -> Outcome:
        state, order = self.state[0], self.order
        completion_times = self.stream.completion
        if order is not None:
            completion_times = np.empty(len(self.run.workload))
            completion_times[order] = self.stream.completion
        held = remaining = np.broadcast_to(0.0, len(self.run.workload))  # these take no memory
        present, arrived = int(state["present"]), int(state["arrived"])
        if present > 0 or arrived < len(self.run.workload):
            held, remaining = np.zeros(len(self.run.workload)), np.zeros(len(self.run.workload))
            order = np.arange(len(self.run.workload)) if order is None else order
            remaining[order[arrived:]] = self.stream.sizes[arrived:]
        if present > 0:
            assert order is not None
            listed = order[self.queue.number[:present]]
            policy = self.policy if self.calibration is None else self.policy.at_level(self._level)
            row = policy.row(present, self.run.servers, self.speedup, whole=False)
            held[listed[::-1][: len(row)]] = row
            remaining[listed] = self._remaining(present)
        return Outcome(
            completion_times=completion_times,
            events=int(state["events"]),
            server_seconds=float(state["busy_seconds"]) * self.run.servers,
            job_seconds=float(state["job_seconds"]),
            allocations=int(state["allocations"]),
            phases=None,
            tally=None,
            held=held,
            remaining=remaining,
        )

    def _remaining(self, present: int) -> FloatArray:
        """Return what remains of the jobs in the system when the run stops."""
        state, level = self.state[0], self._level
        passed = (state["stop_at"] - state["now"]) * self.table.speed[level, present]
        idle = int(self.table.idle[level])
        done = np.zeros(present)
        done[idle:] = self.table.base[level, idle + 1 : present + 1]
        done *= state["virtual_time"] + passed
        remaining: FloatArray = np.maximum(self.queue.work[:present] - done, 0.0)
        return remaining

    # --- rates ------------------------------------------------------------------------------------

    @property
    def _level(self) -> int:
        return 0 if self.calibration is None else int(self.calibration.sums["level"][0])

    def _create_table(self, room: int) -> RateTable:
        """Return a table without rates; memory that is not used takes no space."""
        shape, wide = (self.levels, room + 1), (self.levels, room + self._places_behind)
        of_drops = wide if self.policy.is_calibrated else (1, 1)
        return RateTable(
            base=np.zeros(wide),
            inverse=np.empty(shape),
            pace=np.empty(shape),
            speed=np.empty(shape),
            fewest=np.ones(self.levels, dtype=np.int64),
            most=np.zeros(self.levels, dtype=np.int64),
            idle=np.zeros(self.levels, dtype=np.int64),
            drop=np.zeros(of_drops),
            log_drop=np.zeros(of_drops),
            squared_log_drop=np.zeros(of_drops),
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
        if self.calibration is not None:
            self._add_drops(level, rates.most)

    def _add_drops(self, level: int, most: int) -> None:
        """Add how much the ranks up to the last one differ from the next."""
        assert self.calibration is not None
        base, log_rank = self.table.base[level], self.calibration.log_rank[: most + 1]
        product = base[: most + 1].copy()
        for drops in (self.table.drop, self.table.log_drop, self.table.squared_log_drop):
            drops[level, :most] = product[:-1] - product[1:]
            drops[level, most] = 0.0
            product *= log_rank

    def _compute_rates_again(self, level: int, jobs: int, room: int) -> RankRates:
        policy = self.policy if self.calibration is None else self.policy.at_level(level)
        rates = policy.rank_rates(jobs, room, self.run.servers, self.speedup)
        assert rates is not None
        return rates


def _count_most_at_once(arrivals: FloatArray) -> int:
    """Return the most jobs that arrive at the same time."""
    starts = np.flatnonzero(np.diff(arrivals, prepend=-np.inf))
    return int(np.diff(starts, append=len(arrivals)).max())


def _weigh_work(arrivals: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return what a unit of work of each job counts in the calibration."""
    weights, total, first = np.empty(len(sizes)), 0.0, 0
    while first < len(sizes):  # in parts that stay in the processor's cache
        last = arrivals[min(first + _JOBS_AT_A_TIME, len(sizes)) - 1]
        part = slice(first, int(np.searchsorted(arrivals, last, side="right")))
        log_sizes = np.log(sizes[part])
        usual = np.empty(len(log_sizes))
        total = find_usual_sizes(arrivals[part], log_sizes, first, total, usual)
        weights[part] = weigh_size(log_sizes, usual)
        weights[part] /= sizes[part]
        first = part.stop
    return weights
