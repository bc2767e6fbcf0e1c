"""Searching for the prices of servers that give the greatest bound.

The bound is concave in the prices: the sum of each job's least cost, less the price of all servers.
Each least cost is smoothed over the local minima of the job, so that a quasi-Newton method can
climb, and the smoothing is reduced in steps. Then the intervals are divided where jobs end, and the
search goes on from the same prices. Whatever it finds is only a suggestion: the bound follows from
the prices alone.

The search starts from the prices of equal shares. It climbs by L-BFGS with projections. SciPy's
calls a linear algebra library, whose threads keep all cores busy for longer than a small problem
takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray, IntArray, scalar
from hesrpt.optimal.price_kernel import MAX_MINIMA, Kinds, Minima, Path, add_usage, find_minima
from hesrpt.speedups import SpeedupVector
from hesrpt.speedups.shape_kernel import Shapes

# The steps of smoothing in each round, relative to the cost of a job.
_ROUNDS = (0.03, 0.01, 0.003), (0.01, 0.003), (0.01, 0.003, 0.001)
_CLIMBS = sum(len(steps) for steps in _ROUNDS)
# The search evaluates the bound this many times, but fewer if that takes too many steps.
_MAX_EVALUATIONS, _MIN_EVALUATIONS, _MAX_STEPS = 800, 48, 1_000_000_000
# With this many jobs, parts of the list are evaluated in parallel, and less often: three times as
# many evaluations gained 0.1% for 1,000 jobs.
_MANY_JOBS, _MAX_EVALUATIONS_OF_MANY = 150, 240
_PARTS = 4
# The first step of a climb, such that it needs no shorter one as a rule.
_FIRST_STEP = 0.3
# The last steps of a search with few jobs, and the relative gain that is worth another one.
_MAX_CUTS, _WORTHWHILE = 30, 3e-5
# Some schedules take longer than others, by such parts.
_LATER = 0.1, 0.3, 1.0
# Up to this many jobs, good prices are refined in one step, three or more.
_SOME_JOBS, _FEW_JOBS, _VERY_FEW_JOBS = 2_000, 50, 20
# Up to this many jobs, the step is long.
_LONG_STEP_JOBS = 80


class PricedJobs:
    """Jobs that pay for servers. The kernel needs them sorted by kind and arrival."""

    def __init__(
        self,
        sizes: FloatArray,
        arrivals: FloatArray,
        weights: FloatArray,
        speedups: SpeedupVector,
        servers: float,
    ) -> None:
        self.sizes, self.arrivals, self.weights = sizes, arrivals, weights
        self.speedups, self.servers = speedups, servers
        shapes = speedups.shapes(servers, tabulated=True)
        #: The jobs as the kernel and all results list them.
        self.order = np.lexsort((sizes, arrivals, weights, shapes.of_job))
        self._kinds = _create_kinds(
            sizes[self.order], weights[self.order], shapes, shapes.of_job[self.order]
        )
        jobs = len(sizes)
        self._minima = Minima(
            np.zeros(jobs, dtype=np.int64),
            np.empty((jobs, MAX_MINIMA)),
            np.empty((jobs, MAX_MINIMA), dtype=np.int64),
            np.empty((jobs, MAX_MINIMA)),
            np.empty((jobs, MAX_MINIMA), dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, jobs: IntArray) -> PricedJobs:
        """Return some of the jobs, given by their numbers."""
        chosen = self.sizes[jobs], self.arrivals[jobs], self.weights[jobs]
        return PricedJobs(*chosen, self.speedups.take(jobs), self.servers)

    def evaluate(
        self, path: Prices, smoothing: float, *, max_steps: int = 6, for_each: bool = False
    ) -> PricedCosts:
        """Return the costs of the jobs if they pay these prices.

        Every arrival must be one of the times. Costs are bounded from below; the more steps, the
        closer. The usage is that of all jobs together, or ``for_each`` of them.
        """
        times, prices = path.times, path.prices
        arrivals = np.searchsorted(times, self.arrivals[self.order])
        least, ends = np.empty(len(self)), np.empty(len(self))
        usage = np.zeros((len(self) if for_each else 1, len(prices)))
        with np.errstate(divide="ignore"):
            jobs = self._kinds, arrivals, Path(times, prices, np.log(prices))
        steps = find_minima(*jobs, _NEGLIGIBLE * smoothing, max_steps, least, self._minima)
        smoothed = add_usage(*jobs, least, self._minima, smoothing, usage, ends)
        return PricedCosts(least, smoothed, usage, ends, steps)


# Local minima this many times the smoothing above the least cost have no weight.
_NEGLIGIBLE = 10.0


@dataclass(frozen=True)
class PricedCosts:
    """What each job costs at given prices, and what it uses."""

    costs: FloatArray
    smoothed_total: float  # with the minimum over completion times smoothed
    usage: FloatArray  # a row with the server time in each interval: the gradient of the cost
    ends: FloatArray
    steps: int  # of the computation


def _create_kinds(
    sizes: FloatArray, weights: FloatArray, shapes: Shapes, shape_of_job: IntArray
) -> Kinds:
    """Return the kinds of jobs that are sorted by shape and weight."""
    is_first = np.ones(len(weights), dtype=bool)
    is_first[1:] = (np.diff(shape_of_job) != 0) | (np.diff(weights) != 0)
    first = np.flatnonzero(is_first)
    end = np.append(first[1:], len(weights))
    kinds = shape_of_job[first], weights[first], first, end
    return Kinds(sizes, shapes.records, shapes.corners, *kinds)


@dataclass(frozen=True)
class Prices:
    """Prices of a server, constant between ``times``: 0 before the first and after the last."""

    times: FloatArray
    prices: FloatArray

    def divide(self, at: FloatArray) -> Prices:
        """Return the same prices with more times, leaving out those that are nearly there."""
        at = np.sort(at[(at > self.times[0]) & (at < self.times[-1])])
        interval = np.searchsorted(self.times, at, side="right") - 1
        start, end = self.times[interval], self.times[interval + 1]
        with np.errstate(invalid="ignore", under="ignore"):
            part = (at - start) / (end - start)
            is_new = (part > 0.02) & (part < 0.98)
            far = np.diff(at, prepend=-np.inf) > 0.02 * (end - start)
        times = np.union1d(self.times, at[is_new & far])
        interval = np.searchsorted(self.times, times[:-1], side="right") - 1
        return Prices(times, self.prices[interval])

    def extend(self) -> Prices:
        """Return the same prices with later times: some schedules take longer."""
        first, last = self.times[0], self.times[-1]
        later = last + (last - first) * np.array(_LATER)
        return Prices(np.append(self.times, later), np.append(self.prices, np.zeros(len(_LATER))))


def search_prices(jobs: PricedJobs, report: Callable[[float], None]) -> tuple[Prices, FloatArray]:
    """Return prices for which the bound is about as great as it gets, and what jobs then cost.

    ``report`` is called with the part of the search that is done.
    """
    start = _start_prices(jobs)
    if len(jobs) < _MANY_JOBS:
        best = _Search([jobs], None, report).run(start)
    else:
        by_arrival = np.argsort(jobs.arrivals, kind="stable")
        parts = [jobs.take(part) for part in np.array_split(by_arrival, _PARTS)]
        with ThreadPoolExecutor(_PARTS) as threads:
            best = _Search(parts, threads, report).run(start)
    return best, _find_costs(jobs, best)


def refine_prices(
    best: Prices, jobs: PricedJobs, report: Callable[[float], None]
) -> tuple[Prices, FloatArray]:
    """Return better prices than some that are good already. The fewer jobs, the longer the search.

    Of many jobs, the bound is within a fraction of a percent of the optimum as it is.
    """
    search = _Search([jobs], None, report)
    search.evaluations = 10 if len(jobs) <= _LONG_STEP_JOBS else 4
    if len(jobs) <= _SOME_JOBS:
        best = search.climb(best, 0.003)
    if len(jobs) <= _FEW_JOBS:
        best = search.climb(best.extend(), 0.003)
        best = search.climb(best, 0.001)
    if len(jobs) <= _VERY_FEW_JOBS:
        middles = (best.times[1:] + best.times[:-1]) / 2
        best = best.divide(np.concatenate((search.find_ends(best, 0.001), middles)))
        best = search.polish(search.climb(search.climb(best, 0.003), 0.001))
    if search.climbed is not None and search.climbed[0] is best:
        return best, search.climbed[1][np.argsort(jobs.order)]
    return best, _find_costs(jobs, best)


def merge_phases(ends: FloatArray, prices: FloatArray, most: int) -> Prices:
    """Return the mean prices of phases in about ``most`` intervals at most.

    Intervals are short where prices change, where servers cost much, and in general.

    >>> merge_phases(np.array([1.0, 2.0, 2.0, 4.0]), np.array([3.0, 2.0, 9.0, 1.0]), 10)
    Prices(times=array([0., 1., 2., 4.]), prices=array([3., 2., 1.]))
    """
    is_long = np.diff(ends, prepend=0.0) > 1e-12 * ends[-1]
    ends, prices = ends[is_long], prices[is_long]
    paid = np.cumsum(prices * np.diff(ends, prepend=0.0))
    progress = 0.5 * ends / ends[-1]
    if paid[-1] > 0:
        logarithms = np.log(np.maximum(prices, 1e-9 * prices.max()))
        changes = np.cumsum(np.abs(np.diff(logarithms, prepend=logarithms[0])))
        progress += paid / paid[-1] + changes / max(float(changes[-1]), 1.0)
    steps = np.linspace(0.0, progress[-1], most + 1)[1:-1]
    last = np.unique(np.append(np.searchsorted(progress, steps), len(ends) - 1))
    times, paid = np.append(0.0, ends[last]), np.append(0.0, paid[last])
    return Prices(times, np.diff(paid) / np.diff(times))


def _find_costs(jobs: PricedJobs, best: Prices) -> FloatArray:
    """Return about what each job costs, in the order in which the jobs were given."""
    return jobs.evaluate(best, 1e-6, max_steps=100).costs[np.argsort(jobs.order)]


def _start_prices(jobs: PricedJobs) -> Prices:
    """Return p/N times the weight of all jobs present when servers are shared equally.

    These are the prices of a batch under a power law, apart from when its jobs end.
    """
    exponent = float(np.clip(np.mean(jobs.speedups.closest_exponents()), 0.05, 0.95))
    arrivals = jobs.arrivals
    ends = find_equal_share_ends(jobs.sizes, arrivals, jobs.speedups, jobs.servers)
    last = float(ends.max())
    later = last + (last - float(arrivals.max())) * np.array(_LATER)
    times = np.unique(np.concatenate((arrivals, ends, later)))
    changes = np.zeros(len(times))
    np.add.at(changes, np.searchsorted(times, arrivals), jobs.weights)
    np.add.at(changes, np.searchsorted(times, ends), -jobs.weights)
    present = np.maximum(np.cumsum(changes)[:-1], 0.0)
    present[times[:-1] >= last] = 0.0
    return Prices(times, exponent / jobs.servers * present)


class _Search:
    """A search for prices; it remembers the best that it has seen."""

    def __init__(
        self,
        parts: list[PricedJobs],
        threads: ThreadPoolExecutor | None,
        report: Callable[[float], None],
    ) -> None:
        self.parts, self.servers = parts, parts[0].servers
        self.threads, self.report = threads, report
        self.is_large = threads is not None
        self.evaluations = 0  # in each climb, at most
        self.climbs = 0  # so far
        #: The best prices of the last climb, and about what each job costs at these prices.
        self.climbed: tuple[Prices, FloatArray] | None = None

    def run(self, start: Prices) -> Prices:
        """Return the best prices found."""
        affordable = _MAX_STEPS / max(self._evaluate(start, _ROUNDS[0][0]).steps, 1)
        most = _MAX_EVALUATIONS_OF_MANY if self.is_large else _MAX_EVALUATIONS
        evaluations = np.clip(affordable, _MIN_EVALUATIONS, most)
        self.evaluations = int(evaluations / _CLIMBS)
        best = self._scale(start)
        for number, steps in enumerate(_ROUNDS):
            if number > 0:
                ends = self.find_ends(best, steps[-1] / 10)
                if not self.is_large and number == len(_ROUNDS) - 1:
                    ends = np.concatenate((ends, (best.times[1:] + best.times[:-1]) / 2))
                best = best.divide(ends)
            for smoothing in steps:
                best = self.climb(best, smoothing)
        return best if self.is_large else self.polish(best)

    def _scale(self, start: Prices) -> Prices:
        """Return the prices times a factor that suits them."""
        factors = 0.0, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5
        trials = [Prices(start.times, factor * start.prices) for factor in factors]
        return max(trials, key=lambda trial: self._evaluate(trial, _ROUNDS[0][0]).bound)

    def climb(self, start: Prices, smoothing: float) -> Prices:
        """Return the best prices found on the same intervals with one degree of smoothing."""
        times = start.times
        durations = np.maximum(np.diff(times), 1e-12 * (times[-1] - times[0]))
        typical = np.maximum(start.prices, 1e-3 * start.prices.max())
        if not typical.any():
            typical[:] = 1 / self.servers
        first = self._evaluate(start, smoothing)
        best, best_bound, costs = start, first.bound, first.costs
        scale = max(abs(first.smoothed), 1e-300)
        # Then a unit step changes the use of servers by about the same part in each interval,
        # whatever the units of time and size.
        unit = _FIRST_STEP * np.sqrt(scale * typical / (self.servers * durations))
        evaluations = 0

        def descend(position: FloatArray) -> tuple[float, FloatArray]:
            nonlocal best, best_bound, costs, evaluations
            here = Prices(times, position * unit)
            value = self._evaluate(here, smoothing) if evaluations else first
            evaluations += 1
            self.report((self.climbs + evaluations / self.evaluations) / _CLIMBS)
            if value.bound > best_bound:
                best, best_bound, costs = here, value.bound, value.costs
            return -value.smoothed / scale, value.spare * unit / scale

        minimise(descend, start.prices / unit, self.evaluations)
        self.climbs += 1
        self.climbed = best, costs
        return best

    def polish(self, start: Prices) -> Prices:
        """Return better prices on the same intervals, by cutting planes within a growing box.

        The cost of each job is concave in the prices, so what it costs and uses at some prices
        bounds its cost at all others. A linear program maximises these bounds near the best prices.
        This suits kinks, but takes too long for many jobs.
        """
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix, eye, hstack, vstack

        (jobs,), times = self.parts, start.times
        capacity = self.servers * np.diff(times)
        unit = np.maximum(start.prices, 1e-2 * start.prices.max())
        if not unit.any():
            return start  # no price is worth paying: jobs never meet
        best, best_bound, here, radius = start, -np.inf, start, 0.5
        scale = max(self._evaluate(start, _ROUNDS[-1][-1]).bound, 1e-300)
        cuts, limits = [], []
        for _ in range(_MAX_CUTS):
            priced = jobs.evaluate(here, 1e-6, max_steps=30, for_each=True)
            bound = float(priced.costs.sum() - capacity @ here.prices)
            if not np.isfinite(bound):
                break
            if bound > best_bound:
                best, best_bound, radius = here, bound, min(2 * radius, 1.0)
            else:
                radius /= 2
            # Costs are in units of the first bound, prices in units of the first ones.
            cuts.append(hstack([eye(len(jobs)), csr_matrix(-priced.usage * unit / scale)]))
            limits.append((priced.costs - priced.usage @ here.prices) / scale)
            middle = best.prices / unit
            solution = linprog(
                np.concatenate((-np.ones(len(jobs)), capacity * unit / scale)),
                A_ub=vstack(cuts).tocsr(),
                b_ub=np.concatenate(limits),
                bounds=[(None, None)] * len(jobs)
                + list(zip(np.maximum(middle - radius, 0.0), middle + radius, strict=True)),
                method="highs",
            )
            if solution.status != 0 or -solution.fun * scale < best_bound * (1 + _WORTHWHILE):
                break
            here = Prices(times, np.maximum(solution.x[len(jobs) :], 0.0) * unit)
        return best

    def find_ends(self, prices: Prices, smoothing: float) -> FloatArray:
        """Return the times at which jobs end if they pay these prices."""
        return self._evaluate(prices, smoothing).ends

    def _evaluate(self, prices: Prices, smoothing: float) -> _Value:
        run = map if self.threads is None else self.threads.map
        costs = list(run(lambda part: part.evaluate(prices, smoothing), self.parts))
        capacity = self.servers * np.diff(prices.times)
        paid = float(capacity @ prices.prices)
        return _Value(
            costs=np.concatenate([part.costs for part in costs]),
            bound=float(sum(part.costs.sum() for part in costs)) - paid,
            smoothed=sum(part.smoothed_total for part in costs) - paid,
            spare=capacity - sum(part.usage[0] for part in costs),
            ends=np.concatenate([part.ends for part in costs]),
            steps=sum(part.steps for part in costs),
        )


@dataclass(frozen=True)
class _Value:
    costs: FloatArray
    bound: float
    smoothed: float
    spare: FloatArray  # server time that is not used, in each interval
    ends: FloatArray
    steps: int


# A job has ended if this fraction of it is left, because of rounding.
_NOTHING_LEFT = 1e-12


def find_equal_share_ends(
    sizes: FloatArray, arrivals: FloatArray, speedups: SpeedupVector, servers: float
) -> FloatArray:
    """Return the time at which each job ends under equal shares.

    >>> from hesrpt.speedups import PowerLaw
    >>> speedups = SpeedupVector.repeat(PowerLaw(0.5), 2)
    >>> find_equal_share_ends(np.array([2.0, 3.0]), np.array([0.0, 9.0]), speedups, 4.0)
    array([ 1. , 10.5])
    """
    usable = speedups.demand(np.zeros(len(sizes)), servers)
    by_arrival = np.argsort(arrivals, kind="stable")
    times = np.append(arrivals[by_arrival], np.inf)
    ends, left = np.empty(len(sizes)), sizes.copy()
    present = by_arrival[:0]
    arrived, now = 0, float(times[0])
    while len(present) or arrived < len(sizes):
        if not len(present):
            now = float(times[arrived])
        new = int(np.searchsorted(times, now, side="right"))
        present = np.concatenate((present, by_arrival[arrived:new]))
        arrived = new
        share = servers / len(present)
        if (shared := speedups.shared) is not None:
            rates = shared.rate(scalar(min(share, float(usable[0]))))
        else:
            rates = speedups.rate(np.minimum(share, usable))[present]
        step = min(float((left[present] / rates).min()), float(times[arrived]) - now)
        left[present] -= step * rates
        has_ended = left[present] <= _NOTHING_LEFT * sizes[present]
        now = min(now + step, float(times[arrived]))
        ends[present[has_ended]] = now
        present = present[~has_ended]
    return ends


# How many changes of position and gradient are remembered.
_MEMORY = 30
# A step must gain this fraction of what the gradient promises. Otherwise a shorter one is tried, at
# least and at most by these factors, and this many times.
_ENOUGH, _SHORTEST, _LONGEST, _MAX_TRIALS = 1e-4, 0.1, 0.5, 10
# The search ends when a step gains less than this fraction.
_NO_GAIN = 1e-9

Changes = deque[tuple[FloatArray, FloatArray]]


def minimise(
    find_value: Callable[[FloatArray], tuple[float, FloatArray]], start: FloatArray, most: int
) -> FloatArray:
    """Return about where a function is least, after at most ``most`` evaluations.

    ``find_value`` returns its value and its gradient.

    >>> minimise(lambda x: (float((x - 1) @ (x - 1)), 2 * (x - 1)), np.array([5.0, 0.0]), 20)
    array([1., 1.])
    """
    here = start
    value, gradient = find_value(here)
    changes: Changes = deque(maxlen=_MEMORY)
    evaluations = 1
    while evaluations < most:
        is_free = (here > 0) | (gradient < 0)
        free_gradient = np.where(is_free, gradient, 0.0)
        direction = np.where(is_free, -_apply_two_loop_recursion(changes, free_gradient), 0.0)
        slope = float(direction @ free_gradient)
        if slope >= 0:  # what is remembered does not suit the variables that are free
            changes.clear()
            direction, slope = -free_gradient, -float(free_gradient @ free_gradient)
        if slope == 0:
            break
        step = 1.0
        for _ in range(min(_MAX_TRIALS, most - evaluations)):
            there = np.maximum(here + step * direction, 0.0)
            new_value, new_gradient = find_value(there)
            evaluations += 1
            promised = float(gradient @ (there - here))
            if new_value <= value + _ENOUGH * promised:
                break
            # Where a parabola through what is known has its minimum.
            rise = new_value - value - promised
            best = -0.5 * promised / rise if rise > 0 else 0.0
            step *= min(max(best, _SHORTEST), _LONGEST)
        else:
            if not changes:
                break
            changes.clear()
            continue
        if np.dot(there - here, new_gradient - gradient) > 0:
            changes.append((there - here, new_gradient - gradient))
        gain = value - new_value
        here, value, gradient = there, new_value, new_gradient
        if gain <= _NO_GAIN * abs(value):
            break
    return here


def _apply_two_loop_recursion(changes: Changes, gradient: FloatArray) -> FloatArray:
    """Return the gradient times the inverse of the second derivatives, as far as known."""
    parts = []
    result = gradient
    for moved, turned in reversed(changes):
        part = float(moved @ result) / float(moved @ turned)
        result = result - part * turned
        parts.append(part)
    if changes:
        moved, turned = changes[-1]
        result = result * (float(moved @ turned) / float(turned @ turned))
    for (moved, turned), part in zip(changes, reversed(parts), strict=True):
        result = result + (part - float(turned @ result) / float(moved @ turned)) * moved
    return result
