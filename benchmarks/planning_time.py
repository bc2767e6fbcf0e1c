"""Planning time: compared with a sort and with a convex solver, and how it grows."""

from __future__ import annotations

from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.convex_programs import amdahl_cones, minimise_cost, root_cones
from benchmarks.ratios import Ratio, at_least, at_most
from benchmarks.timing import measure_best_time, measure_peak_memory
from hesrpt import Amdahl, Measured, PowerLaw, Speedup, Workload, plan, verify
from hesrpt.arrays import FloatArray
from hesrpt.objectives import Objective


def draw_sizes(jobs: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).pareto(1.5, jobs) + 1


def compare_with_sort(console: Console, jobs: int = 10_000_000) -> list[Ratio]:
    """Compare the closed form, which is one sort and one pass, with the sort alone."""
    distinct, repeated = draw_sizes(jobs), np.ceil(draw_sizes(jobs))
    cases: list[tuple[str, FloatArray, Objective]] = [
        ("flow", distinct, "flow"),
        ("slowdown", distinct, "slowdown"),
        ("flow, many equal sizes", repeated, "flow"),
    ]
    ratios = []
    for name, x, objective in cases:

        def make_plan(x: FloatArray = x, objective: Objective = objective) -> object:
            return plan(Workload(x, PowerLaw(0.5)), 1_000_000, objective=objective)

        sort = measure_best_time(lambda x=x: np.argsort(x))  # type: ignore[misc]
        seconds, arrays = measure_best_time(make_plan), measure_peak_memory(make_plan) / x.nbytes
        console.print(
            f"k^0.5, {jobs:,} jobs, {name}: {seconds / sort:.2f} times np.argsort of the same "
            f"array ({seconds:.2f} s, {sort:.2f} s; target 3), "
            f"peak memory {arrays:.1f} arrays of that length (target 12)"
        )
        ratios.append(at_most(f"planning {jobs:,} jobs, {name} / np.argsort", seconds / sort, 3))
        ratios.append(at_most(f"its memory, {name} / the array of sizes", arrays, 12))
    return ratios


def compare_with_convex_solver(
    console: Console, jobs: int = 100, servers: float = 64.0
) -> list[Ratio]:
    """Compare the planner with CVXPY, which is given the optimal completion order."""
    x = np.sort(draw_sizes(jobs))[::-1]
    ratios = []
    for name, speedup, cones, target in (
        ("k^0.5 (closed form)", PowerLaw(0.5), root_cones, 1000),
        ("Amdahl 0.9 (recursion)", Amdahl(0.9), amdahl_cones(0.9), 1000),
    ):
        workload = Workload(x, speedup)
        optimum = minimise_cost(x, np.ones(jobs), servers, cones)
        solver_time = measure_best_time(lambda c=cones: minimise_cost(x, np.ones(jobs), servers, c))  # type: ignore[misc]
        time = measure_best_time(lambda w=workload: plan(w, servers), repeats=10)  # type: ignore[misc]
        difference = plan(workload, servers).total_flow_time / optimum - 1
        console.print(
            f"{name}, {jobs} jobs: {solver_time / time:,.0f} times faster than CVXPY "
            f"({time * 1e3:.1f} ms, {solver_time:.2f} s; target {target:,}), "
            f"optima {difference:.0e} apart"
        )
        ratios.append(at_least(f"CVXPY / plan of {jobs} jobs, {name}", solver_time / time, target))
    return ratios


def compare_verification_with_planning(console: Console, jobs: int = 10_000_000) -> list[Ratio]:
    """Compare the verification of a plan in closed form with the planning."""
    workload = Workload(draw_sizes(jobs), PowerLaw(0.5))
    planning = measure_best_time(lambda: plan(workload, 1_000_000))
    verification = measure_best_time(partial(verify, plan(workload, 1_000_000)), 1)
    console.print(
        f"k^0.5, {jobs:,} jobs: verified in {verification / planning:.2f} times the planning "
        f"({verification:.2f} s, {planning:.2f} s; target 3)"
    )
    return [at_most(f"verifying / planning {jobs:,} jobs", verification / planning, 3)]


