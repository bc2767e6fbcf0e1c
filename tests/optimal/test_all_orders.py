"""The certified gap of a plan holds for schedules in any completion order."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import best_over_orders_on_whole_servers
from support.speedups import any_speedup

from hesrpt import Amdahl, CertificateError, PowerLaw, Speedup, Workload, plan, verify
from hesrpt.optimal.planner import Plan


def draw_plan(jobs: int, **options: object) -> Plan:
    rng = np.random.default_rng(jobs)
    speedups = [PowerLaw(p) for p in rng.uniform(0.3, 0.9, jobs)]
    return plan(Workload(rng.pareto(1.5, jobs) + 1, speedups), servers=16, **options)  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.floats(0.05, 1), any_speedup), min_size=2, max_size=3
    ),
    st.integers(1, 3),
)
@settings(max_examples=15)
def test_no_completion_order_beats_the_bound(
    jobs: list[tuple[float, float, Speedup]], servers: int
) -> None:
    """The best of all orders is found by linear programs."""
    sizes, weights = (np.array([job[i] for job in jobs]) for i in (0, 1))
    speedups = [job[2] for job in jobs]
    workload = Workload(sizes, speedups, weights=weights)
    found = plan(workload, servers, objective="weighted", whole=True)
    best = best_over_orders_on_whole_servers(sizes, speedups, servers, weights)
    assert found.cost <= best * (1 + found.certificate.certified_gap) * (1 + 1e-9)
    verify(found)


@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.floats(0.05, 1), any_speedup), min_size=2, max_size=4
    ),
    st.floats(0.5, 20),
)
@settings(max_examples=15)
def test_no_requested_order_beats_the_bound(
    jobs: list[tuple[float, float, Speedup]], servers: float
) -> None:
    """Servers are divisible here, so that jobs may get any part of them."""
    sizes, weights = (np.array([job[i] for job in jobs]) for i in (0, 1))
    workload = Workload(sizes, [job[2] for job in jobs], weights=weights)
    found = plan(workload, servers, objective="weighted")
    costs = [
        plan(workload, servers, objective="weighted", order=order).cost
        for order in permutations(range(len(jobs)))
    ]
    bound = found.certificate.any_order_bound
    least = found.cost / (1 + found.certificate.certified_gap)
    assert bound is None or bound.total == pytest.approx(least, rel=1e-12)
    assert min(costs) >= least * (1 - 1e-9)


@pytest.mark.parametrize(("jobs", "most"), [(3, 0.03), (12, 0.015), (60, 0.006), (250, 0.003)])
def test_certified_gaps_are_small(jobs: int, most: float) -> None:
    found = draw_plan(jobs)
    assert 0 <= found.certificate.certified_gap < most
    assert not found.certificate.proven
    assert verify(found) == pytest.approx(found.certificate.gap)


def test_bad_orders_have_great_gaps() -> None:
    best = draw_plan(12)
    worst = draw_plan(12, order=best.certificate.first_to_last[::-1].tolist())
    excess = worst.cost / best.cost - 1
    assert excess > 0.1
    assert excess <= worst.certificate.certified_gap < excess + 0.05


def test_bounds_that_claim_too_much_are_rejected() -> None:
    found = draw_plan(6)
    bound = found.certificate.any_order_bound
    assert bound is not None
    for change, message in (
        ({"total": bound.total * 1.001}, "is proven"),
        ({"job_costs": bound.job_costs * 1.1, "total": bound.total * 1.05}, "is proven"),
        ({"objective": "weighted"}, "other jobs or servers"),
    ):
        forged = replace(found)
        vars(forged)["any_order_bound"] = replace(bound, **change)
        with pytest.raises(CertificateError, match=message):
            verify(forged)


def test_certificates_say_what_they_prove() -> None:
    assert "above the optimum, whatever the order" in str(draw_plan(6).certificate)
    proven = plan(Workload([3, 2, 1], Amdahl(0.9)), servers=4).certificate
    assert str(proven) == "<Certificate: optimal: no schedule does better>"
    assert proven.any_order_bound is None
    assert proven.certified_gap < 1e-9
