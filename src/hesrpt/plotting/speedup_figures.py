"""Figures of speedup curves: power laws, and measured curves with fitted laws."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from hesrpt.arrays import FloatArray
from hesrpt.plotting.style import (
    FULL_WIDTH,
    PANEL_WIDTH,
    Figure,
    add_legend_below,
    escape_text,
    with_house_style,
)

if TYPE_CHECKING:
    from hesrpt.paper.speedup_curves import FittedCurve

# Laws are not policies: no policy has these colours.
_POWER_LAW_COLOUR, _AMDAHL_COLOUR = "#00798C", "#AA4499"


@with_house_style
def draw_power_laws(powers: Sequence[float], servers: FloatArray) -> Figure:
    """Draw k^p for several p, which is a straight line for p = 1 (Fig. 1)."""
    figure = Figure(figsize=(PANEL_WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    for p, colour in zip(powers, [*_choose_shades(len(powers) - 1), "grey"], strict=True):
        axes.plot(servers, servers**p, color=colour, linestyle="--" if p == 1 else "-")
        axes.annotate(
            f"p = {p:g}",
            (servers[-1], servers[-1] ** p),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            annotation_clip=False,
        )
    axes.set_xlim(1, servers[-1])
    axes.set_ylim(0, servers[-1])
    axes.set_xticks([1, 8, 16, 24, 32])
    axes.set_xlabel("servers k")
    axes.set_ylabel("speedup $s(k) = k^p$")
    return figure


@with_house_style
def draw_fitted_power_laws(powers: Mapping[str, float], servers: FloatArray) -> Figure:
    """Draw power laws that were fitted to applications, without the measured points (Fig. 2)."""
    figure = Figure(figsize=(PANEL_WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    for (name, p), colour in zip(powers.items(), _choose_shades(len(powers)), strict=True):
        axes.plot(servers, servers**p, color=colour, label=f"{name}: p = {p:g}")
    axes.plot(servers, servers, color="grey", linestyle="--", label="p = 1")
    _use_binary_log_scales(axes)
    axes.set_xlabel("servers")
    axes.set_ylabel("speedup")
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
    axes.annotate(
        "\n".join(labels) or "does not grow",
        (0.04, 0.97),
        xycoords="axes fraction",
        va="top",
        fontsize=6.5,
    )
    name = escape_text(fitted.curve.application) or "measured"
    axes.set_title(
        "\n".join(textwrap.wrap(name, 26, max_lines=2, placeholder=" …")), fontsize="small"
    )


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
