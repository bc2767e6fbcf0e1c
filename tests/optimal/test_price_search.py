"""The minimiser under the search for prices, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from hesrpt.arrays import FloatArray
from hesrpt.optimal.price_search import minimise


@given(st.integers(0, 1000), st.integers(1, 12))
def test_least_squares_without_negative_variables(seed: int, variables: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(20, variables)), rng.normal(size=20)

    def find_value(x: FloatArray) -> tuple[float, FloatArray]:
        rest = matrix @ x - target
        return float(rest @ rest), 2 * matrix.T @ rest

    found = minimise(find_value, np.ones(variables), 200)
    assert np.all(found >= 0)
    _, least = nnls(matrix, target)
    assert find_value(found)[0] == pytest.approx(least**2, rel=1e-6)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_evaluations_are_limited(most: int) -> None:
    evaluations = 0

    def find_value(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal evaluations
        evaluations += 1
        return float(100 * x @ x), 200 * x

    minimise(find_value, np.array([1.0, 2.0]), most)
    assert evaluations <= most


def test_kinks_do_not_hold_it_up_for_ever() -> None:
    """At a kink no step gains anything."""
    found = minimise(lambda x: (float(np.abs(x - 1).sum()), np.sign(x - 1)), np.array([5.0]), 1000)
    assert found == pytest.approx(1.0, abs=1e-6)
