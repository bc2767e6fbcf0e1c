"""Independent oracles: optima found by numerical search and by linear programs.

Nothing here uses the planner, its closed form or its recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, permutations, product

import numpy as np
from scipy.optimize import linprog, minimize

from hesrpt.arrays import FloatArray
from hesrpt.speedups import Speedup

Policy = Callable[[tuple[int, ...]], FloatArray]


def flow_time(
    sizes: FloatArray, speedups: list[Speedup], weights: FloatArray, policy: Policy
) -> float:
    """Return the weighted flow time under a policy that depends only on which jobs are present."""
    remaining = np.array(sizes, dtype=float)
    present = tuple(range(len(sizes)))
    total, now = 0.0, 0.0
    while present:
        held = policy(present)
        rates = np.array([float(speedups[i](n)) for i, n in zip(present, held, strict=True)])
        with np.errstate(divide="ignore"):
            until_end = remaining[list(present)] / rates
        first = int(np.argmin(until_end))
        now += until_end[first]
        remaining[list(present)] -= rates * until_end[first]
        total += weights[present[first]] * now
        present = present[:first] + present[first + 1 :]
    return total


def best_by_search(
    sizes: FloatArray,
    speedups: list[Speedup],
    servers: float,
    weights: FloatArray | None = None,
    starts: int = 6,
) -> float:
    """Return the least flow time that a numerical search over all such policies finds.

    By the paper's first theorem, which holds for every concave speedup, allocations need only
    change at completions. So the search space contains an optimum, for any completion order.
    """
    jobs = len(sizes)
    each = np.ones(jobs) if weights is None else weights
    groups = [g for m in range(2, jobs + 1) for g in combinations(range(jobs), m)]
    offsets = np.cumsum([0] + [len(g) for g in groups])

    def cost(parameters: FloatArray) -> float:
        def policy(present: tuple[int, ...]) -> FloatArray:
            if len(present) == 1:
                return np.array([servers])
            place = groups.index(present)
            logits = parameters[offsets[place] : offsets[place + 1]]
            shares = np.exp(logits - logits.max())
            return np.asarray(servers * shares / shares.sum())

        return flow_time(sizes, speedups, each, policy)

    rng = np.random.default_rng(0)
    costs = []
    for _ in range(starts):
        result = minimize(cost, rng.normal(size=offsets[-1]), method="L-BFGS-B")
        result = minimize(
            cost, result.x, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
        )
        costs.append(float(result.fun))
    return min(costs)


def bound_in_order(
    sizes: FloatArray,
    speedups: list[Speedup],
    servers: float,
    weights: FloatArray,
    tangents: int = 300,
) -> float:
    """Return a lower bound on the cost of schedules that end jobs in this order, last one first.

    A linear program over the length τ_k of each phase, and the server time and work of each job in
    it. Tangents of the concave speedups bound the work, so the result is slightly too low.
    """
    jobs = len(sizes)
    pairs = [(k, i) for k in range(jobs) for i in range(k + 1)]
    time_of = {pair: jobs + j for j, pair in enumerate(pairs)}
    work_of = {pair: jobs + len(pairs) + j for j, pair in enumerate(pairs)}
    variables = jobs + 2 * len(pairs)
    rows, limits = [], []

    def add_constraint(terms: dict[int, float], limit: float) -> None:
        row = np.zeros(variables)
        row[list(terms)] = list(terms.values())
        rows.append(row)
        limits.append(limit)

    for k in range(jobs):
        add_constraint({k: -servers, **{time_of[k, i]: 1.0 for i in range(k + 1)}}, 0.0)
    for k, i in pairs:
        for n in np.geomspace(servers * 1e-4, servers, tangents):
            slope = float(speedups[i].slope(np.asarray(n)))
            height = float(speedups[i](n)) - slope * n
            add_constraint({work_of[k, i]: 1.0, time_of[k, i]: -slope, k: -height}, 0.0)
    for i in range(jobs):
        add_constraint({work_of[k, i]: -1.0 for k in range(i, jobs)}, -float(sizes[i]))
    cost = np.zeros(variables)
    cost[:jobs] = np.cumsum(weights)
    result = linprog(cost, A_ub=np.array(rows), b_ub=limits, method="highs")
    assert result.success, result.message
    return float(result.fun)


def best_in_order_on_whole_servers(
    sizes: FloatArray, speedups: list[Speedup], servers: int, weights: FloatArray
) -> float:
    """Return the least cost of schedules that end jobs in this order, last one first.

    A linear program over the time that each phase spends on each whole allocation. It includes
    schedules that switch back and forth.
    """
    columns, cost = [], []
    for k in range(1, len(sizes) + 1):
        for held in _list_allocations(k, servers):
            work = np.zeros(len(sizes))
            work[:k] = [float(s(n)) for s, n in zip(speedups, held, strict=False)]
            columns.append(work)
            cost.append(weights[:k].sum())
    result = linprog(cost, A_ub=-np.array(columns).T, b_ub=-np.asarray(sizes), method="highs")
    assert result.success, result.message
    return float(result.fun)


def best_over_orders_on_whole_servers(
    sizes: FloatArray, speedups: list[Speedup], servers: int, weights: FloatArray
) -> float:
    """Return the least cost of all schedules, over all completion orders."""
    return min(
        best_in_order_on_whole_servers(
            sizes[list(order)], [speedups[i] for i in order], servers, weights[list(order)]
        )
        for order in permutations(range(len(sizes)))
    )


def least_makespan_on_whole_servers(
    sizes: FloatArray, speedups: list[Speedup], servers: int
) -> float:
    """Return the least makespan, by a linear program over all whole allocations."""
    work = [
        [float(s(n)) for s, n in zip(speedups, held, strict=True)]
        for held in _list_allocations(len(sizes), servers)
    ]
    result = linprog(
        np.ones(len(work)), A_ub=-np.array(work).T, b_ub=-np.asarray(sizes), method="highs"
    )
    assert result.success, result.message
    return float(result.fun)


def _list_allocations(jobs: int, servers: int) -> Iterator[tuple[int, ...]]:
    return (held for held in product(range(servers + 1), repeat=jobs) if sum(held) <= servers)
