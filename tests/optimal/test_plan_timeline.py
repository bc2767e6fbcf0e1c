"""What a plan says of itself, and what it says of bad input."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

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
from hesrpt.objectives import Objective
from hesrpt.optimal import closed_form

some_speedup = st.sampled_from(
    [PowerLaw(0.5), Amdahl(0.9), PowerLaw(0.05).limited(3), Measured([1, 2, 4], [1, 1.9, 3.1])]
)


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
        ({"sizes": ["1", "2"]}, "sizes must be a list of numbers"),
        ({"sizes": [True, False]}, "sizes must be a list of numbers"),
        ({"whole": "no"}, "whole must be True or False, got 'no'"),
        ({"speedup": lambda k: [][0]}, "but it failed: IndexError"),
        ({"speedup": 0.5}, "a speedup must be PowerLaw, Amdahl, Measured or a concave function"),
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
        ({"order": [0, 0]}, "order must name each of the jobs 0 to 1 once"),
        ({"order": [[0], [1]]}, "order must name each of the jobs 0 to 1 once"),
        ({"order": "ab"}, "order must name each of the jobs 0 to 1 once"),
        ({"order": 1}, "order must be a list of job numbers, got 1"),
        ({"sizes": None}, "sizes must be a list of numbers, got None"),
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
    assert workload.speedups.shared is None
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
