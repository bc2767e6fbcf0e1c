"""What a job costs at least if servers have a price, proven with rates alone.

J(C) is the least that a job of size x costs if it ends at C and pays for its servers. For any value
ψ of a unit of its work,

    J(C) ≥ H(ψ, C) = ψ x + ∫ from its arrival to C of (weight − π(ψ, μ(t))) dt,
    π(ψ, μ) = max over 0 ≤ n ≤ N of ψ s(n) − μ n.

H is linear in C where the price is constant, so it is enough to look at the ends of each interval.
Each interval needs only one value ψ for which H is high enough at both ends, and one ψ serves many
intervals. How these values are found does not matter, and profits are bounded from above with rates
alone. Nothing here uses the search for prices or its compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import fsum, inf

import numpy as np

from hesrpt.arrays import FloatArray, scalar
from hesrpt.optimal.earnings import bound_profits
from hesrpt.parallel import run_tasks
from hesrpt.speedups import Speedup
from hesrpt.workload import Workload

#: The relative rounding error of a product or a sum of two numbers.
ROUNDING = 2.3e-16
# The relative error that the rate of a speedup may have, also past the peak of its table.
_RATE_ERROR = 2e-12
# The distances from the demand at which rates are compared.
_STEPS = 1e-5, 1e-3
# A job that needs more values than this is given up: its bound is lower than it might be.
_MAX_VALUES = 400
# More jobs than this are divided between the cores.
_MANY_JOBS = 2000
_JOBS_AT_A_TIME = 250


def bound_job_costs(
    workload: Workload,
    servers: float,
    whole: bool,
    weights: FloatArray,
    times: FloatArray,
    prices: FloatArray,
    targets: FloatArray,
    report: Callable[[float], None] = lambda part: None,
) -> FloatArray:
    """Return lower bounds on what jobs cost if they pay for servers, ``targets`` at most.

    Prices are constant between ``times``, and 0 before and after. ``report`` is called with the
    part of the jobs that is done.
    """
    jobs = np.arange(len(workload))
    tasks = {
        number: partial(
            _bound_costs,
            workload.take(part),
            servers,
            whole,
            weights[part],
            times,
            prices,
            targets[part],
        )
        for number, part in enumerate(np.array_split(jobs, -(-len(jobs) // _JOBS_AT_A_TIME)))
    }
    done = 0

    def count(_: int) -> None:
        nonlocal done
        done += 1
        report(done / len(tasks))

    found = run_tasks(tasks, cores=1 if len(jobs) <= _MANY_JOBS else None, on_done=count)
    return np.concatenate([found[number] for number in tasks])


def _bound_costs(
    workload: Workload,
    servers: float,
    whole: bool,
    weights: FloatArray,
    times: FloatArray,
    prices: FloatArray,
    targets: FloatArray,
) -> FloatArray:
    exact, tables = workload.speedups, workload.speedups.tabulate(servers)
    if whole:
        exact, tables = exact.on_whole_servers(), tables.on_whole_servers()
    durations = np.diff(times)
    targets = np.where(np.isnan(targets), inf, targets)
    costs = np.empty(len(workload))
    for job, (arrival, target) in enumerate(zip(workload.arrival_times, targets, strict=True)):
        weight = float(weights[job])
        first = int(np.searchsorted(times, arrival, side="right")) - 1
        # From here on, waiting alone costs enough.
        end = int(np.searchsorted(times, arrival + target / weight, side="right")) + 1
        start = max(first, 0)
        durations_here, prices_here = durations[start:end].copy(), prices[start:end]
        ends = times[start + 1 : end + 1] - arrival
        if first >= 0 and len(durations_here):
            durations_here[0] = ends[0]
        elif first < 0:
            before = times[0] - arrival
            ends = np.append(before, ends)
            durations_here = np.append(before, durations_here)
            prices_here = np.append(0.0, prices_here)
        costs[job] = PricedJob(
            size=float(workload.sizes[job]),
            weight=weight,
            speedup=_flatten(exact[job], tables[job], servers),
            table=tables[job],
            servers=servers,
            ends=ends,
            durations=durations_here,
            prices=prices_here,
        ).bound_cost(float(target))
    return costs


def _flatten(speedup: Speedup, table: Speedup, servers: float) -> Speedup:
    """Return a speedup that never falls: a job can leave servers idle."""
    peak = float(table.demand(scalar(0.0), servers))
    if float(speedup.rate(scalar(servers))) < float(speedup.rate(scalar(peak))):
        return speedup.limited(peak)
    return speedup


def total_bound(costs: FloatArray, servers: float, times: FloatArray, prices: FloatArray) -> float:
    """Return the bound on the cost of all schedules: what jobs cost less the price of servers."""
    paid = servers * fsum(prices * np.diff(times))
    return fsum(costs) * (1 - 4 * ROUNDING) - paid * (1 + 8 * ROUNDING)


class PricedJob:
    """A job that pays for its servers, and bounds on what it costs if it ends at given times."""

    def __init__(
        self,
        size: float,
        weight: float,
        speedup: Speedup,
        table: Speedup,
        servers: float,
        ends: FloatArray,
        durations: FloatArray,
        prices: FloatArray,
    ) -> None:
        """Set the intervals, which start with the arrival: times are counted from there.

        ``speedup`` is exact; ``table`` may be a table of it, which only suggests where to look.
        """
        self.size, self.weight, self.servers = size, weight, servers
        self.speedup, self.table = speedup, table
        self.fastest = float(speedup.rate(scalar(servers)))
        self.durations, self.prices = durations, prices
        self.times = np.concatenate(([0.0], ends))

    def bound(self, value: float) -> tuple[FloatArray, float]:
        """Return bounds on J over each interval, and over all later times, from one value ψ."""
        price = self.prices / value
        guess = self.table.demand(price, self.servers)
        profits = np.full(len(price), inf)
        for step in _STEPS:
            profits = np.minimum(
                profits, bound_profits(self.speedup, guess, price, self.servers, step)
            )
        profits = np.concatenate(([0.0], np.cumsum(profits * self.durations)))
        waiting = self.weight * self.times
        rounding = (len(price) + 10) * ROUNDING + _RATE_ERROR
        at_times = value * self.size * (1 - rounding) + waiting * (1 - rounding)
        at_times -= value * profits * (1 + rounding)
        is_final = self.weight >= value * self.fastest
        return np.minimum(at_times[:-1], at_times[1:]), at_times[-1] if is_final else -inf

    def work(self, value: float, intervals: int) -> tuple[float, float]:
        """Return about how much work is done, and how much profit made, in the first intervals."""
        price = self.prices[:intervals] / value
        servers = self.table.demand(price, self.servers)
        rate = self.table.rate(servers)
        durations = self.durations[:intervals]
        return float(rate @ durations), value * float((rate - price * servers) @ durations)

    def find_value(self, interval: int, enough: float) -> float:
        """Return a value for which the bound over an interval is about as high as it gets.

        It may be lower than it gets if it is ``enough``. An interval after the last one has the
        price 0 and no end.
        """
        if interval == len(self.prices):
            best, low_end, high_end = self.weight / self.fastest, interval, interval
            best *= 1 - 4 * ROUNDING
            if self.work(best, interval)[0] <= self.size:
                return best
        else:
            best, low_end, high_end = self._cheapest(interval), interval, interval + 1
            if self.work(best, interval)[0] > self.size:
                high_end = interval
            elif self.work(best, interval + 1)[0] < self.size:
                low_end = interval + 1
            else:
                return best
        # At the right value the work is done just then, not earlier or later.
        low, high = (best, inf) if low_end > interval else (0.0, best)
        end = low_end if low_end > interval else high_end
        waiting = self.weight * self.times[end]
        value = best * 2.0 if high == inf else best / 2.0
        best_bound = -inf
        for _ in range(200):
            work, profit = self.work(value, end)
            # Great values would win by rounding alone.
            bound = value * self.size * (1 - 2 * _RATE_ERROR) + waiting - profit
            low, high = (value, high) if work < self.size else (low, value)
            if bound > best_bound:
                best, best_bound = value, bound
            elif high == inf:
                break  # all servers are in use, and a greater value gains nothing
            if bound > enough or (high < inf and high - low <= 1e-9 * high):
                break
            if high == inf:
                value = low * 4.0
            elif low == 0.0:
                value = high / 4.0
            else:
                value = (low * high) ** 0.5
        return best

    def _cheapest(self, interval: int) -> float:
        """Return about the least cost of a unit of work at the price of an interval."""
        price = float(self.prices[interval])
        value = (self.weight + price * self.servers) / self.fastest
        for _ in range(60):
            servers = self.table.demand(scalar(price / value), self.servers)
            rate = float(self.table.rate(servers))
            if rate <= 0:
                break
            cheaper = (self.weight + price * float(servers)) / rate
            if cheaper >= value * (1 - 1e-14):
                break
            value = cheaper
        return value

    def bound_cost(self, target: float) -> float:
        """Return a lower bound on the job's cost, ``target`` at most."""
        bounds = self.weight * self.times * (1 - 2 * ROUNDING)  # from waiting alone
        for _ in range(_MAX_VALUES):
            if bounds.min() >= target:
                return target
            worst = int(np.argmin(bounds))
            for enough in (target * (1 + 1e-6), inf):
                value = self.find_value(worst, enough)
                bounds = np.maximum(bounds, np.append(*self.bound(value)))
                if bounds[worst] >= target:
                    break
            target = min(target, float(bounds[worst]))
        return min(target, float(bounds.min()))
