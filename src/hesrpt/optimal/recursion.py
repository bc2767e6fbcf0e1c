"""The value of each job's work, by which any concave speedup is planned exactly.

Jobs are listed from the last to end to the first. Phase k is the time when jobs 1 … k are present;
it costs W_k = w_1 + … + w_k per second. Let U_k(n) be the most that n servers can earn per second
when a unit of job i's work earns v_i. The values are those at which each phase just pays its cost,

    U_k(N) = W_k,   that is   v_k = min over n in (0, N] of (W_k − U_{k−1}(N − n)) / s_k(n),

and phase k hands out servers as U_k(N) does. Then Σ v_i x_i is what the work earns in total, and
no schedule that ends jobs in this order can cost less. It is linear-programming duality: v is the
dual solution, and earning no more than its cost in every phase is what makes it feasible.

For given v_1 … v_{k−1} the minimum is searched over the price λ of a server: at λ the jobs before k
want some servers, job k takes the rest, and λ is right if it is job k's own marginal value of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, scalar
from hesrpt.optimal import closed_form
from hesrpt.speedups import PowerLaw, SpeedupVector

# Prices this close are one price: jobs whose marginal values lie between are tied.
_SAME_PRICE = 1e-15
_TIED = 1e-12
# A job whose weight is less than this part of the weights before it waits for one of them to end.
# What it would earn is lost in rounding, and so is what its waiting costs.
_NEGLIGIBLE = 1e-12
# After so many steps that did not find the price, it is surrounded by bisection.
_SECANT_STEPS = 12


@dataclass(frozen=True)
class Values:
    """What each job's work is worth, and the price of a server in each phase.

    Between ``low[k]`` and ``high[k]`` lies the price when jobs 0 … k are present. They are equal
    except where jobs with kinked speedups are tied for servers at that price.
    """

    speedups: SpeedupVector
    servers: float
    values: FloatArray
    low: FloatArray
    high: FloatArray
    most: FloatArray  # servers that each job can use
    waits: BoolArray  # jobs whose weight is negligible beside those before them
    rising: bool  # whether values are known to rise along the list
    steepest: float  # at this price per value or above, nobody wants a server, if values rise

    def allocation(self, jobs: int) -> tuple[int, FloatArray]:
        """Return who holds how many servers when only the first ``jobs`` jobs are present.

        That is the first job that holds any, and the servers of the jobs from there on.
        """
        last = jobs - 1
        if self.waits[last]:
            start, held = self.allocation(last)
            return start, np.append(held, 0.0)
        low, high = float(self.low[last]), float(self.high[last])
        start = _worth_nothing(self.values[:last], low, self.steepest)
        values = self.values[start:jobs]
        speedups = self.speedups.entries(slice(start, jobs))
        held = speedups.demand(high / values, self.servers)
        if low == high:
            # The price leaves for the last job just what it wants, up to rounding.
            left = self.servers - float(held[:-1].sum())
            held[-1] = min(max(left, 0.0), float(self.most[last]))
            if left < 0:
                held = _hand_out(self.servers, held, held)
        else:
            # Who is tied at the price is decided a little above and below it, for rounding.
            held = speedups.demand(high * (1 + _TIED) / values, self.servers)
            wanted = speedups.demand(low * (1 - _TIED) / values, self.servers)
            held = _hand_out(self.servers, held, wanted)
        if self.rising and len(held) > 1 and held[-1] < held[-2]:
            held.sort()  # tied by rounding: the job that ends first must not have less
        return start, held


def _worth_nothing(values: FloatArray, price: float, steepest: float) -> int:
    """Return how many jobs at the head of the list are worth no server at this price."""
    return int(values.searchsorted(price / steepest, side="right")) if steepest < inf else 0


def _hand_out(servers: float, sure: FloatArray, wanted: FloatArray) -> FloatArray:
    """Give each job what it surely wants, and the tied ones the rest: those that end first, first.

    If even that is more than there is, those that end first still come first.
    """
    over = sure.sum() > servers
    base = np.zeros_like(sure) if over else sure
    room = np.maximum((sure if over else wanted) - base, 0.0)[::-1]
    left = servers - float(base.sum())
    return base + np.clip(left - (np.cumsum(room) - room), 0.0, room)[::-1]


def job_values(
    speedups: SpeedupVector,
    servers: float,
    weights: FloatArray,
    keep: Values | None = None,
    known: int = 0,
) -> Values:
    """Return the values of jobs listed from the last to end to the first.

    The values of the first ``known`` jobs, which do not depend on the others, stand in ``keep``.
    """
    jobs = len(weights)
    values, low, high = np.empty(jobs), np.empty(jobs), np.empty(jobs)
    if keep is not None:
        for mine, kept in ((values, keep.values), (low, keep.low), (high, keep.high)):
            mine[:known] = kept[:known]
    cost = np.cumsum(weights)
    # With one speedup, values rise along the list if weights do. Rounding must not undo that.
    shared = speedups.shared
    rising = shared is not None and bool(np.all(weights[1:] >= weights[:-1]))
    # Then the jobs that are worth no server stand at the head of the list and can be skipped.
    steepest = shared.steepest() if shared is not None and rising else inf
    most = speedups.demand(np.zeros(jobs), servers)
    waits = weights < _NEGLIGIBLE * cost
    if isinstance(shared, PowerLaw):  # what the recursion comes to, as U_k(n) = W_k (n/N)^p
        p = shared.p
        rest = np.concatenate(([0.0], cost[:-1]))
        log_rest = closed_form.log_rest(weights[known:], cost[known:], rest[known:])
        own = closed_form.own_part(log_rest, p)
        values[known:] = own ** (1 - p) * cost[known:] / servers**p
        low[known:] = high[known:] = p * cost[known:] / servers
        waits[:] = False
        return Values(speedups, servers, values, low, high, most, waits, rising, inf)
    steepness = 1.0
    for k in range(known, jobs):
        if waits[k]:
            # So low a value is always right: even all servers would earn no more than the weight.
            values[k] = weights[k] / float(speedups[k].rate(scalar(float(most[k]))))
            low[k], high[k] = low[k - 1], high[k - 1]
            continue
        phase = _Phase(speedups, servers, values[:k], float(cost[k]), float(most[k]), steepest)
        least = float(low[k - 1]) if k else 0.0
        guess = _extrapolated(low[max(k - 3, 0) : k].tolist())
        values[k], low[k], high[k] = phase.solve(least, guess, steepness)
        steepness = phase.steepness
        if rising and k:
            values[k] = max(values[k], values[k - 1])
    return Values(speedups, servers, values, low, high, most, waits, rising, steepest)


def _extrapolated(prices: list[float]) -> float:
    """Return the next price after those of up to three phases, whose logarithms go on smoothly."""
    if len(prices) < 2 or prices[0] == 0:
        return 0.0
    if len(prices) == 2:
        return prices[1] * (prices[1] / prices[0])
    growth, growth_before = prices[2] / prices[1], prices[1] / prices[0]
    return prices[2] * growth * (growth / growth_before) if growth < 2 else 0.0


class _Offer(NamedTuple):
    """What a price leads to."""

    left: float  # servers that the jobs before k do not want
    earned: float  # what these jobs earn
    value: float  # what job k's work must be worth, if it takes what is left
    error: float  # of the price, as a log ratio: negative if too low, positive if too high


class _Phase:
    """The search for the value of job k, given those of the jobs before it in the list."""

    def __init__(
        self,
        speedups: SpeedupVector,
        servers: float,
        values: FloatArray,
        cost: float,
        most: float,
        steepest: float,
    ) -> None:
        self.others = speedups.entries(slice(len(values)))
        self.speedup = speedups[len(values)]
        self.servers, self.values, self.cost = servers, values, cost
        self.precision = max(speedups.precision, self.speedup.precision)
        self.most, self.steepest, self.steepness = most, steepest, 1.0

    def solve(self, least: float, guess: float, steepness: float) -> tuple[float, float, float]:
        """Return the value of the job, and bounds on the price from below and above.

        More jobs never make servers cheaper, so the price is at least ``least``, that of the phase
        without this job; and it is at most what a server earns on average.
        """
        if least == 0:
            offer = self.offer(0.0)
            if offer.left >= self.most:  # enough for everybody: servers are free
                return offer.value, 0.0, 0.0
        if len(self.values) == 0:
            value = self.cost / float(self.speedup.rate(scalar(self.servers)))
            price = value * float(self.speedup.slope(scalar(self.servers)))
            return value, price, price
        return self.search(least, self.cost / self.servers, guess, steepness)

    def search(
        self, low: float, high: float, guess: float, steepness: float
    ) -> tuple[float, float, float]:
        """Search the price by the secant method on logarithms, guarded by bisection.

        The prices of neighbouring phases and the way the error grows with the price are alike, so
        the first guess and its correction are good, and two or three steps usually do.
        """
        # The price of the phase before is no more exact than this.
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
                    grown = (offer.error - previous[1]) / log(price / previous[0])
                    self.steepness = grown if 0 < grown < inf else self.steepness
                previous = price, offer.error
                step = offer.error / self.steepness
                guess = price * exp(-step) if abs(step) < 50 else 0.0
        return self.tied_value(low, high), low, high

    def offer(self, price: float) -> _Offer:
        """Return what a price leads to."""
        start = _worth_nothing(self.values, price, self.steepest)
        values = self.values[start:]
        others = self.others.entries(slice(start, None)) if start else self.others
        wanted = others.demand(price / values, self.servers)
        left = self.servers - float(wanted.sum())
        earned = float(values @ others.rate(wanted))
        if left <= 0:
            return _Offer(left, earned, inf, -inf)
        taken = scalar(min(left, self.most))
        value = (self.cost - earned) / float(self.speedup.rate(taken))
        if left > self.most:
            return _Offer(left, earned, value, inf)
        error = 0.0
        if price < (one_more := value * float(self.speedup.slope(taken))):
            error = log(price / one_more) if price > 0 else -inf
        elif price > (one_less := value * float(self.speedup.slope_before(taken))):
            error = log(price / one_less) if one_less > 0 else inf
        return _Offer(left, earned, value, error)

    def tied_value(self, low: float, high: float) -> float:
        """Return the job's value when jobs are tied for servers at the price between two bounds.

        What the jobs before k earn is linear in the servers that they leave, from what they leave
        at the lower price to what they leave at the higher: Newton's method on that line.
        """
        fewest, most = self.offer(low).left if low > 0 else 0.0, self.offer(high)
        value = most.value
        taken = min(most.left, self.most)
        earned_at_most = most.earned + high * (most.left - taken)
        for _ in range(100 if value > 0 else 0):
            wanted = float(self.speedup.demand(scalar(high / value), self.servers))
            wanted = min(max(wanted, fewest, 0.0), taken)
            if wanted <= 0:
                break
            cost = self.cost - earned_at_most - high * (taken - wanted)
            better = cost / float(self.speedup.rate(scalar(wanted)))
            if not better < value:
                break
            value = better
        return value


def _middle(low: float, high: float) -> float:
    return sqrt(low) * sqrt(high) if low > 0 else high / 1024
