"""Finding the best parameter of a policy by trying many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hesrpt.errors import InputError
from hesrpt.policies.base import Policy
from hesrpt.policies.knee import Knee
from hesrpt.simulator.engine import Run, simulate
from hesrpt.workload import Workload

# The best value is not searched further when neighbours differ by less than this.
_CLOSE = 1e-3


def best_alpha(
    policy: Knee, workload: Workload, servers: float, whole: bool, values: int = 100
) -> float:
    """Return the α with the least mean flow time: of a coarse grid, then of finer ones."""
    if values < 3:
        raise InputError(f"values must be at least 3, got {values!r}")
    arrivals = np.zeros(len(workload)) if workload.arrivals is None else workload.arrivals

    def mean_flow_time(alpha: float) -> float:
        tried: Policy = replace(policy, alpha=alpha)
        outcome = simulate(Run(workload, servers, tried, whole, 0.0, None))
        return float((outcome.completion_times - arrivals).mean())

    low, high = _range(workload, servers)
    alphas = np.geomspace(low, high, values)
    while True:
        times = np.array([mean_flow_time(float(alpha)) for alpha in alphas])
        best = int(np.argmin(times))
        below, above = max(best - 1, 0), min(best + 1, len(alphas) - 1)
        if max(times[below], times[above]) <= times[best] * (1 + _CLOSE):
            return float(alphas[best])
        if alphas[above] / alphas[below] < 1 + 1e-6:
            return float(alphas[best])
        alphas = np.geomspace(alphas[below], alphas[above], 11)


def _range(workload: Workload, servers: float) -> tuple[float, float]:
    """Return the values of α between which knees go from all servers to next to none."""
    speedup = workload.speedup.known_on(servers)
    jobs = len(workload)
    all_servers, few = np.full(jobs, servers), np.full(jobs, servers / (1000.0 * jobs))
    at_all, at_few = (
        workload.sizes * speedup.slope_before(n) / speedup.rate(n) ** 2 for n in (all_servers, few)
    )
    smallest = float(at_few[at_few > 0].max())
    low = float(at_all.min())
    return (low if low > 0 else smallest * 1e-12), smallest
