"""Plans against linear programs, numerical search, the closed form, and their own certificates."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    best_by_search,
    best_in_order_on_whole_servers,
    best_over_orders_on_whole_servers,
    bound_in_order,
    least_makespan_on_whole_servers,
)

from hesrpt import (
    Amdahl,
    Custom,
    InputError,
    Measured,
    Plan,
    PowerLaw,
    Speedup,
    Workload,
    plan,
    verify,
)
from hesrpt.optimal import closed_form
from hesrpt.optimal.planner import Objective

MEASURED = Measured([1, 2, 4, 8, 16], [1, 1.9, 3.1, 4.0, 3.5])
SPEEDUPS: list[Speedup] = [
    PowerLaw(0.5),
    PowerLaw(0.05).limited(3),
    PowerLaw(0.9).time_shared(),
    Amdahl(0.9),
    Amdahl(1.0),
    Amdahl(0.7).time_shared().limited(4.5),
    MEASURED,
]
sizes_lists = st.lists(st.floats(-3, 3), min_size=1, max_size=12).map(
    lambda exponents: 10.0 ** np.array(exponents)
)
some_speedup = st.sampled_from(SPEEDUPS)
servers_counts = st.sampled_from([0.5, 1.0, 3.0, 10.0, 64.0, 1e6])


# --- numbers known from elsewhere ------------------------------------------------------------


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


def test_two_equal_jobs_under_amdahl() -> None:
    """The paper says 63.5%, which is what 16 servers give; with its 10 servers it is 71.07%."""
    for servers, share in ((10, 0.7107), (16, 0.6357)):
        held = plan(Workload([1, 1], Amdahl(0.9)), servers).servers_at(0)
        assert held.max() / servers == pytest.approx(share, abs=1e-4)


def test_the_example_of_the_readme() -> None:
    best = plan(Workload([9, 4, 1], PowerLaw(0.5)), servers=10)
    assert_allclose(best.servers_at(0.0), 10 * closed_form.shares(3, 0.5))
    assert_allclose(best.servers_at(1.0), [2.5, 7.5, 0])
    assert_array_equal(best.servers_at(2.0), [10, 0, 0])
    assert_array_equal(best.servers_at(best.makespan), [0, 0, 0])
    assert best.certificate.proven
    assert abs(best.certificate.gap) < 1e-14


# --- one optimum, three ways -----------------------------------------------------------------


@given(sizes_lists, st.floats(0.01, 0.99), servers_counts)
def test_the_recursion_agrees_with_the_closed_form(
    sizes: np.ndarray[tuple[int], np.dtype[np.float64]], p: float, servers: float
) -> None:
    exact = plan(Workload(sizes, PowerLaw(p)), servers)
    by_recursion = plan(Workload(sizes, PowerLaw(p).limited(1e300)), servers)
    assert by_recursion.total_flow_time == pytest.approx(exact.total_flow_time, rel=1e-9)
    assert_allclose(by_recursion.completion_times, exact.completion_times, rtol=1e-6)
    assert_allclose(by_recursion.certificate.job_values, exact.certificate.job_values, rtol=1e-9)


@pytest.mark.parametrize("speedup", [Amdahl(0.9), Amdahl(0.6), PowerLaw(0.6).limited(3), MEASURED])
@pytest.mark.parametrize("sizes", [[3.0, 2.0, 1.0], [1.0, 1.0, 1.0], [50.0, 1.0, 0.9]])
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
    st.lists(st.floats(0.1, 10), min_size=4, max_size=4),
    st.lists(st.floats(0.1, 5), min_size=4, max_size=4),
    some_speedup,
    st.integers(1, 3),
)
def test_the_bound_of_an_order_is_exact(
    sizes: list[float], weights: list[float], speedup: Speedup, servers: int
) -> None:
    """The certificate's bound for the order that came about is the optimum of a linear program."""
    best = plan(
        Workload(sizes, speedup, weights=weights), servers, objective="weighted", whole=True
    )
    order = best.certificate.first_to_last[::-1]
    x, w = np.array(sizes)[order], np.array(weights)[order]
    optimum = best_in_order_on_whole_servers(x, [speedup.on_whole_servers()] * 4, servers, w)
    assert best.certificate.lower_bound <= optimum * (1 + 1e-8)
    assert optimum <= best.cost * (1 + 1e-8)