def measure_jobs_that_differ(console: Console, servers: float = 64.0) -> list[Ratio]:
    """Compare plans without a proof, each with its certified gap, with a sort.

    The sort of ten million numbers takes about a second.
    """
    sort = _measure_sort()
    ratios = []

    def measure(name: str, workload: Workload, target: float, whole: bool = False) -> None:
        objective: Objective = "flow" if workload.weights is None else "weighted"
        gap = 0.0

        def make_plan() -> None:
            nonlocal gap
            found = plan(workload, servers, objective=objective, whole=whole)
            gap = found.certificate.certified_gap

        few = len(workload) <= 100
        if few:
            make_plan()  # compile first
        seconds = measure_best_time(make_plan, 5 if few else 1)
        console.print(
            f"{name}: {seconds:.3g} s with its gap, at most {gap:.2%} above the optimum "
            f"({_SORT}: {sort:.2f} s)"
        )
        ratios.append(at_most(f"{name}, with its gap / {_SORT}", seconds / sort, target))

    for jobs, target in ((100, 0.1), (1_000, 3.0), (10_000, 60.0)):
        rng = np.random.default_rng(jobs)
        sizes, powers = draw_sizes(jobs), rng.uniform(0.2, 0.95, jobs)
        weights = rng.uniform(0.1, 1, jobs)
        own: list[Speedup] = [PowerLaw(p) for p in powers]
        measure(f"plan of {jobs:,} jobs with their own p", Workload(sizes, own), target)
        name = f"plan of {jobs:,} jobs with their own p on {servers:g} whole servers"
        measure(name, Workload(sizes, own), target, whole=True)
        if jobs > 1_000:
            continue  # the others take about as long
        weighted = Workload(sizes, own, weights=weights)
        measure(f"plan of {jobs:,} jobs with their own p and weight", weighted, target)
        laws: list[Speedup] = [Amdahl(f) for f in rng.uniform(0.5, 0.999, jobs)]
        measure(f"plan of {jobs:,} jobs with their own Amdahl's law", Workload(sizes, laws), target)
        curves: list[Speedup] = [_draw_measured(rng) for _ in range(jobs)]
        name = f"plan of {jobs:,} jobs with their own measured curve"
        measure(name, Workload(sizes, curves), target)
    weights = np.random.default_rng(1).uniform(0.1, 1, 100_000)
    weighted = Workload(draw_sizes(100_000), PowerLaw(0.5), weights=weights)
    measure("plan of 100,000 jobs with weights of their own", weighted, 60.0)
    return ratios


def _draw_measured(rng: np.random.Generator) -> Measured:
    """Return a concave curve that was measured on up to 64 servers."""
    gains = np.sort(rng.uniform(0.1, 1, 6))[::-1]
    return Measured([1, 2, 4, 8, 16, 32, 64], 1 + np.append(0.0, np.cumsum(gains)))


def measure_growth(console: Console) -> list[Ratio]:
    """Show how planning time grows with the jobs M and the servers N."""
    table = Table("speedup", "M", "N", "whole", "seconds", "times the row before", box=None)
    series = [
        ("k^0.5", PowerLaw(0.5), [(10**e, 1e6) for e in (4, 5, 6, 7)], False),
        ("Amdahl 0.9", Amdahl(0.9), [(m, 4096.0) for m in (1000, 10_000, 100_000)], False),
        ("Amdahl 0.9", Amdahl(0.9), [(2000, n) for n in (16.0, 256.0, 4096.0, 65536.0)], False),
        ("k^0.5", PowerLaw(0.5), [(m, 1e6) for m in (250, 500, 1000, 2000)], True),
        ("k^0.5", PowerLaw(0.5), [(500, n) for n in (1e2, 1e4, 1e6, 1e9)], True),
        ("k^0.5", PowerLaw(0.5), [(m, 64.0) for m in (2500, 5000, 10_000, 20_000)], True),
    ]
    for name, speedup, cases, whole in series:
        before = None
        for jobs, servers in cases:
            workload = Workload(draw_sizes(jobs), speedup)
            seconds = measure_best_time(partial(plan, workload, servers, whole=whole), 1)
            ratio = "" if before is None else f"{seconds / before:.1f}"
            cells = (name, f"{jobs:,}", f"{servers:,.0f}", "yes" if whole else "")
            table.add_row(*cells, f"{seconds:.3f}", ratio)
            before = seconds
        table.add_section()
    console.print(table)
    many, more = (
        measure_best_time(partial(plan, Workload(draw_sizes(jobs), Amdahl(0.9)), 4096.0), 7)
        for jobs in (10_000, 100_000)
    )
    sort = _measure_sort()
    make_plan = partial(plan, Workload(draw_sizes(5000), PowerLaw(0.5)), 1e6, whole=True)
    on_whole_servers = measure_best_time(make_plan, 1) / sort
    return [
        at_most("planning 100,000 / 10,000 Amdahl jobs on 4,096 servers", more / many, 10),
        at_most(f"5,000 jobs on 10^6 whole servers / {_SORT}", on_whole_servers, 10),
    ]


_SORT = "np.argsort of 10^7 numbers"


def _measure_sort() -> float:
    """Return the seconds that the sort of ten million numbers takes: about one."""
    x = draw_sizes(10_000_000)
    return measure_best_time(lambda: np.argsort(x))
