"""In which order jobs should end.

With one speedup for all jobs, let b be no larger than a and weigh no less. If a ends first, swap
what the two hold during just so much of the time before that b ends then instead; what is left of a
is what was left of b, so a can end when b did. Nobody else notices, and the cost does not rise:
where smaller jobs weigh no less, shortest-first is optimal for *every* speedup.

In all other cases the best order is not known. Jobs are then listed by their time alone on the
whole system per weight, and jobs moved to other places as long as the bound Σ v_i x_i falls. In
small batches of power laws this nearly always finds the best order (see docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.closed_form import shortest_first
from hesrpt.optimal.recursion import Values, job_values
from hesrpt.speedup import Mixed, Speedup

# A change of order also changes the values of jobs that end before: noticeably of the next few if
# speedups differ, and hardly at all if they are the same.
_HORIZON_MIXED, _HORIZON_SHARED = 8, 0
# A job may change places with one that is as far away as this divided by the number of jobs; with
# its neighbours always. If speedups are the same, neighbours are enough.
_REACH_MIXED = 60
_MOST_SWEEPS = 10


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
    usable = speedup.demand(np.zeros(len(sizes)), servers)  # past its peak a job would slow down
    time_alone = sizes / speedup.rate(usable)
    order = np.argsort(time_alone / weights, kind="stable")[::-1].copy()
    mixed = isinstance(speedup, Mixed)
    horizon = _HORIZON_MIXED if mixed else _HORIZON_SHARED
    reach = max(_REACH_MIXED // len(sizes), 1) if mixed else 1

    def values_of(jobs: IntArray, keep: Values | None, known: int) -> Values:
        return job_values(speedup.reordered(jobs), servers, weights[jobs], keep, known)

    untried = np.ones(len(order) - 1, dtype=bool)
    for _ in range(_MOST_SWEEPS):  # a limited horizon may go round in circles
        values: Values | None = None
        known = 0  # how many of `values` hold for the present order
        for place in np.flatnonzero(untried).tolist():
            untried[place] = False
            for changed in _changes(order, place, reach):
                stop = min(place + len(changed) + horizon, len(order))
                if known < stop:
                    values, known = values_of(order[:stop], values, known), stop
                assert values is not None
                trial = order[:stop].copy()
                trial[place : place + len(changed)] = changed
                trial_values = values_of(trial, values, place)
                bound = values.values[place:stop] @ sizes[order[place:stop]]
                if trial_values.values[place:] @ sizes[trial[place:]] < bound * (1 - 1e-9):
                    order[:stop], values, known = trial, trial_values, stop
                    untried[max(place - reach - horizon, 0) : place + len(changed)] = True
    return order[::-1]


def _changes(order: IntArray, place: int, reach: int) -> Iterator[IntArray]:
    """Yield the jobs from a place on with the first one moved back, or a later one to the front."""
    for last in range(place + 1, min(place + reach + 1, len(order))):
        jobs = order[place : last + 1]
        yield np.roll(jobs, -1)
        if len(jobs) > 2:
            yield np.roll(jobs, 1)