@given(
    st.lists(st.floats(0.1, 10), min_size=3, max_size=3),
    st.permutations([PowerLaw(0.4), Amdahl(0.9), MEASURED]),
    st.integers(1, 4),
)
def test_the_whole_makespan_is_that_of_a_linear_program(
    sizes: list[float], speedups: list[Speedup], servers: int
) -> None:
    best = plan(Workload(sizes, speedups), servers, objective="makespan", whole=True)
    whole = [speedup.on_whole_servers() for speedup in speedups]
    optimum = least_makespan_on_whole_servers(np.array(sizes), whole, servers)
    assert best.makespan == pytest.approx(optimum, rel=1e-9)
    assert best.certificate.proven
    assert verify(best) < 1e-9


# --- every plan, its proof -------------------------------------------------------------------


@given(
    sizes_lists,
    some_speedup,
    servers_counts,
    st.sampled_from(["flow", "slowdown", "makespan"]),
    st.booleans(),
)
def test_every_plan_with_one_speedup_is_proven(
    sizes: np.ndarray[tuple[int], np.dtype[np.float64]],
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
        st.tuples(st.floats(0.01, 100), st.floats(0.01, 100), some_speedup),
        min_size=1,
        max_size=8,
    ),
    servers_counts,
    st.sampled_from(["flow", "weighted", "slowdown"]),
    st.booleans(),
)
def test_every_plan_with_mixed_jobs_keeps_the_bound_of_its_order(
    jobs: list[tuple[float, float, Speedup]], servers: float, objective: Objective, whole: bool
) -> None:
    assume(not whole or servers >= 1)
    sizes, weights, speedups = zip(*jobs, strict=True)
    workload = Workload(sizes, speedups, weights=weights)
    best = plan(workload, servers, objective=objective, whole=whole)
    assert verify(best) >= -1e-9
    if not workload.shared:
        assert not best.certificate.proven
        assert "different speedups" in best.certificate.reason


def test_a_users_own_function_is_planned_and_proven() -> None:
    rng = np.random.default_rng(1)
    for function in (np.log1p, np.tanh, lambda k: np.minimum(k, 2.0) + 0.1 * k):
        for whole in (False, True):
            best = plan(Workload(rng.pareto(1.5, 15) + 1, function), 12, whole=whole)
            assert verify(best) < 1e-8


@given(
    st.sampled_from([1e-3, 1e-6, 1e-8, 1e-13, 0.0]),
    st.integers(2, 8),
    st.sampled_from([*SPEEDUPS, Measured([2, 8], [0.9, 1.4]), Measured([32], [0.98])]),
    st.sampled_from([3.0, 5.0, 100.0]),
    st.sampled_from(["flow", "slowdown", "makespan"]),
    st.booleans(),
)
def test_jobs_that_are_nearly_tied(
    step: float,
    jobs: int,
    speedup: Speedup,
    servers: float,
    objective: Objective,
    whole: bool,
) -> None:
    """Where jobs are tied for servers, rounding must not hand out the same server twice."""
    workload = Workload(1 + step * np.arange(jobs), speedup)
    best = plan(workload, servers, objective=objective, whole=whole)
    assert best.certificate.proven
    assert verify(best) > -1e-9
    assert all(phase.servers.sum() <= servers * (1 + 1e-12) for phase in best.phases())


SATURATING = [lambda k: 1 - np.exp(-k), np.tanh, lambda k: 1 - np.exp(-k / 100)]


@pytest.mark.parametrize("function", SATURATING)
@pytest.mark.parametrize("servers", [0.5, 10, 30, 50, 100])
@pytest.mark.parametrize("sizes", [[3, 2, 1], [1, 1, 1, 1]])
def test_functions_that_all_but_stop_growing(
    function: Speedup, servers: float, sizes: list[float]
) -> None:
    best = plan(Workload(sizes, function), servers)
    assert verify(best) < 1e-8


