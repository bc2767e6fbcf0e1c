"""Figures of a study: who waits how long, what is busy when, and where it stops paying."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.plotting import colours, plain_logarithmic, proper_name
from hesrpt.simulator import Simulation
from hesrpt.whatif.sensitivity import OTHERS, Sensitivity
from hesrpt.whatif.study import RECORDED, WhatIf

# Curves are drawn through so many points.
_POINTS = 600
_RECORDED_COLOUR = "#444444"
# Where an axis of times has its labels, in seconds.
_TIMES = {
    1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36000: "10 h", 345600: "4 d",
    2592000: "30 d", 31536000: "1 y",
}  # fmt: skip
# Pictures over time show these: the others would hide them.
_OVER_TIME = (RECORDED, "easy", "equi", "hesrpt")


def name_of(policy: str) -> str:
    """Return a policy's name for people."""
    return proper_name(policy)


def colour_of(policy: str) -> str:
    """Return a policy's colour, which is the same in all figures."""
    return _RECORDED_COLOUR if policy == RECORDED else colours([policy])[policy]


def overview(study: WhatIf) -> Figure:
    """Draw the distribution of flow times, and how many jobs are in the system when."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_distribution(left, study)
    _draw_jobs(right, study)
    figure.suptitle(study.sentence, fontsize="medium", wrap=True)
    return figure


def distribution(study: WhatIf) -> Figure:
    """Draw which part of the jobs takes no longer than so long."""
    figure, axes = _one()
    _draw_distribution(axes, study)
    return figure


def jobs_over_time(study: WhatIf) -> Figure:
    """Draw how many jobs are in the system."""
    figure, axes = _one()
    _draw_jobs(axes, study)
    return figure


def servers_over_time(study: WhatIf) -> Figure:
    """Draw how many servers are handed out."""
    figure, axes = _one()
    for policy in (one for one in _OVER_TIME if one in study.runs):
        run = study.runs[policy]
        try:
            edges, used = _servers_of(run)
        except InputError:
            continue  # too many phases to list
        axes.plot(edges / _day(study), used, label=name_of(policy), color=colour_of(policy), lw=1)
    axes.axhline(study.servers, color="#999999", lw=0.8, ls="--")
    axes.set(xlabel=_time_label(study), ylabel="servers handed out")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    return figure


def by_class(study: WhatIf) -> Figure:
    """Draw mean flow times by how large jobs are."""
    figure, axes = _one()
    rows, policies = study.by_class(), list(study.runs)
    width = 0.8 / len(policies)
    for place, policy in enumerate(policies):
        at = np.arange(len(rows)) + (place - (len(policies) - 1) / 2) * width
        hours = [row[policy] / 3600 for row in rows]
        axes.bar(at, hours, width, label=name_of(policy), color=colour_of(policy))
    axes.set_xticks(
        range(len(rows)), [f"{row['class']}\n({row['jobs']:,} jobs)" for row in rows],
        fontsize="small",
    )  # fmt: skip
    plain_logarithmic(axes)
    axes.set_ylabel("mean flow time (h)")
    figure.legend(loc="outside lower center", ncols=4, fontsize="small")
    return figure


def sensitivity(found: Sensitivity) -> Figure:
    """Draw how many times as long jobs take under other policies, as things get worse."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    labels = {
        "p": "p, of s(k) = k^p",
        "resize_cost": "a resize costs (s)",
        "size_error": "size error (log-normal σ)",
    }
    gains = [point.gain(other) for point in found.points for other in OTHERS]
    low, high = min(*gains, 0.8) / 1.1, max(*gains, 1.25) * 1.1
    for axes, (what, label) in zip(panels, labels.items(), strict=True):
        points = found.of(what)
        x = [point.value for point in points]
        for other in OTHERS:
            y = [point.gain(other) for point in points]
            axes.plot(x, y, "o-", ms=4, color=colour_of(other), label=name_of(other))
        if what == "resize_cost":
            axes.set_xscale("symlog", linthresh=1)
            axes.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
        plain_logarithmic(axes)
        axes.axhline(1, color="#444444", lw=1)
        axes.axhspan(low, 1, color="#D55E00", alpha=0.08)
        axes.set(xlabel=label, ylim=(low, high))
    panels[0].set_ylabel("times as long as under heSRPT")
    panels[0].legend(fontsize="small")
    figure.suptitle(
        f"Where heSRPT pays: above 1. {found.study.assumed.text}, where that is not swept",
        fontsize="medium",
    )
    return figure


def _one() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    return figure, figure.subplots()


def _draw_distribution(axes: Axes, study: WhatIf) -> None:
    parts = np.linspace(0, 1, _POINTS)
    for policy, run in study.runs.items():
        times = np.maximum(np.quantile(run.flow_times, parts), min(_TIMES))
        dashed = "--" if policy == "optimal" else "-"  # it may lie on top of heSRPT
        axes.plot(times, parts, dashed, label=name_of(policy), color=colour_of(policy), lw=1.3)
    axes.set(xscale="log", xlabel="flow time", ylabel="part of the jobs that take no longer")
    low, high = axes.get_xlim()
    shown = [seconds for seconds in _TIMES if low <= seconds <= high]
    axes.set_xticks(shown, [_TIMES[seconds] for seconds in shown], fontsize="small")
    axes.set_xticks([], minor=True)
    axes.legend(fontsize="small")


def _draw_jobs(axes: Axes, study: WhatIf) -> None:
    arrived = study.log.submit
    shown = [policy for policy in _OVER_TIME if policy in study.runs] or list(study.runs)
    end = max(study.runs[policy].makespan for policy in shown)
    moments = np.linspace(0, end, _POINTS)
    for policy in shown:
        ended = np.sort(study.runs[policy].completion_times)
        present = np.searchsorted(arrived, moments, "right") - np.searchsorted(
            ended, moments, "right"
        )
        axes.plot(
            moments / _day(study), present, label=name_of(policy), color=colour_of(policy), lw=1
        )
    axes.set(xlabel=_time_label(study), ylabel="jobs in the system")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")


def _servers_of(run: Simulation) -> tuple[FloatArray, FloatArray]:
    """Return moments, and how many servers were handed out on average up to each from the last."""
    ends = run.timeline.ends
    busy = np.concatenate(([0.0], np.cumsum(np.diff(ends, prepend=0.0) * run.timeline.totals())))
    moments = np.linspace(0, run.makespan, _POINTS // 3 + 1)
    at = np.interp(moments, np.concatenate(([0.0], ends)), busy)
    middles = (moments[1:] + moments[:-1]) / 2
    return middles, np.diff(at) / np.diff(moments)


def _day(study: WhatIf) -> float:
    return 86400.0 if _long(study) else 3600.0


def _time_label(study: WhatIf) -> str:
    return "days" if _long(study) else "hours"


def _long(study: WhatIf) -> bool:
    return float(study.log.submit[-1]) > 3 * 86400
