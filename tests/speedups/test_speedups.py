"""Every speedup keeps the same contract, and each does what its name says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hesrpt import Amdahl, Custom, InputError, Measured, PowerLaw, Speedup
from hesrpt.arrays import FloatArray
from hesrpt.speedups import WholeServers
from hesrpt.speedups.measured import Tabulated

MEASURED = Measured([1, 2, 4, 8, 16], [1, 1.9, 3.1, 4.0, 3.5])
SPEEDUPS = {
    "power law": PowerLaw(0.5),
    "nearly flat": PowerLaw(1e-6),
    "nearly linear": PowerLaw(1 - 1e-6),
    "Amdahl": Amdahl(0.9),
    "linear": Amdahl(1.0),
    "measured": MEASURED,
    "limited": PowerLaw(0.7).limited(5),
    "limited to part of a server": Amdahl(0.9).limited(2.5),
    "time-shared": PowerLaw(0.3).time_shared(),
    "time-shared and limited": Amdahl(0.8).time_shared().limited(6),
    "custom": Custom(np.log1p),
    "custom with a peak": Custom(lambda k: k - 0.03 * k**2),
    "custom with a kink": Custom(lambda k: np.minimum(k, 3 + 0.1 * (k - 3))),
    "whole power law": WholeServers(PowerLaw(0.5)),
    "whole measured": WholeServers(MEASURED),
    "whole limited": WholeServers(Amdahl(0.9).limited(2.5)),
}
MOST = 20.0
every_speedup = pytest.mark.parametrize("speedup", SPEEDUPS.values(), ids=SPEEDUPS.keys())


@every_speedup
def test_it_is_zero_at_zero_and_concave(speedup: Speedup) -> None:
    k = np.linspace(0, MOST, 2001)
    rates = speedup.rate(k)
    assert rates[0] == 0
    assert np.all(np.diff(rates, 2) <= 1e-9)
    speedup.check(MOST)


@every_speedup
@given(price=st.floats(0, 3), other=st.floats(0, MOST))
def test_demand_is_worth_more_than_any_other_number_of_servers(
    speedup: Speedup, price: float, other: float
) -> None:
    wanted = float(speedup.demand(np.asarray(price), MOST))
    assert 0 <= wanted <= MOST
    profit = float(speedup.rate(np.asarray(wanted))) - price * wanted
    assert profit >= float(speedup.rate(np.asarray(other))) - price * other - 1e-9


@every_speedup
def test_demand_falls_as_the_price_rises(speedup: Speedup) -> None:
    wanted = speedup.demand(np.linspace(0, 3, 500), MOST)
    assert np.all(np.diff(wanted) <= 1e-6)


@every_speedup
@given(k=st.floats(0.01, MOST - 0.01))
def test_slopes_are_those_of_the_chords_on_either_side(speedup: Speedup, k: float) -> None:
    step = 1e-5
    here = np.asarray(k)
    before = float(speedup.rate(here) - speedup.rate(here - step)) / step
    after = float(speedup.rate(here + step) - speedup.rate(here)) / step
    slope_before, slope_after = float(speedup.slope_before(here)), float(speedup.slope(here))
    # Near a kink the chords may reach across it, so the slopes lie between neighbouring chords.
    assert slope_after <= slope_before + 1e-6 * abs(slope_before) + 1e-9
    steeper = float(speedup.rate(here - step) - speedup.rate(here - 2 * step)) / step
    flatter = float(speedup.rate(here + 2 * step) - speedup.rate(here + step)) / step
    assert flatter - 1e-4 <= slope_after <= before + 1e-4
    assert after - 1e-4 <= slope_before <= steeper + 1e-4


@every_speedup
def test_the_gain_of_one_more_server_is_the_difference_it_makes(speedup: Speedup) -> None:
    k = np.arange(20.0)
    assert_allclose(speedup.gain(k), speedup.rate(k + 1) - speedup.rate(k), atol=1e-12)


@every_speedup
@given(k=st.floats(0, MOST))
def test_inverse_finds_the_fewest_servers_for_a_rate(speedup: Speedup, k: float) -> None:
    rate = speedup.rate(np.asarray(k))
    needed = float(speedup.inverse(rate, MOST))
    assert needed <= k * (1 + 1e-6) + 1e-9
    assert float(speedup.rate(np.asarray(needed))) == pytest.approx(float(rate), rel=1e-6)


@pytest.mark.parametrize(
    "speedup", [Amdahl(0.5), MEASURED, PowerLaw(0.5).limited(4), WholeServers(MEASURED)], ids=str
)
def test_rates_beyond_reach_need_infinitely_many_servers(speedup: Speedup) -> None:
    assert speedup.inverse(np.asarray(4.1), MOST) > MOST


def test_calling_a_speedup_gives_a_float_for_a_number_and_an_array_for_a_list() -> None:
    assert PowerLaw(0.5)(4) == 2.0
    assert isinstance(PowerLaw(0.5)(4), float)
    assert_array_equal(PowerLaw(0.5)([4, 9]), [2, 3])
    with pytest.raises(InputError, match="servers must be finite and at least 0, got -1"):
        PowerLaw(0.5)(-1)


class TestMeasured:
    @given(
        st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 50)), min_size=1, max_size=12).filter(
            lambda points: any(y > 0 for _, y in points)
        )
    )
    def test_it_is_the_least_concave_majorant(self, points: list[tuple[float, float]]) -> None:
        servers, speedups = (np.array(column) for column in zip(*points, strict=True))
        measured = Measured(servers, speedups)
        assert np.all(measured.rate(servers) >= speedups - 1e-9)
        # Least: every corner of it is the origin or a measured point.
        for corner in zip(*measured.knots, strict=True):
            assert corner == (0, 0) or corner in points

    def test_it_is_flat_beyond_its_peak(self) -> None:
        assert_array_equal(MEASURED([8, 9, 16, 1e9]), [4.0] * 4)
        assert MEASURED.demand(np.zeros(()), 100.0) == 8.0

    def test_order_and_duplicates_do_not_matter(self) -> None:
        assert_array_equal(
            Measured([4, 1, 2, 4], [3, 1, 1.8, 2.5])([1, 2, 3, 4]),
            Measured([1, 2, 4], [1, 1.8, 3])([1, 2, 3, 4]),
        )

    @pytest.mark.parametrize(
        ("servers", "speedups", "message"),
        [
            ([1, 2], [1], "same length, got 2 and 1"),
            ([0, 2], [1, 2], r"servers\[0\] must be greater than 0, got 0.0"),
            ([1, 2], [1, -2], r"speedups\[1\] must be at least 0, got -2.0"),
            ([1, 2], [0, 0], "greater than 0"),
            ([1, 2], [1, float("nan")], r"speedups\[1\] must be finite, got nan"),
            ([], [], "greater than 0"),
        ],
    )
    def test_bad_points_are_named(self, servers: object, speedups: object, message: str) -> None:
        with pytest.raises(InputError, match=message):
            Measured(servers, speedups)  # type: ignore[arg-type]


class TestCustom:
    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda k: k**2, "must be concave, but its slope grows"),
            (lambda k: 1 + k, "must be 0 on 0 servers, got 1.0"),
            (lambda k: -k, "must grow from 0"),
            (lambda k: np.where(k > 3, np.nan, k), "must be finite"),
            (lambda k: 1.0, "one number per entry"),
            (lambda k: "fast", "must take an array"),
        ],
    )
    def test_what_is_no_speedup_is_refused(self, function: object, message: str) -> None:
        with pytest.raises(InputError, match=message):
            Custom(function).check(10.0)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("function", "demand"),
        [
            (lambda k: k**0.6, lambda price: PowerLaw(0.6).demand(price, 50.0)),
            # Near 0 a difference is lost in rounding.
            (lambda k: 1 - np.exp(-k / 3), lambda price: np.maximum(-3 * np.log(3 * price), 0)),
            (
                lambda k: np.interp(k, [0, 1, 4, 10], [0, 1, 3, 5]),
                lambda price: np.where(price < 2 / 3, np.where(price < 1 / 3, 10, 4), price < 1),
            ),
        ],
    )
    def test_a_table_knows_what_is_worth_having(self, function: Any, demand: Any) -> None:
        prices = np.geomspace(1e-2, 2, 300)
        wanted, best = Custom(function).demand(prices, 50.0), demand(prices)
        profit, most = (function(k) - prices * k for k in (wanted, best))
        assert_allclose(profit, most, rtol=0, atol=2e-9 * function(50.0))

    def test_a_table_is_close_to_its_function_and_concave(self) -> None:
        for function in (np.log1p, np.sqrt, np.tanh, lambda k: np.minimum(k, 2.0) + 0.1 * k):
            table = Custom(function).known_on(100.0)
            assert isinstance(table, Tabulated)
            k = np.geomspace(1e-8, 100, 50_001)
            assert_allclose(table.rate(k), function(k), rtol=1e-8, atol=1e-12)
            assert np.all(np.diff(table.knots[1]) > 0)
            slopes = np.diff(table.knots[1]) / np.diff(table.knots[0])
            assert np.all(np.diff(slopes) <= 1e-9 * slopes[:-1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PowerLaw(0), r"p must lie in \(0, 1\), got 0"),
        (lambda: PowerLaw(1.2), r"p must lie in \(0, 1\), got 1.2"),
        (lambda: PowerLaw(float("nan")), "p must be finite, got nan"),
        (lambda: PowerLaw("half"), "p must be a number, got 'half'"),  # type: ignore[arg-type]
        (lambda: Amdahl(1.1), r"parallel_fraction must lie in \(0, 1\], got 1.1"),
        (lambda: Amdahl(0), "parallel_fraction must lie in"),
        (lambda: PowerLaw(0.5).limited(0), "limit of a speedup must be greater than 0, got 0"),
    ],
)
def test_bad_parameters_are_named(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def whole_by_definition(base: Speedup, price: float, most: int) -> float:
    rates: FloatArray = np.asarray(base(np.arange(most + 1)))
    return float(np.argmax(rates - price * np.arange(most + 1)))


@given(st.floats(0.05, 0.95), st.floats(1e-3, 1))
def test_whole_demand_is_the_best_whole_number(p: float, price: float) -> None:
    wanted = float(WholeServers(PowerLaw(p)).demand(np.asarray(price), 200.0))
    best = whole_by_definition(PowerLaw(p), price, 200)
    profit = [float(PowerLaw(p)(n)) - price * n for n in (wanted, best)]
    assert profit[0] == pytest.approx(profit[1], abs=1e-12)
