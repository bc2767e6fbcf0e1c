"""Figures of a what-if study: an overview, and those of the report.

The figures of the report are as wide as the screen of a phone, and stand side by side on wider
ones. So their text has the same size everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import PercentFormatter

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.plotting.style import (
    REFERENCE_COLOUR,
    Figure,
    add_legend_below,
    create_panel,
    create_panels,
    get_style,
    use_log_scale,
    with_house_style,
)
from hesrpt.traces.trace import RECORDED
from hesrpt.units import DAY, HOUR, choose_time_unit, format_duration

if TYPE_CHECKING:
    from hesrpt.whatif import FractionSweep, Sensitivity, Study

#: The width of figures in the report, in inches.
REPORT_WIDTH = 4.2


@with_house_style
def draw_overview(study: Study) -> Figure:
    """Draw the distribution of flow times, and the number of jobs in the system over time."""
    figure, (left, right) = create_panels(2, 3.4)
    plot_flow_times(left, study)
    plot_jobs(right, study)
    add_legend_below(figure, left, most_columns=5)
    figure.suptitle(study.conclusion[0].upper() + study.conclusion[1:], wrap=True)
    return figure


@with_house_style
def draw_panel(plot: Callable[..., None], *arguments: Any) -> Figure:
    """Draw one panel for the report with any of the functions below, and its legend below it."""
    figure, axes = create_panel(REPORT_WIDTH, 3.2)
    plot(axes, *arguments)
    add_legend_below(figure, axes, most_columns=3)
    return figure


# Curves are drawn through this many points, with this many markers.
_POINTS, _MARKERS = 600, 8
# The number of jobs is averaged over this many intervals: more would hide each other.
_INTERVALS = 80
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
_DASHES: dict[str, Any] = {"easy": "--", "moldable": (0, (1, 1.2)), "fcfs": (0, (5, 1, 1, 1))}


def plot_flow_times(axes: Axes, study: Study) -> None:
    """Plot the fraction of jobs whose flow time is at most t, over t."""
    parts = np.linspace(0, 1, _POINTS)
    for place, policy in enumerate(study.shown_policies):
        times = np.quantile(study.runs[policy].flow_times, parts)
        times = np.maximum(times, min(_TIME_LABELS))
        axes.plot(times, parts, **_choose_line(policy, place))
    axes.set(xscale="log", xlabel="flow time t", ylabel="fraction of jobs with flow time ≤ t")
    low, high = axes.get_xlim()
    shown = [seconds for seconds in _TIME_LABELS if low <= seconds <= high]
    axes.set_xticks(shown, [_TIME_LABELS[seconds] for seconds in shown])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0, 1)


def plot_jobs(axes: Axes, study: Study) -> None:
    """Plot the number of jobs in the system over time, averaged over equal intervals."""
    shown = study.shown_policies
    end = max(study.runs[policy].makespan for policy in shown)
    borders = np.linspace(0, end, _INTERVALS + 1)
    middles = place_in_time(study, (borders[1:] + borders[:-1]) / 2)
    submitted = _sum_elapsed(study.trace.submit_times, borders)
    for place, policy in enumerate(shown):
        ended = _sum_elapsed(study.runs[policy].completion_times, borders)
        present = np.diff(submitted - ended) / np.diff(borders)
        axes.plot(middles, present, **_choose_line(policy, place, _INTERVALS))
    interval = format_duration(end / _INTERVALS)
    axes.set_ylabel(f"jobs in the system\n(averages of {interval})")
    axes.set_ylim(bottom=0)
    label_time(axes, study, end)


def plot_size_classes(axes: Axes, study: Study, metric: str) -> None:
    """Plot the mean flow time or the mean slowdown of each class of job sizes, as dots."""
    rows, policies = study.groups["size"], study.shown_policies
    divisor = HOUR if metric == "mean_flow_time" else 1.0
    for place, policy in enumerate(policies):
        offset = 0.6 * ((place + 0.5) / len(policies) - 0.5)
        axes.plot(
            np.arange(len(rows)) + offset,
            [row[metric][policy] / divisor for row in rows],
            **get_style(policy).line_options
            | {"linestyle": "none", "markersize": 6, "markeredgewidth": 1.5},
        )
    titles = [row["group"].removeprefix("the ").replace(" ", "\n", 1) for row in rows]
    axes.set_xticks(range(len(rows)), titles)
    for border in range(1, len(rows)):
        axes.axvline(border - 0.5, color="#CCCCCC", linewidth=0.8)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.5, len(rows) - 0.5)
    use_log_scale(axes)
    axes.set_ylabel("mean slowdown" if metric == "mean_slowdown" else "mean flow time (h)")


@with_house_style
def draw_rhythm(study: Study, is_weekly: bool = False) -> Figure:
    """Draw submissions as bars and mean flow times as lines, by hour of the day or day of week."""
    figure, axes = create_panel(REPORT_WIDTH, 2.9)
    period, slots = (7 * DAY, 7) if is_weekly else (DAY, 24)
    since = study.trace.submit_times + _seconds_into_week(study)
    slot = (since % period // (period / slots)).astype(np.int64)
    counts = np.bincount(slot, minlength=slots)
    cycles = float(study.trace.submit_times[-1]) / period
    middles = np.arange(slots) if is_weekly else np.arange(slots) + 0.5
    axes.bar(middles, counts / cycles, width=0.9, color="#D5DCE4", label="jobs submitted (left)")
    axes.set_ylabel("jobs submitted " + ("per day" if is_weekly else "per hour"))
    axes.grid(visible=False)
    times = axes.twinx()
    unit = choose_time_unit(max(run.mean_flow_time for run in study.runs.values()))
    # More lines than the rigid policy and the best one would hide the bars.
    for policy in ("easy", study.headline_policy):
        if policy not in study.runs:
            continue
        total = np.bincount(slot, weights=study.runs[policy].flow_times, minlength=slots)
        means = np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
        options = get_style(policy).line_options | {"linestyle": _DASHES.get(policy, "-")}
        times.plot(middles, means / unit.seconds, **options)
    times.set(ylim=(0, None), ylabel=f"mean flow time ({unit.symbol})")
    times.spines["right"].set_visible(True)
    has_date = study.trace.start_date is not None
    if is_weekly:
        days = ("Mon Tue Wed Thu Fri Sat Sun" if has_date else "1 2 3 4 5 6 7").split()
        axes.set_xticks(range(7), days)
        axes.set_xlabel("day of submission" if has_date else "day of a week since the start")
    else:
        axes.set_xticks([0, 6, 12, 18, 24])
        label = f"hour of submission{_name_zone(study)}"
        axes.set_xlabel(label if has_date else "hour of a day since the start")
    bars, lines = (axes.get_legend_handles_labels() for axes in figure.axes)
    figure.legend([*bars[0], *lines[0]], [*bars[1], *lines[1]], loc="outside lower center", ncols=2)
    return figure


@with_house_style
def draw_servers_over_time(study: Study, policy: str) -> Figure | None:
    """Draw the servers in use under one policy; None if the simulation is too long to list."""
    figure, axes = create_panel(REPORT_WIDTH, 1.9)
    run, style = study.runs[policy], get_style(policy)
    borders = np.linspace(0, run.makespan, _POINTS // 3 + 1)
    middles = place_in_time(study, (borders[1:] + borders[:-1]) / 2)
    try:
        used = np.diff(run.timeline.server_seconds_until(borders)) / np.diff(borders)
    except InputError:
        return None
    axes.fill_between(middles, used, step="mid", color=style.colour, linewidth=0)
    axes.set_title(style.title, loc="left")
    axes.set(ylabel="servers in use", ylim=(0, study.servers))
    axes.set_yticks([0, study.servers / 2, study.servers])
    label_time(axes, study, max(run.makespan for run in study.runs.values()))
    return figure


def place_in_time(study: Study, times: FloatArray) -> FloatArray:
    """Return the places of times on an axis: of dates, or of times since the start of the trace."""
    start = study.trace.start_date
    if start is None:
        return times / choose_time_unit(float(study.trace.submit_times[-1])).seconds
    # Matplotlib counts dates in days since 1970.
    first = (start.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
    return (first + times) / DAY


def label_time(axes: Axes, study: Study, end: float) -> None:
    """Label an axis of time, from the start of the trace to ``end``."""
    axes.set_xlim(*place_in_time(study, np.array([0.0, end])))
    if study.trace.start_date is None:
        unit = choose_time_unit(float(study.trace.submit_times[-1]))
        axes.set_xlabel(f"time since the start of the trace ({unit.symbol})")
        return
    locator = AutoDateLocator(minticks=2, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel(f"date{_name_zone(study)}")


def _name_zone(study: Study) -> str:
    start = study.trace.start_date
    return " (UTC)" if start is not None and start.tzinfo is UTC else ""


def _choose_line(policy: str, place: int, points: int = _POINTS) -> dict[str, Any]:
    """Return the look of a curve: markers of different curves are at different places."""
    style = get_style(policy)
    every = points // _MARKERS
    options = style.line_options | {"markevery": (place * every // 5, every)}
    if policy == RECORDED:
        return options | {"marker": None}
    return options | {"linestyle": _DASHES.get(policy, style.line)}


def _seconds_into_week(study: Study) -> float:
    """Return how many seconds before the start of the trace its week began, if that is known."""
    start = study.trace.start_date
    if start is None:
        return 0.0
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    return start.weekday() * DAY + (start - midnight).total_seconds()


def _sum_elapsed(events: FloatArray, times: FloatArray) -> FloatArray:
    """Return the time since each event, summed over the events so far, at each of these times."""
    events = np.sort(events)
    number = np.searchsorted(events, times, side="right")
    return number * times - np.concatenate(([0.0], np.cumsum(events)))[number]


# --- one thing varied: where adaptive pays off, and how many must change ----------------------

#: What is varied, and how axes call it.
SWEEP_LABELS = {
    "p": "p of the speedup $k^p$",
    "resize_cost": "cost of a resize (s)",
    "size_error": "size error (σ of ln size)",
}


@with_house_style
def draw_sensitivity(sensitivity: Sensitivity) -> Figure:
    """Draw flow times under other policies relative to adaptive, as one assumption varies."""
    figure, panels = create_panels(len(SWEEP_LABELS), 3.0, share_y=True)
    for axes, parameter in zip(panels, SWEEP_LABELS, strict=True):
        plot_gains(axes, sensitivity, parameter, is_first=axes is panels[0])
    add_legend_below(figure, panels[0])
    figure.suptitle(f"Assumed unless varied: {sensitivity.study.assumption.text}", wrap=True)
    return figure


@with_house_style
def draw_fractions(sweep: FractionSweep) -> Figure:
    """Draw mean flow time over the malleable fraction, and who gains: those who change, or not."""
    figure, (left, right) = create_panels(2, 3.4)
    plot_means(left, sweep)
    plot_who_gains(right, sweep)
    add_legend_below(figure, left)
    figure.suptitle(f"Assumed: {sweep.study.assumption.text}", wrap=True)
    return figure


def plot_gains(axes: Axes, sensitivity: Sensitivity, parameter: str, is_first: bool = True) -> None:
    """Plot the flow times under other policies relative to adaptive, as one parameter varies."""
    others = [name for name in sensitivity.points[0].flow_times if name != "adaptive"]
    gains = [point.gain(other) for point in sensitivity.points for other in others]
    low, high = min(*gains, 0.8) / 1.1, max(*gains, 1.25) * 1.1
    points = sensitivity.select(parameter)
    for other in others:
        ratios = [point.gain(other) for point in points]
        axes.plot([point.value for point in points], ratios, **get_style(other).line_options)
    if parameter == "resize_cost":
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
    use_log_scale(axes)
    axes.axhline(1, color=REFERENCE_COLOUR, linewidth=1)
    axes.axhspan(low, 1, color="#D55E00", alpha=0.08, linewidth=0)
    axes.set(xlabel=SWEEP_LABELS[parameter], ylim=(low, high))
    if is_first:
        axes.set_ylabel("mean flow time\nrelative to adaptive")
        note = "adaptive is worse"
        axes.text(0.03, 0.02, note, transform=axes.transAxes, color="#A03000", fontsize=8)


def plot_means(axes: Axes, sweep: FractionSweep) -> None:
    """Plot the mean flow time of all jobs over the malleable fraction."""
    unit = choose_time_unit(sweep.base)
    base = sweep.base / unit.seconds
    easy = get_style("easy")
    axes.axhline(base, color=easy.colour, linewidth=easy.width, linestyle="--", label=easy.title)
    for policy in sweep.policies:
        times = [point.flow_times[policy] / unit.seconds for point in sweep.points]
        fractions = [point.fraction for point in sweep.points]
        axes.plot([0, *fractions], [base, *times], **get_style(policy).line_options)
    axes.set_ylabel(f"mean flow time ({unit.symbol})")
    axes.set_title("all jobs", loc="left")
    _label_fractions(axes, sweep)


def plot_who_gains(axes: Axes, sweep: FractionSweep) -> None:
    """Plot who gains over the malleable fraction: those who change, or the others."""
    for policy in sweep.policies:
        style = get_style(policy)
        for kind, line in (("changed", "-"), ("unchanged", ":")):
            by_fraction = {point.fraction: getattr(point, kind) for point in sweep.points}
            shown = {at: gain[policy] for at, gain in by_fraction.items() if policy in gain}
            # Only solid lines are in the legend.
            label = style.title if kind == "changed" else None
            options = style.line_options | {"linestyle": line, "label": label}
            axes.plot(list(shown), list(shown.values()), **options)
    axes.axhline(1, color=REFERENCE_COLOUR, linewidth=1)
    axes.set_ylabel("mean flow time relative to EASY")
    axes.set_title("those who change (—) and the others (···)", loc="left")
    _label_fractions(axes, sweep)


def _label_fractions(axes: Axes, sweep: FractionSweep) -> None:
    axes.set(
        xlabel=f"malleable fraction of the {sweep.counted}", xlim=(-0.02, 1.02), ylim=(0, None)
    )
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
