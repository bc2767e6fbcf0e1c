"""The paper's figures: speedups, and policies compared over p, over the load and on curves.

A dot is a median or a mean, and the line through it spans the lowest and the highest of the sets of
jobs (or streams of arrivals) that it was computed from.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from hesrpt.arrays import FloatArray
from hesrpt.plotting.style import (
    FULL_WIDTH,
    PANEL_WIDTH,
    REFERENCE_COLOUR,
    Figure,
    add_legend_below,
    align_crowded_labels,
    create_panel,
    create_panels,
    escape_text,
    format_ratio,
    get_style,
    use_log_scale,
    with_house_style,
    write_beside,
)

if TYPE_CHECKING:
    from hesrpt.paper.figures import FittedCurve, FlowTimeTable

# Space to leave around the dots on a logarithmic axis.
_MARGIN = 1.5


# --- policies compared ------------------------------------------------------------------------


@with_house_style
def draw_mean_flow_times(table: FlowTimeTable) -> Figure:
    """Draw the mean flow time of each policy, in one panel for each p (Fig. 4).

    Every panel starts just below heSRPT and spans the same ratio, so that distances are comparable.
    """
    figure, panels = create_panels(len(table.powers), 2.5, share_y=True)
    ratios = [
        times.max() / by_policy["hesrpt"].min()
        for by_policy in table.times.values()
        for times in by_policy.values()
    ]
    span = float(max(ratios)) * _MARGIN**2
    for axes, (p, by_policy) in zip(panels, table.times.items(), strict=True):
        start = float(by_policy["hesrpt"].min()) / _MARGIN
        axes.set(title=f"p = {p:g}", xscale="log", xlim=(start, start * span))
        for place, (policy, times) in enumerate(by_policy.items()):
            style = get_style(policy)
            median, ratio = table.median(p, policy), table.ratio(p, policy)
            axes.plot(median, place, style.marker, color=style.colour)
            axes.hlines(place, times.min(), times.max(), color=style.colour, linewidth=1.2)
            is_far_right = ratio > span**0.6
            end, side, offset = (
                (times.min(), "right", -5) if is_far_right else (times.max(), "left", 5)
            )
            write_beside(axes, format_ratio(ratio), (end, place), offset, 7, ha=side)
        best = table.median(p, "hesrpt")
        axes.axvline(best, color=REFERENCE_COLOUR, linewidth=0.7, linestyle=":")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(visible=False, axis="y")
    titles = [get_style(policy).title for policy in table.policies]
    panels[0].set_yticks(range(len(titles)), titles)
    panels[0].set_ylim(len(titles) - 0.5, -0.5)
    figure.supxlabel("mean flow time (1 = smallest job on one server)", fontsize="medium")
    return figure


@with_house_style
def draw_ratios(table: FlowTimeTable) -> Figure:
    """Draw mean flow times relative to heSRPT over p."""
    figure, axes = create_panel(PANEL_WIDTH, 3.4)
    _draw_ratios(axes, table)
    axes.set_ylabel("mean flow time\nrelative to heSRPT")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure


@with_house_style
def draw_ratio_panels(tables: Mapping[str, FlowTimeTable]) -> Figure:
    """Draw mean flow times relative to heSRPT over p, in one panel for each system."""
    figure, panels = create_panels(len(tables), 3.0, share_y=True)
    for axes, (title, table) in zip(panels, tables.items(), strict=True):
        _draw_ratios(axes, table)
        align_crowded_labels(axes)
        axes.set_title(title)
    panels[0].set_ylabel("mean flow time\nrelative to heSRPT")
    add_legend_below(figure, panels[0])
    return figure


def _draw_ratios(axes: Axes, table: FlowTimeTable) -> None:
    for policy in table.policies:
        points = []
        for p in table.powers:
            ratios = table.ratios_by_set(p, policy)
            points.append((p, table.ratio(p, policy), float(ratios.min()), float(ratios.max())))
        _draw_line(axes, points, get_style(policy).line_options)
    axes.set(xlim=(0, 1.03), xlabel="p", xticks=table.powers)
    axes.xaxis.set_major_formatter("{x:g}")
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
    figure, panels = create_panels(len(powers), 3.4)
    for axes, p in zip(panels, powers, strict=True):
        for policy in dict.fromkeys(row["policy"] for row in rows):
            points = [
                (row["load"], row[column], row["lowest_of_streams"], row["highest_of_streams"])
                for row in rows
                if row["p"] == p and row["policy"] == policy
            ]
            _draw_line(axes, points, get_style(policy).line_options)
        use_log_scale(axes)
        axes.set(title=f"p = {p:g}", xlim=(0, 1), xlabel="load (work per server and unit of time)")
    add_legend_below(figure, panels[0])
    return figure


# --- heSRPT with a fitted p -------------------------------------------------------------------

_SPREAD_OVER_SETS = ("ratio_to_optimum", "lowest_of_sets", "highest_of_sets")


@with_house_style
def draw_losses_under_amdahl(
    rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]
) -> Figure:
    """Draw mean flow times relative to the optimum over the fraction f of Amdahl's law."""
    figure, axes = create_panel(PANEL_WIDTH + 1, 3.4)
    for policy, title in titles.items():
        points = [
            (1 - row["parallel_fraction"], *(row[name] for name in _SPREAD_OVER_SETS))
            for row in rows
            if row["policy"] == policy
        ]
        _draw_line(axes, points, get_style(policy).line_options | {"label": title})
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
    figure, axes = create_panel(FULL_WIDTH, 1.2 + 0.45 * len(curves))
    for place, (policy, title) in enumerate(titles.items()):
        style = get_style(policy)
        for number, row in enumerate(row for row in rows if row["policy"] == policy):
            at = number + 0.26 * (place - (len(titles) - 1) / 2)
            ratio, low, high = (row[name] for name in _SPREAD_OVER_SETS)
            axes.hlines(at, low, high, color=style.colour, linewidth=1.2)
            axes.plot(ratio, at, style.marker, color=style.colour, label="" if number else title)
            write_beside(axes, f"{ratio:.2f}", (high, at), 5, 7)
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
    figure, axes = create_panel(PANEL_WIDTH + 1, 3.4)
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


