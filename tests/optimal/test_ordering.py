"""Plans without a proven completion order are close to the best order, and survive bad ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import (
    best_over_orders_on_whole_servers,
)
from support.speedups import MEASURED, any_speedup

from hesrpt import (
    Amdahl,
    Measured,
    PowerLaw,
    Speedup,
    Workload,
    plan,
    verify,
)
from hesrpt.arrays import FloatArray
from hesrpt.objectives import Objective
from hesrpt.optimal.recursion import compute_job_values


@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.floats(0.05, 1), any_speedup), min_size=3, max_size=4
    ),
    st.sampled_from(["weights", "speedups", "both"]),
    st.integers(1, 4),
)
@settings(max_examples=25)
def test_unproven_plans_are_within_two_percent_of_the_best(
    jobs: list[tuple[float, float, Speedup]], differ: str, servers: int
) -> None:
    """The best is found by linear programs for all orders (in benchmarks/, by convex ones)."""
    sizes, weights = (np.array([job[i] for job in jobs]) for i in (0, 1))
    speedups = [job[2] for job in jobs]
    if differ == "weights":
        speedups = speedups[:1] * len(jobs)
    if differ == "speedups":
        weights = np.ones(len(jobs))
    workload = Workload(sizes, speedups, weights=weights)
    found = plan(workload, servers, objective="weighted", whole=True)
    best = best_over_orders_on_whole_servers(sizes, speedups, servers, weights)
    assert best * (1 - 1e-8) <= found.cost <= best * 1.02


@pytest.mark.parametrize(
    ("sizes", "speedup", "servers", "order"),
    [
        ([1e9, 1e-9], PowerLaw(0.1), 10, [0, 1]),
        ([1e9, 1e9, 1, 2], Amdahl(0.999), 3, [0, 2, 1, 3]),
        ([2, 1e-9, 1e-9, 1e-9, 1e9, 1e9, 3], MEASURED, 10, [4, 1, 2, 5, 3, 0, 6]),
    ],
)
@pytest.mark.parametrize("objective", ["flow", "slowdown"])
def test_absurd_requested_orders(
    sizes: list[float], speedup: Speedup, servers: float, order: list[int], objective: Objective
) -> None:
    best = plan(Workload(sizes, speedup), servers, objective=objective, order=order)
    assert np.isfinite(best.completion_times).all()
    assert verify(best) >= -1e-9


def draw_jobs(jobs: int, seed: int) -> Workload:
    """Return jobs with speedups of all kinds and random weights."""
    rng = np.random.default_rng(seed)
    speedups: list[Speedup] = [
        (
            PowerLaw(rng.uniform(0.3, 0.9)),
            Amdahl(rng.uniform(0.6, 1)),
            Measured([1, 2, 4, 8], np.array([1, 2, 4, 8]) ** rng.uniform(0.3, 0.9)),
            PowerLaw(rng.uniform(0.3, 0.9)).time_shared().limited(4),
        )[rng.integers(4)]
        for _ in range(jobs)
    ]
    sizes, weights = rng.pareto(1.5, jobs) + 1, rng.uniform(0.2, 1, jobs)
    return Workload(sizes, speedups, weights=weights)


@pytest.mark.parametrize("whole", [False, True])
def test_compiled_costs_of_orders_are_those_of_the_recursion(whole: bool) -> None:
    """The same whether responses to prices are summed or not, as they are in an empty list."""
    from hesrpt.optimal.recursion_kernel import Precision, value_places
    from hesrpt.optimal.response_kernel import (
        COLUMNS,
        VALUE,
        Batch,
        ResponseSums,
        create_response_sums,
    )

    jobs = draw_jobs(150, seed=3)
    speedups = jobs.speedups.on_whole_servers() if whole else jobs.speedups
    assert jobs.weights is not None
    order = np.random.default_rng(0).permutation(len(jobs))
    # Copies, because arrays that are read-only would be compiled for again.
    sizes, weights = jobs.sizes.copy(), jobs.weights.copy()
    values = compute_job_values(speedups.take(order), 10.0, weights[order]).values
    batch = Batch(speedups.shapes(10.0), sizes, weights, 10.0, False, np.inf)

    def find_cost(response_sums: ResponseSums) -> tuple[float, int]:
        line = np.zeros((len(jobs), COLUMNS))
        precision = Precision(close=1e-6, exact=1e-11, likely=1e-11)
        steps = value_places(batch, line, order, 0, len(jobs), precision, response_sums)
        return float(line[:, VALUE] @ sizes[order]), steps

    summed, _ = find_cost(create_response_sums(len(jobs)))
    single, steps = find_cost(create_response_sums(0))
    assert steps >= len(jobs) * (len(jobs) + 1) / 2 - len(jobs)
    assert summed == pytest.approx(single, rel=1e-11)
    assert single == pytest.approx(values @ sizes[order], rel=1e-9)


@pytest.mark.parametrize("whole", [False, True])
def test_summed_responses_are_those_of_all_jobs(whole: bool) -> None:
    from hesrpt.optimal.response_kernel import (
        COVERED,
        LISTED,
        PRICE,
        create_response_sums,
        respond_all,
        respond_together,
        sum_responses,
    )

    jobs = draw_jobs(120, seed=4)
    speedups = jobs.speedups.on_whole_servers() if whole else jobs.speedups
    found = compute_job_values(speedups, 10.0, np.ones(len(jobs)))
    batch, line, places, response_sums = (
        found.batch,
        found.line,
        found.places,
        create_response_sums(120),
    )
    for price in line[[70, 90, 110], PRICE].tolist():
        sum_responses(batch, line, places, len(jobs), price, response_sums)
        assert 0 < response_sums.counts[LISTED] < len(jobs)
        for near in price * np.geomspace(0.98, 1.05, 9):
            summed = respond_together(
                batch, line, places, len(jobs), near, np.log(near), response_sums
            )
            single = respond_all(
                batch, line, places, response_sums.listed[:0], 0, len(jobs), near, np.log(near)
            )
            assert summed[:2] == pytest.approx(single[:2], rel=1e-10)
            assert summed[3] == single[3]
        assert response_sums.counts[COVERED] == len(jobs)


@pytest.mark.parametrize("jobs", [6, 12, 40])
def test_found_orders_are_better_than_simple_ones(jobs: int) -> None:
    """The plan costs no more than those for simple orders, or with two jobs exchanged."""
    workload, servers = draw_jobs(jobs, seed=jobs), 10.0
    assert workload.weights is not None
    found = plan(workload, servers, objective="weighted")
    rates = workload.speedups.rate(np.full(jobs, servers))
    orders = [np.argsort(workload.sizes / rates / workload.weights), np.argsort(workload.sizes)]
    best = found.certificate.first_to_last
    for place in range(0, jobs - 1, 3):
        exchanged = best.copy()
        exchanged[[place, place + 1]] = best[[place + 1, place]]
        orders.append(exchanged)
    for order in orders:
        other = plan(workload, servers, objective="weighted", order=order.tolist())
        assert found.cost <= other.cost * (1 + 1e-7)


@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=6, max_size=30),
    st.floats(0.01, 0.99),
)
def test_weighted_jobs_with_one_power_law_end_in_the_order_found(
    jobs: list[tuple[float, float]], p: float
) -> None:
    """So the plan costs exactly Σ v x, and no more than in the order of x / w^p."""
    sizes, weights = np.array(jobs).T
    workload = Workload(sizes, PowerLaw(p), weights=weights)
    found = plan(workload, servers=7, objective="weighted")
    assert found.certificate.gap == pytest.approx(0.0, abs=1e-11)
    simple = np.argsort(sizes / weights**p, kind="stable").tolist()
    other = plan(workload, servers=7, objective="weighted", order=simple)
    assert other.certificate.gap == pytest.approx(0.0, abs=1e-11)
    assert found.cost <= other.cost * (1 + 1e-11)
    verify(found)


def test_work_for_many_weighted_jobs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """If neighbours may be exchanged only a few times, jobs still end in order."""
    from hesrpt.optimal import ordering

    rng = np.random.default_rng(1)
    jobs = Workload(rng.pareto(1.5, 200) + 1, PowerLaw(0.3), weights=rng.pareto(1.0, 200) + 0.1)
    best = plan(jobs, servers=64, objective="weighted")
    monkeypatch.setattr(ordering, "_MAX_EXCHANGES", 0)
    found = plan(jobs, servers=64, objective="weighted")
    assert found.certificate.gap == pytest.approx(0.0, abs=1e-11)
    assert best.cost <= found.cost


def test_many_weighted_jobs_with_one_power_law() -> None:
    """Jobs end in the order that was found, so that the cost is exactly the bound of that order."""
    rng = np.random.default_rng(0)
    jobs = Workload(rng.pareto(1.5, 20_000) + 1, PowerLaw(0.7), weights=rng.uniform(0.1, 1, 20_000))
    found = plan(jobs, servers=64, objective="weighted")
    values = found.certificate.job_values
    assert found.cost == pytest.approx(values @ jobs.sizes, rel=1e-9)


def find_order_by_near_moves(
    workload: Workload, servers: float, weights: FloatArray, reach: int = 2, sweeps: int = 3
) -> list[int]:
    """Move single jobs from their order by time alone, as long as Σ v x falls: a simple search."""
    speedups, sizes = workload.speedups, workload.sizes

    def cost(order: list[int]) -> float:
        listed = np.array(order[::-1])
        values = compute_job_values(speedups.take(listed), servers, weights[listed]).values
        return float(values @ sizes[listed])

    alone = sizes / speedups.rate(np.full(len(sizes), servers)) / weights
    order: list[int] = np.argsort(alone, kind="stable").tolist()
    least = cost(order)
    for _ in range(sweeps):
        for place in range(len(order)):
            for to in range(max(place - reach, 0), min(place + reach + 1, len(order))):
                trial = order.copy()
                trial.insert(to, trial.pop(place))
                if (found := cost(trial)) < least * (1 - 1e-9):
                    order, least = trial, found
    return order


@pytest.mark.parametrize("seed", range(8))
def test_search_never_loses_against_moves_by_few_places(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, servers = int(rng.integers(6, 13)), float(rng.choice([4.0, 10.0, 64.0]))
    weights = rng.uniform(0.1, 1, jobs) ** (1 + seed % 3)
    families = [PowerLaw(p) if seed % 2 else Amdahl(p) for p in rng.uniform(0.2, 0.95, jobs)]
    workload = Workload(rng.pareto(1.5, jobs) + 1, families, weights=weights)
    simple = find_order_by_near_moves(workload, servers, weights)
    found = plan(workload, servers, objective="weighted")
    other = plan(workload, servers, objective="weighted", order=simple)
    assert found.cost <= other.cost * (1 + 1e-9)
