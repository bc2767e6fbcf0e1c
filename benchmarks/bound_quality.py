"""How close lower bounds for jobs that keep arriving are to the best policy, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hesrpt import PowerLaw, Workload, lower_bound, simulate, verify_bound
from hesrpt.arrays import FloatArray
from hesrpt.policies import Policy, PolicyLike, State

SERVERS = 64
POWERS = 0.3, 0.5, 0.7, 0.9, 0.97
LOADS = 0.3, 0.5, 0.7, 0.9
SIZES = "exponential", "pareto", "hyperexponential", "deterministic"


@dataclass(frozen=True)
class BetweenEquiAndHeSrpt(Policy):
    """The i-th largest of m jobs gets (i/m)^c − ((i−1)/m)^c of the servers."""

    c: float

    def __call__(self, state: State) -> FloatArray:
        jobs = len(state)
        edges = (np.arange(jobs + 1) / jobs) ** self.c
        servers = np.empty(jobs)
        servers[np.argsort(-state.remaining, kind="stable")] = np.diff(edges) * state.servers
        return servers


def find_best_policy(jobs: Workload, p: float) -> float:
    """Return the least total flow time of EQUI, SRPT, heSRPT and nine policies between them."""
    between = [BetweenEquiAndHeSrpt(1 + f * p / (1 - p)) for f in np.arange(1, 10) / 10]
    policies: list[PolicyLike] = ["equi", "srpt", "hesrpt", *between]
    return min(simulate(jobs, SERVERS, policy).total_flow_time for policy in policies)


def measure_ratios(console: Console) -> None:
    """Print the ratio of the bound to the best policy for streams of 50 jobs."""
    table = Table(box=None, pad_edge=False)
    for column in ("p", *(f"load {load}" for load in LOADS), "least"):
        table.add_column(column, justify="right")
    every: list[float] = []
    for p in track(POWERS, console=console, transient=True):
        ratios = np.array([[_ratio(p, load, sizes) for sizes in SIZES] for load in LOADS])
        table.add_row(
            f"{p}", *(f"{ratio:.3f}" for ratio in ratios.mean(axis=1)), f"{ratios.min():.3f}"
        )
        every.extend(ratios.ravel())
    console.print(table)
    console.print(f"bound / best policy on average: {np.mean(every):.4f}, least {min(every):.4f}")


def _ratio(p: float, load: float, sizes: str) -> float:
    jobs = Workload.poisson(load * SERVERS, 50, sizes=sizes, speedup=PowerLaw(p), seed=1)
    return lower_bound(jobs, SERVERS).total / find_best_policy(jobs, p)


def measure_times(console: Console) -> None:
    """Print how long bounds of 1,000 jobs and their verification take."""
    lower_bound(Workload.poisson(30, 20, speedup=PowerLaw(0.5)), SERVERS)  # compiles
    table = Table(box=None, pad_edge=False)
    for column in ("p", "load", "sizes", "bound / best", "seconds", "verified in"):
        table.add_column(column, justify="right")
    for p, load, sizes in [*product((0.5, 0.9), (0.5, 0.9), ("exponential", "pareto"))]:
        jobs = Workload.poisson(load * SERVERS, 1000, sizes=sizes, speedup=PowerLaw(p), seed=1)
        start = perf_counter()
        bound = lower_bound(jobs, SERVERS)
        found = perf_counter()
        verify_bound(bound)
        seconds, verified = found - start, perf_counter() - found
        ratio = bound.total / find_best_policy(jobs, p)
        table.add_row(f"{p}", f"{load}", sizes, f"{ratio:.3f}", f"{seconds:.1f}", f"{verified:.1f}")
    console.print(table)
