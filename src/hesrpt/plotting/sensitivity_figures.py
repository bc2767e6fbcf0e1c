"""Figures of studies with one thing varied: where adaptive pays off, and how many must change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from hesrpt.plotting.style import (
    FULL_WIDTH,
    REFERENCE_COLOUR,
    Figure,
    add_legend_below,
    get_style,
    use_log_scale,
    with_house_style,
)
from hesrpt.plotting.whatif_figures import draw_panel
from hesrpt.units import choose_time_unit

if TYPE_CHECKING:
    from hesrpt.whatif import FractionSweep, Sensitivity

#: What is varied, and how axes call it.
SWEEP_LABELS = {
    "p": "p of the speedup $k^p$",
    "resize_cost": "cost of a resize (s)",
    "size_error": "size error (σ of ln size)",
}


@with_house_style
def draw_sensitivity(sensitivity: Sensitivity) -> Figure:
    """Draw flow times under other policies relative to adaptive, as one assumption varies."""
    figure = Figure(figsize=(FULL_WIDTH, 3.0), layout="constrained")
    panels = figure.subplots(1, len(SWEEP_LABELS), sharey=True)
    for axes, parameter in zip(panels, SWEEP_LABELS, strict=True):
        _plot_gains(axes, sensitivity, parameter)
    for axes in panels[1:]:
        axes.set_ylabel("")
    _annotate(panels[0])
    add_legend_below(figure, panels[0])
    figure.suptitle(
        f"Assumed unless varied: {sensitivity.study.options.assumption.text}", wrap=True
    )
    return figure


def draw_sensitivity_to(sensitivity: Sensitivity, parameter: str) -> Figure:
    """Draw the same for one parameter, for the report."""

    def plot(axes: Axes) -> None:
        _plot_gains(axes, sensitivity, parameter)
        _annotate(axes)

    return draw_panel(plot)


@with_house_style
def draw_fractions(sweep: FractionSweep) -> Figure:
    """Draw mean flow time over the malleable fraction, and who gains: those who change, or not."""
    figure = Figure(figsize=(FULL_WIDTH, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _plot_means(left, sweep)
    _plot_who_gains(right, sweep)
    add_legend_below(figure, left)
    figure.suptitle(f"Assumed: {sweep.study.options.assumption.text}", wrap=True)
    return figure


def draw_fraction_means(sweep: FractionSweep) -> Figure:
    """Draw the mean flow time of all jobs over the malleable fraction, for the report."""
    return draw_panel(lambda axes: _plot_means(axes, sweep))


def draw_fraction_gains(sweep: FractionSweep) -> Figure:
    """Draw who gains over the malleable fraction, for the report."""
    return draw_panel(lambda axes: _plot_who_gains(axes, sweep))


def _plot_gains(axes: Axes, sensitivity: Sensitivity, parameter: str) -> None:
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
    axes.set_ylabel("mean flow time\nrelative to adaptive")


def _annotate(axes: Axes) -> None:
    axes.annotate(
        "adaptive is worse",
        (0.03, 0.02),
        xycoords="axes fraction",
        color="#A03000",
        fontsize=8,
    )


def _plot_means(axes: Axes, sweep: FractionSweep) -> None:
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
    _label_fractions(axes, sweep)


def _plot_who_gains(axes: Axes, sweep: FractionSweep) -> None:
    for policy in sweep.policies:
        style = get_style(policy)
        for kind, line in (("changed", "-"), ("unchanged", ":")):
            shown = {
                point.fraction: getattr(point, kind)[policy]
                for point in sweep.points
                if policy in getattr(point, kind)
            }
            # Only solid lines are in the legend.
            label = style.title if kind == "changed" else None
            options = style.line_options | {"linestyle": line, "label": label}
            axes.plot(list(shown), list(shown.values()), **options)
    axes.axhline(1, color=REFERENCE_COLOUR, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("mean flow time relative to EASY")
    axes.set_title("those who change (—) and the others (···)", loc="left")
    _label_fractions(axes, sweep)


def _label_fractions(axes: Axes, sweep: FractionSweep) -> None:
    axes.set_xlabel(f"malleable fraction of the {sweep.counted}")
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
