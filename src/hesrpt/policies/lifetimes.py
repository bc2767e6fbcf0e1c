"""How much work a job of unknown size still has, by the work that has been done on it.

The work that jobs have done is counted in intervals, each twice as long as the one before, whether
they have ended or still run, and so are their ends. In an interval they end at the rate of
ends/work, the *hazard*, and what is expected to remain follows from all hazards ahead. If sizes are
exponential, it is the same whatever was done; if they are Pareto, it grows in proportion to that;
and if sizes hardly vary, it falls.

Lifetimes are an array with two rows, the ends and the work; an empty one if nothing is known.
"""

from __future__ import annotations

from functools import lru_cache
from math import log

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, IntArray

# Where intervals start: at 0, and at powers of 2.
_STARTS = np.append(0.0, 2.0 ** np.arange(-64, 65))
# What is expected counts half if this many jobs have ended at or after that point …
_FEW = 10.0
# … and each interval starts with this part of an end, at the mean hazard, to have a hazard at all.
_RARE = 0.1


def record_lives(
    lifetimes: FloatArray, before: FloatArray, now: FloatArray, has_ended: BoolArray
) -> FloatArray:
    """Return the lifetimes after jobs have gone on from ``before`` to ``now``, or ended there."""
    counted = np.zeros((2, len(_STARTS))) if lifetimes.size == 0 else lifetimes.copy()
    counted[0] += np.bincount(_find_intervals(now[has_ended]), minlength=len(counted[0]))
    counted[1] += np.maximum(_split(now) - _split(before), 0.0)
    return counted


def mean_size(lifetimes: FloatArray) -> float | None:
    """Return the mean size of jobs, if any have ended."""
    if lifetimes.size == 0 or lifetimes[0].sum() == 0 or lifetimes[1].sum() == 0:
        return None
    return float(lifetimes[1].sum() / lifetimes[0].sum())


def expect_remaining(lifetimes: FloatArray, attained: FloatArray, usual: float = 1.0) -> FloatArray:
    """Return the work that is expected to remain of jobs that have attained some.

    Until a job has ended, it is the ``usual`` size for all.

    >>> lifetimes = record_lives(np.zeros(0), np.zeros(99), np.ones(99), np.full(99, True))
    >>> expect_remaining(lifetimes, np.array([0.0, 0.5])).round(1)
    array([1. , 0.5])
    """
    if mean_size(lifetimes) is None:
        return np.full(len(attained), usual)
    expected: FloatArray = np.interp(attained, _STARTS, _look_ahead(lifetimes.tobytes()))
    return expected


@lru_cache(8)
def _look_ahead(lifetimes: bytes) -> FloatArray:
    """Return what is expected to remain at the start of each interval."""
    ends, work = np.frombuffer(lifetimes).reshape(2, -1)
    mean = float(work.sum() / ends.sum())
    means = (work + _RARE * mean) / (ends + _RARE)  # if hazards stayed the same from there on
    lasts = np.exp(-np.diff(_STARTS) / means[:-1])  # the part of the jobs that outlive the interval
    ahead = [float(means[-1])]
    for now, part in zip(means[-2::-1].tolist(), lasts[::-1].tolist(), strict=True):
        ahead.append(now + (ahead[-1] - now) * part)
    # Where few have ended, believe what holds for jobs that have done less.
    expected, log_expected = [], log(mean)
    scale = log(mean / ahead[-1])  # new jobs are expected to be like all others
    logs = np.log(ahead[::-1]) + scale
    seen = np.cumsum(ends[::-1])[::-1].tolist()
    for log_ahead, jobs in zip(logs.tolist(), seen, strict=True):
        log_expected += (log_ahead - log_expected) * jobs / (jobs + _FEW)
        expected.append(log_expected)
    return np.exp(expected)


def _find_intervals(attained: FloatArray) -> IntArray:
    intervals: IntArray = np.searchsorted(_STARTS, attained, side="right") - 1
    return intervals


def _split(attained: FloatArray) -> FloatArray:
    """Return how much of the work that was attained lies in each interval, in all."""
    at, count = _find_intervals(attained), len(_STARTS)
    inside = np.bincount(at, weights=attained, minlength=count)
    jobs = np.bincount(at, minlength=count)
    beyond = len(attained) - np.cumsum(jobs)  # jobs that have attained more than the interval
    split: FloatArray = inside - jobs * _STARTS
    split[:-1] += beyond[:-1] * np.diff(_STARTS)
    return split
