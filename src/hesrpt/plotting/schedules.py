"""The figure of a schedule: remaining sizes above, the servers that jobs hold below."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.plotting.style import FULL_WIDTH, Figure, escape_text, with_house_style
from hesrpt.schedule import Schedule
from hesrpt.units import choose_time_unit, format_count, format_duration

# More jobs than this are stacked instead of drawn as lines.
_MAX_LINES = 6
# More jobs than this are drawn in groups.
_MAX_GROUPS = 20
# Longer names of jobs are cut off.
_MAX_NAME = 20
# Many jobs are drawn at this many points in time at most, fewer jobs at ten times as many.
_MAX_TIMES = 300
_MANY_JOBS = 2000


@with_house_style
def draw_schedule(schedule: Schedule, *, in_seconds: bool = False) -> Figure:
    """Draw the remaining sizes over time, and below them how the servers are shared.

    Up to six jobs are drawn as one line each. More are stacked, so that the upper edge is the
    remaining size of all jobs. More than twenty are drawn in groups of jobs that end one after the
    other.

    The times of a plan or a simulation have the unit in which the sizes were given. With
    ``in_seconds`` they are seconds, as in a real run, and the axes are labelled with units.
    """
    scale, unit = choose_time_unit(schedule.makespan) if in_seconds else (1.0, "")
    by_completion = np.argsort(schedule.completion_times, kind="stable")
    groups = np.array_split(by_completion, min(len(by_completion), _MAX_GROUPS))
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(groups)))
    times = _choose_times(schedule)
    figure = Figure(figsize=(FULL_WIDTH, 4.6), layout="constrained")
    above, below = figure.subplots(2, sharex=True)

    remaining = _sum_remaining(schedule, times, groups)
    edges = np.repeat(times, 2) / scale
    is_stacked = len(groups) > _MAX_LINES
    if is_stacked:
        _stack(above, edges, remaining, shades)
    else:
        ends = np.searchsorted(times, schedule.completion_times[by_completion])
        for line, shade, end in zip(remaining, shades, ends, strict=True):
            present = slice(int(np.argmax(line > 0)), 2 * int(end) + 2)
            above.plot(edges[present], line[present], color=shade)
    what = "remaining size" + (", all jobs" if is_stacked else "")
    above.set_ylabel(f"{what}\n(seconds on one server)" if in_seconds else what)
    above.set_ylim(bottom=0)
    # A title on two lines leaves room for the legend.
    above.set_title(_describe(schedule, in_seconds).replace(", ", "\n", 1), loc="left")

    over_time = schedule.timeline.servers_at_each(times[:-1])
    held = np.array([_sum_groups(servers, groups) for servers in over_time]).T
    _stack(below, edges[1:-1], np.repeat(held, 2, axis=1), shades)
    below.set_ylabel("servers")
    below.set_xlabel(f"time ({unit})" if in_seconds else "time (in the unit of the sizes)")
    below.set_ylim(0, max(schedule.servers, float(held.sum(axis=0).max())))
    if schedule.servers >= 1:
        below.yaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    below.set_xlim(0, times[-1] / scale)
    figure.align_ylabels()
    _add_key(figure, schedule, by_completion, shades, " s" if in_seconds else "")
    return figure


def _stack(axes: Axes, edges: FloatArray, values: FloatArray, shades: FloatArray) -> None:
    """Draw areas on top of each other, the first one at the bottom."""
    # Without antialiasing there are no pale seams between the areas.
    axes.stackplot(edges, values, colors=shades, linewidth=0, antialiased=False)


def _add_key(
    figure: Figure, schedule: Schedule, by_completion: IntArray, shades: FloatArray, unit: str
) -> None:
    """Add a legend of the jobs, or a scale of colours if jobs are drawn in groups."""
    if len(by_completion) <= _MAX_GROUPS:
        sizes, names = schedule.workload.sizes, schedule.workload.names
        labels = []
        for job in by_completion:
            name = names[job] if len(names[job]) <= _MAX_NAME else names[job][: _MAX_NAME - 1] + "…"
            labels.append(f"{escape_text(name)} ({sizes[job]:.3g}{unit})")
        areas = [Patch(color=shade) for shade in shades]
        figure.legend(
            areas, labels, title="job (size)", loc="outside right upper", alignment="left"
        )
        return
    colours = ScalarMappable(cmap=ListedColormap(shades))
    bar = figure.colorbar(colours, ax=figure.axes, fraction=0.04, pad=0.02)
    bar.set_ticks([0, 1], labels=["first", "last"])
    bar.set_label(f"{len(by_completion):,} jobs in order of completion, {len(shades)} groups")


def _choose_times(schedule: Schedule) -> FloatArray:
    """Return the times to draw: 0, arrivals, ends of phases and jobs, or a sample of them."""
    workload = schedule.workload
    limit = _MAX_TIMES if len(workload) > _MANY_JOBS else 10 * _MAX_TIMES
    known = [schedule.timeline.sample_ends(limit), np.array([0.0, schedule.makespan])]
    if len(workload) <= limit:
        known.append(schedule.completion_times)
        if workload.arrivals is not None:
            known.append(workload.arrivals)
    return np.unique(np.concatenate(known))


def _sum_remaining(schedule: Schedule, times: FloatArray, groups: list[IntArray]) -> FloatArray:
    """Return the remaining size of each group (first axis) just before and after each time."""
    arrivals = schedule.workload.arrivals
    arrived = np.full(len(schedule.workload), -np.inf) if arrivals is None else arrivals
    remaining = schedule.timeline.remaining(schedule.workload, times)
    rows = [
        _sum_groups(np.where(present, sizes, 0.0), groups)
        for time, sizes in zip(times, remaining, strict=True)
        for present in (arrived < time, arrived <= time)
    ]
    return np.array(rows).T


def _sum_groups(values: FloatArray, groups: list[IntArray]) -> list[float]:
    return [float(values[group].sum()) for group in groups]


def _describe(schedule: Schedule, in_seconds: bool) -> str:
    if not in_seconds:
        return schedule.summary
    jobs = format_count(len(schedule.workload), "job")
    return (
        f"{jobs} on {format_count(schedule.servers, 'server')}, mean flow time "
        f"{format_duration(schedule.mean_flow_time)}, makespan {format_duration(schedule.makespan)}"
    )
