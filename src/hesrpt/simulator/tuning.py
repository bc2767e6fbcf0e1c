"""Finding the best parameter of a policy by trying many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies.knee import Knee
from hesrpt.policies.policy import Policy
from hesrpt.simulator import knee_trials as knees
from hesrpt.simulator.loop import Run, simulate
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

#: Of α, and a total flow time beyond which it need not go on: the completion times.
Trial: TypeAlias = Callable[[float, float], FloatArray]

# The best value is not searched further when neighbours differ by less than this.
_CLOSE = 1e-3


def best_alpha(
    policy: Knee, workload: Workload, servers: float, whole: bool, values: int = 100
) -> float:
    """Return the α with the least mean flow time: of a coarse grid, then of finer ones."""
    if values < 3:
        raise InputError(f"must be at least 3, got {values!r}", argument="values")
    trial = compiled(policy, workload, servers, whole) or _simulated(
        policy, workload, servers, whole
    )
    low, high = _range(workload, servers)
    alphas = np.geomspace(low, high, values)
    while True:
        times = _tried(trial, alphas, float(_arrivals(workload).sum()))
        best = int(np.argmin(times))
        below, above = max(best - 1, 0), min(best + 1, len(alphas) - 1)
        if max(times[below], times[above]) <= times[best] * (1 + _CLOSE):
            return float(alphas[best])
        if alphas[above] / alphas[below] < 1 + 1e-6:
            return float(alphas[best])
        alphas = np.geomspace(alphas[below], alphas[above], 11)


def _tried(trial: Trial, alphas: FloatArray, arrived: float) -> FloatArray:
    """Return the total flow time under each α; infinity where it is known to be far from best."""
    times, best = np.empty(len(alphas)), np.inf
    # A first round over the whole range, so that most others can be given up early.
    for place in sorted(range(len(alphas)), key=lambda place: place % 10):
        ends = trial(float(alphas[place]), best * (1 + _CLOSE))
        times[place] = float(ends.sum()) - arrived
        best = min(best, times[place])
    return times


def _simulated(policy: Knee, workload: Workload, servers: float, whole: bool) -> Trial:
    def trial(alpha: float, most: float) -> FloatArray:
        tried: Policy = replace(policy, alpha=alpha)
        return simulate(Run(workload, servers, tried, whole, 0.0, None)).completion_times

    return trial


def compiled(policy: Knee, workload: Workload, servers: float, whole: bool) -> Trial | None:
    """Return a quick trial where there is one."""
    speedup = workload.speedups.shared
    if not isinstance(speedup, PowerLaw) or (whole and policy.leftover == "equal"):
        return None
    arrivals = _arrivals(workload)
    by_arrival, rule = np.lexsort((workload.sizes, arrivals)), knees.RULES[policy.leftover]
    p = speedup.p

    def trial(alpha: float, most: float) -> FloatArray:
        ends: FloatArray = knees.completion_times(
            workload.sizes, arrivals, by_arrival, float(servers), p, alpha, whole, rule, most
        )
        return ends

    return trial


def _arrivals(workload: Workload) -> FloatArray:
    return np.zeros(len(workload)) if workload.arrivals is None else workload.arrivals


def _range(workload: Workload, servers: float) -> tuple[float, float]:
    """Return the values of α between which knees go from all servers to next to none."""
    speedups = workload.speedups.known_on(servers)
    jobs = len(workload)
    all_servers, few = np.full(jobs, servers), np.full(jobs, servers / (1000.0 * jobs))
    at_all, at_few = (
        workload.sizes * speedups.slope_before(n) / speedups.rate(n) ** 2
        for n in (all_servers, few)
    )
    smallest = float(at_few[at_few > 0].max())
    low = float(at_all.min())
    return (low if low > 0 else smallest * 1e-12), smallest
