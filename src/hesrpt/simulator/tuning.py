"""Tuning KNEE: finding the best α by simulating many values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias, TypeGuard

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies.knee import Knee
from hesrpt.simulator import knee_kernel
from hesrpt.simulator.loop import run_loop
from hesrpt.simulator.runs import Run
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

#: Returns the completion times under an α. As soon as the total flow time exceeds the second
#: argument, a trial may give up and return infinite ones.
Trial: TypeAlias = Callable[[float, float], FloatArray]

# The search ends when the flow times of neighbouring values differ by less than this fraction.
_CLOSE = 1e-3


def needs_tuning(policy: object) -> TypeGuard[Knee]:
    """Return whether a policy has a parameter that was not set and that simulations can tune."""
    return isinstance(policy, Knee) and policy.alpha is None


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
    is_compiled = has_compiled_trial(policy, workload, whole)
    create_trial = create_compiled_trial if is_compiled else _create_simulated_trial
    trial = create_trial(policy, workload, servers, whole)
    alphas = np.geomspace(*_alpha_range(workload, servers), values)
    sum_of_arrivals = float(workload.arrival_times.sum())
    while True:
        flow_times = _try_all(trial, alphas, sum_of_arrivals)
        best = int(np.argmin(flow_times))
        below, above = max(best - 1, 0), min(best + 1, len(alphas) - 1)
        is_flat = max(flow_times[below], flow_times[above]) <= flow_times[best] * (1 + _CLOSE)
        if is_flat or alphas[above] / alphas[below] < 1 + 1e-6:
            return replace(policy, alpha=float(alphas[best]))
        alphas = np.geomspace(alphas[below], alphas[above], 11)


def has_compiled_trial(policy: Knee, workload: Workload, whole: bool) -> bool:
    """Return whether compiled code can simulate these jobs with the policy's leftover rule."""
    is_power_law = isinstance(workload.speedups.shared, PowerLaw)
    return is_power_law and not (whole and policy.leftover == "equal")


def create_compiled_trial(policy: Knee, workload: Workload, servers: float, whole: bool) -> Trial:
    """Return a compiled trial. It requires :func:`has_compiled_trial`."""
    arrivals, p = workload.arrival_times, workload.speedups.exponent
    assert p is not None
    by_arrival = np.lexsort((workload.sizes, arrivals))
    rule = knee_kernel.LEFTOVER_RULES[policy.leftover]

    def trial(alpha: float, max_flow_time: float) -> FloatArray:
        times: FloatArray = knee_kernel.completion_times(
            workload.sizes,
            arrivals,
            by_arrival,
            float(servers),
            p,
            alpha,
            whole,
            rule,
            max_flow_time,
        )
        return times

    return trial


def _create_simulated_trial(policy: Knee, workload: Workload, servers: float, whole: bool) -> Trial:
    def trial(alpha: float, max_flow_time: float) -> FloatArray:
        run = Run(workload, servers, replace(policy, alpha=alpha), whole, 0.0, None)
        return run_loop(run).completion_times

    return trial


def _try_all(trial: Trial, alphas: FloatArray, sum_of_arrivals: float) -> FloatArray:
    """Return the total flow time under each α; infinity if it is known to be far from the best."""
    flow_times, best = np.empty(len(alphas)), np.inf
    # Begin with a coarse round over the whole range, so that most other trials give up early.
    for place in sorted(range(len(alphas)), key=lambda place: place % 10):
        completion_times = trial(float(alphas[place]), best * (1 + _CLOSE))
        flow_times[place] = float(completion_times.sum()) - sum_of_arrivals
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
