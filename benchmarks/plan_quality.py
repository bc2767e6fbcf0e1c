"""The quality of plans without a proof: speedups differ, or weights disagree with sizes.

The best schedule of a small batch is found by brute force, with a convex or linear program for each
completion order. It is compared with the plan, and with the plan for the
order from which the planner starts: each job's time alone on all servers, divided by its weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import linprog

from benchmarks.convex_programs import minimise_cost, power_cones
from benchmarks.ratios import Ratio, at_most
from hesrpt import Amdahl, Measured, PowerLaw, Speedup, Workload, plan
from hesrpt.arrays import FloatArray

CASES = "speedups differ", "weights disagree", "both"


def find_best_with_power_laws(
    sizes: FloatArray, speedups: list[Speedup], weights: FloatArray, servers: float
) -> float:
    """Return the least weighted flow time of all schedules, by convex programs."""
    powers = np.array([speedup.p for speedup in speedups if isinstance(speedup, PowerLaw)])
    # N servers equal one server that is N^p times as fast. Solvers prefer numbers around 1.
    scaled = sizes / servers**powers
    unit = float(np.exp(np.log(scaled).mean()))
    orders = (list(order) for order in permutations(range(len(sizes))))
    return unit * min(
        minimise_cost(scaled[o] / unit, weights[o], 1.0, power_cones(powers[o])) for o in orders
    )


def find_best_on_whole_servers(
    sizes: FloatArray, speedups: list[Speedup], weights: FloatArray, servers: float
) -> float:
    """Return the least weighted flow time of all schedules, by linear programs.

    The variables are the time spent on each allocation of whole servers, for each set of jobs.
    """
    jobs, total = len(sizes), int(servers)
    allocations = np.array([a for a in product(range(total + 1), repeat=jobs) if sum(a) == total])
    work = np.stack([s.rate(allocations[:, i].astype(float)) for i, s in enumerate(speedups)])
    best = np.inf
    for order in permutations(range(jobs)):  # from the last to end to the first
        present = np.tril(np.ones((jobs, jobs)))[:, np.argsort(order)]
        columns = np.concatenate([work * here[:, None] for here in present], axis=1)
        cost = np.repeat(present @ weights, len(allocations))
        best = min(best, linprog(cost, A_ub=-columns, b_ub=-sizes, method="highs").fun)
    return best


def draw_power_laws(rng: np.random.Generator, jobs: int) -> list[Speedup]:
    return [PowerLaw(p) for p in rng.uniform(0.2, 0.95, jobs)]


def draw_kinked(rng: np.random.Generator, jobs: int) -> list[Speedup]:
    """Return random speedups with corners: measured, limited, linear below one server."""

    def draw_one() -> Speedup:
        p, f = rng.uniform(0.2, 0.95), rng.uniform(0.5, 1)
        measured = np.sort(rng.uniform(0.5, 4, 4))
        choices = PowerLaw(p).time_shared(), Amdahl(f), Measured([1, 2, 3, 5], measured)
        speedup: Speedup = choices[rng.integers(3)]
        return speedup.limited(float(rng.integers(1, 5))) if rng.random() < 0.5 else speedup

    return [draw_one() for _ in range(jobs)]


@dataclass(frozen=True)
class Setting:
    """A kind of random batch, and how to find its best schedule."""

    title: str
    draw: Callable[[np.random.Generator, int], list[Speedup]]
    find_best: Callable[[FloatArray, list[Speedup], FloatArray, float], float]
    servers: list[float]
    whole: bool


SETTINGS = [
    Setting(
        title="power laws",
        draw=draw_power_laws,
        find_best=find_best_with_power_laws,
        servers=[1.0, 4.0, 10.0, 100.0],
        whole=False,
    ),
    Setting(
        title="with corners, whole servers",
        draw=draw_kinked,
        find_best=find_best_on_whole_servers,
        servers=[1.0, 2.0, 3.0, 4.0],
        whole=True,
    ),
]


def compare_with_best_schedules(console: Console, batches: int = 60, seed: int = 0) -> list[Ratio]:
    """Show how far plans exceed the best schedules of small batches."""
    headers = "speedups", "jobs", "case", "batches", "plan: worst", "mean", "time alone: worst"
    table = Table(*headers, "mean", box=None)
    worst = 0.0
    counts = {3: batches, 4: batches, 5: max(batches // 5, 1)}
    for setting, (jobs, count), case in product(SETTINGS, counts.items(), CASES):
        rng = np.random.default_rng([seed, jobs])
        numbers = track(
            range(count),
            f"{setting.title}, {jobs} jobs, {case}",
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        excess = np.array([_compute_excess(rng, setting, n, jobs, case) for n in numbers])
        worst = max(worst, float(excess[:, 0].max()))
        figures = (f"{figure:.2%}" for e in excess.T for figure in (e.max(), e.mean()))
        table.add_row(setting.title, str(jobs), case, str(count), *figures)
    console.print(table)
    console.print("excess over the best schedule of all completion orders (target: within 2%)")
    return [at_most("plan / best schedule of all completion orders, worst", 1 + worst, 1.02)]


def _compute_excess(
    rng: np.random.Generator, setting: Setting, batch: int, jobs: int, case: str
) -> tuple[float, float]:
    """Return how far the plan, and the plan for the starting order, exceed the best schedule."""
    sizes = rng.pareto(1.5, jobs) + 1 if batch % 2 else rng.uniform(0.1, 1, jobs)
    servers = float(rng.choice(setting.servers))
    speedups = setting.draw(rng, jobs)
    weights = rng.uniform(0.1, 1, jobs) ** (1 + batch % 3)
    if case == "weights disagree":
        speedups = speedups[:1] * jobs
    if case == "speedups differ":
        weights[:] = 1.0
    least = setting.find_best(sizes, speedups, weights, servers)
    workload = Workload(sizes, speedups, weights=weights)
    rates = np.array([float(speedup(servers)) for speedup in speedups])
    alone = np.argsort(sizes / rates / weights).tolist()
    planned, time_alone = (
        plan(workload, servers, objective="weighted", order=order, whole=setting.whole).cost
        for order in (None, alone)
    )
    return planned / least - 1, time_alone / least - 1
