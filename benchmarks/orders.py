"""How good plans are where nothing is proven: different speedups, weights that disagree with sizes.

The best schedule of a small batch is found by brute force: a convex program for each completion
order. Plans are compared with it, and so is the order by time alone that planning starts from.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.convex import least_cost, power_cones
from hesrpt import PowerLaw, Workload, plan
from hesrpt.arrays import FloatArray


def best_of_all_orders(
    sizes: FloatArray, powers: FloatArray, weights: FloatArray, servers: float
) -> float:
    """Return the least weighted flow time of any schedule."""
    # N servers are one server that is N^p times as fast; and solvers like numbers around 1.
    scaled = sizes / servers**powers
    unit = float(np.exp(np.log(scaled).mean()))
    orders = (list(order) for order in permutations(range(len(sizes))))
    return unit * min(
        least_cost(scaled[o] / unit, weights[o], 1.0, power_cones(powers[o])) for o in orders
    )


def unproven_plans(console: Console, batches: int = 60, seed: int = 0) -> None:
    table = Table("jobs", "case", "batches", "plan: worst", "mean", "time alone: worst", "mean",
                  box=None)  # fmt: skip
    for jobs, count in ((3, batches), (4, batches), (5, max(batches // 5, 1))):
        for case in ("speedups differ", "weights disagree", "both"):
            rng = np.random.default_rng([seed, jobs])
            excess: list[float] = []
            excess_alone: list[float] = []
            batch_numbers = track(
                range(count),
                f"{jobs} jobs, {case}",
                console=console,
                transient=True,
                disable=not console.is_terminal,
            )
            for batch in batch_numbers:
                sizes = rng.pareto(1.5, jobs) + 1 if batch % 2 else rng.uniform(0.1, 1, jobs)
                servers = float(rng.choice([1, 4, 10, 100]))
                powers = rng.uniform(0.2, 0.95, jobs)
                weights = rng.uniform(0.1, 1, jobs) ** (1 + batch % 3)
                if case == "weights disagree":
                    powers[:] = powers[0]
                if case == "speedups differ":
                    weights[:] = 1.0
                best = best_of_all_orders(sizes, powers, weights, servers)
                workload = Workload(sizes, [PowerLaw(p) for p in powers], weights=weights)
                alone = np.argsort(sizes / servers**powers / weights)
                for record, order in ((excess, None), (excess_alone, alone.tolist())):
                    made = plan(workload, servers, objective="weighted", order=order)
                    record.append(made.cost / best - 1)
            row = (f"{max(r):.2%}" if f == max else f"{np.mean(r):.2%}"
                   for r in (excess, excess_alone) for f in (max, np.mean))  # fmt: skip
            table.add_row(str(jobs), case, str(count), *row)
    console.print(table)
    console.print("excess over the best schedule of all completion orders (target: within 2%)")
