"""Amdahl's law from almost serial to almost parallel jobs: plans are optimal, and verified.

The optimum is computed with 60 digits. With a tiny parallel fraction, all servers together are
worth less than the rounding error of a job's value, so that values cannot tell prices apart.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import least_flow_time_under_amdahl

from hesrpt import Amdahl, Workload, plan, verify
from hesrpt.arrays import FloatArray

small = st.floats(-9, -0.3).map(lambda exponent: float(10**exponent))


def assert_optimal(
    sizes: FloatArray,
    fraction: float,
    servers: float,
    whole: bool,
    objective: Literal["flow", "slowdown"],
) -> None:
    weights = np.ones(len(sizes)) if objective == "flow" else 1 / sizes
    optimum = least_flow_time_under_amdahl(sizes, fraction, servers, whole, weights)
    found = plan(Workload(sizes, Amdahl(fraction)), servers, whole=whole, objective=objective)
    assert found.cost == pytest.approx(optimum, rel=3e-9)
    assert found.certificate.proven
    assert abs(verify(found)) < 1e-8


@given(
    st.lists(st.floats(0.1, 10) | st.sampled_from([1.0, 2.0]), min_size=1, max_size=5),
    small | small.map(lambda serial: 1 - serial),
    st.floats(0, 9).map(lambda exponent: float(10**exponent)),
    st.booleans(),
    st.sampled_from(["flow", "slowdown"]),
)
@settings(max_examples=settings().max_examples // 2)
def test_plan_is_optimal(
    sizes: list[float],
    fraction: float,
    servers: float,
    whole: bool,
    objective: Literal["flow", "slowdown"],
) -> None:
    servers = float(round(servers)) if whole else servers
    assert_optimal(np.array(sizes), fraction, servers, whole, objective)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("jobs", [18, 40])
@pytest.mark.parametrize("servers", [2.0, 43.0, 1e9])
def test_many_jobs_that_are_almost_serial(jobs: int, servers: float, whole: bool) -> None:
    sizes = np.random.default_rng(jobs).uniform(0.1, 10, jobs)
    assert_optimal(sizes, 1.6e-9, servers, whole, "flow")


@pytest.mark.parametrize("whole", [False, True])
def test_equal_jobs_share_a_billion_servers(whole: bool) -> None:
    found = plan(Workload([1.0] * 4, Amdahl(1e-6)), 1e9, whole=whole)
    assert found.servers_at(0.0).tolist() == pytest.approx([2.5e8] * 4, rel=1e-6)


def test_sizes_and_weights_of_many_magnitudes() -> None:
    assert_optimal(10.0 ** np.linspace(-12, 12, 8), 1e-6, 1e6, False, "slowdown")
