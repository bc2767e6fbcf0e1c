"""Plans agree with known optima and independent searches, and refuse bad arguments."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from support.oracles import (
    best_by_search,
    best_over_orders_on_whole_servers,
    bound_in_order,
)
from support.speedups import MEASURED, any_speedup

from hesrpt import (
    Amdahl,
    InputError,
    Plan,
    PowerLaw,
    Speedup,
    Workload,
    plan,
    verify,
)
from hesrpt.arrays import FloatArray
from hesrpt.objectives import Objective
from hesrpt.optimal import closed_form

sizes_lists = st.lists(st.floats(-3, 3), min_size=1, max_size=12).map(
    lambda exponents: 10.0 ** np.array(exponents)
)
servers_counts = st.sampled_from([0.5, 1.0, 3.0, 10.0, 64.0, 1e6])


@pytest.mark.parametrize(
    ("speedup", "total_flow_time"),
    [
        (np.log1p, 3.50167828),
        (Amdahl(0.9), 1.74782686),
        (PowerLaw(0.7), 1.91919016),
        (PowerLaw(0.7).limited(1e9), 1.91919016),
        (lambda k: k**0.7, 1.91919016),
        (lambda k: 1 - np.exp(-k / 3), 7.89849824),
    ],
)
def test_known_optima(speedup: Speedup, total_flow_time: float) -> None:
    best = plan(Workload([3, 2, 1], speedup), servers=10)
    assert best.total_flow_time == pytest.approx(total_flow_time, abs=1e-8)
    assert verify(best) < 1e-8


def test_two_equal_jobs_under_amdahl_are_shared_unequally() -> None:
    """The paper says 63.5%, which is the share on 16 servers; on its 10 servers it is 71.07%."""
    for servers, share in ((10, 0.7107), (16, 0.6357)):
        held = plan(Workload([1, 1], Amdahl(0.9)), servers).servers_at(0)
        assert held.max() / servers == pytest.approx(share, abs=1e-4)


def test_readme_example() -> None:
    best = plan(Workload([9, 4, 1], PowerLaw(0.5)), servers=10)
    assert_allclose(best.servers_at(0.0), 10 * closed_form.shares(3, 0.5))
    assert_allclose(best.servers_at(1.0), [2.5, 7.5, 0])
    assert_array_equal(best.servers_at(2.0), [10, 0, 0])
    assert_array_equal(best.servers_at(best.makespan), [0, 0, 0])
    assert best.certificate.proven
    assert abs(best.certificate.gap) < 1e-14


@pytest.mark.parametrize(
    "speedup",
    [
        Amdahl(0.9),
        Amdahl(0.6),
        pytest.param(PowerLaw(0.6).limited(3), marks=pytest.mark.slow),
        pytest.param(MEASURED, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([3.0, 2.0, 1.0], marks=pytest.mark.slow),
        pytest.param([1.0, 1.0, 1.0], marks=pytest.mark.slow),
        [50.0, 1.0, 0.9],
    ],
)
def test_no_policy_found_by_search_beats_the_plan(speedup: Speedup, sizes: list[float]) -> None:
    best = plan(Workload(sizes, speedup), servers=5)
    found = best_by_search(np.array(sizes), [speedup] * 3, 5)
    assert best.total_flow_time <= found * (1 + 1e-9)
    # Where a speedup has kinks, the search may stop short of the optimum.
    assert best.total_flow_time == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize("speedup", [PowerLaw(0.4), Amdahl(0.9), Amdahl(0.6).limited(3)])
def test_no_completion_order_beats_the_plan(speedup: Speedup) -> None:
    sizes = np.array([5.0, 3.0, 2.0, 0.5])
    best = plan(Workload(sizes, speedup), servers=5).total_flow_time
    bounds = [
        bound_in_order(sizes[list(order)], [speedup] * 4, 5, np.ones(4), tangents=120)
        for order in permutations(range(4))
    ]
    assert min(bounds) == pytest.approx(best, rel=1e-3)
    assert min(bounds) <= best * (1 + 1e-9)


@pytest.mark.parametrize(
    "speedup", [PowerLaw(0.5), Amdahl(0.9), PowerLaw(0.8).limited(2), MEASURED]
)
@pytest.mark.parametrize("servers", [1, 2, 5])
@pytest.mark.parametrize("objective", ["flow", "slowdown"])
def test_whole_servers_are_optimal_even_against_time_sharing(
    speedup: Speedup, servers: int, objective: Objective
) -> None:
    for sizes in ([3.0, 2.0, 1.0], [1.0, 1.0, 1.0], [9.0, 2.0, 0.1]):
        best = plan(Workload(sizes, speedup), servers, objective=objective, whole=True)
        x = np.array(sizes)
        weights = np.ones(3) if objective == "flow" else 1 / x
        whole = [speedup.on_whole_servers()] * 3
        assert best.cost == pytest.approx(
            best_over_orders_on_whole_servers(x, whole, servers, weights), rel=1e-8
        )


@given(
    sizes_lists,
    any_speedup,
    servers_counts,
    st.sampled_from(["flow", "slowdown", "makespan"]),
    st.booleans(),
)
def test_every_plan_with_one_speedup_is_proven(
    sizes: FloatArray,
    speedup: Speedup,
    servers: float,
    objective: Objective,
    whole: bool,
) -> None:
    assume(not whole or servers >= 1)
    best = plan(Workload(sizes, speedup), servers, objective=objective, whole=whole)
    assert best.certificate.proven
    assert verify(best) < 1e-8
    if whole:
        held = best.servers_at(0.0)
        assert_array_equal(held, np.rint(held))


@given(
    st.lists(
        st.tuples(st.floats(0.01, 100), st.floats(0.01, 100), any_speedup),
        min_size=1,
        max_size=6,
    ),
    servers_counts,
    st.sampled_from(["flow", "weighted", "slowdown"]),
    st.booleans(),
)
@settings(max_examples=settings().max_examples // 2)  # these take long
def test_plan_with_different_speedups_respects_the_bound_of_its_order(
    jobs: list[tuple[float, float, Speedup]], servers: float, objective: Objective, whole: bool
) -> None:
    assume(not whole or servers >= 1)
    sizes, weights, speedups = zip(*jobs, strict=True)
    workload = Workload(sizes, speedups, weights=weights)
    best = plan(workload, servers, objective=objective, whole=whole)
    assert verify(best) >= -1e-9
    if workload.speedups.shared is None:
        assert not best.certificate.proven
        assert "different speedups" in best.certificate.reason


def test_custom_function_is_planned_and_proven() -> None:
    rng = np.random.default_rng(1)
    for function in (np.log1p, np.tanh, lambda k: np.minimum(k, 2.0) + 0.1 * k):
        for whole in (False, True):
            best = plan(Workload(rng.pareto(1.5, 15) + 1, function), 12, whole=whole)
            assert verify(best) < 1e-8


def test_overflow_is_an_error() -> None:
    for sizes, objective in (([1e-308] * 2, "slowdown"), ([1e308] * 3, "flow")):
        with pytest.raises(InputError, match="too extreme for floating-point numbers"):
            plan(Workload(sizes, PowerLaw(0.5)), 1, objective=objective)  # type: ignore[arg-type]


def test_results_are_in_the_order_of_the_workload() -> None:
    rng = np.random.default_rng(3)
    sizes, shuffle = rng.pareto(1.5, 40) + 1, rng.permutation(40)
    for speedup in (PowerLaw(0.3), Amdahl(0.9)):
        straight, shuffled = (plan(Workload(x, speedup), 9) for x in (sizes, sizes[shuffle]))
        assert_allclose(shuffled.completion_times, straight.completion_times[shuffle], rtol=1e-12)
        assert_allclose(shuffled.servers_at(1.0), straight.servers_at(1.0)[shuffle], rtol=1e-9)


def test_equal_jobs_end_in_the_order_of_the_workload() -> None:
    for speedup in (PowerLaw(0.5), Amdahl(0.9)):
        for whole in (False, True):
            times = plan(Workload([2, 1, 1, 1, 2], speedup), 10, whole=whole).completion_times
            assert_array_equal(np.argsort(times, kind="stable"), [1, 2, 3, 0, 4])


@given(any_speedup, st.floats(0.01, 100), st.sampled_from(["flow", "makespan"]))
def test_times_scale_with_sizes(speedup: Speedup, unit: float, objective: Objective) -> None:
    sizes = np.array([5.0, 3.0, 1.0, 1.0])
    one = plan(Workload(sizes, speedup), 6, objective=objective)
    other = plan(Workload(sizes * unit, speedup), 6, objective=objective)
    assert_allclose(other.completion_times, one.completion_times * unit, rtol=1e-9)


def test_each_objective_is_best_under_its_own_plan() -> None:
    rng = np.random.default_rng(5)
    workload = Workload(rng.pareto(1.5, 20) + 1, Amdahl(0.9), weights=rng.uniform(0.5, 2, 20))
    plans = {o: plan(workload, 16, objective=o) for o in ("flow", "slowdown", "makespan")}
    assert plans["flow"].mean_flow_time == min(p.mean_flow_time for p in plans.values())
    assert plans["slowdown"].mean_slowdown == min(p.mean_slowdown for p in plans.values())
    assert plans["makespan"].makespan == min(p.makespan for p in plans.values())


def test_requested_order_is_followed_if_possible() -> None:
    workload = Workload([1.0, 1.1, 1.2], PowerLaw(0.5))
    best = plan(workload, 10)
    reverse = plan(workload, 10, order=[2, 1, 0])
    assert_array_equal(np.argsort(reverse.completion_times), [2, 1, 0])
    assert reverse.total_flow_time > best.total_flow_time
    assert not reverse.certificate.proven
    assert "order" in reverse.certificate.reason
    assert reverse.total_flow_time == pytest.approx(
        closed_form.best_in_order([1.0, 1.1, 1.2], 10, 0.5).total_flow_time
    )
    assert plan(workload, 10, order=[0, 1, 2]).certificate.proven
    # Holding back a tiny job until a huge one ends would not help.
    early = plan(Workload([1.0, 1000.0], PowerLaw(0.5)), 10, order=[1, 0])
    assert early.completion_times[0] < early.completion_times[1]
    assert verify(early) >= -1e-12


def test_weights_that_disagree_with_sizes_leave_the_plan_unproven() -> None:
    jobs = Workload([5.0, 1.0], PowerLaw(0.5), weights=[9.0, 1.0])
    unproven = plan(jobs, 4, objective="weighted").certificate
    assert not unproven.proven
    assert "weighs more" in unproven.reason
    agreeing = Workload([5.0, 1.0], PowerLaw(0.5), weights=[1.0, 9.0])
    assert plan(agreeing, 4, objective="weighted").certificate.proven
    assert plan(jobs, 4, objective="makespan").certificate.proven


def create_plan(**changes: object) -> Plan:
    workload = {"sizes": [3, 2], "speedup": PowerLaw(0.5)}
    call = {"servers": 4}
    for name, value in changes.items():
        (workload if name in {"sizes", "speedup", "arrivals", "weights", "names"} else call)[
            name
        ] = value  # type: ignore[assignment]
    return plan(Workload(**workload), **call)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": []}, "sizes must have at least one entry, got an empty list"),
        ({"sizes": [1, float("nan")]}, r"sizes\[1\] must be finite, got nan"),
        ({"sizes": [1, -2]}, r"sizes\[1\] must be greater than 0, got -2"),
        ({"sizes": [0, 1]}, r"sizes\[0\] must be greater than 0, got 0"),
        ({"sizes": [[1, 2]]}, "flat list of numbers"),
        ({"sizes": ["a", "b"]}, "sizes must be a list of numbers"),
        ({"sizes": ["1", "2"]}, "sizes must be a list of numbers"),
        ({"sizes": [True, False]}, "sizes must be a list of numbers"),
        ({"whole": "no"}, "whole must be True or False, got 'no'"),
        ({"speedup": lambda k: [][0]}, "but it failed: IndexError"),
        ({"speedup": 0.5}, r"concave function, got 0.5; for a power law, use PowerLaw\(0.5\)"),
        ({"speedup": [PowerLaw(0.5)]}, "one entry per job: 2 expected, 1 given"),
        ({"speedup": lambda k: k**2}, "must be concave"),
        ({"speedup": [lambda k: k**2, PowerLaw(0.5)]}, "must be concave"),
        ({"weights": [1]}, "weights must have one entry per job: 2 expected, 1 given"),
        ({"weights": [1, 0]}, r"weights\[1\] must be greater than 0"),
        ({"names": ["a"]}, "names must have one entry per job"),
        ({"arrivals": [0, -1]}, r"arrivals\[1\] must be at least 0"),
        ({"arrivals": [0, 3]}, "job 1 arrives at 3, .* simulate jobs that arrive later"),
        ({"arrivals": [0, 3], "names": ["a", "b"]}, "job b arrives at 3"),
        ({"servers": 0}, "servers must be greater than 0, got 0"),
        ({"servers": -2}, "servers must be greater than 0, got -2"),
        ({"servers": float("inf")}, "servers must be finite"),
        ({"servers": "many"}, "servers must be a number, got 'many'"),
        ({"servers": 2.5, "whole": True}, "whole number for whole servers, got 2.5"),
        ({"objective": "speed"}, "objective must be one of flow, slowdown, weighted, makespan"),
        ({"objective": "weighted"}, "needs a workload with weights"),
        ({"order": [0]}, "order must have one entry per job"),
        ({"order": [0, 0]}, "order must contain each of the jobs 0 to 1 once"),
        ({"order": [[0], [1]]}, "order must contain each of the jobs 0 to 1 once"),
        ({"order": "ab"}, "order must contain each of the jobs 0 to 1 once"),
        ({"order": 1}, "order must be a list of job numbers, got 1"),
        ({"sizes": None}, "sizes must be a list of numbers, got None"),
        ({"sizes": 5}, "sizes must be a flat list of numbers, got 5"),
        ({"names": "ab"}, "names must be a list with one name per job, got 'ab'"),
        ({"speedup": "fast"}, "a speedup must be PowerLaw, .* got 'fast'"),
        ({"order": [0, 1], "objective": "makespan"}, "order has no meaning for the makespan"),
    ],
)
def test_invalid_arguments_are_reported(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        create_plan(**changes)


def test_other_types_are_refused() -> None:
    with pytest.raises(InputError, match="needs a Workload, got list"):
        plan([1, 2], 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs a Plan, got float"):
        verify(0.5)  # type: ignore[arg-type]
