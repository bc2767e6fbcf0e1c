"""Figures of a what-if study: flow times, jobs and servers over time, where adaptive pays off."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.plotting.saving import Figure
from hesrpt.plotting.style import (
    FULL_WIDTH,
    REFERENCE_COLOUR,
    add_legend_below,
    get_style,
    use_log_scale,
    with_house_style,
)
from hesrpt.simulator import Simulation
from hesrpt.traces.trace import RECORDED
from hesrpt.units import HOUR, TimeUnit, choose_time_unit

if TYPE_CHECKING:
    from hesrpt.whatif import Sensitivity, Study

# Curves are drawn through this many points.
_POINTS = 600
# Tick labels of a time axis, by seconds.
_TIME_LABELS = {
    1: "1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    3600: "1 h",
    36000: "10 h",
    345600: "4 d",
    2592000: "30 d",
    31536000: "1 y",
}
# Figures over time show only these policies: more lines would hide each other.
_SHOWN_OVER_TIME = (RECORDED, "easy", "equi", "adaptive", "hesrpt")
_SWEEP_LABELS = {
    "p": "p of the speedup $k^p$",
    "resize_cost": "cost of a resize (s)",
    "size_error": "size error (σ of ln size)",
}


@with_house_style
def draw_overview(study: Study) -> Figure:
    """Draw the distribution of flow times, and the number of jobs in the system over time."""
    figure = Figure(figsize=(FULL_WIDTH, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_flow_times(left, study)
    _draw_jobs(right, study)
    add_legend_below(figure, left, most_columns=4)
    figure.suptitle(study.conclusion[0].upper() + study.conclusion[1:], wrap=True)
    return figure


@with_house_style
def draw_flow_times(study: Study) -> Figure:
    """Draw the fraction of jobs whose flow time is at most t, over t."""
    figure, axes = _create_panel()
    _draw_flow_times(axes, study)
    add_legend_below(figure, axes, most_columns=4)
    return figure


@with_house_style
def draw_jobs_over_time(study: Study) -> Figure:
    """Draw the number of jobs in the system over time."""
    figure, axes = _create_panel()
    _draw_jobs(axes, study)
    add_legend_below(figure, axes)
    return figure


@with_house_style
def draw_servers_over_time(study: Study) -> Figure:
    """Draw the number of servers in use over time, in one panel for each policy."""
    averages = {}
    for policy in _select_policies(study):
        with suppress(InputError):  # this simulation has too many phases to list
            averages[policy] = _average_servers(study.runs[policy])
    figure = Figure(figsize=(FULL_WIDTH, 0.8 + 1.0 * len(averages)), layout="constrained")
    panels = figure.subplots(len(averages), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (policy, (times, used)) in zip(panels, averages.items(), strict=True):
        style = get_style(policy)
        axes.fill_between(
            times / _choose_unit(study).seconds, used, step="mid", color=style.colour, linewidth=0
        )
        axes.set_title(style.title, loc="left")
        axes.set_ylim(0, study.servers)
        axes.set_yticks([0, study.servers / 2, study.servers])
        axes.margins(x=0)
    panels[-1].set_xlabel(_format_time_label(study))
    figure.supylabel("servers in use", fontsize="medium")
    return figure


@with_house_style
def draw_size_classes(study: Study) -> Figure:
    """Draw mean flow times by size of the jobs."""
    figure, axes = _create_panel()
    rows, policies = study.rows_by_size(), list(study.runs)
    for place, policy in enumerate(policies):
        offset = 0.7 * ((place + 0.5) / len(policies) - 0.5)
        style = get_style(policy)
        axes.plot(
            np.arange(len(rows)) + offset,
            [row["mean_flow_time"][policy] / HOUR for row in rows],
            **style.line_options | {"linestyle": "none", "markersize": 6},
        )
    axes.set_xticks(range(len(rows)), [f"{row['group']}\n({row['jobs']:,} jobs)" for row in rows])
    for border in range(1, len(rows)):
        axes.axvline(border - 0.5, color="#CCCCCC", linewidth=0.8)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.5, len(rows) - 0.5)
    use_log_scale(axes)
    axes.set_ylabel("mean flow time (h)")
    add_legend_below(figure, axes, most_columns=4)
    return figure


@with_house_style
def draw_sensitivity(sensitivity: Sensitivity) -> Figure:
    """Draw flow times under other policies relative to adaptive, as one assumption varies."""
    figure = Figure(figsize=(FULL_WIDTH, 3.0), layout="constrained")
    panels = figure.subplots(1, len(_SWEEP_LABELS), sharey=True)
    others = [name for name in sensitivity.points[0].flow_times if name != "adaptive"]
    gains = [point.gain(other) for point in sensitivity.points for other in others]
    low, high = min(*gains, 0.8) / 1.1, max(*gains, 1.25) * 1.1
    for axes, (assumption, label) in zip(panels, _SWEEP_LABELS.items(), strict=True):
        points = sensitivity.select(assumption)
        values = [point.value for point in points]
        for other in others:
            ratios = [point.gain(other) for point in points]
            axes.plot(values, ratios, **get_style(other).line_options)
        if assumption == "resize_cost":
            axes.set_xscale("symlog", linthresh=1)
            axes.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
        use_log_scale(axes)
        axes.axhline(1, color=REFERENCE_COLOUR, linewidth=1)
        axes.axhspan(low, 1, color="#D55E00", alpha=0.08, linewidth=0)
        axes.set(xlabel=label, ylim=(low, high))
    panels[0].annotate(
        "adaptive is worse",
        (0.03, 0.02),
        xycoords="axes fraction",
        color="#A03000",
        fontsize=8,
    )
    panels[0].set_ylabel("mean flow time\nrelative to adaptive")
    add_legend_below(figure, panels[0])
    figure.suptitle(f"Assumed unless varied: {sensitivity.study.assumption.text}")
    return figure


def _create_panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(FULL_WIDTH, 3.6), layout="constrained")
    return figure, figure.subplots()


def _select_policies(study: Study) -> list[str]:
    return [policy for policy in _SHOWN_OVER_TIME if policy in study.runs] or list(study.runs)


def _draw_flow_times(axes: Axes, study: Study) -> None:
    parts = np.linspace(0, 1, _POINTS)
    for policy, run in study.runs.items():
        style = get_style(policy)
        times = np.maximum(np.quantile(run.flow_times, parts), min(_TIME_LABELS))
        axes.plot(times, parts, **style.line_options | {"marker": None})
    axes.set(xscale="log", xlabel="flow time t", ylabel="fraction of jobs with flow time ≤ t")
    low, high = axes.get_xlim()
    shown = [seconds for seconds in _TIME_LABELS if low <= seconds <= high]
    axes.set_xticks(shown, [_TIME_LABELS[seconds] for seconds in shown])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0, 1)


def _draw_jobs(axes: Axes, study: Study) -> None:
    arrivals = study.trace.submit_times
    shown = _select_policies(study)
    end = max(study.runs[policy].makespan for policy in shown)
    times = np.linspace(0, end, _POINTS)
    for policy in shown:
        completions = np.sort(study.runs[policy].completion_times)
        arrived = np.searchsorted(arrivals, times, "right")
        present = arrived - np.searchsorted(completions, times, "right")
        style = get_style(policy)
        axes.plot(
            times / _choose_unit(study).seconds,
            present,
            label=style.title,
            color=style.colour,
            linewidth=max(style.width - 0.3, 1),
            drawstyle="steps-post",
        )
    axes.set(xlabel=_format_time_label(study), ylabel="jobs in the system")
    axes.set_ylim(bottom=0)


def _average_servers(run: Simulation) -> tuple[FloatArray, FloatArray]:
    """Return the middles of equal intervals, and the mean number of servers in use in each."""
    ends = run.timeline.ends
    busy = np.concatenate(
        ([0.0], np.cumsum(np.diff(ends, prepend=0.0) * run.timeline.total_servers()))
    )
    borders = np.linspace(0, run.makespan, _POINTS // 3 + 1)
    at_borders = np.interp(borders, np.concatenate(([0.0], ends)), busy)
    return (borders[1:] + borders[:-1]) / 2, np.diff(at_borders) / np.diff(borders)


def _choose_unit(study: Study) -> TimeUnit:
    return choose_time_unit(float(study.trace.submit_times[-1]))


def _format_time_label(study: Study) -> str:
    return f"time since the start of the trace ({_choose_unit(study).symbol})"
