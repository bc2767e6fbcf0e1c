"""Figures of what-if studies show every policy, and none hides another."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from hesrpt.plotting import whatif_figures
from hesrpt.plotting.whatif_figures import draw_panel, label_time
from hesrpt.policies.registry import get_title
from hesrpt.traces import Trace
from hesrpt.whatif import Study, StudyOptions, run_sensitivity, run_study


@pytest.fixture
def study(example_trace: Trace) -> Study:
    return run_study(example_trace)


def test_overview_shows_five_curves_that_can_be_told_apart(study: Study) -> None:
    flow_times, jobs = whatif_figures.draw_overview(study).axes
    assert len(flow_times.get_lines()) == len(jobs.get_lines()) == 5
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in jobs.lines}
    assert len(looks) == 5


def test_jobs_over_time_are_averages(study: Study) -> None:
    (axes,) = draw_panel(whatif_figures.plot_jobs, study).axes
    end = max(study.runs[policy].makespan for policy in study.shown_policies)
    for line, policy in zip(axes.get_lines(), study.shown_policies, strict=True):
        run = study.runs[policy]
        assert np.mean(np.asarray(line.get_ydata())) * end == pytest.approx(run.flow_times.sum())
    assert axes.get_xlabel() == "date (UTC)"


def test_distribution_of_flow_times_covers_all_jobs(study: Study) -> None:
    (axes,) = draw_panel(whatif_figures.plot_flow_times, study).axes
    runs = [study.runs[policy] for policy in study.shown_policies]
    for line, run in zip(axes.get_lines(), runs, strict=True):
        assert np.asarray(line.get_xdata())[-1] == pytest.approx(run.flow_times.max())
        assert np.asarray(line.get_ydata())[[0, -1]].tolist() == [0, 1]


def test_size_classes_are_dots_side_by_side(study: Study) -> None:
    (axes,) = draw_panel(whatif_figures.plot_size_classes, study, "mean_flow_time").axes
    dots = {str(line.get_label()): line for line in axes.get_lines() if line.get_marker() != "None"}
    assert set(dots) == {get_title(policy) for policy in study.shown_policies}
    assert len({float(np.asarray(line.get_xdata())[0]) for line in dots.values()}) == len(dots)
    assert not axes.patches


def test_servers_over_time_are_those_of_one_policy(study: Study) -> None:
    for policy in study.shown_policies:
        figure = whatif_figures.draw_servers_over_time(study, policy)
        assert figure is not None
        (axes,) = figure.axes
        assert axes.get_title("left") == get_title(policy)
        assert axes.get_ylim() == (0, study.servers)


def test_sensitivity_shows_the_ratios_of_each_sweep(example_trace: Trace) -> None:
    sensitivity = run_sensitivity(
        example_trace,
        StudyOptions(window="4d..6d"),
        powers=(0.3, 0.9),
        resize_costs=(0.0, 60.0),
        size_errors=(0.0, 1.0),
    )
    panels = whatif_figures.draw_sensitivity(sensitivity).axes
    assert len(panels) == 3
    line = next(line for line in panels[0].get_lines() if line.get_label() == "EQUI")
    assert np.asarray(line.get_xdata()).tolist() == [0.3, 0.9]
    expected = [point.gain("equi") for point in sensitivity.points[:2]]
    assert np.asarray(line.get_ydata()) == pytest.approx(expected)


@pytest.mark.filterwarnings("error")
def test_dates_are_labelled_over_spans_of_any_length(study: Study) -> None:
    axes = Figure().subplots()
    label_time(axes, study, 1.0)
    for seconds in np.geomspace(1, 1e9, 120):
        axes.set_xlim(20_000.3, 20_000.3 + seconds / 86400)
        assert 1 <= len(axes.get_xticks()) <= 9
        assert any(tick.get_text() for tick in axes.get_xticklabels())