def _draw_line(axes: Axes, points: Sequence[tuple[float, ...]], options: dict[str, Any]) -> None:
    """Draw a line through dots, each of which has an x, a y, and the lowest and the highest y."""
    for x, y, low, high in points:
        axes.plot(x, y, options["marker"], color=options["color"])
        axes.vlines(x, low, high, color=options["color"], linewidth=1.2)
    axes.plot([point[0] for point in points], [point[1] for point in points], **options)


# --- speedup curves ---------------------------------------------------------------------------

# Laws are not policies: no policy has these colours.
_POWER_LAW_COLOUR, _AMDAHL_COLOUR = "#00798C", "#AA4499"


@with_house_style
def draw_power_laws(powers: Sequence[float], servers: FloatArray) -> Figure:
    """Draw k^p for several p, which is a straight line for p = 1 (Fig. 1)."""
    figure, axes = create_panel(PANEL_WIDTH, 3.2)
    for p, colour in zip(powers, [*_choose_shades(len(powers) - 1), "grey"], strict=True):
        axes.plot(servers, servers**p, color=colour, linestyle="--" if p == 1 else "-")
        end = servers[-1], servers[-1] ** p
        write_beside(axes, f"p = {p:g}", end, 4, annotation_clip=False)
    axes.set(xlim=(1, servers[-1]), ylim=(0, servers[-1]), xticks=[1, 8, 16, 24, 32])
    axes.set(xlabel="servers k", ylabel="speedup $s(k) = k^p$")
    return figure


@with_house_style
def draw_fitted_power_laws(powers: Mapping[str, float], servers: FloatArray) -> Figure:
    """Draw power laws that were fitted to applications, without the measured points (Fig. 2)."""
    figure, axes = create_panel(PANEL_WIDTH, 3.2)
    for (name, p), colour in zip(powers.items(), _choose_shades(len(powers)), strict=True):
        axes.plot(servers, servers**p, color=colour, label=f"{name}: p = {p:g}")
    axes.plot(servers, servers, color="grey", linestyle="--", label="p = 1")
    _use_binary_log_scales(axes)
    axes.set(xlabel="servers", ylabel="speedup")
    figure.legend(loc="outside right upper")
    return figure


@with_house_style
def draw_measured_curves(curves: Sequence[FittedCurve]) -> Figure:
    """Draw each measured curve with the laws fitted to it, in a panel of its own."""
    columns = min(4 if len(curves) > 6 else 3, len(curves))
    lines = ceil(len(curves) / columns)
    figure = Figure(figsize=(FULL_WIDTH, 1.85 * lines + 0.6), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, fitted in zip(panels, curves, strict=False):
        _draw_measured_curve(axes, fitted)
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    for axes in panels[max(len(curves) - columns, 0) : len(curves)]:
        axes.set_xlabel("servers")
    for axes in panels[::columns]:
        axes.set_ylabel("speedup")
    panels[0].plot([], [], "o", color="black", markersize=3, label="measured")
    panels[0].plot([], [], color=_POWER_LAW_COLOUR, label="power law $k^p$")
    panels[0].plot([], [], color=_AMDAHL_COLOUR, linestyle="--", label="Amdahl's law, f")
    add_legend_below(figure, panels[0])
    return figure


def _draw_measured_curve(axes: Axes, fitted: FittedCurve) -> None:
    servers, speedups = np.array(fitted.curve.servers), np.array(fitted.curve.speedups)
    k = np.geomspace(servers.min(), servers.max(), 60)
    labels = []
    if fitted.power_law is not None:
        axes.plot(k, fitted.power_law.rate(k), color=_POWER_LAW_COLOUR)
        labels.append(f"p = {fitted.power_law.p:.2f}, R² {_format_fit(fitted.r_squared[0])}")
    if fitted.amdahl is not None:
        axes.plot(k, fitted.amdahl.rate(k), color=_AMDAHL_COLOUR, linestyle="--")
        fraction = fitted.amdahl.parallel_fraction
        labels.append(f"f = {fraction:.3f}, R² {_format_fit(fitted.r_squared[1])}")
    axes.plot(servers, speedups, "o", color="black", markersize=3)
    _use_binary_log_scales(axes)
    lowest = min(float(speedups[speedups > 0].min(initial=1.0)), 1.0)
    # Leave room for the labels above the curve.
    axes.set_ylim(lowest * 0.8, max(float(speedups.max()), 1.0) ** 1.35 * 2.0)
    text = "\n".join(labels) or "does not grow"
    axes.text(0.04, 0.97, text, transform=axes.transAxes, va="top", fontsize=6.5)
    name = escape_text(fitted.curve.application) or "measured"
    axes.set_title(textwrap.fill(name, 26, max_lines=2, placeholder=" …"), fontsize="small")


def _choose_shades(count: int) -> list[Any]:
    return list(colormaps["viridis"](np.linspace(0.0, 0.8, count)))


def _format_fit(r_squared: float) -> str:
    return f"{r_squared:.3f}" if r_squared > -10 else "below −10"


def _use_binary_log_scales(axes: Axes) -> None:
    """Make both axes logarithmic, with plain numbers at powers of two as labels."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
