"""Each theorem of the paper agrees with a computation that does not use it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from support.oracles import best_by_search, bound_in_order, flow_time

from hesrpt import InputError, PowerLaw
from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form

powers = st.floats(1e-6, 1 - 1e-9)
sizes_lists = st.lists(st.floats(-12, 12), min_size=1, max_size=30).map(
    lambda exponents: 10.0 ** np.array(exponents)
)


def hesrpt_flow_time(sizes: FloatArray, servers: float, p: float) -> float:
    """Return the flow time that results from the shares of the theorem, phase by phase."""
    largest_first = np.argsort(-sizes, kind="stable")
    ordered = sizes[largest_first]
    return flow_time(
        ordered,
        [PowerLaw(p)] * len(sizes),
        np.ones(len(sizes)),
        lambda present: servers * closed_form.shares(len(present), p),
    )


def test_two_equal_jobs_are_best_shared_75_to_25() -> None:
    assert_allclose(closed_form.shares(2, 0.5), [0.25, 0.75])
    best = best_by_search(np.array([1.0, 1.0]), [PowerLaw(0.5)] * 2, 10)
    assert closed_form.total_flow_time([1, 1], 10, 0.5) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([3.0, 2.0, 1.0], marks=pytest.mark.slow),
        pytest.param([1.0, 1.0, 1.0], marks=pytest.mark.slow),
        [100.0, 1.0, 0.9],
    ],
)
def test_no_policy_found_by_search_beats_the_closed_form(sizes: list[float], p: float) -> None:
    best = best_by_search(np.array(sizes), [PowerLaw(p)] * 3, 7)
    optimum = closed_form.total_flow_time(sizes, 7, p)
    assert optimum <= best * (1 + 1e-12)
    assert optimum == pytest.approx(best, rel=1e-7)


@given(sizes_lists, powers)
def test_total_flow_time_results_from_the_shares(sizes: FloatArray, p: float) -> None:
    times = closed_form.completion_times(sizes, 3.0, p)
    assert np.isfinite(times).all()
    assert times.sum() == pytest.approx(closed_form.total_flow_time(sizes, 3.0, p), rel=1e-9)
    if p < 1 - 1e-6:  # above, the oracle divides by shares that are too small for a float
        assert hesrpt_flow_time(sizes, 3.0, p) == pytest.approx(times.sum(), rel=1e-6)


@given(st.integers(1, 2000), powers)
def test_shares_sum_to_one_and_favour_small_jobs(m: int, p: float) -> None:
    shares = closed_form.shares(m, p)
    assert shares.sum() == pytest.approx(1, rel=1e-9)
    assert np.all(np.diff(shares) >= -1e-15)


def test_shares_for_weights_of_very_different_magnitude() -> None:
    shares = closed_form.weighted_shares([1.0, 3.0, 1e14], 0.5)
    assert_allclose(shares, [1e-28, 15e-28, 1], rtol=1e-12)


@given(st.integers(2, 300), st.floats(1e-3, 0.999))
def test_scale_free_constants_are_the_ratios_of_the_shares(m: int, p: float) -> None:
    """A job's servers relative to those of larger jobs do not depend on smaller jobs."""
    for present in (m, m + 7):
        shares = closed_form.shares(present, p)[:m]
        larger = np.concatenate(([0.0], np.cumsum(shares)[:-1]))
        is_exact = larger > 1e-280  # smaller numbers have fewer digits
        assert_allclose(
            closed_form.scale_free_constants(m, p)[is_exact],
            larger[is_exact] / shares[is_exact],
            rtol=1e-8,
            atol=1e-280,
        )


@given(st.integers(2, 3000), powers)
def test_constants_and_coefficients_increase(m: int, p: float) -> None:
    assert np.all(np.diff(closed_form.scale_free_constants(m, p)) >= 0)
    assert np.all(np.diff(closed_form.coefficients(m, p)) >= -1e-9)


@given(st.integers(1, 200), st.floats(0.01, 0.95))
def test_coefficients_match_the_theorem(m: int, p: float) -> None:
    omega = closed_form.scale_free_constants(m, p)
    k = np.arange(1, m + 1)
    as_written = k * (1 + omega) ** p - (k - 1) * omega**p
    assert_allclose(closed_form.coefficients(m, p), as_written, rtol=1e-9)


