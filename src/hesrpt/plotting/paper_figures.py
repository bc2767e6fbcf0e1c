"""The paper's figures that compare policies: over p, over the load, and on measured curves.

A dot is a median or a mean, and the line through it spans the lowest and the highest of the sets of
jobs (or streams of arrivals) that it was computed from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from hesrpt.plotting.style import (
    FULL_WIDTH,
    PANEL_WIDTH,
    REFERENCE_COLOUR,
    Figure,
    Style,
    add_legend_below,
    align_crowded_labels,
    escape_text,
    format_ratio,
    get_style,
    use_log_scale,
    use_power_axis,
    with_house_style,
)

if TYPE_CHECKING:
    from hesrpt.paper.evaluation import FlowTimeTable

# Space to leave around the dots on a logarithmic axis.
_MARGIN = 1.5


# --- policies compared ------------------------------------------------------------------------


@with_house_style
def draw_mean_flow_times(table: FlowTimeTable) -> Figure:
    """Draw the mean flow time of each policy, in one panel for each p (Fig. 4).

    Every panel starts just below heSRPT and spans the same ratio, so that distances are comparable.
    """
    figure = Figure(figsize=(FULL_WIDTH, 2.5), layout="constrained")
    panels = figure.subplots(1, len(table.powers), sharey=True)
    ratios = [
        table.times[p][policy].max() / table.times[p]["hesrpt"].min()
        for p in table.powers
        for policy in table.policies
    ]
    span = float(max(ratios)) * _MARGIN**2
    for axes, p in zip(panels, table.powers, strict=True):
        start = float(table.times[p]["hesrpt"].min()) / _MARGIN
        axes.set_xlim(start, start * span)
        for place, policy in enumerate(table.policies):
            times, style = table.times[p][policy], get_style(policy)
            median, ratio = table.median(p, policy), table.ratio(p, policy)
            axes.plot(median, place, style.marker, color=style.colour)
            axes.hlines(place, times.min(), times.max(), color=style.colour, linewidth=1.2)
            is_far_right = ratio > span**0.6
            axes.annotate(
                format_ratio(ratio),
                (times.min() if is_far_right else times.max(), place),
                xytext=(-5 if is_far_right else 5, 0),
                textcoords="offset points",
                ha="right" if is_far_right else "left",
                va="center",
                fontsize=7,
            )
        axes.axvline(
            table.median(p, "hesrpt"), color=REFERENCE_COLOUR, linewidth=0.7, linestyle=":"
        )
        axes.set_xscale("log")
        axes.set_title(f"p = {p:g}")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(visible=False, axis="y")
    panels[0].set_yticks(
        range(len(table.policies)), [get_style(policy).title for policy in table.policies]
    )
    panels[0].set_ylim(len(table.policies) - 0.5, -0.5)
    figure.supxlabel("mean flow time (1 = smallest job on one server)", fontsize="medium")
    return figure


@with_house_style
def draw_ratios(table: FlowTimeTable) -> Figure:
    """Draw mean flow times relative to heSRPT over p."""
    figure = Figure(figsize=(PANEL_WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    _draw_ratios(axes, table)
    axes.set_ylabel("mean flow time\nrelative to heSRPT")
    figure.legend(*_get_legend(axes), loc="outside right upper")
    return figure


@with_house_style
def draw_ratio_panels(tables: Mapping[str, FlowTimeTable]) -> Figure:
    """Draw mean flow times relative to heSRPT over p, in one panel for each system."""
    figure = Figure(figsize=(FULL_WIDTH, 3.0), layout="constrained")
    panels = figure.subplots(1, len(tables), sharey=True)
    for axes, (title, table) in zip(panels, tables.items(), strict=True):
        _draw_ratios(axes, table)
        align_crowded_labels(axes)
        axes.set_title(title)
    panels[0].set_ylabel("mean flow time\nrelative to heSRPT")
    add_legend_below(figure, panels[0])
    return figure


def _draw_ratios(axes: Axes, table: FlowTimeTable) -> None:
    for policy in table.policies:
        style = get_style(policy)
        for p in table.powers:
            by_set = table.ratios_by_set(p, policy)
            ratio = table.ratio(p, policy)
            _draw_dot(axes, (p, ratio), (float(by_set.min()), float(by_set.max())), style)
        ratios = [table.ratio(p, policy) for p in table.powers]
        axes.plot(table.powers, ratios, **style.line_options)
    use_power_axis(axes, table.powers)
    use_log_scale(axes)


@with_house_style
def draw_flow_times_by_load(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw mean flow times over the load, in one panel for each p; a line ends at overload."""
    stable = [row for row in rows if not row["overloaded"]]
    figure = _draw_by_load(stable, "mean_flow_time")
    figure.axes[0].set_ylabel("mean flow time\n(1 = mean job on one server)")
    return figure


