"""Sharing servers at one price, when jobs that end later are expected to meet lower prices.

When the i-th largest of m jobs ends, a server is expected to cost λ (i/m)^f, where λ is the price
now and f the focus: 1 for a batch, near 0 if jobs keep arriving. A job that holds n servers then
costs w + λ (i/m)^f n a second and does s(n) of work, so a unit of its work is worth the least ratio
of the two. We evaluate that ratio at the n that is best for the power law closest to s: near the
minimum, the error of the ratio is of second order.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, log, sqrt

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies.policy import State
from hesrpt.policies.sharing import usable_servers
from hesrpt.speedups import SpeedupVector

# The exponents of power laws that approximate other speedups are clipped to this range.
_MIN_P, _MAX_P = 0.01, 0.99
# The search for a price ends when its bounds are this close, or the demand is this exact.
_SAME_PRICE = 1e-14
_EXACT = 1e-12
_MAX_STEPS = 200


def share_by_price(state: State, order: IntArray, weights: FloatArray, focus: float) -> FloatArray:
    """Return the servers of each job; ``order`` lists them from the last to end to the first."""
    speedups = state.speedups.on_whole_servers() if state.whole else state.speedups
    weights, speedups = weights[order], speedups.take(order)
    usable = usable_servers(speedups, state.servers, len(order))
    # Each job is expected to end in the middle of its interval of ranks.
    middles = state.others + np.cumsum(weights) - weights / 2
    relative = (middles / (state.others + float(weights.sum()))) ** focus
    wanted = weights * estimate_gains(state.speedups.take(order))
    guess = float(wanted.sum()) / state.servers
    # Below one server, a job that gets whole servers does the same work for each part of it.
    fewest = np.minimum(usable, 1.0 if state.whole else 0.0)
    held = np.empty(len(order))

    def demand(price: float) -> FloatArray:
        expected = price * relative
        best = np.clip(wanted / expected, fewest, usable)
        values = (weights + expected * best) / speedups.rate(best)
        return speedups.demand(price / values, state.servers)

    held[order] = allocate_at_price(demand, state.servers, guess, usable)
    return held


def estimate_gains(speedups: SpeedupVector) -> FloatArray:
    """Return p/(1 − p) of each job: at one price for all, servers are shared in proportion."""
    p = np.clip(speedups.closest_exponents(), _MIN_P, _MAX_P)
    gains: FloatArray = p / (1 - p)
    return gains


def allocate_at_price(
    demand: Callable[[float], FloatArray], servers: float, guess: float, usable: FloatArray
) -> FloatArray:
    """Return the servers of each job at the price at which jobs demand all servers.

    ``demand`` returns what each job demands at a price; it falls as the price rises. If demand
    jumps at the right price, jobs at the end of the list are served first. ``usable`` is what each
    job can use: if there are servers for all that, no price is needed.
    """
    if usable.sum() <= servers:
        return usable
    low, below = guess, demand(guess)
    while below.sum() < servers and low > 1e-280:
        low /= 4
        below = demand(low)
    if below.sum() <= servers * (1 + _EXACT):
        return below * min(1.0, servers / max(float(below.sum()), servers))
    high, above = low, below
    while above.sum() > servers and high < 1e280:
        low, below = high, above
        high = 4 * max(high, guess) if high >= guess else guess
        above = demand(high)
    for step in range(_MAX_STEPS):
        if high - low <= _SAME_PRICE * high:
            break
        price = _between(low, high, float(below.sum()), float(above.sum()), servers, step)
        held = demand(price)
        total = float(held.sum())
        if abs(total - servers) <= _EXACT * servers:
            return held * min(1.0, servers / total)
        if total > servers:
            low, below = price, held
        else:
            high, above = price, held
    return serve_first_to_end(servers, above, below)


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


def _between(
    low: float, high: float, most: float, fewest: float, servers: float, step: int
) -> float:
    """Return a price between two: where a straight line of logarithms crosses, or the middle."""
    middle = sqrt(low / high) * high
    if step % 3 == 2 or not 0 < fewest < most < inf:
        return middle
    part = log(most / servers) / log(most / fewest)
    price = exp(log(low) + min(max(part, 0.01), 0.99) * log(high / low))
    return price if low < price < high else middle


def interpolate_values(values: FloatArray, ranks: FloatArray) -> FloatArray:
    """Return the values at ranks between whole ones; ``values`` are those at 1, 2 and so on.

    >>> interpolate_values(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 6**0.5]))
    array([1.        , 2.        , 2.82842712])
    """
    whole = np.log(np.arange(1, len(values) + 1))
    interpolated: FloatArray = np.exp(np.interp(np.log(ranks), whole, np.log(values)))
    return interpolated
