"""Whatever is changed in a plan or a bound: it is rejected, or all that it claims is still true."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import best_over_orders_on_whole_servers, least_makespan_on_whole_servers

from hesrpt import (
    Amdahl,
    CertificateError,
    InputError,
    LowerBound,
    Plan,
    PowerLaw,
    Speedup,
    Workload,
    lower_bound,
    plan,
    simulate,
    verify,
    verify_bound,
)

_OWN: list[Speedup] = [PowerLaw(0.5), PowerLaw(0.95)]
_SPEEDUPS: list[Any] = [_OWN, PowerLaw(0.5), Amdahl(0.9), Amdahl(1e-6)]


@cache
def make_plan(
    speedup: int, objective: Any, whole: bool, order: tuple[int, ...] | None, servers: float
) -> Plan:
    jobs = Workload([2.0, 1.0], _SPEEDUPS[speedup], weights=[3.0, 1.0])
    order = None if objective == "makespan" else order
    return plan(jobs, servers, objective=objective, whole=whole, order=order)


plans = st.builds(
    make_plan,
    st.integers(0, len(_SPEEDUPS) - 1),
    st.sampled_from(["flow", "slowdown", "weighted", "makespan"]),
    st.booleans(),
    st.sampled_from([None, (0, 1), (1, 0)]),
    st.sampled_from([3.0, 4.0]),
)


@cache
def make_bound(speedup: int, objective: Any, whole: bool, last: float, window: int) -> LowerBound:
    jobs = Workload([2.0, 1.0, 3.0], PowerLaw(0.5), arrivals=[0, 1, last], weights=[3, 1, 2])
    if speedup != 1:
        jobs = Workload([2.0, 1.0], _SPEEDUPS[speedup], arrivals=[last, last], weights=[3, 1])
    return lower_bound(jobs, 3.0, objective=objective, whole=whole, window=window)


bounds = st.builds(
    make_bound,
    st.integers(0, len(_SPEEDUPS) - 1),
    st.sampled_from(["flow", "slowdown", "weighted"]),
    st.booleans(),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([1, 9]),
)


def change(value: Any, other: Any, how: str) -> Any:
    """Return something else in place of a field of a plan or a bound."""
    if how == "swap" or value is None:
        return other
    if how == "none":
        return None
    if how == "nan":
        return value * np.nan if isinstance(value, np.ndarray | float) else float("nan")
    if isinstance(value, np.ndarray):
        return value[::-1].copy() if how == "reverse" else value * 1.01
    if isinstance(value, bool):
        return not value
    if isinstance(value, Workload):
        sizes = value.sizes[::-1] if how == "reverse" else value.sizes * 0.99
        speedups = value.speedups.shared or list(value.speedups)
        return Workload(sizes, speedups, arrivals=value.arrivals, weights=value.weights)
    return value * 1.01 if isinstance(value, float) else other


changes = st.sampled_from(["swap", "none", "nan", "reverse", "scale"])


def tamper(original: Any, other: Any, name: str, how: str, in_place: bool) -> Any:
    """Return a copy with one field changed, after or before all was computed from it."""
    changed = change(getattr(original, name), getattr(other, name), how)
    if not in_place:
        return replace(original, **{name: changed})
    copy = replace(original)
    if isinstance(copy, Plan):
        copy.certificate.certified_gap, copy.flow_times  # noqa: B018
    object.__setattr__(copy, name, changed)
    return copy


@cache
def find_optimum(workload: Workload, servers: float, objective: str, whole: bool) -> float:
    """Return the least cost of two jobs, by linear programs or by trying many allocations."""
    sizes, speedups = workload.sizes, list(workload.speedups)
    weights = np.ones(2)
    if objective == "weighted" and workload.weights is not None:
        weights = workload.weights
    elif objective == "slowdown":
        weights = 1 / sizes
    if whole and objective == "makespan":
        return least_makespan_on_whole_servers(sizes, speedups, int(servers))
    if whole:
        return best_over_orders_on_whole_servers(sizes, speedups, int(servers), weights)
    part = np.linspace(1e-9, 1 - 1e-9, 100_001)
    rates = np.array([speedups[0](servers * part), speedups[1](servers * (1 - part))])
    alone = sizes / np.array([float(each(servers)) for each in speedups])
    together = np.min(sizes[:, None] / rates, axis=0)
    ends = together + np.maximum(1 - rates * together / sizes[:, None], 0) * alone[:, None]
    if objective == "makespan":
        return float(ends.max(axis=0).min())
    return float((weights @ ends).min())


def assert_true(claimed: Plan) -> None:
    """Assert all that a plan claims, up to the errors of the optimum."""
    certificate = claimed.certificate
    optimum = find_optimum(claimed.workload, claimed.servers, claimed.objective, claimed.whole)
    assert claimed.cost >= optimum * (1 - 1e-6)
    assert claimed.cost <= optimum * (1 + certificate.certified_gap) * (1 + 1e-6)
    assert claimed.cost == pytest.approx(certificate.lower_bound * (1 + certificate.gap))
    assert certificate.proven == certificate.summary.startswith("optimal")
    if certificate.proven:
        assert claimed.cost <= optimum * (1 + 1e-6)
    if certificate.holds_for_all_orders:
        assert certificate.lower_bound <= optimum * (1 + 1e-6)
    assert np.array_equal(claimed.flow_times, claimed.completion_times)


@given(plans, plans, st.sampled_from([f.name for f in fields(Plan)]), changes, st.booleans())
@settings(max_examples=settings().max_examples // 2)
def test_tampered_plan_is_rejected_or_claims_what_is_true(
    original: Plan, other: Plan, name: str, how: str, in_place: bool
) -> None:
    tampered = original
    with suppress(AttributeError):  # a plan without such an array cannot be created
        tampered = tamper(original, other, name, how, in_place)
    try:
        verify(tampered)
    except (CertificateError, InputError):
        return
    assert_true(tampered)


def check_tampered_timeline(original: Plan, array: int, place: int, factor: float) -> None:
    """Change a number in one of the arrays of a plan's timeline, and verify the plan."""
    timeline = copy(original.timeline)
    arrays = [name for name, value in vars(timeline).items() if isinstance(value, np.ndarray)]
    name = arrays[array % len(arrays)]
    numbers = getattr(timeline, name).copy()
    numbers[place % len(numbers)] = numbers[place % len(numbers)] * factor
    setattr(timeline, name, numbers)
    tampered = replace(original, timeline=timeline)
    try:
        verify(tampered)
    except CertificateError:
        return
    assert_true(tampered)


