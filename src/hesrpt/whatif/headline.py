"""The result of a study in a sentence: the best policy, and equal shares, with intervals.

One trace is one sample. To see how far its means can be trusted, the jobs are divided into batches
in the order of submission, and the means of the batches give a confidence interval. Policies are
compared batch by batch, since a busy week is busy under all of them.
"""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies.registry import get_title
from hesrpt.simulator.intervals import Difference, estimate_difference, estimate_mean
from hesrpt.simulator.simulation import Simulation
from hesrpt.traces.trace import RECORDED
from hesrpt.units import format_duration, format_duration_with_margin

CONFIDENCE = 0.95
_MAX_BATCHES = 20
_MIN_BATCHES = 8
_MIN_JOBS_IN_BATCH = 20
#: Policies for jobs that are never resized.
RIGID = (RECORDED, "easy", "fcfs")
MOLDABLE = "moldable"


class Headline(NamedTuple):
    """The policies that the result of a study is about."""

    base: str | None  # the rigid policy that others are compared with
    best: str | None  # the best malleable policy
    malleable: tuple[str, ...]


def choose_headline(runs: dict[str, Simulation]) -> Headline:
    """Return which policies the result is about."""
    malleable = tuple(policy for policy in runs if policy not in (*RIGID, MOLDABLE))
    return Headline(
        base=next((policy for policy in ("easy", "fcfs", RECORDED) if policy in runs), None),
        best=min(malleable, key=lambda policy: runs[policy].mean_flow_time, default=None),
        malleable=malleable,
    )


def batch_means(flow_times: FloatArray) -> FloatArray | None:
    """Return the mean flow times of batches of jobs; None if there are too few jobs."""
    batches = min(_MAX_BATCHES, len(flow_times) // _MIN_JOBS_IN_BATCH)
    if batches < _MIN_BATCHES:
        return None
    return np.array([batch.mean() for batch in np.array_split(flow_times, batches)])


def half_width(run: Simulation) -> float:
    """Return the half width of the confidence interval of a mean flow time, or NaN."""
    means = batch_means(run.flow_times)
    return float("nan") if means is None else estimate_mean(means, CONFIDENCE).half_width


def compare_runs(policy: str, other: str, runs: dict[str, Simulation]) -> Difference | None:
    """Return the difference between two policies; None if there are too few jobs."""
    return compare_flow_times(policy, runs[policy].flow_times, other, runs[other].flow_times)


def compare_flow_times(
    policy: str, flow_times: FloatArray, other: str, other_flow_times: FloatArray
) -> Difference | None:
    """Return the difference between the mean flow times under two policies."""
    means, others = batch_means(flow_times), batch_means(other_flow_times)
    if means is None or others is None:
        return None
    return estimate_difference(
        get_title(policy), get_title(other), "mean_flow_time", means, others, CONFIDENCE
    )


def describe_result(runs: dict[str, Simulation], assumed: str) -> str:
    """Return the result, without an initial capital or a full stop."""
    base, best, malleable = choose_headline(runs)
    if best is None or base is None:
        shortest = min(runs, key=lambda policy: runs[policy].mean_flow_time)
        ending = "" if best is None else _describe_equi(shortest, malleable, runs)
        return (
            f"{assumed}, mean flow time is shortest under {get_title(shortest)}: "
            f"{_format_mean(runs[shortest])}{ending}"
        )
    name = base if base == RECORDED else base.upper()
    before, after = (runs[policy].mean_flow_time for policy in (base, best))
    which = f", the best of {len(malleable)} policies" if len(malleable) > 1 else ""
    if format_duration(before) == format_duration(after):
        subject = f"{get_title(best)}{which}," if which else get_title(best)
        return (
            f"{assumed}, {subject} would change nothing: {format_duration(before)}, as under {name}"
        )
    verb = "fall" if after < before else "rise"
    difference = compare_runs(best, base, runs)
    is_unclear = difference is not None and not difference.is_clear
    return (
        f"{assumed}, mean flow time would {verb} from {_format_mean(runs[base])} ({name}) to "
        f"{_format_mean(runs[best])} under {get_title(best)}{which}"
        f"{', which is no clear difference' if is_unclear else ''}"
        f"{_describe_equi(best, malleable, runs)}"
    )


def describe_moldable(best: str, runs: dict[str, Simulation]) -> list[str]:
    """Return a sentence on jobs that choose their servers only once, compared with the best."""
    if MOLDABLE not in runs:
        return []
    more = runs[MOLDABLE].mean_flow_time / runs[best].mean_flow_time - 1
    return [
        "moldable jobs, which choose their servers once, when they start, would reach "
        f"{_format_mean(runs[MOLDABLE])} ({more:+.0%} compared with {get_title(best)})"
    ]


def _describe_equi(best: str, malleable: tuple[str, ...], runs: dict[str, Simulation]) -> str:
    """Return how equal shares compare with the best policy."""
    if best == "equi":
        return " (equal shares)" if len(malleable) > 1 else ""
    if "equi" not in malleable or best not in malleable:
        return ""
    more = runs["equi"].mean_flow_time / runs[best].mean_flow_time - 1
    difference = compare_runs("equi", best, runs)
    text = f"; equal shares (EQUI) reach {_format_mean(runs['equi'])}"
    if difference is None:
        return f"{text}, {more:.1%} more"
    margin = difference.percentage_half_width
    if not difference.is_clear:
        return f"{text}, no clear difference ({more:+.1%} ± {margin:.1f}%)"
    return f"{text}, {more:.1%} ± {margin:.1f}% more"


def _format_mean(run: Simulation) -> str:
    margin = half_width(run)
    if not isfinite(margin):
        return format_duration(run.mean_flow_time)
    return format_duration_with_margin(run.mean_flow_time, margin)
