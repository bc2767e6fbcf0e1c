"""How close lower bounds for jobs that keep arriving are to the best policy, and what they cost."""

from __future__ import annotations

import warnings
from itertools import product
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.ratios import Ratio, at_least, at_most
from hesrpt import PowerLaw, Workload, lower_bound, plan, simulate, verify_bound
from hesrpt.errors import OverloadWarning
from hesrpt.policies import Adaptive, PolicyLike

SERVERS = 64
POWERS = 0.3, 0.5, 0.7, 0.9, 0.97
LOADS = 0.3, 0.5, 0.7, 0.9
SIZES = "exponential", "pareto", "hyperexponential", "deterministic"


def find_best_policy(jobs: Workload) -> float:
    """Return the least total flow time of SRPT, EQUI, heSRPT and nine between these two."""
    between = [Adaptive(focus) for focus in np.arange(1, 10) / 10]
    policies: list[PolicyLike] = ["equi", "srpt", "hesrpt", *between]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverloadWarning)  # SRPT wastes most servers
        return min(simulate(jobs, SERVERS, policy).total_flow_time for policy in policies)


def measure_ratios(console: Console) -> list[Ratio]:
    """Compare bounds of streams of 50 jobs with the best policy, and of batches with plans."""
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
    batches = [_ratio_of_batch(p, whole) for p, whole in product(POWERS, (False, True))]
    return [
        at_least(
            "bound / the best policy, streams of 50 jobs, on average", float(np.mean(every)), 0.95
        ),
        at_least("bound / the certificate of the plan, batches, at least", min(batches), 0.999),
    ]


def _ratio(p: float, load: float, sizes: str) -> float:
    jobs = Workload.poisson(load * SERVERS, 50, sizes=sizes, speedup=PowerLaw(p), seed=1)
    return lower_bound(jobs, SERVERS).total / find_best_policy(jobs)


def _ratio_of_batch(p: float, whole: bool) -> float:
    jobs = Workload.pareto(50, speedup=PowerLaw(p), seed=1)
    certificate = plan(jobs, SERVERS, whole=whole).certificate
    return lower_bound(jobs, SERVERS, whole=whole).total / certificate.lower_bound


def measure_times(console: Console) -> list[Ratio]:
    """Measure how long bounds of 1,000 jobs and their verification take."""
    lower_bound(Workload.poisson(30, 20, speedup=PowerLaw(0.5)), SERVERS)  # compiles
    table = Table(box=None, pad_edge=False)
    for column in ("p", "load", "sizes", "bound / best", "seconds", "verified in"):
        table.add_column(column, justify="right")
    longest = 0.0
    for p, load, sizes in [*product((0.5, 0.9), (0.5, 0.9), ("exponential", "pareto"))]:
        jobs = Workload.poisson(load * SERVERS, 1000, sizes=sizes, speedup=PowerLaw(p), seed=1)
        start = perf_counter()
        bound = lower_bound(jobs, SERVERS)
        found = perf_counter()
        verify_bound(bound)
        seconds, verified = found - start, perf_counter() - found
        longest = max(longest, seconds)
        ratio = bound.total / find_best_policy(jobs)
        table.add_row(f"{p}", f"{load}", sizes, f"{ratio:.3f}", f"{seconds:.1f}", f"{verified:.1f}")
    console.print(table)
    return [at_most("the longest time for a bound of 1,000 jobs / a minute", longest / 60, 1)]
