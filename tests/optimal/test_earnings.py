"""Bounds on earnings are valid for every allocation and tight for the best one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.speedups import MEASURED

from hesrpt import (
    Amdahl,
    PowerLaw,
    Speedup,
)
from hesrpt.optimal.proof_kernel import bound_earnings
from hesrpt.speedups import SpeedupVector


@given(
    st.lists(st.floats(0.01, 5), min_size=1, max_size=5),
    st.sampled_from([PowerLaw(0.5), Amdahl(0.9), Amdahl(1.0), MEASURED, PowerLaw(0.3).limited(2)]),
    st.sampled_from([1.0, 4.0, 20.0]),
    st.booleans(),
    st.integers(0, 1000),
)
def test_bound_is_valid_and_tight(
    values: list[float], speedup: Speedup, servers: float, is_rising: bool, seed: int
) -> None:
    v = np.sort(values) if is_rising else np.array(values)
    shapes = SpeedupVector.repeat(speedup, len(v)).shapes(servers)
    bound, _ = bound_earnings(shapes, v, servers, 0.0, 1.0, is_rising)
    rng = np.random.default_rng(seed)
    tried = servers * rng.dirichlet(np.full(len(v), rng.choice([0.1, 1.0])), size=200)
    assert np.all(speedup.rate(tried) @ v <= bound * (1 + 1e-12))
    # The greedy allocation, in small steps, earns nearly as much.
    steps = 20_000
    grid = np.linspace(0, servers, steps + 1)
    gains = np.multiply.outer(v, np.diff(speedup.rate(grid))).ravel()
    assert np.sort(gains)[-steps:].sum() >= bound * (1 - 1e-3)


def test_bound_for_different_speedups() -> None:
    speedups = SpeedupVector.create([PowerLaw(0.5), Amdahl(0.9)])
    shapes, values = speedups.shapes(10.0), np.array([1.0, 2.0])
    bound, _ = bound_earnings(shapes, values, 10.0, 0.0, 0.1, False)
    split = np.linspace(0, 10, 100_001)
    best = (PowerLaw(0.5).rate(split) + 2 * Amdahl(0.9).rate(10 - split)).max()
    assert bound == pytest.approx(best, rel=1e-8)
