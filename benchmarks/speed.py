"""How long planning takes, against NumPy's sort and a general convex solver, and how it grows."""

from __future__ import annotations

import cvxpy
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.timing import best_time, peak_memory
from hesrpt import Amdahl, PowerLaw, Workload, plan
from hesrpt.arrays import FloatArray


def sizes(jobs: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).pareto(1.5, jobs) + 1


def against_sort(console: Console, jobs: int = 10_000_000) -> None:
    """Compare the closed form, which is one sort and one pass, with the sort."""
    x = sizes(jobs)
    sort = best_time(lambda: np.argsort(x))
    whole_plan = best_time(lambda: plan(Workload(x, PowerLaw(0.5)), 1_000_000))
    arrays = peak_memory(lambda: plan(Workload(x, PowerLaw(0.5)), 1_000_000)) / x.nbytes
    console.print(
        f"k^0.5, {jobs:,} jobs: {whole_plan / sort:.2f} times np.argsort of the same array "
        f"({whole_plan:.2f} s, {sort:.2f} s; target 3), "
        f"{arrays:.1f} arrays of that length at most (target 12)"
    )


def against_convex_solver(console: Console, jobs: int = 100, servers: float = 64.0) -> None:
    """Compare the planner with CVXPY, which is told the optimal order of completion."""
    x, p = np.sort(sizes(jobs))[::-1], 0.5
    solver_time, optimum = convex_program(x, servers)
    for name, speedup in (
        ("closed form", PowerLaw(p)),
        ("recursion", PowerLaw(p).limited(1e300)),
        ("recursion, whole servers", PowerLaw(p)),
    ):
        whole = "whole" in name
        workload = Workload(x, speedup)
        found = plan(workload, servers, whole=whole)
        time = best_time(lambda w=workload, h=whole: plan(w, servers, whole=h))  # type: ignore[misc]
        difference = f"{found.total_flow_time / optimum - 1:+.1e}"
        console.print(
            f"k^{p}, {jobs} jobs, {name}: {solver_time / time:,.0f} times faster than CVXPY "
            f"({time * 1e3:.1f} ms, {solver_time:.1f} s), optimum {difference} from CVXPY's"
        )


def convex_program(x: FloatArray, servers: float) -> tuple[float, float]:
    """Return the time to solve the batch for k^0.5 as a convex program, and its optimum.

    In each phase, work² ≤ (server time used) × (length of the phase): second-order cones.
    """
    optimum: list[float] = []

    def run() -> None:
        jobs = len(x)
        phase, job = np.tril_indices(jobs)
        lengths = cvxpy.Variable(jobs, nonneg=True)
        used, work = (cvxpy.Variable(len(phase), nonneg=True) for _ in range(2))
        in_phase = np.equal.outer(np.arange(jobs), phase).astype(float)
        of_job = np.equal.outer(np.arange(jobs), job).astype(float)
        problem = cvxpy.Problem(
            cvxpy.Minimize(np.arange(1, jobs + 1) @ lengths),
            [
                cvxpy.SOC(
                    used + lengths[phase],
                    cvxpy.vstack([2 * work, used - lengths[phase]]),
                    axis=0,
                ),
                in_phase @ used <= servers * lengths,
                of_job @ work >= x,
            ],
        )
        problem.solve(solver=cvxpy.CLARABEL)
        optimum.append(float(problem.value))

    return best_time(run, repeats=1), optimum[-1]


def growth(console: Console) -> None:
    """Show how time grows with the jobs M and the servers N."""
    table = Table("speedup", "M", "N", "whole", "seconds", "times the row before", box=None)
    series = [
        ("k^0.5", PowerLaw(0.5), [(10**e, 1e6) for e in (4, 5, 6, 7)], False),
        ("Amdahl 0.9", Amdahl(0.9), [(m, 4096.0) for m in (1250, 2500, 5000, 10_000)], False),
        ("Amdahl 0.9", Amdahl(0.9), [(2000, n) for n in (16.0, 256.0, 4096.0, 65536.0)], False),
        ("k^0.5", PowerLaw(0.5), [(m, 1e6) for m in (250, 500, 1000, 2000)], True),
        ("k^0.5", PowerLaw(0.5), [(500, n) for n in (1e2, 1e4, 1e6, 1e9)], True),
        ("k^0.5", PowerLaw(0.5), [(m, 64.0) for m in (2500, 5000, 10_000, 20_000)], True),
    ]
    for name, speedup, cases, whole in series:
        before = None
        for jobs, servers in cases:
            workload = Workload(sizes(jobs), speedup)
            seconds = best_time(lambda w=workload, n=servers, h=whole: plan(w, n, whole=h), 1)  # type: ignore[misc]
            ratio = "" if before is None else f"{seconds / before:.1f}"
            cells = (name, f"{jobs:,}", f"{servers:,.0f}", "yes" if whole else "")
            table.add_row(*cells, f"{seconds:.3f}", ratio)
            before = seconds
        table.add_section()
    console.print(table)
