"""Figures of a schedule. Nothing is drawn on a screen: figures are returned, or saved."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from hesrpt._version import __version__
from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.policies import POLICIES
from hesrpt.schedule import Schedule
from hesrpt.simulator import Comparison

# More jobs than this are drawn as so many bands of jobs that end one after the other.
_MOST_BANDS = 20
# More phases than this are drawn at so many of their ends.
_MOST_PHASES = 300
# Of fewer jobs than this, ten times as many phases are drawn as quickly.
_MANY_JOBS = 2000
_FORMATS = (".pdf", ".png", ".svg")

# The colours of policies that are not in the registry, such as a user's own.
_OTHER_COLOURS = ("#7F6A00", "#5A3E8E", "#3B7A57", "#444444", "#AA4499")


def colours(policies: Iterable[str]) -> dict[str, str]:
    """Return the colour of each policy."""
    others = cycle(_OTHER_COLOURS)
    return {
        policy: POLICIES[policy].colour if policy in POLICIES else next(others)
        for policy in policies
    }


def line_style(policy: str) -> dict[str, Any]:
    """Return how to draw the line of a policy in the registry."""
    entry = POLICIES[policy]
    return {
        "color": entry.colour,
        "marker": entry.marker,
        "markersize": 4.5,
        "linestyle": entry.line,
        "linewidth": 1.2,
        "label": entry.title,
        "zorder": 3 if policy == "hesrpt" else 2,
    }


def plain_logarithmic(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic, labelled with plain numbers at 1, 2, 5, 10, …."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def proper_name(policy: str) -> str:
    """Return the name of a policy as the literature writes it."""
    return POLICIES[policy].title if policy in POLICIES else policy


def schedule(record: Schedule) -> Figure:
    """Draw the remaining sizes over time, and below them how the servers are shared."""
    first_to_last = np.argsort(record.completion_times, kind="stable")
    bands = np.array_split(first_to_last, min(len(first_to_last), _MOST_BANDS))
    starts, ends = _phases(record)
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    shades = colormaps["viridis"](np.linspace(0.08, 0.92, len(bands)))

    moments = np.append(0.0, ends)
    remaining = _sums(_in_system(record, moments), bands)
    for left, colour, band in zip(remaining, shades, bands, strict=True):
        over = int(np.searchsorted(moments, record.completion_times[band].max())) + 1
        above.plot(moments[:over], left[:over], color=colour, label=_label(record, band))
    above.set_ylabel("remaining size")
    above.set_ylim(bottom=0)

    servers = _sums((record.servers_at(start) for start in starts), bands)
    # Each allocation lasts from the start of its phase to the end.
    edges = np.repeat(moments, 2)[1:-1]
    below.stackplot(edges, np.repeat(servers, 2, axis=1), colors=shades, linewidth=0)
    below.set_ylabel("servers")
    below.set_xlabel("time")
    below.set_ylim(0, record.servers)
    below.set_xlim(0, record.makespan)
    _legend(figure, above)
    figure.suptitle(record.summary, fontsize="medium")
    return figure


def comparison(compared: Comparison) -> Figure:
    """Draw mean flow times relative to the best policy, and how many jobs take how long."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    policies = list(compared)
    intervals = [compared.interval(policy, "mean_flow_time") for policy in policies]
    best = min(interval.mean for interval in intervals)
    colour_of = colours(policies)
    errors = np.nan_to_num([interval.half_width / best for interval in intervals])
    ratios = [interval.mean / best for interval in intervals]
    left.barh(
        policies, ratios, color=list(colour_of.values()), xerr=errors if errors.any() else None
    )
    for place, ratio in enumerate(ratios):
        left.annotate(f" {ratio:.2f}", (ratio, place), va="center", fontsize="small")
    left.invert_yaxis()
    left.margins(x=0.15)
    left.set_xlabel("mean flow time, relative to the best")
    for policy, colour in colour_of.items():
        times = np.sort(np.concatenate([run.flow_times for run in compared.simulations[policy]]))
        longer = 1 - np.arange(len(times)) / len(times)
        shown = np.unique(np.geomspace(1, len(times), 400).astype(int)) - 1
        shown = np.union1d(shown, len(times) - 1 - shown)
        right.plot(times[shown], longer[shown], color=colour, label=policy)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("flow time")
    right.set_ylabel("jobs that take longer")
    right.legend(fontsize="small")
    return figure


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of some axes below the whole figure, in one line."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small")


def save(figure: Figure, path: str | Path, description: str = "") -> None:
    """Save a figure as PNG, SVG or PDF, whole or not at all, with what made it in its metadata."""
    target = check_path(path).resolve()  # a link stays one
    ending = target.suffix.lower()
    metadata = {"Creator" if ending != ".png" else "Software": f"hesrpt {__version__}"}
    if description:
        metadata["Subject" if ending == ".pdf" else "Description"] = description
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent, suffix=target.suffix)
        os.close(handle)
        try:
            with warnings.catch_warnings():
                # A name in a script that the font lacks is drawn as boxes; the figure still serves.
                warnings.filterwarnings("ignore", message="Glyph")
                figure.savefig(draft, dpi=150, metadata=metadata)
            os.chmod(draft, 0o666 & ~_umask())
            os.replace(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from None


def check_path(path: str | Path) -> Path:
    """Return the path of a figure, or raise an error if its ending names no known format."""
    target = Path(path)
    if target.suffix.lower() not in _FORMATS:
        raise InputError(f"a figure must end in {', '.join(_FORMATS)}, got {str(path)!r}")
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _phases(record: Schedule) -> tuple[FloatArray, FloatArray]:
    """Return when phases start and end, a selection if there are very many."""
    most = _MOST_PHASES if len(record.workload) > _MANY_JOBS else 10 * _MOST_PHASES
    ends = record.timeline.some_ends(most)
    return np.append(0.0, ends[:-1]), ends


def _in_system(record: Schedule, moments: FloatArray) -> Iterator[FloatArray]:
    """Yield the remaining sizes of the jobs in the system, at each moment."""
    arrivals = record.workload.arrivals
    left = record.timeline.remaining(record.workload, moments)
    for moment, sizes in zip(moments, left, strict=True):
        yield sizes if arrivals is None else np.where(arrivals <= moment, sizes, 0.0)


def _sums(rows: Iterable[FloatArray], bands: list[IntArray]) -> FloatArray:
    """Return the sum over each band of jobs (first axis) of each row (second axis)."""
    return np.array([[row[band].sum() for band in bands] for row in rows]).T


def _label(record: Schedule, band: IntArray) -> str:
    sizes = record.workload.sizes[band]
    if len(band) == 1:
        name = record.workload.names[band[0]].replace("$", r"\$")  # not mathematics
        return f"{name} (size {sizes[0]:.3g})"
    return f"{len(band)} jobs (sizes {sizes.min():.3g} to {sizes.max():.3g})"


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) <= 6:  # few jobs leave the upper right corner empty
        axes.legend(handles, labels, loc="upper right")
    else:
        figure.legend(handles, labels, loc="outside right center", fontsize="small")
