"""Plans for extreme powers, sizes, weights, servers and numbers of jobs, and their limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from hesrpt import Amdahl, Measured, PowerLaw, Speedup, Workload, plan, verify
from hesrpt.arrays import FloatArray
from hesrpt.objectives import Objective

extreme_sizes = st.lists(
    st.one_of(st.floats(-12, 12), st.sampled_from([-12.0, 0.0, 12.0])), min_size=1, max_size=40
).map(lambda exponents: 10.0 ** np.array(exponents))
powers = st.one_of(st.floats(1e-6, 1 - 1e-9), st.sampled_from([1e-6, 0.5, 0.99, 1 - 1e-9]))
servers_counts = st.one_of(st.floats(0.5, 1e9), st.sampled_from([0.5, 1.0, 1e9]))


@given(extreme_sizes, powers, servers_counts, st.sampled_from(["flow", "slowdown", "makespan"]))
def test_power_laws(sizes: FloatArray, p: float, servers: float, objective: Objective) -> None:
    best = plan(Workload(sizes, PowerLaw(p)), servers, objective=objective)
    assert np.isfinite(best.completion_times).all()
    assert (best.completion_times > 0).all()
    held = best.servers_at(0.0)
    assert held.sum() == pytest.approx(servers, rel=1e-9)
    assert (held >= 0).all()
    assert abs(best.certificate.gap) < 1e-9
    assert verify(best) < 1e-9
    # No job ends sooner than it would alone, and the batch takes no longer than one by one.
    alone = sizes / servers**p
    assert (best.completion_times >= alone * (1 - 1e-9)).all()
    assert best.makespan <= alone.sum() * (1 + 1e-9)


@given(
    extreme_sizes,
    st.sampled_from(
        [
            Amdahl(0.999999),
            Amdahl(0.01),
            PowerLaw(0.5).time_shared(),
            PowerLaw(1 - 1e-9).limited(7),
            PowerLaw(1e-6).limited(7),
            Measured([1, 10, 100, 1000], [1, 8, 50, 120]),
            Measured([1, 1e9], [1, 1e8]),
        ]
    ),
    st.sampled_from([1.0, 7.0, 1000.0, 1e9]),
    st.sampled_from(["flow", "slowdown", "makespan"]),
    st.booleans(),
)
def test_other_speedups(
    sizes: FloatArray, speedup: Speedup, servers: float, objective: Objective, whole: bool
) -> None:
    best = plan(Workload(sizes, speedup), servers, objective=objective, whole=whole)
    assert np.isfinite(best.completion_times).all()
    assert verify(best) < 1e-8


@given(
    st.lists(st.tuples(st.floats(-12, 12), st.floats(-12, 12)), min_size=1, max_size=12).map(
        lambda exponents: 10.0 ** np.array(exponents)
    ),
    st.sampled_from(
        [PowerLaw(0.5), PowerLaw(1e-6), Amdahl(0.9), Measured([1, 10, 100], [1, 8, 50])]
    ),
    st.booleans(),
)
def test_weights_of_every_magnitude(jobs: FloatArray, speedup: Speedup, whole: bool) -> None:
    """A weight may be lost in rounding beside the others, but its job is still planned."""
    sizes, weights = jobs.T
    best = plan(Workload(sizes, speedup, weights=weights), 16, objective="weighted", whole=whole)
    assert np.isfinite(best.completion_times).all()
    assert verify(best) >= -1e-8


def test_weight_that_vanishes_beside_another() -> None:
    heavy = Workload([1, 1], PowerLaw(1e-6), weights=[1, 1e24])
    assert abs(verify(plan(heavy, 10, objective="weighted"))) < 1e-9


def equi_flow_time(x: FloatArray, servers: float, p: float) -> float:
    """Return the total flow time under EQUI: N^−p Σ x_k (k^(1+p) − (k−1)^(1+p))."""
    k = np.arange(1, len(x) + 1)
    return float(-np.sort(-x) @ (k ** (1 + p) - (k - 1) ** (1 + p)) / servers**p)


def srpt_flow_time(x: FloatArray, servers: float, p: float) -> float:
    """Return the total flow time under SRPT: N^−p Σ k x_k."""
    return float(-np.sort(-x) @ np.arange(1, len(x) + 1) / servers**p)


@given(extreme_sizes, servers_counts)
def test_optimum_approaches_equi_for_small_p_and_srpt_for_large_p(
    sizes: FloatArray, servers: float
) -> None:
    for p, limit in ((1e-6, equi_flow_time), (1 - 1e-9, srpt_flow_time)):
        best = plan(Workload(sizes, PowerLaw(p)), servers).total_flow_time
        assert best == pytest.approx(limit(sizes, servers, p), rel=1e-4)
        assert best <= limit(sizes, servers, p) * (1 + 1e-9)


@given(st.floats(0.001, 0.998), servers_counts)
def test_optimum_is_continuous_in_p(p: float, servers: float) -> None:
    sizes = np.array([5.0, 1.0, 1.0, 1e-3])
    near, there = (plan(Workload(sizes, PowerLaw(q)), servers) for q in (p, p + 1e-9))
    assert_allclose(near.completion_times, there.completion_times, rtol=1e-6)


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.99, 1 - 1e-9])
def test_a_million_equal_jobs(p: float) -> None:
    best = plan(Workload(np.ones(1_000_000), PowerLaw(p)), servers=1000)
    assert np.isfinite(best.completion_times).all()
    assert (np.diff(best.completion_times) >= 0).all()  # in the order of the workload
    assert abs(best.certificate.gap) < 1e-9
    assert best.servers_at(best.makespan / 2).sum() == pytest.approx(1000)


@pytest.mark.slow
def test_ten_million_jobs() -> None:
    sizes = np.random.default_rng(0).pareto(1.5, 10_000_000) + 1
    best = plan(Workload(sizes, PowerLaw(0.5)), servers=1_000_000)
    assert abs(best.certificate.gap) < 1e-9
    assert best.servers_at(best.makespan / 2).sum() == pytest.approx(1_000_000)


def test_single_job_gets_all_servers_it_can_use() -> None:
    for speedup, held in ((PowerLaw(0.5), 10.0), (PowerLaw(0.5).limited(4), 4.0)):
        best = plan(Workload([8.0], speedup), 10)
        assert best.servers_at(0.0) == [held]
        assert best.makespan == pytest.approx(8 / held**0.5)


@pytest.mark.slow
def test_many_more_jobs_than_servers() -> None:
    sizes = np.random.default_rng(1).pareto(1.5, 2000) + 1
    best = plan(Workload(sizes, PowerLaw(0.7)), servers=8, whole=True)
    assert verify(best) < 1e-9
    assert (best.servers_at(0.0) > 0).sum() <= 8
    # While many jobs wait, a second server for a running job does not pay.
    assert best.servers_at(0.0).max() == 1


def test_one_whole_server_runs_the_shortest_job_first() -> None:
    best = plan(Workload([3.0, 1.0, 2.0], PowerLaw(0.7)), servers=1, whole=True)
    assert_allclose(best.completion_times, [6, 1, 3])


def test_whole_servers_approach_divisible_ones_as_they_become_many() -> None:
    sizes = np.array([9.0, 4.0, 1.0])
    divisible = plan(Workload(sizes, PowerLaw(0.5)), 10_000).total_flow_time
    whole = plan(Workload(sizes, PowerLaw(0.5)), 10_000, whole=True).total_flow_time
    assert divisible <= whole <= divisible * (1 + 1e-6)


def test_a_billion_whole_servers() -> None:
    sizes = np.random.default_rng(2).pareto(1.5, 100) + 1
    best = plan(Workload(sizes, PowerLaw(0.9)), servers=1e9, whole=True)
    assert verify(best) < 1e-8  # limited by the precision of the gain of one server in 1e7
    assert best.servers_at(0.0).sum() == 1e9
