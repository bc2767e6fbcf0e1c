"""Every speedup fulfils the same contract."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from support.speedups import MEASURED

from hesrpt import Amdahl, Custom, InputError, PowerLaw, Speedup
from hesrpt.speedups import WholeServers

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
def test_speedup_is_concave_and_0_on_0_servers(speedup: Speedup) -> None:
    k = np.linspace(0, MOST, 2001)
    rates = speedup.rate(k)
    assert rates[0] == 0
    assert np.all(np.diff(rates, 2) <= 1e-9)
    speedup.check(MOST)


@every_speedup
@given(price=st.floats(0, 3), other=st.floats(0, MOST))
def test_demand_is_the_most_profitable_number_of_servers(
    speedup: Speedup, price: float, other: float
) -> None:
    demand = float(speedup.demand(np.asarray(price), MOST))
    assert 0 <= demand <= MOST
    profit = float(speedup.rate(np.asarray(demand))) - price * demand
    assert profit >= float(speedup.rate(np.asarray(other))) - price * other - 1e-9


@every_speedup
def test_demand_falls_as_the_price_rises(speedup: Speedup) -> None:
    demand = speedup.demand(np.linspace(0, 3, 500), MOST)
    assert np.all(np.diff(demand) <= 1e-6)


@every_speedup
@given(k=st.floats(0.01, MOST - 0.01))
def test_slopes_match_the_chords_on_either_side(speedup: Speedup, k: float) -> None:
    step = 1e-5
    here = np.asarray(k)
    before = float(speedup.rate(here) - speedup.rate(here - step)) / step
    after = float(speedup.rate(here + step) - speedup.rate(here)) / step
    slope_before, slope_after = float(speedup.slope_before(here)), float(speedup.slope(here))
    # Chords may reach across a nearby kink, so compare slopes with the next chords as well.
    assert slope_after <= slope_before + 1e-6 * abs(slope_before) + 1e-9
    steeper = float(speedup.rate(here - step) - speedup.rate(here - 2 * step)) / step
    flatter = float(speedup.rate(here + 2 * step) - speedup.rate(here + step)) / step
    assert flatter - 1e-4 <= slope_after <= before + 1e-4
    assert after - 1e-4 <= slope_before <= steeper + 1e-4


@every_speedup
def test_gain_is_the_difference_that_one_server_makes(speedup: Speedup) -> None:
    k = np.arange(20.0)
    assert_allclose(speedup.gain(k), speedup.rate(k + 1) - speedup.rate(k), atol=1e-12)


@every_speedup
@given(k=st.floats(0, MOST))
def test_inverse_is_the_fewest_servers_for_a_rate(speedup: Speedup, k: float) -> None:
    rate = speedup.rate(np.asarray(k))
    needed = float(speedup.inverse(rate, MOST))
    assert needed <= k * (1 + 1e-6) + 1e-9
    assert float(speedup.rate(np.asarray(needed))) == pytest.approx(float(rate), rel=1e-6)


@pytest.mark.parametrize(
    "speedup", [Amdahl(0.5), MEASURED, PowerLaw(0.5).limited(4), WholeServers(MEASURED)], ids=str
)
def test_inverse_of_an_unreachable_rate_exceeds_the_servers(speedup: Speedup) -> None:
    assert speedup.inverse(np.asarray(4.1), MOST) > MOST


def test_call_returns_a_float_for_a_number_and_an_array_for_a_list() -> None:
    assert PowerLaw(0.5)(4) == 2.0
    assert isinstance(PowerLaw(0.5)(4), float)
    assert_array_equal(PowerLaw(0.5)([4, 9]), [2, 3])
    with pytest.raises(InputError, match="servers must be finite and at least 0, got -1"):
        PowerLaw(0.5)(-1)
