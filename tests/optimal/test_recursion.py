"""The value recursion agrees with the closed form and copes with ties, peaks and kinks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from support.oracles import (
    best_in_order_on_whole_servers,
)
from support.speedups import SPEEDUPS, any_speedup

from hesrpt import (
    Amdahl,
    Custom,
    Measured,
    PowerLaw,
    Speedup,
    Workload,
    plan,
    verify,
)
from hesrpt.arrays import FloatArray
from hesrpt.objectives import Objective

sizes_lists = st.lists(st.floats(-3, 3), min_size=1, max_size=12).map(
    lambda exponents: 10.0 ** np.array(exponents)
)
servers_counts = st.sampled_from([0.5, 1.0, 3.0, 10.0, 64.0, 1e6])
SATURATING = [lambda k: 1 - np.exp(-k), np.tanh, lambda k: 1 - np.exp(-k / 100)]


@given(sizes_lists, st.floats(0.01, 0.99), servers_counts)
def test_recursion_agrees_with_the_closed_form(sizes: FloatArray, p: float, servers: float) -> None:
    exact = plan(Workload(sizes, PowerLaw(p)), servers)
    by_recursion = plan(Workload(sizes, PowerLaw(p).limited(1e300)), servers)
    assert by_recursion.total_flow_time == pytest.approx(exact.total_flow_time, rel=1e-9)
    assert_allclose(by_recursion.completion_times, exact.completion_times, rtol=1e-6)
    assert_allclose(by_recursion.certificate.job_values, exact.certificate.job_values, rtol=1e-9)


@given(
    st.lists(st.floats(0.1, 10), min_size=4, max_size=4),
    st.lists(st.floats(0.1, 5), min_size=4, max_size=4),
    any_speedup,
    st.integers(1, 3),
)
def test_optimum_of_an_order_lies_between_bound_and_cost(
    sizes: list[float], weights: list[float], speedup: Speedup, servers: int
) -> None:
    """The optimum is that of the order in which the jobs did end."""
    best = plan(
        Workload(sizes, speedup, weights=weights), servers, objective="weighted", whole=True
    )
    order = best.certificate.first_to_last[::-1]
    x, w = np.array(sizes)[order], np.array(weights)[order]
    optimum = best_in_order_on_whole_servers(x, [speedup.on_whole_servers()] * 4, servers, w)
    assert best.certificate.lower_bound <= optimum * (1 + 1e-8)
    assert optimum <= best.cost * (1 + 1e-8)


@given(
    st.sampled_from([1e-3, 1e-6, 1e-8, 1e-13, 0.0]),
    st.integers(2, 8),
    st.sampled_from([*SPEEDUPS, Measured([2, 8], [0.9, 1.4]), Measured([32], [0.98])]),
    st.sampled_from([3.0, 5.0, 100.0]),
    st.sampled_from(["flow", "slowdown", "makespan"]),
    st.booleans(),
)
def test_nearly_tied_jobs_never_exceed_the_servers(
    step: float,
    jobs: int,
    speedup: Speedup,
    servers: float,
    objective: Objective,
    whole: bool,
) -> None:
    """If jobs are tied for servers, rounding must not allocate the same server twice."""
    workload = Workload(1 + step * np.arange(jobs), speedup)
    best = plan(workload, servers, objective=objective, whole=whole)
    assert best.certificate.proven
    assert verify(best) > -1e-9
    assert all(phase.servers.sum() <= servers * (1 + 1e-12) for phase in best.phases())


@pytest.mark.parametrize("function", SATURATING)
@pytest.mark.parametrize("servers", [0.5, 10, 30, 50, 100])
@pytest.mark.parametrize("sizes", [[3, 2, 1], [1, 1, 1, 1]])
def test_saturating_functions(function: Speedup, servers: float, sizes: list[float]) -> None:
    best = plan(Workload(sizes, function), servers)
    assert verify(best) < 1e-8


@pytest.mark.parametrize("limit", [3, 7, 10, 20])
@pytest.mark.parametrize("objective", ["flow", "makespan"])
@pytest.mark.parametrize("servers", [10, 100])
def test_functions_that_fall_after_a_peak(
    limit: float, objective: Objective, servers: float
) -> None:
    """More servers never hurt: no job gets more than the peak, limited or not."""
    speedup = Custom(lambda k: k * (10 - k))
    limited = plan(Workload([2, 1], speedup.limited(limit)), servers, objective=objective)
    assert verify(limited) < 1e-8
    assert all(phase.servers.max() <= 5 * (1 + 1e-4) for phase in limited.phases())
    if limit >= 5:
        free = plan(Workload([2, 1], speedup), servers, objective=objective)
        assert limited.cost == pytest.approx(free.cost, rel=1e-9)


def test_functions_may_work_in_place_or_entry_by_entry() -> None:
    def in_place(k: FloatArray) -> object:
        k **= 0.5
        return k

    exact = plan(Workload([3, 2, 1], PowerLaw(0.5)), 10).total_flow_time
    for function in (in_place, np.vectorize(lambda k: k**0.5), lambda k: [n**0.5 for n in k]):
        best = plan(Workload([3, 2, 1], function), 10)  # type: ignore[arg-type]
        assert best.total_flow_time == pytest.approx(exact, rel=1e-9)


def test_limits_below_one_server_are_time_shared() -> None:
    for speedup in (
        Amdahl(0.9).limited(0.5).time_shared(),
        Amdahl(0.9).time_shared().limited(0.5),
    ):
        for objective in ("flow", "makespan"):
            assert verify(plan(Workload([1], speedup), 3, objective=objective)) < 1e-9


@given(
    st.floats(0.05, 0.999),
    st.sampled_from([1.0, 7.5, 64.0, 5000.0]),
    st.sampled_from([1e300, 20.0]),
    st.integers(0, 100),
)
@settings(max_examples=20)
def test_sums_over_many_jobs_agree_with_loops(
    fraction: float, servers: float, limit: float, seed: int
) -> None:
    """Jobs with one Amdahl's law are evaluated together, and all others one by one."""
    sizes = np.random.default_rng(seed).pareto(1.5, 60) + 1
    summed = plan(Workload(sizes, Amdahl(fraction).limited(limit)), servers)
    # The planner does not see that the last speedup equals the others.
    speedups = [Amdahl(fraction).limited(limit)] * 59
    mixed = Workload(sizes, [*speedups, speedups[0].limited(1e299)])
    looped = plan(mixed, servers, order=summed.certificate.first_to_last.tolist())
    assert looped.total_flow_time == pytest.approx(summed.total_flow_time, rel=1e-11)
    assert_allclose(looped.completion_times, summed.completion_times, rtol=1e-8)
    assert_allclose(looped.certificate.job_values, summed.certificate.job_values, rtol=1e-8)
    assert verify(summed) == pytest.approx(0.0, abs=1e-11)
