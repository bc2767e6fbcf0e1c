"""How good plans are where nothing is proven: different speedups, weights that disagree with sizes.

The best schedule of a small batch is found by brute force: a convex or linear program for each
completion order. Plans are compared with it, and so is the order by time alone that planning starts
from.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import linprog

from benchmarks.convex import least_cost, power_cones
from hesrpt import Amdahl, Measured, PowerLaw, Speedup, Workload, plan
from hesrpt.arrays import FloatArray

CASES = "speedups differ", "weights disagree", "both"


def best_with_power_laws(
    sizes: FloatArray, speedups: list[Speedup], weights: FloatArray, servers: float
) -> float:
    """Return the least weighted flow time of any schedule, by convex programs."""
    powers = np.array([speedup.p for speedup in speedups if isinstance(speedup, PowerLaw)])
    # N servers are one server that is N^p times as fast; and solvers like numbers around 1.
    scaled = sizes / servers**powers
    unit = float(np.exp(np.log(scaled).mean()))
    orders = (list(order) for order in permutations(range(len(sizes))))
    return unit * min(
        least_cost(scaled[o] / unit, weights[o], 1.0, power_cones(powers[o])) for o in orders
    )


def best_on_whole_servers(
    sizes: FloatArray, speedups: list[Speedup], weights: FloatArray, servers: float
) -> float:
    """Return the least weighted flow time of any schedule, by linear programs.

    How long to spend on each allocation of whole servers, for each set of jobs present.
    """
    jobs, most = len(sizes), int(servers)
    allocations = np.array([a for a in product(range(most + 1), repeat=jobs) if sum(a) == most])
    work = np.stack([s.rate(allocations[:, i].astype(float)) for i, s in enumerate(speedups)])
    best = np.inf
    for order in permutations(range(jobs)):  # from the last to end to the first
        present = np.tril(np.ones((jobs, jobs)))[:, np.argsort(order)]
        columns = np.concatenate([work * here[:, None] for here in present], axis=1)
        cost = np.repeat(present @ weights, len(allocations))
        best = min(best, linprog(cost, A_ub=-columns, b_ub=-sizes, method="highs").fun)
    return best


def random_power_laws(rng: np.random.Generator, jobs: int) -> list[Speedup]:
    return [PowerLaw(p) for p in rng.uniform(0.2, 0.95, jobs)]


def random_kinked(rng: np.random.Generator, jobs: int) -> list[Speedup]:
    """Return speedups with corners: measured, limited, linear below one server."""

    def one() -> Speedup:
        p, f = rng.uniform(0.2, 0.95), rng.uniform(0.5, 1)
        measured = np.sort(rng.uniform(0.5, 4, 4))
        choices = PowerLaw(p).time_shared(), Amdahl(f), Measured([1, 2, 3, 5], measured)
        speedup: Speedup = choices[rng.integers(3)]
        return speedup.limited(float(rng.integers(1, 5))) if rng.random() < 0.5 else speedup

    return [one() for _ in range(jobs)]


def unproven_plans(console: Console, batches: int = 60, seed: int = 0) -> None:
    heads = "speedups", "jobs", "case", "batches", "plan: worst", "mean", "time alone: worst"
    table = Table(*heads, "mean", box=None)
    few = max(batches // 5, 1)
    for draw, best, counts, servers, whole in (
        (random_power_laws, best_with_power_laws, {3: batches, 4: batches, 5: few},
         [1.0, 4.0, 10.0, 100.0], False),
        (random_kinked, best_on_whole_servers, {3: batches, 4: batches, 5: few},
         [1.0, 2.0, 3.0, 4.0], True),
    ):  # fmt: skip
        for (jobs, count), case in product(counts.items(), CASES):
            kind = "power laws" if draw is random_power_laws else "kinked, whole servers"
            rng = np.random.default_rng([seed, jobs])
            numbers = track(range(count), f"{kind}, {jobs} jobs, {case}", console=console,
                            transient=True, disable=not console.is_terminal)  # fmt: skip
            excess = np.array(
                [_excess(rng, n, jobs, case, draw, best, servers, whole) for n in numbers]
            )
            figures = (f"{figure:.2%}" for e in excess.T for figure in (e.max(), e.mean()))
            table.add_row(kind, str(jobs), case, str(count), *figures)
    console.print(table)
    console.print("excess over the best schedule of all completion orders (target: within 2%)")


def _excess(
    rng: np.random.Generator,
    batch: int,
    jobs: int,
    case: str,
    draw: Callable[[np.random.Generator, int], list[Speedup]],
    best: Callable[[FloatArray, list[Speedup], FloatArray, float], float],
    servers_counts: list[float],
    whole: bool,
) -> tuple[float, float]:
    """Return how far a plan, and that in the order of time alone, are above the best schedule."""
    sizes = rng.pareto(1.5, jobs) + 1 if batch % 2 else rng.uniform(0.1, 1, jobs)
    servers = float(rng.choice(servers_counts))
    speedups = draw(rng, jobs)
    weights = rng.uniform(0.1, 1, jobs) ** (1 + batch % 3)
    if case == "weights disagree":
        speedups = speedups[:1] * jobs
    if case == "speedups differ":
        weights[:] = 1.0
    least = best(sizes, speedups, weights, servers)
    workload = Workload(sizes, speedups, weights=weights)
    rates = np.array([float(speedup(servers)) for speedup in speedups])
    alone = np.argsort(sizes / rates / weights).tolist()
    costs = (
        plan(workload, servers, objective="weighted", order=order, whole=whole).cost
        for order in (None, alone)
    )
    mine, time_alone = (cost / least - 1 for cost in costs)
    return mine, time_alone
