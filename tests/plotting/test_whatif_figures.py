"""Figures of what-if studies show every policy, and none hides another."""

from __future__ import annotations

import numpy as np
import pytest

from hesrpt.plotting import whatif_figures
from hesrpt.policies.registry import get_title
from hesrpt.traces import Trace
from hesrpt.whatif import Study, run_sensitivity, run_study


@pytest.fixture
def study(example_trace: Trace) -> Study:
    return run_study(example_trace)


def test_overview_shows_flow_times_of_all_policies_and_jobs_of_some(study: Study) -> None:
    flow_times, jobs = whatif_figures.draw_overview(study).axes
    assert len(flow_times.get_lines()) == len(study.runs)
    assert len(jobs.get_lines()) == 5


def test_distribution_of_flow_times_covers_all_jobs(study: Study) -> None:
    (axes,) = whatif_figures.draw_flow_times(study).axes
    for line, run in zip(axes.get_lines(), study.runs.values(), strict=True):
        assert np.asarray(line.get_xdata())[-1] == pytest.approx(run.flow_times.max())
        assert np.asarray(line.get_ydata())[[0, -1]].tolist() == [0, 1]


def test_size_classes_are_dots_side_by_side(study: Study) -> None:
    (axes,) = whatif_figures.draw_size_classes(study).axes
    dots = {str(line.get_label()): line for line in axes.get_lines() if line.get_marker() != "None"}
    assert set(dots) == {get_title(policy) for policy in study.runs}
    assert len({float(np.asarray(line.get_xdata())[0]) for line in dots.values()}) == len(dots)
    assert not axes.patches


def test_servers_over_time_have_a_panel_for_each_policy(study: Study) -> None:
    panels = whatif_figures.draw_servers_over_time(study).axes
    assert [axes.get_title("left") for axes in panels] == [
        "as recorded",
        "EASY (rigid)",
        "EQUI",
        "adaptive",
        "heSRPT",
    ]
    assert all(axes.get_ylim() == (0, study.servers) for axes in panels)


def test_sensitivity_shows_the_ratios_of_each_sweep(example_trace: Trace) -> None:
    sensitivity = run_sensitivity(
        example_trace, powers=(0.3, 0.9), resize_costs=(0.0, 60.0), size_errors=(0.0, 1.0)
    )
    panels = whatif_figures.draw_sensitivity(sensitivity).axes
    assert len(panels) == 3
    line = next(line for line in panels[0].get_lines() if line.get_label() == "EQUI")
    assert np.asarray(line.get_xdata()).tolist() == [0.3, 0.9]
    expected = [point.gain("equi") for point in sensitivity.points[:2]]
    assert np.asarray(line.get_ydata()) == pytest.approx(expected)
