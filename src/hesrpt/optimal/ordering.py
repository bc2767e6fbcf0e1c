"""In which order jobs should end.

With one speedup for all jobs, let b be no larger than a and weigh no less. If a ends first, swap
what the two hold during just so much of the time before that b ends then instead; what is left of a
is what was left of b, so a can end when b did. Nobody else notices, and the cost does not rise:
where smaller jobs weigh no less, shortest-first is optimal for *every* speedup.

In all other cases the best order is not known. Jobs are then listed by their time alone on the
whole system per weight, and neighbours exchanged as long as the bound Σ v_i x_i falls.
"""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.closed_form import shortest_first
from hesrpt.optimal.recursion import Values, job_values
from hesrpt.speedup import Mixed, Speedup

# Exchanging two neighbours changes the values of the jobs that end before them: noticeably of the
# next few if speedups differ, and hardly at all if they are the same.
_HORIZON_MIXED, _HORIZON_SHARED = 8, 0


def provably_shortest_first(
    sizes: FloatArray, speedup: Speedup, weights: FloatArray | None
) -> tuple[IntArray, FloatArray] | None:
    """Return the jobs shortest first and their sizes, or nothing where that is no proven order.

    Of jobs of the same size the heavier ends first, then the one given first.
    """
    if isinstance(speedup, Mixed):
        return None
    if weights is None:
        return shortest_first(sizes)
    order = np.lexsort((-weights, sizes))
    in_order = weights[order]
    return (order, sizes[order]) if np.all(in_order[1:] <= in_order[:-1]) else None


def promising_order(
    sizes: FloatArray, speedup: Speedup, servers: float, weights: FloatArray
) -> IntArray:
    """Return the jobs from the first to end to the last, in an order that is good but unproven."""
    time_alone = sizes / speedup.rate(np.full(len(sizes), servers))
    order = np.argsort(time_alone / weights, kind="stable")[::-1].copy()
    horizon = _HORIZON_MIXED if isinstance(speedup, Mixed) else _HORIZON_SHARED

    def values_of(jobs: IntArray, keep: Values | None, known: int) -> Values:
        return job_values(speedup.reordered(jobs), servers, weights[jobs], keep, known)

    untried = np.ones(len(order) - 1, dtype=bool)
    while untried.any():
        values: Values | None = None
        known = 0  # how many of `values` hold for the present order
        for place in np.flatnonzero(untried).tolist():
            stop = min(place + 2 + horizon, len(order))
            listed = order[:stop]
            values = values_of(listed, values, known)
            trial = listed.copy()
            trial[place], trial[place + 1] = listed[place + 1], listed[place]
            trial_values = values_of(trial, values, place)
            bound = values.values[place:] @ sizes[listed[place:]]
            if trial_values.values[place:] @ sizes[trial[place:]] < bound * (1 - 1e-9):
                order[:stop] = trial
                values = trial_values
                untried[max(place - 1 - horizon, 0) : place + 2] = True
            untried[place] = False
            known = stop
    return order[::-1]