@with_house_style
def draw_ratios_to_bound(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw mean flow times relative to the bound over the load, in one panel for each p."""
    figure = _draw_by_load(rows, "ratio_to_bound")
    for axes in figure.axes:
        axes.axhline(1.0, color=REFERENCE_COLOUR, linewidth=0.8)
    figure.axes[0].set_ylabel("mean flow time\nrelative to the bound")
    return figure


def _draw_by_load(rows: Sequence[Mapping[str, Any]], column: str) -> Figure:
    """Draw a column over the load, in one panel for each p, with the spread of the streams."""
    powers = sorted({row["p"] for row in rows})
    figure = Figure(figsize=(FULL_WIDTH, 3.4), layout="constrained")
    panels = figure.subplots(1, len(powers), squeeze=False)[0]
    for axes, p in zip(panels, powers, strict=True):
        for policy in dict.fromkeys(row["policy"] for row in rows):
            style = get_style(policy)
            line = [row for row in rows if row["p"] == p and row["policy"] == policy]
            for row in line:
                spread = row["lowest_of_streams"], row["highest_of_streams"]
                _draw_dot(axes, (row["load"], row[column]), spread, style)
            loads = [row["load"] for row in line]
            axes.plot(loads, [row[column] for row in line], **style.line_options)
        use_log_scale(axes)
        axes.set_xlim(0, 1)
        axes.set_title(f"p = {p:g}")
        axes.set_xlabel("load (work per server and unit of time)")
    add_legend_below(figure, panels[0])
    return figure


# --- heSRPT with a fitted p -------------------------------------------------------------------


@with_house_style
def draw_losses_under_amdahl(
    rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]
) -> Figure:
    """Draw mean flow times relative to the optimum over the fraction f of Amdahl's law."""
    figure = Figure(figsize=(PANEL_WIDTH + 1, 3.4), layout="constrained")
    axes = figure.subplots()
    for policy, title in titles.items():
        style = get_style(policy)
        line = [row for row in rows if row["policy"] == policy]
        serial = [1 - row["parallel_fraction"] for row in line]
        for at, row in zip(serial, line, strict=True):
            spread = row["lowest_of_sets"], row["highest_of_sets"]
            _draw_dot(axes, (at, row["ratio_to_optimum"]), spread, style)
        ratios = [row["ratio_to_optimum"] for row in line]
        axes.plot(serial, ratios, **style.line_options | {"label": title})
    axes.axhline(1.0, color=REFERENCE_COLOUR, linewidth=0.8)
    use_log_scale(axes, "x")
    use_log_scale(axes)
    axes.invert_xaxis()
    fractions = list(dict.fromkeys(row["parallel_fraction"] for row in rows))
    axes.set_xticks([1 - f for f in fractions], [f"{f:g}" for f in fractions], rotation=45)
    axes.set_xlabel("parallel fraction f (logarithmic in 1 − f)")
    axes.set_ylabel("mean flow time\nrelative to the optimum")
    add_legend_below(figure, axes)
    return figure


@with_house_style
def draw_losses_on_curves(rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> Figure:
    """Draw mean flow times relative to the optimum for each measured curve."""
    curves = [row["curve"] for row in rows if row["policy"] == next(iter(titles))]
    figure = Figure(figsize=(FULL_WIDTH, 1.2 + 0.45 * len(curves)), layout="constrained")
    axes = figure.subplots()
    for place, (policy, title) in enumerate(titles.items()):
        style = get_style(policy)
        for number, row in enumerate(row for row in rows if row["policy"] == policy):
            at = number + 0.26 * (place - (len(titles) - 1) / 2)
            ratio, low, high = (
                row[name] for name in ("ratio_to_optimum", "lowest_of_sets", "highest_of_sets")
            )
            axes.hlines(at, low, high, color=style.colour, linewidth=1.2)
            axes.plot(ratio, at, style.marker, color=style.colour, label="" if number else title)
            axes.annotate(
                f"{ratio:.2f}",
                (high, at),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
    axes.axvline(1.0, color=REFERENCE_COLOUR, linewidth=0.8, zorder=1)
    for border in range(1, len(curves)):
        axes.axhline(border - 0.5, color="#CCCCCC", linewidth=0.6, zorder=0)
    axes.set_yticks(range(len(curves)), [escape_text(name) or "measured" for name in curves])
    axes.margins(x=0.1)
    axes.set_ylim(len(curves) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("mean flow time relative to the optimum for the measured curve")
    add_legend_below(figure, axes)
    return figure


@with_house_style
def draw_loss_distribution(rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> Figure:
    """Draw the fraction of many measured curves on which a policy stays below a ratio."""
    figure = Figure(figsize=(PANEL_WIDTH + 1, 3.4), layout="constrained")
    axes = figure.subplots()
    for policy, title in titles.items():
        style = get_style(policy)
        ratios = np.sort([row["ratio_to_optimum"] for row in rows if row["policy"] == policy])
        axes.plot(
            np.append(ratios[0], ratios),
            np.arange(len(ratios) + 1) / len(ratios),
            color=style.colour,
            linestyle=style.line,
            label=title,
            drawstyle="steps-post",
        )
    use_log_scale(axes, "x")
    axes.set_ylim(0, 1)
    axes.set_xlabel("ratio r of the mean flow time to the optimum for the measured curve")
    axes.set_ylabel("fraction of curves\nwith ratio ≤ r")
    add_legend_below(figure, axes)
    return figure


def _draw_dot(
    axes: Axes, point: tuple[float, float], spread: tuple[float, float], style: Style
) -> None:
    """Draw a dot with a vertical line from the lowest to the highest value."""
    axes.plot(*point, style.marker, color=style.colour)
    axes.vlines(point[0], *spread, color=style.colour, linewidth=1.2)


def _get_legend(axes: Axes) -> tuple[list[Any], list[str]]:
    handles, labels = axes.get_legend_handles_labels()
    return handles, labels
