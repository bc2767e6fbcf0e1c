"""Simulating jobs that differ: events per second, and how the cost of an event grows."""

from __future__ import annotations

import numpy as np
from rich.console import Console

from benchmarks.ratios import Ratio, at_least, at_most
from benchmarks.simulation_speed import wait_with_simpy
from benchmarks.timing import measure_best_time
from hesrpt import PowerLaw, Workload, simulate

# Policies with the least events per second. On the machine that these were meant for, SimPy ran
# 1.43 million events per second that do nothing.
_TARGETS = {"equi": 500_000, "srpt": 500_000, "adaptive": 50_000, "optimal": 50_000}
_SIMPY_EVENTS = 1_430_000


def _draw_jobs(jobs: int, rate: float, limit: float) -> Workload:
    """Return a stream of jobs with one of 50 powers and one of four limits each."""
    rng = np.random.default_rng(1)
    powers = rng.uniform(0.5, 0.9, 50)
    speedups = [
        [PowerLaw(float(p)).limited(limit * part) for part in (0.25, 0.5, 1, 4)] for p in powers
    ]
    return Workload(
        rng.exponential(1, jobs),
        [
            speedups[p][part]
            for p, part in zip(*rng.integers((50, 4), size=(jobs, 2)).T, strict=True)
        ],
        arrivals=np.cumsum(rng.exponential(1 / rate, jobs)),
    )


def _measure(
    console: Console, policy: str, workload: Workload, servers: float, whole: bool
) -> tuple[float, float]:
    """Return the events per second, and the mean number of jobs in the system."""
    simulate(workload.head(100), servers, policy, whole=whole)  # compile first
    simulation = simulate(workload, servers, policy, whole=whole)
    seconds = measure_best_time(lambda: simulate(workload, servers, policy, whole=whole))
    rate = simulation.events / seconds
    console.print(
        f"{policy}, {servers:g} {'whole ' if whole else ''}servers, {simulation.mean_jobs:.1f} in "
        f"the system: {rate:,.0f} events per second"
    )
    return rate, simulation.mean_jobs


def measure_mixed_events(console: Console) -> list[Ratio]:
    """Compare events where each job has its own p and limit with SimPy's that do nothing.

    On ten times as many servers, with ten times as many jobs, an event may cost ten times as much.
    """
    empty = 100_000 / measure_best_time(lambda: wait_with_simpy(100_000))
    ratios = []
    for whole in (False, True):
        kind = "whole" if whole else "divisible"
        for policy, target in _TARGETS.items():
            # SRPT leaves most servers to one job, and would be overloaded.
            jobs = 100_000 if policy in ("equi", "srpt") else 20_000
            few = _draw_jobs(jobs, 20.0 if policy == "srpt" else 32.0, 16.0)
            rate, present = _measure(console, policy, few, 64.0, whole)
            name = f"{policy}'s events on {kind} servers / SimPy's that do nothing"
            ratios.append(at_least(name, rate / empty, round(target / _SIMPY_EVENTS, 3)))
            if policy == "srpt":
                continue
            many = _draw_jobs(jobs // 5, 320.0, 16.0)
            rate_of_many, many_present = _measure(console, policy, many, 640.0, whole)
            growth = (rate / rate_of_many) / (many_present / present)
            name = (
                f"growth of the cost of {policy}'s events on {kind} servers / of the jobs present"
            )
            ratios.append(at_most(name, growth, 1))
    return ratios
