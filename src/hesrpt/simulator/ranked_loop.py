"""Simulates policies whose rates are products, such as EQUI and heSRPT.

The loop itself is compiled (:mod:`hesrpt.simulator.ranked_kernel`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.parallel import stop_if_requested
from hesrpt.policies import RankedPolicy, as_ranked, calibration
from hesrpt.policies.ranked import RankRates
from hesrpt.simulator import ranked_kernel
from hesrpt.simulator.calibration_kernel_data import create_calibration
from hesrpt.simulator.kernel_data import create_record
from hesrpt.simulator.ranked_kernel_data import Queue, RankedState, RateTable, Stream
from hesrpt.simulator.runs import EVENTS_AT_A_TIME, Outcome, Progress, Run, find_arrival_order
from hesrpt.speedups import Speedup

# The first rates are for at least this many jobs in the system.
_FEW_JOBS = 255
# If p is close to 1, each rates hold for few numbers of jobs: so many are kept.
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


class RankedLoop:
    """The caller of the compiled loop, for one run."""

    def __init__(
        self, run: Run, policy: RankedPolicy, speedup: Speedup, uniform: bool, stop_at: float
    ) -> None:
        workload, jobs = run.workload, run.jobs
        self.run, self.policy, self.speedup = run, policy, speedup
        self.order = find_arrival_order(workload.arrivals, workload.sizes, by_size=True)
        arrivals, sizes = workload.arrival_times[self.order], workload.sizes[self.order]
        self.stream = Stream(
            arrivals=arrivals,
            sizes=sizes,
            completion=np.full(jobs, np.nan),
            weights=_weigh_work(arrivals, sizes) if policy.is_calibrated else np.empty(0),
        )
        sums = jobs if policy.is_calibrated else 1
        self.queue = Queue(
            number=np.empty(jobs, dtype=np.int64),
            work=np.empty(jobs),
            # Zeros, because the loop also adds to entries behind the last job.
            spread=np.zeros(sums),
            lean=np.zeros(sums),
            height=np.zeros(sums),
        )
        self.levels = calibration.LEVELS + 1 if policy.is_calibrated else 1
        first = int(np.searchsorted(self.stream.arrivals, self.stream.arrivals[0], side="right"))
        self.table = self._create_table(max(min(_FEW_JOBS, jobs), first))
        self._compute_rates = lru_cache(_MAX_CACHED)(self._compute_rates_again)
        self.calibration = None
        if policy.is_calibrated:
            self.calibration = create_calibration(1, self.table.base.shape[1])
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
                progress(int(self.state["arrived"][0]), self.run.jobs)
            if reason in (ranked_kernel.DONE, ranked_kernel.STOPPED):
                return self._outcome()

    def _outcome(self) -> Outcome:
        state = self.state[0]
        completion_times, held, remaining = (np.empty(self.run.jobs) for _ in range(3))
        completion_times[self.order] = self.stream.completion
        held[:], remaining[:] = 0.0, 0.0
        remaining[self.order[state["arrived"] :]] = self.stream.sizes[state["arrived"] :]
        if present := int(state["present"]):
            listed = self.order[self.queue.number[:present]]
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
        return 0 if self.calibration is None else self.calibration.level

    def _create_table(self, most: int) -> RateTable:
        """Return a table without rates; memory that is not used takes no space."""
        shape = self.levels, most + 1
        return RateTable(
            base=np.zeros(shape),  # the loop may read entries that are not set
            inverse=np.empty(shape),
            pace=np.empty(shape),
            speed=np.empty(shape),
            fewest=np.ones(self.levels, dtype=np.int64),
            most=np.zeros(self.levels, dtype=np.int64),
            idle=np.zeros(self.levels, dtype=np.int64),
        )

    def _add_rates(self, jobs: int) -> None:
        """Add the rates for this number of jobs, at the present level."""
        level, room = self._level, self.table.base.shape[1] - 1
        if jobs > room:
            room = min(2 * jobs, self.run.jobs)
            self.table = self._create_table(room)
            if self.calibration is not None:
                self.calibration = self.calibration.with_room(room + 1)
        rates = self._compute_rates(level, jobs, room)
        table, here = self.table, slice(rates.first, rates.most + 1)
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


def _weigh_work(arrivals: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return what a unit of work of each job counts in the calibration."""
    log_sizes = np.log(sizes)
    usual = np.cumsum(log_sizes) / np.arange(1, len(sizes) + 1)
    joins = arrivals[1:] == arrivals[:-1]
    if joins.any():  # of those that arrive at the same time, all know what the last one knows
        lasts = np.flatnonzero(np.append(~joins, True))
        usual = np.repeat(usual[lasts], np.diff(lasts, prepend=-1))
    return calibration.weigh_sizes(log_sizes, usual) / sizes
