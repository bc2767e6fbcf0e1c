"""Compiled speedups are the same functions as the speedups they were created from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from hesrpt import Amdahl, Measured, PowerLaw
from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.speedups import Custom, Speedup, SpeedupVector
from hesrpt.speedups.shape_kernel import (
    TABLE,
    Corners,
    Shape,
    find_both_demands,
    find_cheapest,
    find_demand,
    find_gain,
    find_rate,
    find_slope_before,
)


@compiled
def evaluate(
    shapes: list[Shape],
    corners: Corners,
    of_job: IntArray,
    servers: FloatArray,
    prices: FloatArray,
    result: FloatArray,
) -> None:
    """Evaluate all compiled functions of each job."""
    for job in range(len(servers)):
        shape = shapes[of_job[job]]
        result[0, job] = find_rate(shape, corners, servers[job])
        result[1, job] = find_slope_before(shape, corners, servers[job])
        result[2, job] = find_gain(shape, corners, np.floor(servers[job]))
        result[3, job] = find_demand(shape, corners, prices[job])
        demands = find_both_demands(shape, corners, prices[job], np.log(prices[job]), 1e-12, 1e-12)
        result[4, job], result[5, job], result[6, job], result[7, job] = demands
        result[8, job], result[9, job], _ = find_cheapest(shape, corners, 1.0, prices[job])


def evaluate_all(
    speedup: Speedup, limit: float, servers: FloatArray, prices: FloatArray
) -> FloatArray:
    speedups = SpeedupVector.repeat(speedup, len(servers))
    result = np.empty((10, len(servers)))
    evaluate(*speedups.shapes(limit), servers, prices, result)
    return result


parts = st.floats(1e-3, 1 - 1e-3)
measured = st.lists(st.floats(0.1, 3.0), min_size=2, max_size=6).map(
    lambda gains: Measured([1, 3, 4, 8, 9, 30][: len(gains)], np.cumsum(gains))
)
bases = st.one_of(parts.map(PowerLaw), parts.map(Amdahl), st.just(Amdahl(1.0)), measured)


@st.composite
def speedups_on_servers(draw: st.DrawFn) -> tuple[Speedup, float]:
    """Draw a speedup with or without limits and time sharing, and a number of servers."""
    speedup: Speedup = draw(bases)
    limit = draw(st.sampled_from([None, 0.5, 1.0, 2.5, 7.0]))
    servers = draw(st.sampled_from([1.0, 2.0, 10.0, 1000.0]))
    wrappers = draw(st.permutations(["limited", "time-shared"]))
    for wrapper in wrappers[: draw(st.integers(0, 2))]:
        if wrapper == "time-shared":
            speedup = speedup.time_shared()
        elif limit is not None:
            speedup = speedup.limited(limit)
    if draw(st.booleans()):
        speedup = speedup.on_whole_servers()
    elif draw(st.booleans()):
        servers *= draw(st.sampled_from([0.3, 1.5]))
    return speedup, servers


@given(speedups_on_servers(), st.integers(0, 2**32))
def test_compiled_speedups_are_those_of_python(drawn: tuple[Speedup, float], seed: int) -> None:
    speedup, most = drawn
    rng = np.random.default_rng(seed)
    servers = np.append(rng.uniform(0, most, 20), [0.0, most, min(1.0, most)])
    prices = np.exp(rng.uniform(np.log(1e-3), np.log(3.0), 23))
    found = evaluate_all(speedup, most, servers, prices)
    is_inside = servers < most
    whole = np.floor(servers)
    has_next = whole + 1 <= most
    assert_allclose(found[0], speedup.rate(servers), rtol=1e-13)
    # On the last piece of a table, Python may look beyond the end.
    assert_allclose(found[1, is_inside], speedup.slope_before(servers[is_inside]), rtol=1e-12)
    assert_allclose(found[2, has_next], speedup.gain(whole[has_next]), rtol=1e-9, atol=1e-15)
    assert_allclose(found[3], speedup.demand(prices, most), rtol=1e-9)


@given(speedups_on_servers(), st.integers(0, 2**32))
def test_demand_maximises_the_profit(drawn: tuple[Speedup, float], seed: int) -> None:
    speedup, most = drawn
    rng = np.random.default_rng(seed)
    prices = np.exp(rng.uniform(np.log(1e-3), np.log(3.0), 20))
    if isinstance(speedup, Measured):
        slopes = speedup.slopes
        prices[: len(slopes)] = slopes  # where the demand jumps
    found = evaluate_all(speedup, most, np.zeros(20), prices)
    trials = np.linspace(0, most, 1001)
    trial_rates = speedup.rate(trials)
    profit = (trial_rates - np.multiply.outer(prices, trials)).max(axis=1)
    for demand, rate in ((found[3], speedup.rate(found[3])), found[[4, 6]], found[[5, 7]]):
        assert np.all(rate - prices * demand >= profit - 1e-9)
        assert_allclose(rate, speedup.rate(demand), rtol=1e-9)
    assert np.all(found[4] <= found[3] * (1 + 1e-9))
    assert np.all(found[3] <= found[5] * (1 + 1e-9))
    cost = (1 + np.multiply.outer(prices, trials[1:])) / trial_rates[1:]
    assert np.all(found[8] <= cost.min(axis=1) * (1 + 1e-9))
    assert_allclose(found[8], (1 + prices * found[9]) / speedup.rate(found[9]), rtol=1e-9)


def test_functions_become_tables() -> None:
    class Logarithm(PowerLaw):
        def rate(self, servers: FloatArray) -> FloatArray:
            return np.log1p(servers)

    for speedup in (Custom(np.log1p), Logarithm(0.5)):
        shapes = SpeedupVector.create([speedup]).shapes(100.0)
        assert shapes.records["family"][0] == TABLE
        at = np.geomspace(0.01, 99.0, 50)
        found = evaluate_all(speedup, 100.0, at, 1 / (1 + at))
        assert_allclose(found[0], np.log1p(at), rtol=1e-8)
        assert_allclose(found[3], at, rtol=1e-3)


@pytest.mark.parametrize("servers", [7.0, 1e9])
def test_whole_servers_need_no_table(servers: float) -> None:
    speedup = PowerLaw(0.5).limited(1e8).on_whole_servers()
    found = evaluate_all(speedup, servers, np.zeros(1), np.array([1e-3]))
    assert found[3] == min(servers, 250_000)
    assert len(SpeedupVector.repeat(speedup, 1).shapes(servers).corners.at) == 0
