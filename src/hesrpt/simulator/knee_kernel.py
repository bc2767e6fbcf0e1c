"""KNEE under k^p, compiled: completion times only, for trying very many values of α.

The result is that of simulating :class:`hesrpt.policies.Knee`, thirty times as fast. Under k^p a
job's knee grows with its remaining size, so a list sorted by size is also sorted by knee.
"""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled

#: The numbers of the leftover rules in compiled code.
LEFTOVER_RULES = {"idle": 0, "smallest": 1, "equal": 2}
# Servers up to this fraction are rounding error, as in :mod:`hesrpt.policies.sharing`.
_ROUNDING = 1e-12
# A job has ended when less than this fraction of its size remains: the rest is rounding error.
_ROUNDED_TO_ZERO = 1e-13


@compiled
def completion_times(
    sizes: FloatArray,
    arrivals: FloatArray,
    by_arrival: IntArray,
    servers: float,
    p: float,
    alpha: float,
    whole: bool,
    rule: int,
    max_flow_time: float,
) -> FloatArray:
    """Return completion times; all infinite if the total flow time exceeds ``max_flow_time``."""
    remaining = sizes.copy()
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
        _sort(present, remaining, jobs)
        served = _assign_servers(present, remaining, rate, jobs, servers, p, alpha, whole, rule)

        until = np.inf
        if arrived < sizes.size:
            until = arrivals[by_arrival[arrived]] - now
        arrival_next = True
        for place in range(served):
            end = remaining[present[place]] / rate[place]
            if end <= until:
                until, arrival_next = end, False
        total += jobs * until
        if total > max_flow_time:
            return np.full(sizes.size, np.inf)
        now = arrivals[by_arrival[arrived]] if arrival_next else now + until

        staying = 0
        for place in range(jobs):
            job = present[place]
            if place < served:
                remaining[job] -= rate[place] * until
                if remaining[job] <= _ROUNDED_TO_ZERO * sizes[job]:
                    ends[job] = now
                    continue
            present[staying] = job
            staying += 1
        jobs = staying


@compiled
def _assign_servers(
    present: IntArray,
    remaining: FloatArray,
    rate: FloatArray,
    jobs: int,
    servers: float,
    p: float,
    alpha: float,
    whole: bool,
    rule: int,
) -> int:
    """Set the rates of the jobs that get servers, and return the number of these jobs."""
    free, served = servers, 0
    while served < jobs and free > 0:
        knee = min((p * remaining[present[served]] / alpha) ** (1 / (1 + p)), servers)
        if whole:
            knee = max(np.ceil(knee), 1.0)
        rate[served] = min(knee, free)
        free -= rate[served]
        served += 1
    has_leftover = free > _ROUNDING * servers
    for place in range(served):
        if has_leftover and rule == 2:
            rate[place] += free / jobs
        elif has_leftover and rule == 1 and place == 0:
            rate[place] += free
        rate[place] **= p
    return served


@compiled
def _sort(present: IntArray, remaining: FloatArray, jobs: int) -> None:
    """Sort the list by remaining size, smallest first, by insertion: it is nearly sorted."""
    for place in range(1, jobs):
        job, before = present[place], place - 1
        while before >= 0 and remaining[present[before]] > remaining[job]:
            present[before + 1] = present[before]
            before -= 1
        present[before + 1] = job