@pytest.mark.parametrize("limit", [3, 7, 10, 20])
@pytest.mark.parametrize("objective", ["flow", "makespan"])
@pytest.mark.parametrize("servers", [10, 100])
def test_functions_that_turn_down(limit: float, objective: Objective, servers: float) -> None:
    """More servers never hurt: nobody gets more than the peak, limited or not."""
    speedup = Custom(lambda k: k * (10 - k))
    limited = plan(Workload([2, 1], speedup.limited(limit)), servers, objective=objective)
    assert verify(limited) < 1e-8
    assert all(phase.servers.max() <= 5 + 1e-6 for phase in limited.phases())
    if limit >= 5:
        free = plan(Workload([2, 1], speedup), servers, objective=objective)
        assert limited.cost == pytest.approx(free.cost, rel=1e-9)


def test_functions_may_work_in_place_or_element_by_element() -> None:
    def in_place(k: np.ndarray[tuple[int], np.dtype[np.float64]]) -> object:
        k **= 0.5
        return k

    exact = plan(Workload([3, 2, 1], PowerLaw(0.5)), 10).total_flow_time
    for function in (in_place, np.vectorize(lambda k: k**0.5), lambda k: [n**0.5 for n in k]):
        best = plan(Workload([3, 2, 1], function), 10)  # type: ignore[arg-type]
        assert best.total_flow_time == pytest.approx(exact, rel=1e-9)


def test_limits_below_one_server_can_be_time_shared() -> None:
    for speedup in (
        Amdahl(0.9).limited(0.5).time_shared(),
        Amdahl(0.9).time_shared().limited(0.5),
    ):
        for objective in ("flow", "makespan"):
            assert verify(plan(Workload([1], speedup), 3, objective=objective)) < 1e-9


@pytest.mark.parametrize(
    ("sizes", "speedup", "servers", "order"),
    [
        ([1e9, 1e-9], PowerLaw(0.1), 10, [0, 1]),
        ([1e9, 1e9, 1, 2], Amdahl(0.999), 3, [0, 2, 1, 3]),
        ([2, 1e-9, 1e-9, 1e-9, 1e9, 1e9, 3], MEASURED, 10, [4, 1, 2, 5, 3, 0, 6]),
    ],
)
@pytest.mark.parametrize("objective", ["flow", "slowdown"])
def test_orders_against_all_reason(
    sizes: list[float], speedup: Speedup, servers: float, order: list[int], objective: Objective
) -> None:
    best = plan(Workload(sizes, speedup), servers, objective=objective, order=order)
    assert np.isfinite(best.completion_times).all()
    assert verify(best) >= -1e-9


def test_overflow_is_an_error() -> None:
    for sizes, objective in (([1e-308] * 2, "slowdown"), ([1e308] * 3, "flow")):
        with pytest.raises(InputError, match="too extreme together"):
            plan(Workload(sizes, PowerLaw(0.5)), 1, objective=objective)  # type: ignore[arg-type]


# --- what a plan is --------------------------------------------------------------------------


def test_jobs_keep_the_order_they_were_given_in() -> None:
    rng = np.random.default_rng(3)
    sizes, shuffle = rng.pareto(1.5, 40) + 1, rng.permutation(40)
    for speedup in (PowerLaw(0.3), Amdahl(0.9)):
        straight, shuffled = (plan(Workload(x, speedup), 9) for x in (sizes, sizes[shuffle]))
        assert_allclose(shuffled.completion_times, straight.completion_times[shuffle], rtol=1e-12)
        assert_allclose(shuffled.servers_at(1.0), straight.servers_at(1.0)[shuffle], rtol=1e-9)


def test_equal_jobs_end_in_the_order_given() -> None:
    for speedup in (PowerLaw(0.5), Amdahl(0.9)):
        for whole in (False, True):
            times = plan(Workload([2, 1, 1, 1, 2], speedup), 10, whole=whole).completion_times
            assert_array_equal(np.argsort(times, kind="stable"), [1, 2, 3, 0, 4])


