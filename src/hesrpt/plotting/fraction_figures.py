"""The figure of a sweep over the malleable fraction: how many must change before it pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from hesrpt.plotting.saving import Figure
from hesrpt.plotting.style import (
    FULL_WIDTH,
    REFERENCE_COLOUR,
    add_legend_below,
    get_style,
    with_house_style,
)
from hesrpt.units import choose_time_unit

if TYPE_CHECKING:
    from hesrpt.whatif import FractionSweep


@with_house_style
def draw_fractions(sweep: FractionSweep) -> Figure:
    """Draw mean flow time over the malleable fraction, and who gains: those who change, or not."""
    figure = Figure(figsize=(FULL_WIDTH, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_means(left, sweep)
    _draw_gains(right, sweep)
    for axes in (left, right):
        axes.set_xlabel(f"malleable fraction of the {sweep.counted}")
        axes.set_xlim(-0.02, 1.02)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    add_legend_below(figure, left)
    figure.suptitle(f"Assumed: {sweep.study.assumption.text}", wrap=True)
    return figure


def _draw_means(axes: Axes, sweep: FractionSweep) -> None:
    unit = choose_time_unit(sweep.base)
    base = sweep.base / unit.seconds
    easy = get_style("easy")
    axes.axhline(base, color=easy.colour, linewidth=easy.width, linestyle="--", label=easy.title)
    for policy in sweep.policies:
        times = [point.flow_times[policy] / unit.seconds for point in sweep.points]
        fractions = [point.fraction for point in sweep.points]
        axes.plot([0, *fractions], [base, *times], **get_style(policy).line_options)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"mean flow time ({unit.symbol})")
    axes.set_title("all jobs", loc="left")


def _draw_gains(axes: Axes, sweep: FractionSweep) -> None:
    for policy in sweep.policies:
        style = get_style(policy)
        for kind, line in (("changed", "-"), ("unchanged", ":")):
            shown = {
                point.fraction: getattr(point, kind)[policy]
                for point in sweep.points
                if policy in getattr(point, kind)
            }
            options = style.line_options | {"linestyle": line, "label": None}
            axes.plot(list(shown), list(shown.values()), **options)
    axes.axhline(1, color=REFERENCE_COLOUR, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("mean flow time relative to EASY")
    axes.set_title("those who change (—) and the others (···)", loc="left")
