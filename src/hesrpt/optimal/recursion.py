"""Job values: the recursion that solves any concave speedup exactly.

Jobs are listed from the last to end to the first. Phase k is the time when jobs 1 … k are present;
it costs W_k = w_1 + … + w_k per second. Let U_k(n) be the most that n servers can earn per second
when a unit of job i's work earns v_i. The values are chosen so that each phase exactly pays its
cost:

    U_k(N) = W_k,   that is   v_k = min over n in (0, N] of (W_k − U_{k−1}(N − n)) / s_k(n).

Phase k allocates servers as U_k(N) does. All work together then earns Σ v_i x_i, and no schedule
that ends the jobs in this order can cost less. This is linear-programming duality: v is the dual
solution, and it is feasible because no phase earns more than it costs.

Given v_1 … v_{k−1}, we search for the minimum over the price λ of a server: at λ the jobs before k
demand some servers, job k takes the rest, and λ is right if it is job k's marginal value of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, scalar
from hesrpt.optimal.closed_form_batch import log_ratio_before, own_share
from hesrpt.speedups import PowerLaw, SpeedupVector

# Two prices this close are the same price: jobs with marginal values between them are tied.
_SAME_PRICE = 1e-15
_TIED = 1e-12
# A job with a weight below this fraction of the total weight up to it waits for another job to end.
# Both its earnings and the cost of its waiting are below rounding errors.
_NEGLIGIBLE = 1e-12
# After this many secant steps, the search for a price falls back to bisection.
_SECANT_STEPS = 12


@dataclass(frozen=True)
class JobValues:
    """The value of each job's work, and the price of a server in each phase.

    When jobs 0 … k are present, the price lies between ``low_prices[k]`` and ``high_prices[k]``.
    The two differ only if jobs whose speedups have kinks are tied for servers at that price.
    """

    speedups: SpeedupVector
    servers: float
    values: FloatArray
    low_prices: FloatArray
    high_prices: FloatArray
    usable: FloatArray  # the number of servers that each job can use
    is_negligible: BoolArray  # whether a job's weight is negligible beside those before it
    is_rising: bool  # whether values are known to rise along the list
    max_slope: float  # if values rise, the demand is 0 at this price per value or above

    def allocate(self, jobs: int) -> tuple[int, FloatArray]:
        """Return the allocation when only the first ``jobs`` jobs are present.

        The result is the first job that holds servers, and the servers of all jobs from it on.
        """
        last = jobs - 1
        if self.is_negligible[last]:
            start, held = self.allocate(last)
            return start, np.append(held, 0.0)
        low, high = float(self.low_prices[last]), float(self.high_prices[last])
        start = _count_unserved(self.values[:last], low, self.max_slope)
        values = self.values[start:jobs]
        speedups = self.speedups.entries(slice(start, jobs))
        held = speedups.demand(high / values, self.servers)
        if low == high:
            # Up to rounding, the price leaves the last job exactly what it demands.
            remaining = self.servers - float(held[:-1].sum())
            held[-1] = min(max(remaining, 0.0), float(self.usable[last]))
            if remaining < 0:
                held = serve_first_to_end(self.servers, held, held)
        else:
            # Rounding must not decide which jobs are tied, so compare slightly different prices.
            held = speedups.demand(high * (1 + _TIED) / values, self.servers)
            demand = speedups.demand(low * (1 - _TIED) / values, self.servers)
            held = serve_first_to_end(self.servers, held, demand)
        if self.is_rising and len(held) > 1 and held[-1] < held[-2]:
            held.sort()  # tied by rounding: a job that ends earlier must not hold less
        return start, held


def _count_unserved(values: FloatArray, price: float, max_slope: float) -> int:
    """Return how many jobs at the head of the list demand no servers at this price."""
    return int(values.searchsorted(price / max_slope, side="right")) if max_slope < inf else 0


def serve_first_to_end(servers: float, sure: FloatArray, demand: FloatArray) -> FloatArray:
    """Give each job its ``sure`` servers, and the rest to tied jobs up to their ``demand``.

    Jobs that end first are served first. If the ``sure`` servers add up to more than there are,
    the jobs that end last get fewer.
    """
    is_over = sure.sum() > servers
    base = np.zeros_like(sure) if is_over else sure
    room = np.maximum((sure if is_over else demand) - base, 0.0)[::-1]
    remaining = servers - float(base.sum())
    return base + np.clip(remaining - (np.cumsum(room) - room), 0.0, room)[::-1]


def compute_job_values(
    speedups: SpeedupVector,
    servers: float,
    weights: FloatArray,
    previous: JobValues | None = None,
    known: int = 0,
) -> JobValues:
    """Return the values of jobs listed from the last to end to the first.

    The first ``known`` values do not depend on the other jobs and are copied from ``previous``.
    """
    jobs = len(weights)
    values, low, high = np.empty(jobs), np.empty(jobs), np.empty(jobs)
    if previous is not None:
        values[:known] = previous.values[:known]
        low[:known], high[:known] = previous.low_prices[:known], previous.high_prices[:known]
    cost = np.cumsum(weights)
    shared = speedups.shared
    # With one speedup, values rise along the list if weights do. Rounding must not undo that.
    is_rising = shared is not None and bool(np.all(weights[1:] >= weights[:-1]))
    # Then the jobs that get no servers are at the head of the list and can be skipped.
    max_slope = shared.max_slope() if shared is not None and is_rising else inf
    usable = speedups.demand(np.zeros(jobs), servers)
    is_negligible = weights < _NEGLIGIBLE * cost
    if isinstance(shared, PowerLaw):  # the solution of the recursion, as U_k(n) = W_k (n/N)^p
        p = shared.p
        before = np.concatenate(([0.0], cost[:-1]))
        own = own_share(log_ratio_before(weights[known:], cost[known:], before[known:]), p)
        values[known:] = own ** (1 - p) * cost[known:] / servers**p
        low[known:] = high[known:] = p * cost[known:] / servers
        is_negligible[:] = False
        max_slope = inf
        return JobValues(
            speedups, servers, values, low, high, usable, is_negligible, is_rising, max_slope
        )
    steepness = 1.0
    for k in range(known, jobs):
        if is_negligible[k]:
            # This value is always feasible: even all servers would earn no more than the weight.
            values[k] = weights[k] / float(speedups[k].rate(scalar(float(usable[k]))))
            low[k], high[k] = low[k - 1], high[k - 1]
            continue
        phase = _Phase(speedups, servers, values[:k], float(cost[k]), float(usable[k]), max_slope)
        lowest = float(low[k - 1]) if k else 0.0
        guess = _extrapolate(low[max(k - 3, 0) : k].tolist())
        values[k], low[k], high[k] = phase.solve(lowest, guess, steepness)
        steepness = phase.steepness
        if is_rising and k:
            values[k] = max(values[k], values[k - 1])
    return JobValues(
        speedups, servers, values, low, high, usable, is_negligible, is_rising, max_slope
    )


def _extrapolate(prices: list[float]) -> float:
    """Guess the next price from up to three previous ones, whose logarithms change smoothly."""
    if len(prices) < 2 or prices[0] == 0:
        return 0.0
    if len(prices) == 2:
        return prices[1] * (prices[1] / prices[0])
    growth, growth_before = prices[2] / prices[1], prices[1] / prices[0]
    return prices[2] * growth * (growth / growth_before) if growth < 2 else 0.0


class _Offer(NamedTuple):
    """The consequences of a price."""

    remaining: float  # servers that the jobs before k do not demand
    earned: float  # what those jobs earn
    value: float  # the value that job k's work needs if it takes the remaining servers
    error: float  # of the price, as a log ratio: negative if too low, positive if too high


class _Phase:
    """The search for the value of job k, given the values of the jobs before it in the list."""

    def __init__(
        self,
        speedups: SpeedupVector,
        servers: float,
        values: FloatArray,
        cost: float,
        usable: float,
        max_slope: float,
    ) -> None:
        self.others = speedups.entries(slice(len(values)))
        self.speedup = speedups[len(values)]
        self.servers, self.values, self.cost = servers, values, cost
        self.precision = max(speedups.precision, self.speedup.precision)
        self.usable, self.max_slope, self.steepness = usable, max_slope, 1.0

    def solve(self, lowest: float, guess: float, steepness: float) -> tuple[float, float, float]:
        """Return the value of the job, a lower bound and an upper bound on the price.

        More jobs never make servers cheaper, so the price is at least ``lowest``, the price of the
        phase without this job. It is at most what a server earns on average.
        """
        if lowest == 0:
            offer = self.offer(0.0)
            if offer.remaining >= self.usable:  # enough for all jobs: servers cost nothing
                return offer.value, 0.0, 0.0
        if len(self.values) == 0:
            value = self.cost / float(self.speedup.rate(scalar(self.servers)))
            price = value * float(self.speedup.slope(scalar(self.servers)))
            return value, price, price
        return self.search(lowest, self.cost / self.servers, guess, steepness)

    def search(
        self, low: float, high: float, guess: float, steepness: float
    ) -> tuple[float, float, float]:
        """Search for the price by the secant method on logarithms, guarded by bisection.

        Neighbouring phases have similar prices and a similar growth of the error with the price.
        So the first guess and its correction are good, and two or three steps usually suffice.
        """
        # The price of the previous phase is known only to this precision.
        low, high = low * (1 - 4 * self.precision), high * (1 + 4 * self.precision)
        previous: tuple[float, float] | None = None
        self.steepness = steepness
        steps = 0
        while high - low > _SAME_PRICE * high:
            price = guess if low < guess < high and steps < _SECANT_STEPS else _middle(low, high)
            if not low < price < high:
                break
            offer = self.offer(price)
            if abs(offer.error) <= self.precision:
                return offer.value, price, price
            low, high = (price, high) if offer.error < 0 else (low, price)
            steps += 1
            guess = 0.0
            if abs(offer.error) < inf:
                if previous is not None and previous[1] != offer.error:
                    growth = (offer.error - previous[1]) / log(price / previous[0])
                    self.steepness = growth if 0 < growth < inf else self.steepness
                previous = price, offer.error
                step = offer.error / self.steepness
                guess = price * exp(-step) if abs(step) < 50 else 0.0
        return self.tied_value(low, high), low, high

    def offer(self, price: float) -> _Offer:
        """Return the consequences of a price."""
        start = _count_unserved(self.values, price, self.max_slope)
        values = self.values[start:]
        others = self.others.entries(slice(start, None)) if start else self.others
        demand = others.demand(price / values, self.servers)
        remaining = self.servers - float(demand.sum())
        earned = float(values @ others.rate(demand))
        if remaining <= 0:
            return _Offer(remaining, earned, inf, -inf)
        taken = scalar(min(remaining, self.usable))
        value = (self.cost - earned) / float(self.speedup.rate(taken))
        if remaining > self.usable:
            return _Offer(remaining, earned, value, inf)
        error = 0.0
        if price < (one_more := value * float(self.speedup.slope(taken))):
            error = log(price / one_more) if price > 0 else -inf
        elif price > (one_less := value * float(self.speedup.slope_before(taken))):
            error = log(price / one_less) if one_less > 0 else inf
        return _Offer(remaining, earned, value, error)

    def tied_value(self, low: float, high: float) -> float:
        """Return the job's value if jobs are tied for servers at the price between two bounds.

        The earnings of the jobs before k are linear in the servers they leave, between what they
        leave at the lower price and at the higher price. We use Newton's method on that line.
        """
        fewest = self.offer(low).remaining if low > 0 else 0.0
        at_high = self.offer(high)
        value = at_high.value
        taken = min(at_high.remaining, self.usable)
        earned_by_others = at_high.earned + high * (at_high.remaining - taken)
        for _ in range(100 if value > 0 else 0):
            demand = float(self.speedup.demand(scalar(high / value), self.servers))
            demand = min(max(demand, fewest, 0.0), taken)
            if demand <= 0:
                break
            cost = self.cost - earned_by_others - high * (taken - demand)
            better = cost / float(self.speedup.rate(scalar(demand)))
            if not better < value:
                break
            value = better
        return value


def _middle(low: float, high: float) -> float:
    return sqrt(low) * sqrt(high) if low > 0 else high / 1024
