"""Tuning KNEE: finding the best α by simulating many values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies.knee import Knee
from hesrpt.simulator.loop import GeneralLoop
from hesrpt.simulator.runs import Run
from hesrpt.workload import Workload

# The search ends when the flow times of neighbouring values differ by less than this fraction.
_CLOSE = 1e-3


def tune_knee(
    policy: Knee, workload: Workload, servers: float, *, whole: bool = False, values: int = 100
) -> Knee:
    """Return KNEE with the α that gives the least mean flow time, as the paper's authors chose it.

    The search tries ``values`` values over the range in which α makes a difference, then finer
    grids around the best one.

    >>> from hesrpt import PowerLaw
    >>> tuned = tune_knee(Knee(), Workload([9, 4, 1], PowerLaw(0.5)), servers=10)
    >>> round(tuned.alpha, 3)
    0.061
    """
    if values < 3:
        raise InputError(f"must be at least 3, got {values!r}", argument="values")
    run = Run(workload, servers, policy, whole, 0.0, None)
    alphas = np.geomspace(*_alpha_range(workload, servers), values)
    while True:
        flow_times = _try_all(run, policy, alphas)
        best = int(np.argmin(flow_times))
        below, above = max(best - 1, 0), min(best + 1, len(alphas) - 1)
        is_flat = max(flow_times[below], flow_times[above]) <= flow_times[best] * (1 + _CLOSE)
        if is_flat or alphas[above] / alphas[below] < 1 + 1e-6:
            return replace(policy, alpha=float(alphas[best]))
        alphas = np.geomspace(alphas[below], alphas[above], 11)


def _try_all(run: Run, policy: Knee, alphas: FloatArray) -> FloatArray:
    """Return the total flow time under each α; infinity if it is known to be far from the best."""
    flow_times, best = np.full(len(alphas), np.inf), np.inf
    # Begin with a coarse round over the whole range, so that most other trials give up early.
    for place in sorted(range(len(alphas)), key=lambda place: place % 10):
        tried = replace(policy, alpha=float(alphas[place]))
        trial = replace(run, policy=tried, max_flow_time=best * (1 + _CLOSE))
        outcome = GeneralLoop(trial).execute()
        if not np.isnan(outcome.completion_times).any():
            flow_times[place] = outcome.job_seconds
            best = min(best, flow_times[place])
    return flow_times


def _alpha_range(workload: Workload, servers: float) -> tuple[float, float]:
    """Return the values of α between which knees fall from all servers to next to none."""
    speedups = workload.speedups.tabulate(servers)
    jobs = len(workload)
    all_servers, few_servers = np.full(jobs, servers), np.full(jobs, servers / (1000.0 * jobs))
    saved_at_all, saved_at_few = (
        workload.sizes * speedups.slope_before(n) / speedups.rate(n) ** 2
        for n in (all_servers, few_servers)
    )
    highest = float(saved_at_few[saved_at_few > 0].max())
    lowest = float(saved_at_all.min())
    return (lowest if lowest > 0 else highest * 1e-12), highest
