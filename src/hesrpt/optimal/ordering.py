"""The order in which jobs should end.

With one speedup for all jobs, shortest-first is optimal for *every* concave speedup if smaller jobs
weigh no less than larger ones. Proof: let b be no larger than a, weigh no less, and end after a.
Swap what the two hold during a part of the time before a's end, such that b now ends at that time.
What remains of a is then what remained of b, so a can end when b did. No other job is affected, and
the cost does not rise.

In all other cases the best order is not known beforehand. For a few jobs we search all orders by
branch and bound. More jobs are sorted by their time alone on the whole system per weight, and then
moved as long as the bound Σ v_i x_i falls. Both come close to the best of all schedules (see
docs/explanation/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import expm1, inf, log, log1p

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.closed_form_batch import sort_by_size
from hesrpt.optimal.execution import execute
from hesrpt.optimal.recursion import JobValues, compute_job_values
from hesrpt.speedups import PowerLaw, SpeedupVector

# Up to this many jobs, all orders are searched.
_FEW_JOBS = 5
# Moving a job also changes the values of jobs that end earlier: noticeably for the next few if
# speedups differ, hardly at all if all jobs share one.
_HORIZON_MIXED, _HORIZON_SHARED = 8, 0
# A job may move by this many places divided by the number of jobs, but always by at least one.
_REACH = 60
_MAX_SWEEPS = 10
# With hundreds of jobs, or speedups of many families, moving one job gains little and takes long to
# evaluate.
_MAX_TRIALS = 500


def find_proven_order(
    sizes: FloatArray, speedups: SpeedupVector, weights: FloatArray | None
) -> tuple[IntArray, FloatArray] | None:
    """Return the jobs shortest first, and their sizes; None if that order is not proven optimal.

    Of jobs of equal size, the heavier ends first, then the one that was given first.
    """
    if speedups.shared is None:
        return None
    order, sizes_in_order = sort_by_size(sizes)
    if weights is None or _is_falling(weights[order]):
        return order, sizes_in_order
    order = np.lexsort((-weights, sizes))
    return (order, sizes_in_order) if _is_falling(weights[order]) else None


def _is_falling(weights: FloatArray) -> bool:
    return bool(np.all(weights[1:] <= weights[:-1]))


def find_good_order(
    sizes: FloatArray, speedups: SpeedupVector, servers: float, weights: FloatArray
) -> IntArray:
    """Return the jobs from the first to end to the last, in an order that is good but unproven."""
    usable = speedups.demand(np.zeros(len(sizes)), servers)
    time_alone = sizes / speedups.rate(usable)
    start = np.argsort(time_alone / weights, kind="stable")[::-1]
    batch = _Batch(sizes, speedups, servers, weights, time_alone)
    if len(sizes) <= _FEW_JOBS:
        return _search_all_orders(batch, start)[::-1]
    if isinstance(speedups.shared, PowerLaw):
        return _exchange_neighbours(start, sizes, weights, speedups.shared.p)[::-1]
    moved = _move_jobs(batch, start)
    return min(moved, start, key=batch.cost)[::-1]


class _Batch:
    """Jobs that are to be ordered. All orders run from the last job to end to the first."""

    def __init__(
        self,
        sizes: FloatArray,
        speedups: SpeedupVector,
        servers: float,
        weights: FloatArray,
        time_alone: FloatArray,
    ) -> None:
        self.sizes, self.speedups, self.servers, self.weights = sizes, speedups, servers, weights
        self.lowest_costs = weights * time_alone  # a lower bound on the cost of each job

    def values(
        self, jobs: IntArray, previous: JobValues | None = None, known: int = 0
    ) -> JobValues:
        """Return the values of jobs; the first ``known`` are copied from ``previous``."""
        speedups = self.speedups.take(jobs)
        return compute_job_values(speedups, self.servers, self.weights[jobs], previous, known)

    def cost(self, order: IntArray) -> float:
        """Return the weighted flow time that results from an order."""
        execution = execute(
            self.sizes,
            self.speedups,
            self.servers,
            self.weights,
            first_to_last=order[::-1],
            ends_in_order=False,
        )
        return float(self.weights @ execution.completion_times)


def _search_all_orders(batch: _Batch, start: IntArray) -> IntArray:
    """Return the order with the least cost, by branch and bound from the last job to the first."""
    best, least = start, batch.cost(start)
    jobs = len(start)
    # A branch is the end of an order, the values of its jobs, and their part of the bound.
    branches: list[tuple[list[int], JobValues | None, float]] = [([], None, 0.0)]
    while branches:
        placed, previous, bound = branches.pop()
        if bound + batch.lowest_costs.sum() - batch.lowest_costs[placed].sum() >= least:
            continue
        if len(placed) == jobs:
            order = np.array(placed)
            if (cost := batch.cost(order)) < least:
                best, least = order, cost
            continue
        # The last branch is searched first: the one that follows the initial order.
        for job in [job for job in start.tolist() if job not in placed][::-1]:
            values = batch.values(np.array([*placed, job]), previous, len(placed))
            next_bound = bound + float(values.values[-1]) * float(batch.sizes[job])
            branches.append(([*placed, job], values, next_bound))
    return best


def _exchange_neighbours(
    start: IntArray, sizes: FloatArray, weights: FloatArray, p: float
) -> IntArray:
    """Return an order that no exchange of two neighbours improves, for one power law.

    The values of all other jobs do not depend on the order of two neighbours.
    """
    order, size, weight = start.tolist(), sizes.tolist(), weights.tolist()

    def part_of_bound(job: int, before: float) -> float:
        """Return v x / N^−p of a job, given the weight of the jobs that end after it."""
        up_to = before + weight[job]
        ratio = weight[job] / up_to
        log_rest = log1p(-ratio) if ratio < 0.5 else log(before / up_to) if before > 0 else -inf
        own = -expm1(log_rest / (1 - p))
        return float(up_to * own ** (1 - p) * size[job])

    for _ in range(_MAX_SWEEPS):
        before, has_changed = 0.0, False
        for place in range(len(order) - 1):
            a, b = order[place], order[place + 1]
            as_is = part_of_bound(a, before) + part_of_bound(b, before + weight[a])
            exchanged = part_of_bound(b, before) + part_of_bound(a, before + weight[b])
            if exchanged < as_is * (1 - 1e-12):
                order[place], order[place + 1] = b, a
                has_changed = True
            before += weight[order[place]]
        if not has_changed:
            break
    return np.array(order)


def _move_jobs(batch: _Batch, start: IntArray) -> IntArray:
    """Return an order whose bound no move of a job to a nearby place seems to improve."""
    order = start.copy()
    horizon = _HORIZON_MIXED if batch.speedups.shared is None else _HORIZON_SHARED
    reach = max(_REACH // len(order), 1)
    untried = np.ones(len(order) - 1, dtype=bool)
    trials, max_trials = 0, _MAX_TRIALS // batch.speedups.passes
    for _ in range(_MAX_SWEEPS):  # with a limited horizon, moves may repeat forever
        values: JobValues | None = None
        known = 0  # the number of entries of `values` that are valid for the current order
        for place in np.flatnonzero(untried).tolist():
            untried[place] = False
            for moved in _moves(order, place, reach):
                if (trials := trials + 1) > max_trials:
                    return order
                stop = min(place + len(moved) + horizon, len(order))
                if known < stop:
                    values, known = batch.values(order[:stop], values, known), stop
                assert values is not None
                trial = order[:stop].copy()
                trial[place : place + len(moved)] = moved
                trial_values = batch.values(trial, values, place)
                bound = values.values[place:stop] @ batch.sizes[order[place:stop]]
                if trial_values.values[place:] @ batch.sizes[trial[place:]] < bound * (1 - 1e-9):
                    order[:stop], values, known = trial, trial_values, stop
                    untried[max(place - reach - horizon, 0) : place + len(moved)] = True
    return order


def _moves(order: IntArray, place: int, reach: int) -> Iterator[IntArray]:
    """Yield the jobs from a place on, with the first job moved back or a later one to the front."""
    for last in range(place + 1, min(place + reach + 1, len(order))):
        jobs = order[place : last + 1]
        yield np.roll(jobs, -1)
        if len(jobs) > 2:
            yield np.roll(jobs, 1)