def test_constants_minimise_the_lemma() -> None:
    sizes, p = np.array([5.0, 3.0, 2.0, 1.0]), 0.6
    found = minimize(
        lambda log_omega: closed_form.flow_time_of_constants(
            sizes, np.concatenate(([0.0], np.exp(log_omega))), 8, p
        ),
        np.zeros(3),
        method="BFGS",
        options={"gtol": 1e-10},
    )
    assert_allclose(np.exp(found.x), closed_form.scale_free_constants(4, p)[1:], rtol=1e-4)
    assert found.fun == pytest.approx(closed_form.total_flow_time(sizes, 8, p), rel=1e-12)


@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=5),
    st.floats(0.05, 0.95),
)
def test_shortest_first_is_the_best_of_all_orders(sizes: list[float], p: float) -> None:
    orders = {o: closed_form.best_in_order(o, 4, p).total_flow_time for o in permutations(sizes)}
    best = closed_form.total_flow_time(sizes, 4, p)
    assert min(orders.values()) == pytest.approx(best, rel=1e-9)
    assert orders[tuple(sorted(sizes, reverse=True))] == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("sizes", list(permutations([9.0, 4.0, 1.0])))
@pytest.mark.parametrize("p", [0.3, 0.7])
def test_best_in_order_agrees_with_a_linear_program(sizes: tuple[float, ...], p: float) -> None:
    optimum = closed_form.best_in_order(sizes, 5, p)
    below = bound_in_order(np.array(sizes), [PowerLaw(p)] * 3, 5, np.ones(3))
    assert below <= optimum.total_flow_time * (1 + 1e-9)
    assert below == pytest.approx(optimum.total_flow_time, rel=1e-4)
    assert np.all(np.diff(optimum.completion_times) <= 1e-12)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.floats(0.05, 0.95))
def test_best_in_order_results_from_its_shares(sizes: list[float], p: float) -> None:
    """Jobs that end at once hold constant proportions, so shares give the first completion."""
    optimum = closed_form.best_in_order(sizes, 4, p)
    assert optimum.shares.sum() == pytest.approx(1)
    ends = np.array(sizes) / (4 * optimum.shares) ** p
    assert ends.min() == pytest.approx(optimum.completion_times[-1], rel=1e-9)


@given(sizes_lists, powers)
def test_makespan_shares_end_all_jobs_at_once(sizes: FloatArray, p: float) -> None:
    gamma, makespan = closed_form.makespan_shares(sizes, p), closed_form.makespan(sizes, 3.0, p)
    assert gamma.sum() == pytest.approx(1)
    held = gamma > 1e-250
    assert_allclose(sizes[held] / (3.0 * gamma[held]) ** p, makespan, rtol=1e-9)


@given(st.integers(1, 500))
def test_shares_approach_equi_for_small_p_and_srpt_for_large_p(m: int) -> None:
    assert_allclose(closed_form.shares(m, 1e-9), np.full(m, 1 / m), rtol=1e-6)
    srpt = np.zeros(m)
    srpt[-1] = 1
    assert_allclose(closed_form.shares(m, 1 - 1e-9), srpt, atol=1e-9)


def test_powers_do_not_overflow() -> None:
    """k^c overflows at p = 0.99 for k = 1,200, but it never occurs in shares and times."""
    assert closed_form.shares(1_000_000, 0.99).sum() == pytest.approx(1)
    for p in (1e-6, 0.99, 1 - 1e-9):
        assert np.isfinite(closed_form.coefficients(1_000_000, p)).all()
        assert np.isfinite(closed_form.completion_times(np.ones(100_000), 1e9, p)).all()
    # As p → 1 the coefficients approach those of SRPT, k; as p → 0 those of EQUI, 1.
    assert_allclose(closed_form.coefficients(1000, 1 - 1e-9), np.arange(1, 1001), rtol=1e-6)
    assert_allclose(closed_form.coefficients(1000, 1e-9), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: closed_form.shares(0, 0.5), "whole number of at least 1, got 0"),
        (lambda: closed_form.shares(2.5, 0.5), "whole number of at least 1, got 2.5"),  # type: ignore[arg-type]
        (lambda: closed_form.makespan([], 3, 0.5), "at least one entry, got an empty list"),
        (lambda: closed_form.shares(2, 1.0), "p must lie in"),
        (
            lambda: closed_form.completion_times([1, -2], 3, 0.5),
            r"sizes\[1\] must be greater than 0",
        ),
        (lambda: closed_form.total_flow_time([1], 0, 0.5), "servers must be greater than 0"),
        (lambda: closed_form.flow_time_of_constants([1, 2], [0], 1, 0.5), "one entry per job"),
        (lambda: closed_form.makespan([1, float("nan")], 1, 0.5), r"sizes\[1\] must be finite"),
    ],
)
def test_invalid_arguments_are_reported(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
