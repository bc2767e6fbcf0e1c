"""In which order jobs should end.

With one speedup for all jobs, let b be no larger than a and weigh no less. If a ends first, swap
what the two hold during just so much of the time before that b ends then instead; what is left of a
is what was left of b, so a can end when b did. Nobody else notices, and the cost does not rise:
where smaller jobs weigh no less, shortest-first is optimal for *every* speedup.

In all other cases the best order is not known beforehand. Of a few jobs, all orders are searched,
by branch and bound. More jobs are listed by their time alone on the whole system per weight, and
moved to other places as long as the bound Σ v_i x_i falls. Both come close to the best schedule of
all (see docs/explanation/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import expm1, inf, log, log1p

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.closed_form import shortest_first
from hesrpt.optimal.decisions import decide
from hesrpt.optimal.recursion import Values, job_values
from hesrpt.speedups import PowerLaw, SpeedupVector

# So many jobs have few enough orders to search them all.
_FEW = 5
# A change of order also changes the values of jobs that end before: noticeably of the next few if
# speedups differ, and hardly at all if they are the same.
_HORIZON_MIXED, _HORIZON_SHARED = 8, 0
# A job may change places with one that is as far away as this divided by the number of jobs; with
# its neighbours always.
_REACH = 60
_MOST_SWEEPS = 10
# With hundreds of jobs a better place for one of them gains little, and takes long to find. So it
# does with many kinds of speedup.
_MOST_TRIALS = 500


def provably_shortest_first(
    sizes: FloatArray, speedups: SpeedupVector, weights: FloatArray | None
) -> tuple[IntArray, FloatArray] | None:
    """Return the jobs shortest first and their sizes, or nothing where that is no proven order.

    Of jobs of the same size the heavier ends first, then the one given first.
    """
    if speedups.shared is None:
        return None
    order, in_order = shortest_first(sizes)
    if weights is None or _falls(weights[order]):
        return order, in_order
    order = np.lexsort((-weights, sizes))
    return (order, in_order) if _falls(weights[order]) else None


def _falls(weights: FloatArray) -> bool:
    return bool(np.all(weights[1:] <= weights[:-1]))


def promising_order(
    sizes: FloatArray, speedups: SpeedupVector, servers: float, weights: FloatArray
) -> IntArray:
    """Return the jobs from the first to end to the last, in an order that is good but unproven."""
    usable = speedups.demand(np.zeros(len(sizes)), servers)  # past its peak a job would slow down
    time_alone = sizes / speedups.rate(usable)
    start = np.argsort(time_alone / weights, kind="stable")[::-1]
    batch = _Batch(sizes, speedups, servers, weights, time_alone)
    if len(sizes) <= _FEW:
        return _search_all(batch, start)[::-1]
    if isinstance(speedups.shared, PowerLaw):
        return _exchange_neighbours(start, sizes, weights, speedups.shared.p)[::-1]
    moved = _move_jobs(batch, start)
    return min(moved, start, key=batch.cost)[::-1]


class _Batch:
    """Jobs to be ordered. All orders are from the last to end to the first."""

    def __init__(
        self,
        sizes: FloatArray,
        speedups: SpeedupVector,
        servers: float,
        weights: FloatArray,
        time_alone: FloatArray,
    ) -> None:
        self.sizes, self.speedups, self.servers, self.weights = sizes, speedups, servers, weights
        self.least_costs = weights * time_alone  # what each job costs at least

    def values(self, jobs: IntArray, keep: Values | None = None, known: int = 0) -> Values:
        """Return the values of jobs, of which the first ``known`` stand in ``keep``."""
        speedups = self.speedups.take(jobs)
        return job_values(speedups, self.servers, self.weights[jobs], keep, known)

    def cost(self, order: IntArray) -> float:
        """Return the weighted flow time that comes of an order."""
        first_to_last = order[::-1]
        outcome = decide(
            self.sizes, self.speedups, self.servers, self.weights, first_to_last, in_order=False
        )
        return float(self.weights @ outcome.completion_times)


def _search_all(batch: _Batch, start: IntArray) -> IntArray:
    """Return the order with the least cost, by branch and bound from the last job to the first."""
    best, least = start, batch.cost(start)
    jobs = len(start)
    # Places of an order that are decided, their values, and their part of the bound.
    branches: list[tuple[list[int], Values | None, float]] = [([], None, 0.0)]
    while branches:
        placed, keep, bound = branches.pop()
        if bound + batch.least_costs.sum() - batch.least_costs[placed].sum() >= least:
            continue
        if len(placed) == jobs:
            order = np.array(placed)
            if (cost := batch.cost(order)) < least:
                best, least = order, cost
            continue
        # The branches that follow the order at the start are looked at first.
        for job in [job for job in start.tolist() if job not in placed][::-1]:
            values = batch.values(np.array([*placed, job]), keep, len(placed))
            further = bound + float(values.values[-1]) * float(batch.sizes[job])
            branches.append(([*placed, job], values, further))
    return best


def _exchange_neighbours(
    start: IntArray, sizes: FloatArray, weights: FloatArray, p: float
) -> IntArray:
    """Return the order of which no two neighbours had better change places, for one power law.

    The values of other jobs do not depend on the order of two neighbours.
    """
    order, size, weight = start.tolist(), sizes.tolist(), weights.tolist()

    def part_of_bound(job: int, before: float) -> float:
        """Return v x / N^−p of a job, given the weight of those that end after it."""
        up_to = before + weight[job]
        ratio = weight[job] / up_to
        log_rest = log1p(-ratio) if ratio < 0.5 else log(before / up_to) if before > 0 else -inf
        own = -expm1(log_rest / (1 - p))
        return float(up_to * own ** (1 - p) * size[job])

    for _ in range(_MOST_SWEEPS):
        before, changed = 0.0, False
        for place in range(len(order) - 1):
            a, b = order[place], order[place + 1]
            as_is = part_of_bound(a, before) + part_of_bound(b, before + weight[a])
            other = part_of_bound(b, before) + part_of_bound(a, before + weight[b])
            if other < as_is * (1 - 1e-12):
                order[place], order[place + 1] = b, a
                changed = True
            before += weight[order[place]]
        if not changed:
            break
    return np.array(order)


def _move_jobs(batch: _Batch, start: IntArray) -> IntArray:
    """Return an order that no move of a job to another place nearby seems to improve."""
    order = start.copy()
    horizon = _HORIZON_MIXED if batch.speedups.shared is None else _HORIZON_SHARED
    reach = max(_REACH // len(order), 1)
    untried = np.ones(len(order) - 1, dtype=bool)
    trials, most_trials = 0, _MOST_TRIALS // batch.speedups.passes
    for _ in range(_MOST_SWEEPS):  # a limited horizon may go round in circles
        values: Values | None = None
        known = 0  # how many of `values` hold for the present order
        for place in np.flatnonzero(untried).tolist():
            untried[place] = False
            for changed in _changes(order, place, reach):
                if (trials := trials + 1) > most_trials:
                    return order
                stop = min(place + len(changed) + horizon, len(order))
                if known < stop:
                    values, known = batch.values(order[:stop], values, known), stop
                assert values is not None
                trial = order[:stop].copy()
                trial[place : place + len(changed)] = changed
                trial_values = batch.values(trial, values, place)
                bound = values.values[place:stop] @ batch.sizes[order[place:stop]]
                if trial_values.values[place:] @ batch.sizes[trial[place:]] < bound * (1 - 1e-9):
                    order[:stop], values, known = trial, trial_values, stop
                    untried[max(place - reach - horizon, 0) : place + len(changed)] = True
    return order


def _changes(order: IntArray, place: int, reach: int) -> Iterator[IntArray]:
    """Yield the jobs from a place on with the first one moved back, or a later one to the front."""
    for last in range(place + 1, min(place + reach + 1, len(order))):
        jobs = order[place : last + 1]
        yield np.roll(jobs, -1)
        if len(jobs) > 2:
            yield np.roll(jobs, 1)
