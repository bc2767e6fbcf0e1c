"""Figures of comparisons: how policies perform on the same jobs."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from hesrpt.plotting.style import (
    REFERENCE_COLOUR,
    Figure,
    add_legend_below,
    create_panels,
    format_ratio,
    get_styles,
    use_log_scale,
    with_house_style,
    write_beside,
)
from hesrpt.simulator import Comparison

# Each end of a curve of flow times is drawn through this many points.
_POINTS = 400


@with_house_style
def draw_comparison(comparison: Comparison) -> Figure:
    """Draw mean flow times relative to the best policy, and the distribution of flow times."""
    figure, (left, right) = create_panels(2, 3.4)
    _draw_ratios(left, comparison)
    _draw_flow_times(right, comparison)
    add_legend_below(figure, right, most_columns=6)
    return figure


def _draw_ratios(axes: Axes, comparison: Comparison) -> None:
    """Draw a dot for each policy with the interval of its ratio, and the bound if there is one."""
    best, styles = comparison.best, get_styles(comparison)
    left, right = 1.0, 1.0
    for place, policy in enumerate(comparison):
        difference = comparison.difference(policy, best)
        ratio = 1 + difference.percentage / 100
        half_width = difference.percentage_half_width / 100 if comparison.replications > 1 else 0.0
        # On a logarithmic axis a line must not reach 0.
        low, high = max(ratio - half_width, ratio / 10), ratio + half_width
        left, right = min(left, low), max(right, high)
        axes.errorbar(
            ratio,
            place,
            xerr=[[ratio - low], [high - ratio]],
            fmt="o",
            color=styles[policy].colour,
            capsize=3 if half_width > 0 else 0,
            markersize=5,
        )
        write_beside(axes, format_ratio(ratio), (high, place), 6)
    label = "mean flow time relative to the best"
    if comparison.replications > 1:
        label += (
            f"\n({comparison.confidence:.0%} intervals, {comparison.replications} replications)"
        )
    if (above := comparison.above_bound(best)) is not None:
        bound = 1 / (1 + above)
        left = min(left, bound)
        axes.axvspan(0.01 * bound, bound, color=REFERENCE_COLOUR, alpha=0.12, linewidth=0)
        label += "\n(grey: out of reach of any schedule)"
    use_log_scale(axes, "x")
    room = max(right / left, 1.25)
    # Leave room for the numbers to the right of the dots.
    axes.set_xlim(left / room**0.06, right * room**0.2)
    axes.axvline(1, color=REFERENCE_COLOUR, linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(comparison)), [styles[policy].title for policy in comparison])
    axes.set(ylim=(len(comparison) - 0.5, -0.7), xlabel=label)
    axes.grid(visible=False, axis="y")


def _draw_flow_times(axes: Axes, comparison: Comparison) -> None:
    """Draw the fraction of jobs whose flow time is at least t, over t."""
    for policy, style in get_styles(comparison).items():
        runs = comparison.simulations[policy]
        times = np.sort(np.concatenate([run.flow_times for run in runs]))
        longer = 1 - np.arange(len(times)) / len(times)
        shown = np.unique(np.geomspace(1, len(times), _POINTS).astype(int)) - 1
        shown = np.union1d(shown, len(times) - 1 - shown)
        axes.plot(
            times[shown],
            longer[shown],
            color=style.colour,
            linestyle=style.line,
            drawstyle="steps-pre",
            label=style.title,
        )
    use_log_scale(axes, "x")
    use_log_scale(axes)
    axes.set_xlabel("flow time t (in the unit of the sizes)")
    axes.set_ylabel("fraction of jobs with flow time ≥ t")
