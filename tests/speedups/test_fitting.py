"""Fits recover exact parameters, tolerate noise and outliers, and report failures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt import Amdahl, FitError, FitWarning, PowerLaw, fit_amdahl, fit_power_law

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


@pytest.mark.filterwarnings("ignore::hesrpt.FitWarning")  # outliers lower R²
@given(st.floats(0.2, 0.9), st.integers(0, 10_000))
def test_noise_and_an_outlier_hardly_change_the_fit(p: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = np.tile(SERVERS, 3)
    measured = np.asarray(PowerLaw(p)(k)) * rng.lognormal(0, 0.03, len(k))
    measured[rng.integers(6, len(k))] *= 0.4
    assert fit_power_law(k, measured).p == pytest.approx(p, abs=0.05)


@pytest.mark.filterwarnings("ignore::hesrpt.FitWarning")
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


def test_falling_curve_is_fitted_up_to_its_peak() -> None:
    turned = fit_power_law([1, 2, 4, 8, 16], [1, 1.8, 3, 2.5, 2.0])
    assert turned.p == fit_power_law([1, 2, 4], [1, 1.8, 3]).p
    assert turned.fit is not None
    assert (turned.fit.first, turned.fit.last, turned.fit.points) == (1, 4, 3)
    assert turned.fit.left_out == 2
    assert turned.fit.r_squared > 0.98  # of the points that were fitted
    sharp = fit_power_law([1, 2, 4, 8, 16, 32, 64], [1, 2.135, 4.454, 8.78, 16.255, 7.045, 3.745])
    assert sharp.p == pytest.approx(1, abs=0.01)
    assert sharp.fit is not None
    assert (sharp.fit.last, sharp.fit.left_out) == (16, 2)
    assert sharp.fit.r_squared > 0.97
    # A curve that ends a little below its peak, as noise might make it, is fitted as a whole.
    noisy = fit_power_law([1, 2, 4, 8], [1, 1.4, 2.0, 1.95])
    assert noisy.fit is not None
    assert noisy.fit.left_out == 0


@given(st.floats(0.1, 0.95), st.sampled_from([2.0, 8.0, 128.0]), st.floats(1e-3, 1e6))
def test_curve_that_starts_above_one_server_is_fitted_relative_to_its_base(
    p: float, base: float, unit: float
) -> None:
    servers = base * SERVERS
    throughput = unit * SERVERS**p
    if base <= 8 and 1 < unit <= 1.5 * base:
        throughput = throughput / unit  # these would count as speedups over one server
    fit = fit_power_law(servers, throughput)
    assert fit.p == pytest.approx(p, abs=1e-6)
    assert fit.fit is not None
    assert (fit.fit.first, fit.fit.last) == (base, 32 * base)
    amdahl = Amdahl(0.99)(servers)
    fraction = fit_amdahl(servers, amdahl / amdahl[0]).parallel_fraction  # type: ignore[index]
    assert fraction == pytest.approx(0.99, abs=1e-4)


def test_values_that_are_no_speedups_over_one_server_are_recognised() -> None:
    # On 128 servers, a throughput of 130 is as likely as any other.
    assert fit_power_law([128, 256, 512], [130, 260 / 2**0.3, 520 / 4**0.3]).p == pytest.approx(0.7)
    # Over one server, these would not follow a power law; relative to 4 servers, they do.
    steep = fit_power_law([4, 8, 16, 32], [2, 2.3, 2.6, 3.0])
    assert steep.p == pytest.approx(0.19, abs=0.01)
    assert steep.r_squared is not None
    assert steep.r_squared > 0.99
    assert fit_power_law([8, 16, 32], [8**0.6, 16**0.6, 32**0.6]).p == pytest.approx(0.6)
    assert fit_power_law([64], [8]).p == pytest.approx(0.5)


def test_standard_error_covers_the_truth_as_often_as_it_should() -> None:
    rng = np.random.default_rng(3)
    k = np.tile(SERVERS, 5)
    inside = 0
    for _ in range(200):
        fit = fit_power_law(k, k**0.6 * rng.lognormal(0, 0.1, len(k)))
        assert fit.standard_error is not None
        inside += abs(fit.p - 0.6) <= 1.96 * fit.standard_error
    # 95% of 200, within four standard errors of a binomial
    assert abs(inside - 190) < 4 * np.sqrt(200 * 0.95 * 0.05)
    assert np.isnan(fit_power_law([1, 2], [1, 1.5]).standard_error)  # type: ignore[arg-type]
    assert PowerLaw(0.5).standard_error is None


@pytest.mark.parametrize(
    ("servers", "speedups", "reason"),
    [
        ([1, 2, 4, 8, 16, 32, 64], [1, 1.8, 3.1, 4.5, 5.5, 5.5, 5.8], "follow another law"),
        ([1, 2, 4, 8], [1, 1.02, 1.06, 1.01], "hardly grows with the servers"),
        ([1, 2, 4, 8, 16, 32], [1, 2.6, 1.2, 3.4, 1.5, 3.3], "go up and down"),
        ([1, 2, 4, 8, 16, 32], [1, 1.4, 2, 20, 4, 5.6], "one point is far off: it gives 2.8"),
    ],
)
def test_bad_fit_warns_with_its_reason(
    servers: list[float], speedups: list[float], reason: str
) -> None:
    with pytest.warns(FitWarning, match=reason) as caught:
        fit = fit_power_law(servers, speedups)
    assert f"k^p fits {len(servers)} points badly, R² = " in str(caught[0].message)
    assert caught[0].filename == __file__
    assert fit.fit is not None
    assert fit.fit.is_bad
    assert reason in fit.fit.problem


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
        ([128, 128], [1000, 1100], "needs points on different numbers of servers"),
        ([128, 256, 512], [1000, 900, 800], "do not grow with the servers"),
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
