"""Figures of the paper show medians with their spread, and p on a linear axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hesrpt.paper.figures import PUBLISHED, FlowTimeTable, System, fit_curve
from hesrpt.plotting import paper_figures
from hesrpt.plotting.style import get_style

TITLES = {"hesrpt": "heSRPT with a fitted p", "equi": "EQUI"}
POWERS = (0.05, 0.9, 0.99)


@pytest.fixture
def table() -> FlowTimeTable:
    """Three sets under two policies; EQUI takes 2, 3 and 5 times as long as heSRPT."""
    hesrpt = np.array([1.0, 2.0, 4.0])
    times = {p: {"hesrpt": hesrpt * p, "equi": hesrpt * p * [2.0, 3.0, 5.0]} for p in POWERS}
    return FlowTimeTable(
        System(1000, False, range(3)), times=times, alphas={p: np.ones(3) for p in POWERS}
    )


def get_segments(axes: Any) -> list[Any]:
    return [segment for lines in axes.collections for segment in lines.get_segments()]


def test_mean_flow_times_are_dots_with_lines_over_the_sets(table: FlowTimeTable) -> None:
    panels = paper_figures.draw_mean_flow_times(table).axes
    assert [axes.get_title() for axes in panels] == ["p = 0.05", "p = 0.9", "p = 0.99"]
    for axes, p in zip(panels, POWERS, strict=True):
        assert not axes.patches  # no bars: on a logarithmic axis their baseline would be arbitrary
        dots = [line for line in axes.get_lines() if len(np.asarray(line.get_xdata())) == 1]
        assert [float(np.asarray(dot.get_xdata())[0]) for dot in dots] == pytest.approx(
            [2 * p, 6 * p]
        )
        spreads = [segment[:, 0].tolist() for segment in get_segments(axes)]
        assert spreads == [pytest.approx([p, 4 * p]), pytest.approx([2 * p, 20 * p])]
        assert [text.get_text() for text in axes.texts] == ["1.00", "3.00"]


def test_panels_of_mean_flow_times_share_one_scale(table: FlowTimeTable) -> None:
    panels = paper_figures.draw_mean_flow_times(table).axes
    spans = [axes.get_xlim()[1] / axes.get_xlim()[0] for axes in panels]
    assert spans == pytest.approx([spans[0]] * len(panels))


def test_ratios_are_drawn_over_a_linear_p_axis(table: FlowTimeTable) -> None:
    (axes,) = paper_figures.draw_ratios(table).axes
    assert axes.get_xscale() == "linear"
    assert axes.get_xlim() == (0, 1.03)
    assert axes.get_xticks() == pytest.approx(POWERS)
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert np.asarray(lines["EQUI"].get_xdata()) == pytest.approx(POWERS)
    assert np.asarray(lines["EQUI"].get_ydata()) == pytest.approx([3, 3, 3])
    spreads = {tuple(np.round(segment[:, 1], 9)) for segment in get_segments(axes)}
    assert spreads == {(1, 1), (2, 5)}


def test_line_of_a_policy_ends_where_it_is_overloaded() -> None:
    rows = [
        {
            "p": 0.5,
            "load": load,
            "policy": "srpt",
            "overloaded": load > 0.5,
            "mean_flow_time": None if load > 0.5 else 2 * load,
            "lowest_of_streams": None if load > 0.5 else load,
            "highest_of_streams": None if load > 0.5 else 3 * load,
        }
        for load in (0.1, 0.5, 0.9)
    ]
    (axes,) = paper_figures.draw_flow_times_by_load(rows).axes
    line = next(line for line in axes.get_lines() if line.get_label() == "SRPT")
    assert np.asarray(line.get_xdata()).tolist() == [0.1, 0.5]
    assert [segment[:, 1].tolist() for segment in get_segments(axes)] == [
        pytest.approx([0.1, 0.3]),
        pytest.approx([0.5, 1.5]),
    ]


def test_ratios_to_the_bound_span_the_streams() -> None:
    row = {"p": 0.5, "load": 0.3, "policy": "equi", "ratio_to_bound": 1.2}
    rows = [row | {"lowest_of_streams": 1.1, "highest_of_streams": 1.4}]
    (axes,) = paper_figures.draw_ratios_to_bound(rows).axes
    assert [segment[:, 1].tolist() for segment in get_segments(axes)] == [[1.1, 1.4]]
    assert axes.get_ylim()[0] < 1  # the bound itself is visible


def test_losses_on_curves_are_dots_in_the_colours_of_their_policies() -> None:
    rows = [
        {
            "curve": curve,
            "policy": policy,
            "ratio_to_optimum": 1.2,
            "lowest_of_sets": 1.1,
            "highest_of_sets": 1.4,
        }
        for curve in ("a", "b")
        for policy in TITLES
    ]
    (axes,) = paper_figures.draw_losses_on_curves(rows, TITLES).axes
    colours = {line.get_color() for line in axes.get_lines() if line.get_marker() != "None"}
    assert colours == {get_style(policy).colour for policy in TITLES}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert all(segment[:, 0].tolist() == [1.1, 1.4] for segment in get_segments(axes))
    (axes,) = paper_figures.draw_loss_distribution(rows, TITLES).axes
    assert all(np.asarray(line.get_ydata())[[0, -1]].tolist() == [0, 1] for line in axes.lines)


def test_each_measured_curve_has_a_panel() -> None:
    figure = paper_figures.draw_measured_curves([fit_curve(curve) for curve in PUBLISHED])
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == [curve.application for curve in PUBLISHED]
