"""Independent oracles: optima by numerical search, by linear programs, and with 60 digits.

Nothing here uses the planner, its closed form or its recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, Decimal, localcontext
from heapq import heapify, heapreplace
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


def least_flow_time_under_amdahl(
    sizes: FloatArray, fraction: float, servers: float, whole: bool, weights: FloatArray
) -> float:
    """Return the least weighted flow time of jobs that share one Amdahl's law with f < 1.

    Smaller jobs must weigh no less than larger ones. The result is Σ v_i x_i, where N servers earn
    exactly W_k from the values v_1 … v_k, for each k (see docs/explanation/theory.md). All of it is
    computed with 60 digits.
    """
    with localcontext() as context:
        context.prec = 60
        f, n = Decimal(fraction), Decimal(servers)
        fastest = n / ((1 - f) * n + f)
        values: list[Decimal] = []
        total = cost = Decimal(0)
        for job in np.lexsort((-weights, sizes))[::-1]:
            cost += Decimal(float(weights[job]))
            # Earnings are convex in the value, so Newton's method converges from above.
            value = cost / fastest
            for _ in range(200):
                earned, rate = _earn_under_amdahl([*values, value], f, n, whole)
                step = (earned - cost) / rate
                value -= step
                if abs(step) <= value * Decimal("1e-45"):
                    break
            values.append(value)
            total += value * Decimal(float(sizes[job]))
        return float(total)


def _earn_under_amdahl(
    values: list[Decimal], f: Decimal, servers: Decimal, whole: bool
) -> tuple[Decimal, Decimal]:
    """Return the most that servers earn per second, and the rate of the last job."""
    serial = 1 - f
    if whole:
        held = _hold_whole_servers(values, f, servers)
    else:
        roots = [value.sqrt() for value in values]
        active = sorted(roots, reverse=True)
        # At the right price, a job with the root r demands (r·t − f) / (1 − f) servers, or none.
        for count in range(len(active), 0, -1):
            t = (servers * serial + f * count) / sum(active[:count])
            if active[count - 1] * t > f:
                break
        held = [max((root * t - f) / serial, Decimal(0)) for root in roots]
    rates = [each / (serial * each + f) for each in held]
    return sum(v * r for v, r in zip(values, rates, strict=True)), rates[-1]  # type: ignore[return-value]


def _hold_whole_servers(values: list[Decimal], f: Decimal, servers: Decimal) -> list[Decimal]:
    """Return an allocation of whole servers in which each is where it gains the most."""
    serial = 1 - f

    def gain(job: int, held: Decimal) -> Decimal:
        here = serial * held + f
        return values[job] * f / (here * (here + serial))

    def demand(value: Decimal, price: Decimal) -> Decimal:
        """Return the number of servers that gain more than the price."""
        until = ((serial * serial + 4 * value * f / price).sqrt() - serial) / 2
        return max(((until - f) / serial).to_integral_value(ROUND_CEILING), Decimal(0))

    # At this price no job demands a server. Lower it until few servers are left.
    low, high = Decimal(0), 2 * max(values)
    held = [Decimal(0)] * len(values)
    while servers - sum(held) > 4 * len(values):
        price = high / 100 if low == 0 else (low * high).sqrt()
        demanded = [demand(value, price) for value in values]
        if sum(demanded) <= servers:
            held, high = demanded, price
        else:
            low = price
    gains = [(-gain(job, held[job]), job) for job in range(len(values))]
    heapify(gains)
    for _ in range(int(servers - sum(held))):
        job = gains[0][1]
        held[job] += 1
        heapreplace(gains, (-gain(job, held[job]), job))
    return held