@given(some_speedup, st.floats(0.01, 100), st.sampled_from(["flow", "makespan"]))
def test_sizes_in_other_units_take_other_units_of_time(
    speedup: Speedup, unit: float, objective: Objective
) -> None:
    sizes = np.array([5.0, 3.0, 1.0, 1.0])
    one = plan(Workload(sizes, speedup), 6, objective=objective)
    other = plan(Workload(sizes * unit, speedup), 6, objective=objective)
    assert_allclose(other.completion_times, one.completion_times * unit, rtol=1e-9)


def test_plans_for_other_objectives_cost_more_of_this_one() -> None:
    rng = np.random.default_rng(5)
    workload = Workload(rng.pareto(1.5, 20) + 1, Amdahl(0.9), weights=rng.uniform(0.5, 2, 20))
    plans = {o: plan(workload, 16, objective=o) for o in ("flow", "slowdown", "makespan")}
    assert plans["flow"].mean_flow_time == min(p.mean_flow_time for p in plans.values())
    assert plans["slowdown"].mean_slowdown == min(p.mean_slowdown for p in plans.values())
    assert plans["makespan"].makespan == min(p.makespan for p in plans.values())


def test_remaining_sizes_fall_to_zero_at_completion() -> None:
    for whole in (False, True):
        for speedup in (PowerLaw(0.5), Amdahl(0.9)):
            best = plan(Workload([9, 4, 1], speedup), servers=10, whole=whole)
            assert_allclose(best.remaining_at(0.0), [9, 4, 1])
            for job, end in enumerate(best.completion_times):
                assert best.remaining_at(end * (1 - 1e-6))[job] > 0
                assert best.remaining_at(end * (1 + 1e-12))[job] == pytest.approx(0, abs=1e-9)


def test_phases_cover_the_whole_time() -> None:
    best = plan(Workload([9, 4, 4, 1], PowerLaw(0.5)), servers=10)
    phases = list(best.phases())
    assert phases[0].start == 0
    assert phases[-1].end == best.makespan
    assert all(a.end == b.start for a, b in pairwise(phases))
    work = sum(PowerLaw(0.5).rate(phase.servers) * (phase.end - phase.start) for phase in phases)
    assert_allclose(work, [9, 4, 4, 1])


def test_metrics() -> None:
    best = plan(Workload([9, 4, 1], PowerLaw(0.5), weights=[1, 2, 3]), servers=10)
    ends = best.completion_times
    assert best.mean_flow_time == pytest.approx(ends.sum() / 3)
    assert best.mean_slowdown == pytest.approx((ends / [9, 4, 1]).sum() / 3)
    assert best.weighted_flow_time == pytest.approx(ends @ [1, 2, 3])
    assert best.makespan == ends.max()
    assert "3 jobs on 10 servers" in repr(best)


def test_a_given_order_is_followed_where_it_can_be() -> None:
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
    # Holding back a tiny job until a huge one ends would help nobody.
    early = plan(Workload([1.0, 1000.0], PowerLaw(0.5)), 10, order=[1, 0])
    assert early.completion_times[0] < early.completion_times[1]
    assert verify(early) >= -1e-12


def test_weights_that_disagree_with_sizes_are_said_to_be_unproven() -> None:
    jobs = Workload([5.0, 1.0], PowerLaw(0.5), weights=[9.0, 1.0])
    unproven = plan(jobs, 4, objective="weighted").certificate
    assert not unproven.proven
    assert "weighs more" in unproven.reason
    agreeing = Workload([5.0, 1.0], PowerLaw(0.5), weights=[1.0, 9.0])
    assert plan(agreeing, 4, objective="weighted").certificate.proven
    assert plan(jobs, 4, objective="makespan").certificate.proven