@given(
    plans, st.integers(0, 9), st.integers(0, 9), st.sampled_from([-1.0, 0.0, 0.5, 0.99, 1.01, 2.0])
)
@settings(max_examples=settings().max_examples // 4)
def test_plan_with_a_tampered_timeline_is_rejected_or_claims_what_is_true(
    original: Plan, array: int, place: int, factor: float
) -> None:
    check_tampered_timeline(original, array, place, factor)


def test_timeline_with_a_job_that_does_not_exist_or_a_phase_without_jobs_is_rejected() -> None:
    """The second once made a kernel write beyond the end of an array."""
    original = make_plan(0, "flow", False, (0, 1), 3.0)
    for array, place, factor in [(2, 0, 2.0), (3, 0, 0.0)]:
        check_tampered_timeline(original, array, place, factor)


@given(plans, plans, st.sampled_from([f.name for f in fields(LowerBound)]), changes, st.booleans())
@settings(max_examples=settings().max_examples // 4)
def test_tampered_bound_of_a_plan_is_rejected_or_true(
    original: Plan, other: Plan, name: str, how: str, is_removed: bool
) -> None:
    tampered = replace(original)
    bound, others = original.any_order_bound, other.any_order_bound
    if bound is not None and others is not None and not is_removed:
        with suppress(AttributeError):
            others = tamper(bound, others, name, how, in_place=False)
    vars(tampered)["any_order_bound"] = None if is_removed else others
    try:
        verify(tampered)
    except (CertificateError, InputError):
        return
    assert_true(tampered)


@given(
    bounds, bounds, st.sampled_from([f.name for f in fields(LowerBound)]), changes, st.booleans()
)
@settings(max_examples=settings().max_examples // 2)
def test_tampered_bound_is_rejected_or_true(
    original: LowerBound, other: LowerBound, name: str, how: str, in_place: bool
) -> None:
    tampered = original
    with suppress(AttributeError):
        tampered = tamper(original, other, name, how, in_place)
    try:
        verify_bound(tampered)
    except (CertificateError, InputError):
        return
    for policy in ("equi", "srpt", "optimal"):
        schedule = simulate(tampered.workload, tampered.servers, policy, whole=tampered.whole)
        assert tampered.gap(schedule) >= -1e-9
    assert "of at least" in repr(tampered)


def test_plan_in_a_bad_order_cannot_hide_its_distance() -> None:
    """With the bound on all orders removed, this plan once claimed to be nearly optimal."""
    bad = plan(Workload([2.0, 1.0], _OWN), 10, order=[0, 1])
    vars(bad)["any_order_bound"] = None
    assert bad.certificate.certified_gap > 0.6
    with pytest.raises(CertificateError, match="whatever their order"):
        verify(bad)
