"""How much servers can earn per second, when each unit of a job's work has a value.

The bounds by which certificates are checked. In the end they rest on rates alone: a speedup's own
idea of its demand is taken as a hint where to look, and nothing more.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.speedups import SpeedupVector

#: Relative deviations that rounding may cause in a true certificate.
TOLERANCE = 1e-8
_ROUNDING = 4e-16


def most_with_power_law(values: FloatArray, p: float, servers: float) -> FloatArray:
    """Return the most that the first k jobs can earn, for each k.

    Hölder's inequality gives the maximum of Σ v_i n_i^p: N^p (Σ v_i^c)^(1−p), c = 1/(1−p).
    """
    with np.errstate(divide="ignore"):
        powers = np.logaddexp.accumulate(np.log(values) / (1 - p))
    most: FloatArray = np.exp((1 - p) * powers) * servers**p
    return most


class Earnings(NamedTuple):
    """What jobs can earn at most, and where."""

    bound: float
    price: float  # of a server, that gives it
    wanting: int  # jobs that want a server at that price


def most_earned(
    speedups: SpeedupVector,
    servers: float,
    values: FloatArray,
    enough: float,
    price: float,
    value_before: float = 0.0,
) -> Earnings:
    """Return a bound on max Σ v_i s_i(n_i) over Σ n_i ≤ N.

    ``value_before`` is the value of jobs that are not listed, because they have the speedup of the
    first one and are worth no more.

    Every price gives a bound: what the servers cost, and the most that jobs can earn beyond it.
    The right price, at which the jobs want the servers there are, gives the least one. The search
    may stop where the bound is below ``enough``.
    """
    from scipy.optimize import minimize_scalar

    worth = values > 0
    with np.errstate(over="ignore"):
        price_of_work = np.minimum(1 / np.where(worth, values, 1.0), 1e150)

    def wanted_at(price: float) -> FloatArray:
        return np.where(worth, speedups.demand(price * price_of_work, servers), 0.0)

    def bound_at(price: float) -> tuple[float, bool]:
        wanted = wanted_at(price)
        total = float(wanted.sum())
        bound = price * (servers - total) + float(values @ speedups.rate(wanted))
        return bound, total > servers

    # Surround the right price from the one given, in growing steps; then halve the distance.
    least, too_low = bound_at(price)
    best = price
    low, high, factor = (price, inf, 1.001) if too_low else (0.0, price, 1.001)
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
        bound, too_low = bound_at(price)
        low, high = (price, high) if too_low else (low, price)
        if bound < least:
            least, best = bound, price
    if least > close and bound_at(low)[0] < least:
        best = low

    # Up to here the speedup was believed to know its own demand. Now only its rates are.
    def sure_bound_at(price: float) -> float:
        each_price, most, bound = price * price_of_work, np.full(len(values), inf), inf
        floor = _surely_earned(speedups, wanted_at(price), each_price, servers)
        for guess in (wanted_at(price), None):
            if guess is None:
                guess = _tried(speedups, each_price, servers)
            for step in _STEPS:
                beyond = _most_beyond_price(speedups, guess, each_price, servers, step)
                most = np.maximum(np.minimum(most, beyond), floor)
                bound = price * servers + float(values @ most) + value_before * float(most[0])
                if bound <= enough:
                    return bound
        return bound

    if (least := sure_bound_at(best)) > enough and best > 0:
        # A demand that was found numerically is not exact, nor is then the price.
        nearby = best * (1 - 1e-6), best * (1 + 1e-6)
        found = minimize_scalar(
            sure_bound_at, bounds=nearby, method="bounded", options={"xatol": 1e-14 * best}
        )
        least = min(least, float(found.fun))
    return Earnings(least, best, int(np.count_nonzero(wanted_at(best))))


# How far beside the best number of servers rates are compared: a short way where a speedup is
# curved, a long way where it is all but straight.
_STEPS = 1e-5, 1e-3, 0.3, 0.01, 0.6, 1e-7


def _surely_earned(
    speedups: SpeedupVector, guess: FloatArray, price: FloatArray, servers: float
) -> FloatArray:
    """Return what jobs of which nothing is wanted would earn beyond the price, at some numbers.

    So close to 0 as their bounds are taken, rates may be lost in rounding.
    """
    idle = np.flatnonzero(guess == 0)
    earned = np.zeros(len(guess))
    if len(idle) and speedups.shared is not None:
        # With one speedup for all, none earns more than the most valuable of them.
        idle = idle[[np.argmin(price[idle])]]
    if len(idle):
        alike = speedups.take(idle)
        for part in np.geomspace(1e-9, 1.0, 28):
            some = np.full(len(idle), part * servers)
            profit = alike.rate(some) - price[idle] * some
            earned[idle] = np.maximum(earned[idle], profit)
    return earned


def _tried(speedups: SpeedupVector, price: FloatArray, servers: float) -> FloatArray:
    """Return the best of some numbers of servers of every magnitude, at a price."""
    best, profit = np.zeros(len(price)), np.zeros(len(price))
    for part in np.geomspace(1e-40, 1.0, 401):
        some = np.full(len(price), part * servers)
        earned = speedups.rate(some) - price * some
        best, profit = np.where(earned > profit, some, best), np.maximum(earned, profit)
    return best


def _most_beyond_price(
    speedups: SpeedupVector, guess: FloatArray, price: FloatArray, servers: float, step: float
) -> FloatArray:
    """Return a bound on max s(n) − price·n over 0 ≤ n ≤ N that is close if ``guess`` is.

    It needs only rates: the chord between two points of a concave function bounds it on either
    side of them. So an interval between two points is bounded by the chords of its neighbours.
    """
    # Where nothing is wanted, half of the points are 0 and the others just above.
    sides = np.array([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0]])
    just_above = np.maximum(sides, 0.0) * step**3 * servers
    at = np.clip(np.where(guess > 0, guess * (1 + sides * step), just_above), 0.0, servers)
    rates = np.stack([speedups.rate(each) for each in at])
    height = rates - price * at
    width = np.diff(at, axis=0)
    chord = np.diff(height, axis=0) / np.where(width > 0, width, 1.0)
    # Of an interval without length the slope is not known, of a short one not exactly.
    blur = _ROUNDING * (rates[1:] + price * at[1:]) / np.where(width > 0, width, 1.0)
    before = np.where(width > 0, chord + blur, inf)
    after = np.where(width > 0, chord - blur, -inf)
    falls_from, rises_to = blur[0] - chord[0], chord[-1] + blur[-1]
    before_all = height[0] + np.where(at[0] > 0, np.maximum(falls_from, 0.0) * at[0], 0.0)
    after_all = height[-1] + np.where(
        at[-1] < servers, np.maximum(rises_to, 0.0) * (servers - at[-1]), 0.0
    )
    # No job is ever faster than on all servers.
    fastest = speedups.rate(np.full(len(guess), servers)) - price * at[-1]
    most: FloatArray = np.maximum(before_all, np.minimum(after_all, fastest))
    unknown = np.full(len(guess), inf)
    for i in range(len(width)):
        left = before[i - 1] if i > 0 else unknown
        right = after[i + 1] if i + 1 < len(width) else -unknown
        most = np.maximum(most, _peak(height[i], height[i + 1], width[i], left, right))
    return most


def _peak(
    start: FloatArray, end: FloatArray, width: FloatArray, left: FloatArray, right: FloatArray
) -> FloatArray:
    """Return a bound on a concave function over an interval, from its slopes before and after."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        below_left = np.where(left < inf, start + left * width, inf)  # at the end of the interval
        below_right = np.where(right > -inf, end - right * width, inf)  # at its start
        crossing = start + left * ((end - start - right * width) / (left - right))
    known = (left < inf) & (right > -inf) & (left > right)
    peak = np.where(known, crossing, np.minimum(below_left, below_right))
    # Where the function falls from the start, or rises to the end, that is its peak.
    peak = np.where((left <= 0) | (right >= 0), -inf, peak)
    peak = np.where(width > 0, peak, -inf)
    return np.maximum(peak, np.maximum(start, end))
