"""Bounds on what servers can earn per second if a unit of each job's work has a value.

Certificates are verified with these bounds. Their proof uses only rates: the demand that a speedup
computes merely suggests where to look.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.speedups import SpeedupVector
from hesrpt.speedups.speedup import Elementwise

#: The relative error that rounding may cause in a correct certificate.
TOLERANCE = 1e-8


def max_power_law_earnings(values: FloatArray, p: float, servers: float) -> FloatArray:
    """Return the maximum that the first k jobs can earn, for each k.

    Hölder's inequality gives the maximum of Σ v_i n_i^p: N^p (Σ v_i^c)^(1−p), c = 1/(1−p).
    """
    with np.errstate(divide="ignore"):
        powers = np.logaddexp.accumulate(np.log(values) / (1 - p))
    maximum: FloatArray = np.exp((1 - p) * powers) * servers**p
    return maximum


class EarningsBound(NamedTuple):
    """A bound on the earnings, and the price of a server that gives it."""

    bound: float
    price: float
    buyers: int  # the number of jobs that demand servers at that price


def bound_earnings(
    speedups: SpeedupVector,
    servers: float,
    values: FloatArray,
    enough: float,
    price: float,
    value_before: float = 0.0,
) -> EarningsBound:
    """Return a bound on max Σ v_i s_i(n_i) over Σ n_i ≤ N.

    Every price gives a bound: the cost of all servers, plus the most that jobs can earn beyond the
    price they pay. The bound is least at the right price, at which the jobs together demand exactly
    N servers. The search starts at ``price`` and may stop once the bound is below ``enough``.

    ``value_before`` is the total value of jobs that are not listed. They must have the speedup of
    the first job and a value no greater than its value.
    """
    from scipy.optimize import minimize_scalar

    is_valuable = values > 0
    with np.errstate(over="ignore"):
        price_of_work = np.minimum(1 / np.where(is_valuable, values, 1.0), 1e150)

    def demand_at(price: float) -> FloatArray:
        return np.where(is_valuable, speedups.demand(price * price_of_work, servers), 0.0)

    def bound_at(price: float) -> tuple[float, bool]:
        demand = demand_at(price)
        total = float(demand.sum())
        bound = price * (servers - total) + float(values @ speedups.rate(demand))
        return bound, total > servers

    # Bracket the right price in growing steps from the given one, then bisect.
    least, is_too_low = bound_at(price)
    best = price
    low, high, factor = (price, inf, 1.001) if is_too_low else (0.0, price, 1.001)
    close = enough * (1 - 0.9 * TOLERANCE)
    while least > close and (high == inf or high - low > 1e-15 * high):
        if high == inf:
            price = low * factor
        elif low == 0:
            price = high / factor if high > 1e-250 else 0.0
        else:
            price = (low + high) / 2
        if not low < price < high:
            break
        factor = min(factor**2, 1e30)
        bound, is_too_low = bound_at(price)
        low, high = (price, high) if is_too_low else (low, price)
        if bound < least:
            least, best = bound, price
    if least > close and bound_at(low)[0] < least:
        best = low

    # The search relied on the demand that speedups compute. The final bound uses rates only.
    def rigorous_bound_at(price: float) -> float:
        prices, beyond_price, bound = price * price_of_work, np.full(len(values), inf), inf
        floor = _idle_profits(speedups, demand_at(price), prices, servers)
        for guess in (demand_at(price), None):
            if guess is None:
                guess = _search_demand(speedups, prices, servers)
            for step in _STEPS:
                profits = bound_profits(speedups, guess, prices, servers, step)
                beyond_price = np.maximum(np.minimum(beyond_price, profits), floor)
                bound = price * servers + float(values @ beyond_price)
                bound += value_before * float(beyond_price[0])
                if bound <= enough:
                    return bound
        return bound

    if (least := rigorous_bound_at(best)) > enough and best > 0:
        # If the demand was found numerically, neither it nor the price is exact.
        nearby = best * (1 - 1e-6), best * (1 + 1e-6)
        found = minimize_scalar(
            rigorous_bound_at, bounds=nearby, method="bounded", options={"xatol": 1e-14 * best}
        )
        least = min(least, float(found.fun))
    return EarningsBound(least, best, int(np.count_nonzero(demand_at(best))))


# The relative distances from the demand at which rates are compared: short ones for curved
# speedups, long ones for speedups that are nearly straight.
_STEPS = 1e-5, 1e-3, 0.3, 0.01, 0.6, 1e-7


def _idle_profits(
    speedups: SpeedupVector, demand: FloatArray, price: FloatArray, servers: float
) -> FloatArray:
    """Return the greatest profit of each job without demand, over a few numbers of servers to try.

    The bounds of such jobs compare rates so close to 0 that rounding may hide a profit.
    """
    idle = np.flatnonzero(demand == 0)
    profits = np.zeros(len(demand))
    if len(idle) and speedups.shared is not None:
        # If all jobs share one speedup, none earns more than the most valuable one.
        idle = idle[[np.argmin(price[idle])]]
    if len(idle):
        idle_speedups = speedups.take(idle)
        for part in np.geomspace(1e-9, 1.0, 28):
            trial = np.full(len(idle), part * servers)
            profit = idle_speedups.rate(trial) - price[idle] * trial
            profits[idle] = np.maximum(profits[idle], profit)
    return profits


def _search_demand(speedups: SpeedupVector, price: FloatArray, servers: float) -> FloatArray:
    """Return the most profitable number of servers on a grid of all magnitudes."""
    best, best_profit = np.zeros(len(price)), np.zeros(len(price))
    for part in np.geomspace(1e-40, 1.0, 401):
        trial = np.full(len(price), part * servers)
        profit = speedups.rate(trial) - price * trial
        best, best_profit = (
            np.where(profit > best_profit, trial, best),
            np.maximum(profit, best_profit),
        )
    return best


def bound_profits(
    speedups: Elementwise, guess: FloatArray, price: FloatArray, servers: float, step: float
) -> FloatArray:
    """Return a bound on max s(n) − price·n over 0 ≤ n ≤ N, tight if ``guess`` is near the maximum.

    It uses only rates.
    """
    from hesrpt.optimal.proof_kernel import bound_profits_by_chords

    # Where the guess is 0, half of the points are 0 and the others are just above.
    sides = np.array([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0]])
    just_above = np.maximum(sides, 0.0) * step**3 * servers
    at = np.clip(np.where(guess > 0, guess * (1 + sides * step), just_above), 0.0, servers)
    rates = np.stack([speedups.rate(each) for each in at], axis=1)
    fastest = speedups.rate(np.full(len(guess), servers))
    bounds = np.empty(len(guess))
    bound_profits_by_chords(np.ascontiguousarray(at.T), rates, fastest, servers, price, bounds)
    return bounds
