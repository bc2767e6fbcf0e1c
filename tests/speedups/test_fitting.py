"""Fits recover exact parameters, tolerate noise and outliers, and report failures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt import Amdahl, FitError, PowerLaw, fit_amdahl, fit_power_law

SERVERS = np.array([1, 2, 4, 8, 16, 32])


@given(st.floats(0.01, 0.99))
def test_exact_power_law_is_recovered(p: float) -> None:
    fit = fit_power_law(SERVERS, PowerLaw(p)(SERVERS))
    assert fit.p == pytest.approx(p, abs=1e-6)
    assert fit.r_squared == pytest.approx(1, abs=1e-9)


@given(st.floats(0.05, 1.0))
def test_exact_amdahl_curve_is_recovered(f: float) -> None:
    fit = fit_amdahl(SERVERS, Amdahl(f)(SERVERS))
    assert fit.parallel_fraction == pytest.approx(f, abs=1e-6)
    assert fit.r_squared == pytest.approx(1, abs=1e-9)


@given(st.floats(0.2, 0.9), st.integers(0, 10_000))
def test_noise_and_an_outlier_hardly_change_the_fit(p: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = np.tile(SERVERS, 3)
    measured = np.asarray(PowerLaw(p)(k)) * rng.lognormal(0, 0.03, len(k))
    measured[rng.integers(6, len(k))] *= 0.4
    assert fit_power_law(k, measured).p == pytest.approx(p, abs=0.05)


@given(st.floats(0.2, 0.9), st.integers(0, 4), st.sampled_from([0.1, 0.5, 2.0, 3.0, 10.0]))
def test_one_wild_point_hardly_changes_the_fit(p: float, place: int, factor: float) -> None:
    measured = SERVERS**p
    measured[place] *= factor
    assert fit_power_law(SERVERS, measured).p == pytest.approx(p, abs=0.05)


def test_fit_of_repeated_measurements_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    k = np.tile(SERVERS, 5)
    fits = [fit_power_law(k, k**0.5 * rng.lognormal(0, 0.2, len(k))).p for _ in range(100)]
    assert np.mean(fits) == pytest.approx(0.5, abs=0.01)


def test_falling_curve_is_fitted_as_flat_past_its_peak() -> None:
    turned = fit_power_law([1, 2, 4, 8, 16], [1, 1.8, 3, 2.8, 2.0])
    assert turned.p == fit_power_law([1, 2, 4, 8, 16], [1, 1.8, 3, 3, 3]).p
    assert turned.r_squared is not None
    assert turned.r_squared < 0.9  # R² includes the points past the peak as measured


def test_superlinear_curve_gets_the_steepest_speedup() -> None:
    assert fit_power_law([1, 2, 4], [1, 2.2, 4.8]).p == pytest.approx(1, abs=1e-6)
    assert fit_amdahl([1, 2, 4], [1, 2.2, 4.8]).parallel_fraction == 1


def test_fit_needs_no_point_on_one_server() -> None:
    assert fit_power_law([4], [2]).p == pytest.approx(0.5)
    assert np.isnan(fit_power_law([4], [2]).r_squared)  # type: ignore[arg-type]


@pytest.mark.parametrize("fit", [fit_power_law, fit_amdahl])
@pytest.mark.parametrize(
    ("servers", "speedups", "message"),
    [
        ([1, 2, 4], [1, 1, 1], "do not grow with the servers"),
        ([1, 2, 4], [1, 0.8, 0.5], "do not grow with the servers"),
        ([1, 1], [1, 1.1], "more than one server"),
        ([], [], "more than one server"),
        ([1, 2], [1], "same length, got 2 and 1"),
        ([1, 2], [100, 180], "about 1, got 100: divide measured throughputs"),
        ([2, 4, 8], [200, 380, 700], "per server must be about 1, got 95: divide"),
        ([1, 2], [1, 0], r"speedups\[1\] must be greater than 0"),
        ([1, float("inf")], [1, 2], r"servers\[1\] must be finite"),
    ],
)
def test_failed_fits_are_reported(
    fit: object, servers: list[float], speedups: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        fit(servers, speedups)  # type: ignore[operator]
    assert isinstance(raised.value, FitError) or "must be" in message
