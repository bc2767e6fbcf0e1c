"""KNEE under k^p, compiled: for trying very many α, where only completion times are wanted.

What KNEE decides is said in :class:`hesrpt.policies.Knee`. This does the same, thirty times as
fast, because a job's knee then grows with what is left of it, and the list of jobs stays sorted.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies.sharing import ROUNDING, Leftover

#: The leftover rules as numbers.
RULES: dict[Leftover, int] = {"idle": 0, "smallest": 1, "equal": 2}
# A job is done when less than this is left of it: rounding.
_NOTHING = 1e-13


@njit(cache=True, nogil=True, error_model="numpy")
def completion_times(
    sizes: FloatArray,
    arrivals: FloatArray,
    by_arrival: IntArray,
    servers: float,
    p: float,
    alpha: float,
    whole: bool,
    rule: int,
    most: float,
) -> FloatArray:
    """Return when each job ends; never, as soon as the total flow time exceeds ``most``."""
    left = sizes.copy()
    ends = np.full(sizes.size, np.inf)
    present = np.empty(sizes.size, dtype=np.int64)
    rate = np.empty(sizes.size)
    jobs = arrived = 0
    now = total = 0.0
    while True:
        while arrived < sizes.size and arrivals[by_arrival[arrived]] <= now:
            present[jobs] = by_arrival[arrived]
            arrived += 1
            jobs += 1
        if jobs == 0 and arrived == sizes.size:
            return ends
        _sort(present, left, jobs)
        served = _hand_out(present, left, rate, jobs, servers, p, alpha, whole, rule)

        until = np.inf
        if arrived < sizes.size:
            until = arrivals[by_arrival[arrived]] - now
        arrival_next = True
        for place in range(served):
            end = left[present[place]] / rate[place]
            if end <= until:
                until, arrival_next = end, False
        total += jobs * until
        if total > most:
            return np.full(sizes.size, np.inf)
        now = arrivals[by_arrival[arrived]] if arrival_next else now + until

        staying = 0
        for place in range(jobs):
            job = present[place]
            if place < served:
                left[job] -= rate[place] * until
                if left[job] <= _NOTHING * sizes[job]:
                    ends[job] = now
                    continue
            present[staying] = job
            staying += 1
        jobs = staying


@njit(cache=True, nogil=True, error_model="numpy")
def _hand_out(
    present: IntArray,
    left: FloatArray,
    rate: FloatArray,
    jobs: int,
    servers: float,
    p: float,
    alpha: float,
    whole: bool,
    rule: int,
) -> int:
    """Set the rates of the jobs that get servers, and return how many these are."""
    free, served = servers, 0
    while served < jobs and free > 0:
        knee = min((p * left[present[served]] / alpha) ** (1 / (1 + p)), servers)
        if whole:
            knee = max(np.ceil(knee), 1.0)
        rate[served] = min(knee, free)
        free -= rate[served]
        served += 1
    left_over = free > ROUNDING * servers
    for place in range(served):
        if left_over and rule == 2:
            rate[place] += free / jobs
        elif left_over and rule == 1 and place == 0:
            rate[place] += free
        rate[place] **= p
    return served


@njit(cache=True, nogil=True, error_model="numpy")
def _sort(present: IntArray, left: FloatArray, jobs: int) -> None:
    """Sort a list by what is left, which is all but sorted."""
    for place in range(1, jobs):
        job, before = present[place], place - 1
        while before >= 0 and left[present[before]] > left[job]:
            present[before + 1] = present[before]
            before -= 1
        present[before + 1] = job
