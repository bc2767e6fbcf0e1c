"""Custom functions are checked, and tabulated exactly enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hesrpt import Custom, InputError, PowerLaw
from hesrpt.speedups.measured import Tabulated


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
def test_invalid_functions_are_refused(function: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Custom(function).check(10.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "demand"),
    [
        (lambda k: k**0.6, lambda price: PowerLaw(0.6).demand(price, 50.0)),
        # Differences near 0 are inexact.
        (lambda k: 1 - np.exp(-k / 3), lambda price: np.maximum(-3 * np.log(3 * price), 0)),
        (
            lambda k: np.interp(k, [0, 1, 4, 10], [0, 1, 3, 5]),
            lambda price: np.where(price < 2 / 3, np.where(price < 1 / 3, 10, 4), price < 1),
        ),
    ],
)
def test_demand_of_a_table_is_nearly_the_best(function: Any, demand: Any) -> None:
    prices = np.geomspace(1e-2, 2, 300)
    found, best = Custom(function).demand(prices, 50.0), demand(prices)
    profit, best_profit = (function(k) - prices * k for k in (found, best))
    assert_allclose(profit, best_profit, rtol=0, atol=2e-9 * function(50.0))


def test_table_is_concave_and_close_to_its_function() -> None:
    for function in (np.log1p, np.sqrt, np.tanh, lambda k: np.minimum(k, 2.0) + 0.1 * k):
        table = Custom(function).tabulate(100.0)
        assert isinstance(table, Tabulated)
        k = np.geomspace(1e-8, 100, 50_001)
        assert_allclose(table.rate(k), function(k), rtol=1e-8, atol=1e-12)
        assert np.all(np.diff(table.knots[1]) > 0)
        slopes = np.diff(table.knots[1]) / np.diff(table.knots[0])
        assert np.all(np.diff(slopes) <= 1e-9 * slopes[:-1])
