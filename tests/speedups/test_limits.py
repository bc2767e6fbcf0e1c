"""The demand on whole servers is the most profitable whole number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt import PowerLaw, Speedup
from hesrpt.arrays import FloatArray
from hesrpt.speedups import WholeServers


def find_best_whole_number(base: Speedup, price: float, limit: int) -> float:
    rates: FloatArray = np.asarray(base(np.arange(limit + 1)))
    return float(np.argmax(rates - price * np.arange(limit + 1)))


@given(st.floats(0.05, 0.95), st.floats(1e-3, 1))
def test_whole_demand_is_the_best_whole_number(p: float, price: float) -> None:
    demand = float(WholeServers(PowerLaw(p)).demand(np.asarray(price), 200.0))
    best = find_best_whole_number(PowerLaw(p), price, 200)
    profit = [float(PowerLaw(p)(n)) - price * n for n in (demand, best)]
    assert profit[0] == pytest.approx(profit[1], abs=1e-12)
