"""Measured speedups are concave, flat past their peak, and independent of the order of points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from support.speedups import MEASURED

from hesrpt import InputError, Measured


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 50)), min_size=1, max_size=12).filter(
        lambda points: any(y > 0 for _, y in points)
    )
)
def test_measured_is_the_least_concave_majorant(points: list[tuple[float, float]]) -> None:
    servers, speedups = (np.array(column) for column in zip(*points, strict=True))
    measured = Measured(servers, speedups)
    assert np.all(measured.rate(servers) >= speedups - 1e-9)
    # It is the least one if every corner is the origin or a measured point.
    for corner in zip(*measured.knots, strict=True):
        assert corner == (0, 0) or corner in points


def test_measured_is_flat_past_its_peak() -> None:
    assert_array_equal(MEASURED([8, 9, 16, 1e9]), [4.0] * 4)
    assert MEASURED.demand(np.zeros(()), 100.0) == 8.0


def test_order_and_duplicates_do_not_matter() -> None:
    assert_array_equal(
        Measured([4, 1, 2, 4], [3, 1, 1.8, 2.5])([1, 2, 3, 4]),
        Measured([1, 2, 4], [1, 1.8, 3])([1, 2, 3, 4]),
    )


@pytest.mark.parametrize(
    ("servers", "speedups", "message"),
    [
        ([1, 2], [1], "same length, got 2 and 1"),
        ([0, 2], [1, 2], r"servers\[0\] must be greater than 0, got 0"),
        ([1, 2], [1, -2], r"speedups\[1\] must be at least 0, got -2"),
        ([1, 2], [0, 0], "greater than 0"),
        ([1, 2], [1, float("nan")], r"speedups\[1\] must be finite, got nan"),
        ([], [], "greater than 0"),
    ],
)
def test_invalid_points_are_reported(servers: object, speedups: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Measured(servers, speedups)  # type: ignore[arg-type]
