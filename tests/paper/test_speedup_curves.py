"""Fitting power laws and Amdahl's law to measured speedup curves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt.paper.figures import PUBLISHED, fit_curve
from hesrpt.readers import Curve


@pytest.mark.parametrize(
    ("speedups", "better"),
    [
        ((1.0, 2**0.5, 2.0), "k^p"),
        ((1.0, 1 / (0.1 + 0.9 / 2), 1 / (0.1 + 0.9 / 4)), "Amdahl"),
        ((1.0, 0.9, 0.8), "neither"),  # falling
        ((1.0, 1.0, 1.0), "neither"),  # flat
    ],
)
def test_better_law_is_found(speedups: tuple[float, ...], better: str) -> None:
    fit = fit_curve(Curve("job", (1.0, 2.0, 4.0), speedups))
    assert fit.better == better
    assert fit.get_row()["better"] == better


def test_superlinear_curves_and_single_points_can_be_fitted() -> None:
    superlinear = fit_curve(Curve("cache", (1.0, 2.0, 4.0), (1.0, 2.5, 7.0)))
    assert superlinear.power_law is not None
    assert superlinear.power_law.p == pytest.approx(1)
    single = fit_curve(Curve("once", (1.0,), (1.0,)))
    assert single.get_row()["p"] is None
    assert "more than one server" in single.problem


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.floats(0, 100)),
        min_size=1,
        max_size=8,
        unique_by=lambda t: t[0],
    )
)
def test_every_curve_can_be_fitted(points: list[tuple[int, float]]) -> None:
    servers, speedups = zip(*((float(k), s) for k, s in points), strict=True)
    fit = fit_curve(Curve("job", servers, speedups))
    row = fit.get_row()
    assert (row["p"] is None) == (fit.power_law is None)
    assert row["better"] in ("k^p", "Amdahl", "neither")


def test_published_curves_are_speedups() -> None:
    for curve in PUBLISHED:
        assert curve.servers[0] == curve.speedups[0] == 1
        assert all(1 <= s <= k for k, s in zip(curve.servers, curve.speedups, strict=True))