def bad_plan(**changes: object) -> Plan:
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
        ({"sizes": []}, "at least one job"),
        ({"sizes": [1, float("nan")]}, r"sizes\[1\] must be finite, got nan"),
        ({"sizes": [1, -2]}, r"sizes\[1\] must be greater than 0, got -2.0"),
        ({"sizes": [0, 1]}, r"sizes\[0\] must be greater than 0, got 0.0"),
        ({"sizes": [[1, 2]]}, "flat list of numbers"),
        ({"sizes": ["a", "b"]}, "sizes must be a list of numbers"),
        ({"speedup": 0.5}, "a speedup must be PowerLaw, Amdahl, Measured or a concave function"),
        ({"speedup": [PowerLaw(0.5)]}, "one entry per job: 2 expected, 1 given"),
        ({"speedup": lambda k: k**2}, "must be concave"),
        ({"speedup": [lambda k: k**2, PowerLaw(0.5)]}, "must be concave"),
        ({"weights": [1]}, "weights must have one entry per job: 2 expected, 1 given"),
        ({"weights": [1, 0]}, r"weights\[1\] must be greater than 0"),
        ({"names": ["a"]}, "names must have one entry per job"),
        ({"arrivals": [0, -1]}, r"arrivals\[1\] must be at least 0"),
        ({"arrivals": [0, 3]}, "job 1 arrives at 3, .* use hesrpt.simulate"),
        ({"arrivals": [0, 3], "names": ["a", "b"]}, "job b arrives at 3"),
        ({"servers": 0}, "servers must be greater than 0, got 0"),
        ({"servers": -2}, "servers must be greater than 0, got -2"),
        ({"servers": float("inf")}, "servers must be finite"),
        ({"servers": "many"}, "servers must be a number, got 'many'"),
        ({"servers": 2.5, "whole": True}, "whole number to be handed out whole, got 2.5"),
        ({"objective": "speed"}, "objective must be one of flow, slowdown, weighted, makespan"),
        ({"objective": "weighted"}, "needs a workload with weights"),
        ({"order": [0]}, "order must have one entry per job"),
        ({"order": [0, 0]}, "order must name each of the jobs 0 to 1 once"),
        ({"order": [[0], [1]]}, "order must name each of the jobs 0 to 1 once"),
        ({"order": "ab"}, "order must name each of the jobs 0 to 1 once"),
        ({"order": 1}, "order must be a list of job numbers, got 1"),
        ({"sizes": None}, "sizes must be a flat list of numbers, got None"),
        ({"sizes": 5}, "sizes must be a flat list of numbers, got 5"),
        ({"names": "ab"}, "names must be a list with one name per job, got 'ab'"),
        ({"speedup": "fast"}, "a speedup must be PowerLaw, .* got 'fast'"),
        ({"order": [0, 1], "objective": "makespan"}, "order has no meaning for the makespan"),
    ],
)
def test_bad_input_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bad_plan(**changes)


def test_a_workload_and_a_plan_are_required() -> None:
    with pytest.raises(InputError, match="needs a Workload, got list"):
        plan([1, 2], 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs a Plan, got float"):
        verify(0.5)  # type: ignore[arg-type]


def test_jobs_may_come_as_iterators_and_arrays() -> None:
    speedups = np.array([PowerLaw(0.5), Amdahl(0.9)])
    workload = Workload((size for size in (3, 2)), speedups)  # type: ignore[arg-type]
    assert_array_equal(workload.sizes, [3, 2])
    assert not workload.shared
    assert plan(workload, 4, order=iter([1, 0])).makespan > 0


@pytest.mark.parametrize("time", [-1.0, float("nan")])
def test_times_before_the_start_are_refused(time: float) -> None:
    best = plan(Workload([1], PowerLaw(0.5)), 1)
    for ask in (best.servers_at, best.remaining_at):
        with pytest.raises(InputError, match="time must be"):
            ask(time)


def test_workloads_are_frozen_copies() -> None:
    sizes = np.array([3.0, 2.0])
    workload = Workload(sizes, Custom(np.log1p))
    sizes[0] = 99
    assert workload.sizes[0] == 3
    with pytest.raises(ValueError, match="read-only"):
        workload.sizes[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        plan(workload, 3).completion_times[0] = 1
    assert workload.names == ("0", "1")
    assert "2 jobs, sizes 2 to 3" in repr(workload)
