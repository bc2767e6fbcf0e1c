"""Sharing servers by marginal value: each server goes where it earns the most."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, log, sqrt

import numpy as np

from hesrpt.arrays import FloatArray

# The search for a price ends when its bounds are this close, or the demand is this exact.
_SAME_PRICE = 1e-14
_EXACT = 1e-12
_MAX_STEPS = 200


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
