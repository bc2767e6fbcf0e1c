"""Figures of a what-if study: an overview, and those of the report.

The figures of the report are as wide as the screen of a phone, and stand side by side on wider
ones. So their text has the same size everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from hesrpt.errors import InputError
from hesrpt.plotting.saving import Figure
from hesrpt.plotting.style import FULL_WIDTH, add_legend_below, with_house_style
from hesrpt.plotting.whatif_panels import (
    plot_flow_times,
    plot_jobs,
    plot_rhythm,
    plot_servers,
    plot_size_classes,
)

if TYPE_CHECKING:
    from hesrpt.whatif import Study

#: The width of figures in the report, in inches.
REPORT_WIDTH = 4.2


@with_house_style
def draw_overview(study: Study) -> Figure:
    """Draw the distribution of flow times, and the number of jobs in the system over time."""
    figure = Figure(figsize=(FULL_WIDTH, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot_flow_times(left, study)
    plot_jobs(right, study)
    add_legend_below(figure, left, most_columns=5)
    figure.suptitle(study.conclusion[0].upper() + study.conclusion[1:], wrap=True)
    return figure


def draw_flow_times(study: Study) -> Figure:
    """Draw the fraction of jobs whose flow time is at most t, over t."""
    return draw_panel(lambda axes: plot_flow_times(axes, study))


def draw_jobs_over_time(study: Study) -> Figure:
    """Draw the number of jobs in the system over time."""
    return draw_panel(lambda axes: plot_jobs(axes, study))


def draw_size_classes(study: Study, metric: str = "mean_flow_time") -> Figure:
    """Draw mean flow times or slowdowns by size of the jobs."""
    return draw_panel(lambda axes: plot_size_classes(axes, study, metric))


@with_house_style
def draw_rhythm(study: Study, is_weekly: bool = False) -> Figure:
    """Draw when jobs are submitted, and how long those take, by hour of the day or day of week."""
    figure = Figure(figsize=(REPORT_WIDTH, 2.9), layout="constrained")
    plot_rhythm(figure.subplots(), study, is_weekly)
    bars, lines = (axes.get_legend_handles_labels() for axes in figure.axes)
    figure.legend([*bars[0], *lines[0]], [*bars[1], *lines[1]], loc="outside lower center", ncols=2)
    return figure


@with_house_style
def draw_servers_over_time(study: Study, policy: str) -> Figure | None:
    """Draw the servers in use under one policy; None if the simulation is too long to list."""
    figure = Figure(figsize=(REPORT_WIDTH, 1.9), layout="constrained")
    try:
        plot_servers(figure.subplots(), study, policy)
    except InputError:
        return None
    return figure


@with_house_style
def draw_panel(plot: Callable[[Axes], None]) -> Figure:
    """Draw one panel for the report, with its legend below."""
    figure = Figure(figsize=(REPORT_WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    plot(axes)
    add_legend_below(figure, axes, most_columns=3)
    return figure
