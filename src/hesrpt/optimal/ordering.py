"""The order in which jobs should end.

Unless shortest-first is proven to be optimal (:func:`hesrpt.optimal.planner.find_proven_order`),
the best order is not known beforehand. For a few jobs we search all orders by branch and bound. For
more jobs, we start from a simple order and improve it in two ways, as long as its cost falls: jobs
are sorted by when they would end if servers were allocated for that order, and single jobs are
moved by a few places. Many jobs are first sorted by when each would end if it paid for servers. The
results come close to the best of all schedules (see docs/explanation/benchmarks.md).

Σ v_k x_k is what an order costs if jobs end in that order. Otherwise jobs that end earlier make it
cheaper. Inside, jobs are listed from the last to end to the first. A row of ``line`` belongs to a
place in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.optimal.closed_form import solve_batch
from hesrpt.optimal.execution import execute
from hesrpt.optimal.ordering_kernel import exchange_neighbours, find_ends, move_jobs
from hesrpt.optimal.price_search import PricedJobs, merge_phases
from hesrpt.optimal.recursion import JobValues, compute_job_values
from hesrpt.optimal.recursion_kernel import Precision, value_places
from hesrpt.optimal.response_kernel import (
    COLUMNS,
    COVERED,
    PRICE,
    VALUE,
    Batch,
    create_response_sums,
)
from hesrpt.speedups import PowerLaw, SpeedupVector

# How long the search goes on. Behind a dash is what the setting gains in cost, on average and at
# most, and what part of the time it takes, on 537 random batches of 6 to 4,000 jobs with different
# speedups.

# An error of a price has only a second-order effect on the value, so one or two steps from a good
# guess are enough for a search.
_PRECISION = Precision(close=1e-6, exact=1e-11, likely=1e-11)
# Up to this many jobs, all orders are searched.
_FEW_JOBS = 5
# With more jobs than this, only the best two of three initial orders are improved. With more than
# that, these are the best one, and one that is sorted by prices; with very many jobs, only the
# latter. — Three orders instead of one: 0.07% (at most 0.8%) for 51 to 100 jobs, 0.13% (0.8%) for
# up to 320; a fifth to a third of the time.
_SOME_JOBS, _MANY_JOBS, _VERY_MANY_JOBS = 50, 300, 3_000
# Orders are sorted at most this often. — 40 sorts instead of 10: up to 0.01% for 51 to 100 jobs; 4%
# of the time. Several sorts of many jobs instead of one: 0.003% (0.04%); 8%.
_MAX_SORTS, _MAX_SORTS_OF_MANY, _MAX_SORTS_BY_PRICES = 40, 4, 6
# Many jobs are sorted by prices this often, on this many intervals.
_PRICINGS, _INTERVALS, _SMOOTHING = 2, 100, 0.003
# Jobs move by up to this many places divided by the number of jobs, but always by at least one, and
# the values of this many more jobs are computed. Up to a dozen jobs, that is all of them. — 200
# instead of 100: 0.004% (0.12%) for 51 to 100 jobs; a quarter to a third of the time.
_REACH = 200
_HORIZON, _MIN_HORIZON, _MAX_HORIZON = 400, 3, 12
# How often all jobs are tried, and the relative gain that is worth another time; the same for very
# many jobs. — 12 times instead of 4: 0.01% (0.08%) for more than 320 jobs; half of the time.
_MAX_SWEEPS, _ENOUGH, _ENOUGH_FOR_MANY = 12, 1e-10, 1e-6
# Up to this many jobs, moves by this many places divided by the number of jobs are tried at last,
# with the values of more jobs, and then of all of them. — 0.01% (0.12%) for 31 to 100 jobs; a third
# of the time.
_MAX_EXACT, _EXACT_REACH = 100, 150
_EXACT_HORIZONS = 40, 100
# Moves that ignore the phases before are by up to this many places, divided by the number of jobs,
# and the values of this many more jobs are computed. — Up to 0.02% for 10 to 30 jobs; an eighth of
# the time.
_NEAR, _NEAR_HORIZON = 60, 8
# Neighbours are exchanged at most this many times for each job.
_MAX_EXCHANGES = 50
# Improvements end after about this many steps: half a minute at most.
_MAX_STEPS = 1_000_000_000


def find_good_order(
    sizes: FloatArray, speedups: SpeedupVector, servers: float, weights: FloatArray
) -> IntArray:
    """Return the jobs from the first to end to the last, in an order that is good but unproven."""
    if isinstance(speedups.shared, PowerLaw) and len(sizes) > _FEW_JOBS:
        return _order_for_power_law(sizes, weights, speedups.shared.p)
    usable = speedups.demand(np.zeros(len(sizes)), servers)
    time_alone = sizes / speedups.rate(usable)
    start = np.argsort(time_alone / weights, kind="stable")[::-1]

    def find_cost(order: IntArray) -> float:
        """Return the weighted flow time that results from an order."""
        run = execute(sizes, speedups, servers, weights, order[::-1], ends_in_order=False)
        return float(weights @ run.completion_times)

    if len(sizes) <= _FEW_JOBS:
        alone = weights * time_alone
        found = _search_all_orders(sizes, speedups, servers, weights, alone, start, find_cost)
        return found[::-1]
    starts = [start]
    for part in (len(sizes) ** -0.5, 1 / len(sizes)):
        rates = speedups.rate(np.minimum(usable, part * servers))
        starts.append(np.argsort(sizes / rates / weights, kind="stable")[::-1])
    search = _Search(sizes, speedups, servers, weights)
    found = search.run(starts)
    if len(sizes) <= _SOME_JOBS:
        # A search is guided by Σ v x. What an order costs in the end may be less.
        found = min(found, search.improve_nearby(start), key=find_cost)
    return found[::-1]


def _order_for_power_law(sizes: FloatArray, weights: FloatArray, p: float) -> IntArray:
    """Return an order in which jobs do end, and that no exchange of two neighbours improves.

    Jobs sorted by x / w^p end in order. With many jobs, that is nearly the best order: beside the
    weight W of all jobs that end later, a job's value times its size is about x w^(1−p) W^p, so an
    exchange changes the cost by the difference of x / w^p. With few jobs, another start may be
    better.
    """

    def improve(start: IntArray) -> IntArray:
        order, most = start.copy(), _MAX_EXCHANGES * len(sizes)
        if exchange_neighbours(order, sizes, weights, p, False, most):
            return order
        return order if exchange_neighbours(order, sizes, weights, p, True, most) else in_order

    def find_cost(order: IntArray) -> float:
        return solve_batch(sizes[order], order, 1.0, p, weights[order]).total_value

    in_order = np.argsort(sizes / weights**p, kind="stable")[::-1]
    found = [in_order, improve(in_order)]
    if len(sizes) <= _MANY_JOBS:
        found.append(improve(np.argsort(sizes / weights, kind="stable")[::-1]))
    return min((order[::-1] for order in found), key=find_cost)


class _Search:
    """A search for an order; all orders run from the last job to end to the first."""

    def __init__(
        self, sizes: FloatArray, speedups: SpeedupVector, servers: float, weights: FloatArray
    ) -> None:
        self.speedups = speedups
        shapes = speedups.shapes(servers, tabulated=True)
        # Copies, because arrays that are read-only or not contiguous would be compiled for again.
        self.batch = Batch(shapes, sizes.copy(), weights.copy(), servers, False, np.inf)
        jobs = len(sizes)
        self.reach = min(max(_REACH // jobs, 1), jobs - 1)
        self.horizon = min(max(_HORIZON // jobs, _MIN_HORIZON), _MAX_HORIZON)
        self.line = np.zeros((jobs, COLUMNS))
        self.ends = np.empty(jobs)
        self.sums = create_response_sums(jobs), create_response_sums(jobs)  # for the kernel
        self.steps = 0

    def find_cost(self, order: IntArray) -> float:
        """Fill the line for an order, and return its cost Σ v x.

        The prices that the line has for another order are good guesses.
        """
        batch, line, jobs, response_sums = self.batch, self.line, len(order), self.sums[0]
        response_sums.counts[COVERED] = -1
        self.steps += value_places(batch, line, order, 0, jobs, _PRECISION, response_sums)
        return float(line[:, VALUE] @ batch.sizes[order])

    def run(self, starts: list[IntArray]) -> IntArray:
        """Return the best order found from some initial ones."""
        jobs = len(self.ends)
        starts = [np.ascontiguousarray(start) for start in starts]
        if jobs <= _MANY_JOBS:
            found = _rank(self.sort(start, _MAX_SORTS) for start in starts)
        else:
            _, best = _rank((self.find_cost(start), start) for start in starts)[0]
            found = [self.sort(self.sort_by_prices(best), _MAX_SORTS_BY_PRICES)]
            if jobs <= _VERY_MANY_JOBS:
                found.append(_rank(self.sort(start, _MAX_SORTS_OF_MANY) for start in starts)[0])
        if jobs <= _SOME_JOBS:
            found.append((np.inf, starts[0]))
        else:
            found = found[:2]
        found = _rank(self.improve(order) for _, order in found)
        if jobs <= _MAX_EXACT:
            found = found[: 1 if jobs > _SOME_JOBS else 2]
            self.reach = _EXACT_REACH // jobs
            for self.horizon in _EXACT_HORIZONS:
                found = _rank(self.improve(order) for _, order in found)[:1]
        return found[0][1]

    def sort_by_prices(self, order: IntArray) -> IntArray:
        """Sort jobs by when they would end if they paid the prices of an order for servers.

        Each job ends when that is cheapest for it. So unlike :meth:`sort`, this moves jobs by as
        many places as they should be moved, but not exactly.
        """
        batch, jobs = self.batch, len(order)
        priced = PricedJobs(
            batch.sizes, np.zeros(jobs), batch.weights, self.speedups, batch.servers
        )
        nothing, ends = np.empty((jobs + 1, 0)), np.empty(jobs)
        for _ in range(_PRICINGS):
            self.find_cost(order)
            find_ends(batch, order, self.line, self.ends, nothing)
            prices = merge_phases(np.sort(self.ends), self.line[::-1, PRICE], _INTERVALS)
            ends[priced.order] = priced.evaluate(prices, _SMOOTHING).ends
            order = np.argsort(-ends, kind="stable")
        return order

    def sort(self, order: IntArray, times: int) -> tuple[float, IntArray]:
        """Sort jobs by their ends several times; return the least cost and its order."""
        best, least = order, np.inf
        nothing = np.empty((len(order) + 1, 0))
        for _ in range(times):
            cost = self.find_cost(order)
            if cost >= least:
                break
            best, least = order, cost
            if find_ends(self.batch, order, self.line, self.ends, nothing) == 0:
                break
            order = order[np.argsort(-self.ends, kind="stable")]
        return least, best

    def improve_nearby(self, start: IntArray) -> IntArray:
        """Return an order that no move by few places seems to improve.

        Phases before a move are ignored: jobs count with their sizes, not with what remains.
        """
        jobs, order = len(start), start.copy()
        reach, horizon = max(_NEAR // jobs, 1), _NEAR_HORIZON
        self.find_cost(order)
        untried: BoolArray = np.ones(jobs, dtype=bool)
        places = np.arange(jobs + 1)[:, None] - np.arange(1, 2 * reach + horizon + 3)
        for _ in range(_MAX_SWEEPS):
            remaining = np.where(places < 0, 0.0, self.batch.sizes[order[places.clip(0)]])
            before = order.copy()
            self._move(order, remaining, untried, reach, horizon)
            if np.array_equal(order, before):
                break
        return order

    def improve(self, start: IntArray) -> tuple[float, IntArray]:
        """Return an order that neither moves nor sorting improve any more, and its cost."""
        batch, line, ends, jobs = self.batch, self.line, self.ends, len(start)
        remaining = np.zeros((jobs + 1, 2 * self.reach + self.horizon + 2))
        untried: BoolArray = np.ones(jobs, dtype=bool)
        order = start.copy()
        best, least = start, self.find_cost(order)
        for _ in range(_MAX_SWEEPS):
            if find_ends(batch, order, line, ends, remaining):
                by_end, kept = order[np.argsort(-ends, kind="stable")], line.copy()
                if (cost := self.find_cost(by_end)) < least:
                    if jobs > _MAX_EXACT:
                        untried[:] = True
                    else:
                        self._mark_changes(order, by_end, untried)
                    best, least, order = by_end, cost, by_end.copy()
                    find_ends(batch, order, line, ends, remaining)
                else:
                    line[:] = kept
            if self.steps > _MAX_STEPS:
                break
            self._move(order, remaining, untried, self.reach, self.horizon)
            cost = float(line[:, VALUE] @ batch.sizes[order])
            gain = 1 - cost / least
            if gain > 0:
                best, least = order.copy(), cost
            if gain <= (_ENOUGH if jobs <= _VERY_MANY_JOBS else _ENOUGH_FOR_MANY):
                break
        return least, best

    def _move(
        self, order: IntArray, remaining: FloatArray, untried: BoolArray, reach: int, horizon: int
    ) -> None:
        tried = remaining, untried, reach, horizon
        self.steps += move_jobs(self.batch, order, self.line, *tried, _PRECISION, *self.sums)

    def _mark_changes(self, order: IntArray, other: IntArray, untried: BoolArray) -> None:
        """Mark the places from which moves reach a place where two orders differ."""
        for place in np.flatnonzero(order != other):
            untried[max(place - self.reach - self.horizon, 0) : place + self.reach + 1] = True


def _rank(found: Iterable[tuple[float, IntArray]]) -> list[tuple[float, IntArray]]:
    """Return orders with their costs, cheapest first, each of them once."""
    distinct = {order.tobytes(): (cost, order) for cost, order in found}
    return sorted(distinct.values(), key=itemgetter(0))


def _search_all_orders(
    sizes: FloatArray,
    speedups: SpeedupVector,
    servers: float,
    weights: FloatArray,
    lowest_costs: FloatArray,
    start: IntArray,
    find_cost: Callable[[IntArray], float],
) -> IntArray:
    """Return the order with the least cost, by branch and bound from the last job to the first.

    ``lowest_costs`` are lower bounds on the cost of each job.
    """
    best, least = start, find_cost(start)
    # A branch is the end of an order, the values of its jobs, and their part of the bound.
    branches: list[tuple[list[int], JobValues | None, float]] = [([], None, 0.0)]
    while branches:
        placed, previous, bound = branches.pop()
        if bound + lowest_costs.sum() - lowest_costs[placed].sum() >= least:
            continue
        if len(placed) == len(start):
            order = np.array(placed)
            if (cost := find_cost(order)) < least:
                best, least = order, cost
            continue
        # The last branch is searched first: the one that follows the initial order.
        for job in [job for job in start.tolist() if job not in placed][::-1]:
            listed = np.array([*placed, job])
            values = compute_job_values(
                speedups.take(listed), servers, weights[listed], previous, len(placed)
            )
            next_bound = bound + float(values.values[-1]) * float(sizes[job])
            branches.append(([*placed, job], values, next_bound))
    return best
