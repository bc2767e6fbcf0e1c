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
    PowerLaw,
    Speedup,
    Workload,
    plan,
    verify,
)
from hesrpt.objectives import Objective


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
