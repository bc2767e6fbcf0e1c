"""Sharing servers at one price, when jobs that end later are expected to meet lower prices.

When the i-th largest of m jobs ends, a server is expected to cost λ (i/m)^f, where λ is the price
now and f the focus: 1 for a batch, near 0 if jobs keep arriving. A job that holds n servers then
costs w + λ (i/m)^f n a second and does s(n) of work, so a unit of its work is worth the least ratio
of the two. We evaluate that ratio at the n that is best for the power law closest to s: near the
minimum, the error of the ratio is of second order.
"""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies.policy import State
from hesrpt.policies.sharing import usable_servers
from hesrpt.policies.valuation import allocate_at_price
from hesrpt.speedups import SpeedupVector

# The exponents of power laws that approximate other speedups are clipped to this range.
_MIN_P, _MAX_P = 0.01, 0.99


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
