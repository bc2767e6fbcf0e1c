"""The figure of a schedule: remaining sizes above, the servers that jobs hold below."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.plotting.style import FULL_WIDTH, escape_text, with_house_style
from hesrpt.schedule import Schedule

# More jobs than this are grouped into bands of jobs that end one after the other.
_MAX_BANDS = 20
# A schedule of many jobs is drawn at this many times at most, one of few jobs at ten times as many.
_MAX_TIMES = 300
_MANY_JOBS = 2000
# Units of time, longest first: a real run that lasts longer than the number of seconds uses it.
_TIME_UNITS = ((3 * 86400.0, 86400.0, "days"), (3 * 3600.0, 3600.0, "h"), (300.0, 60.0, "min"))


@with_house_style
def draw_schedule(schedule: Schedule, *, in_seconds: bool = False) -> Figure:
    """Draw the remaining sizes over time, and below them how the servers are shared.

    The times of a plan or a simulation have the unit in which the sizes were given. ``in_seconds``
    says that they are seconds, as in a real run, and labels the axes with units.
    """
    scale, unit = _choose_unit(schedule.makespan) if in_seconds else (1.0, "")
    by_completion = np.argsort(schedule.completion_times, kind="stable")
    bands = np.array_split(by_completion, min(len(by_completion), _MAX_BANDS))
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(bands)))
    times = _choose_times(schedule)
    figure = Figure(figsize=(FULL_WIDTH, 4.6), layout="constrained")
    above, below = figure.subplots(2, sharex=True)

    before, after = _sum_remaining(schedule, times, bands)
    edges = np.repeat(times, 2)
    for band, colour, low, high in zip(bands, shades, before, after, strict=True):
        last = schedule.completion_times[band].max()
        first = int(np.argmax(high > 0))
        shown = slice(2 * first + 1, 2 * int(np.searchsorted(times, last)) + 2)
        remaining = np.column_stack((low, high)).ravel()
        above.plot(
            edges[shown] / scale,
            remaining[shown],
            color=colour,
            label=_describe_band(schedule, band, "s" if in_seconds else ""),
        )
    above.set_ylabel("remaining work\n(seconds on one server)" if in_seconds else "remaining size")
    above.set_ylim(bottom=0)

    held = np.array([_sum_bands(schedule.servers_at(time), bands) for time in times[:-1]]).T
    steps = np.repeat(times, 2)[1:-1]
    below.stackplot(steps / scale, np.repeat(held, 2, axis=1), colors=shades, linewidth=0)
    below.set_ylabel("servers")
    below.set_xlabel(f"time ({unit})" if in_seconds else "time (in the unit of the sizes)")
    below.set_ylim(0, max(schedule.servers, float(held.sum(axis=0).max())))
    if schedule.servers >= 1:
        below.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    below.set_xlim(0, times[-1] / scale)
    figure.align_ylabels()
    handles, labels = above.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    figure.suptitle(_describe(schedule, in_seconds))
    return figure


def _choose_unit(seconds: float) -> tuple[float, str]:
    """Return a unit of time that suits a run, in seconds, and its name."""
    for least, unit, name in _TIME_UNITS:
        if seconds > least:
            return unit, name
    return 1.0, "s"


def _choose_times(schedule: Schedule) -> FloatArray:
    """Return the times to draw: 0, arrivals, and ends of phases and jobs, or a selection."""
    most = _MAX_TIMES if len(schedule.workload) > _MANY_JOBS else 10 * _MAX_TIMES
    ends = schedule.timeline.some_ends(most)
    known = [np.zeros(1), ends, np.array([schedule.makespan])]
    if len(schedule.workload) <= most:
        known.append(schedule.completion_times)
        if schedule.workload.arrivals is not None:
            known.append(schedule.workload.arrivals)
    return np.unique(np.concatenate(known))


def _sum_remaining(
    schedule: Schedule, times: FloatArray, bands: list[IntArray]
) -> tuple[FloatArray, FloatArray]:
    """Return the remaining sizes of each band, just before and just after arrivals at each time."""
    arrivals = schedule.workload.arrivals
    arrived = np.zeros(len(schedule.workload)) if arrivals is None else arrivals
    before, after = [], []
    remaining = schedule.timeline.remaining(schedule.workload, times)
    for time, sizes in zip(times, remaining, strict=True):
        before.append(_sum_bands(np.where(arrived < time, sizes, 0.0), bands))
        after.append(_sum_bands(np.where(arrived <= time, sizes, 0.0), bands))
    return np.array(before).T, np.array(after).T


def _sum_bands(values: FloatArray, bands: list[IntArray]) -> list[float]:
    return [float(values[band].sum()) for band in bands]


def _describe_band(schedule: Schedule, band: IntArray, unit: str) -> str:
    sizes = schedule.workload.sizes[band]
    space = " " if unit else ""
    if len(band) == 1:
        name = escape_text(schedule.workload.names[band[0]])
        return f"{name} ({sizes[0]:.3g}{space}{unit})"
    return f"{len(band)} jobs ({sizes.min():.3g} to {sizes.max():.3g}{space}{unit})"


def _describe(schedule: Schedule, in_seconds: bool) -> str:
    if not in_seconds:
        return schedule.summary
    jobs = "1 job" if len(schedule.workload) == 1 else f"{len(schedule.workload):,} jobs"
    return (
        f"{jobs} on {schedule.servers:g} servers, mean flow time {schedule.mean_flow_time:.3g} s, "
        f"makespan {schedule.makespan:.3g} s"
    )
