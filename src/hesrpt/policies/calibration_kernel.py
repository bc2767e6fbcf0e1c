"""The sums by which the adaptive policy learns its focus: see :mod:`hesrpt.policies.calibration`.

These are plain functions. The policy calls them as they are, with arrays in the place of numbers
where a function says so, and the loops of the simulator compile them. They do not call each other,
because compiled code could not.
"""

from __future__ import annotations

from math import exp, sqrt
from typing import Protocol, TypeVar

import numpy as np

from hesrpt.arrays import FloatArray

#: The focus f takes the values (level / LEVELS)² only, so that rows can be kept in a table.
LEVELS = 32
#: The lowest level. Near saturation, next to equal shares is safer than equal shares.
MIN_LEVEL = 4
#: Old jobs are forgotten: a job counts 1/e after this many others.
MEMORY = 30_000
#: The usual number of jobs is a mean over this many arrivals, or over all if there were fewer.
USUAL_MEMORY = 3000.0
#: Before anything is observed, f is 1, with this weight: a batch keeps it.
BATCH_WEIGHT = 1e-3
#: When the first job joins others, this is believed of f, with the weight of this many jobs.
PRIOR_FOCUS, PRIOR_WEIGHT = 0.15, 10.0
#: The jobs seen so far are a batch to the extent that they are still there, or this times as much
#: if jobs have speedups of their own. That was found by trial.
BATCH_IF_DIFFERENT = 4.0
#: A job of x times the usual size (the geometric mean) weighs x to this power, up to a maximum.
SIZE_POWER, MAX_SIZE_WEIGHT = 0.4, 3.0
#: If more jobs end in a row without an arrival than this, times the mean number of jobs that arrive
#: together, jobs have stopped arriving, and f rises towards 1. It is 1 after twice as many.
PATIENCE = 10.0
#: Estimates of sizes are believed until as much as the sizes of this many jobs would vary, with a
#: variance of 1 of the logarithm, shows how rough they are.
TRUSTED_JOBS = 10.0
#: How many sums compare estimates with sizes.
ESTIMATE_SUMS = 6
#: The common price (:mod:`hesrpt.policies.pricing`) is interpolated between two powers of this: on
#: whole servers, many prices would do …
GRID = 2.0 ** (1 / 64)
#: … and lies between these, times the weight of all jobs: for each server, and for all.
MIN_COMMON_PRICE, MAX_COMMON_PRICE = 1e-9, 1e6
# Forgetting stops here, so that sums never underflow.
_MIN_DENOMINATOR = 1e-9
_DECAY = exp(-1 / MEMORY)
_MIN_FOCUS = (MIN_LEVEL / LEVELS) ** 2

_Numbers = TypeVar("_Numbers", float, FloatArray)


class Sums(Protocol):
    """What has been learned, apart from the sums of each job."""

    level: int
    numerator: float
    denominator: float
    is_stream: bool  # whether a job has ever joined others
    jobs_seen: int
    arrival_times: int  # the number of times at which jobs arrived
    focus_at_arrival: float  # chosen when jobs last arrived
    ended_since: int  # jobs that have ended since then
    log_sizes: float  # summed over the jobs seen
    usual: float  # the usual ln m


def focus_of_level(level: int) -> float:
    """Return f: levels are closer together near 0, where small changes matter most.

    >>> focus_of_level(LEVELS), focus_of_level(LEVELS // 2)
    (1.0, 0.25)
    """
    return (level / LEVELS) ** 2


def weigh_size(log_size: _Numbers, usual: _Numbers | float) -> _Numbers:
    """Return what jobs count, given the logarithms of their sizes and of the usual size.

    >>> weigh_size(np.log([1.0, 32.0]), 0.0)
    array([1., 3.])
    """
    weight: _Numbers = np.minimum(np.exp(SIZE_POWER * (log_size - usual)), MAX_SIZE_WEIGHT)
    return weight


def compare_sizes(sums: FloatArray, estimate: float, size: float, weight: float) -> None:
    """Add an ended job, given ln of estimate and size, to the sums of :func:`scale_level`."""
    sums[0] += weight
    sums[1] += weight * estimate
    sums[2] += weight * size
    sums[3] += weight * estimate * estimate
    sums[4] += weight * size * size
    sums[5] += weight * estimate * size


def scale_level(level: int, sums: FloatArray) -> int:
    """Return the level of the focus times the correlation of estimates and sizes.

    So order counts as far as the estimates tell it. At first they are believed, as firmly as if
    some jobs had shown it.

    >>> scale_level(LEVELS, np.zeros(ESTIMATE_SUMS)) == LEVELS
    True
    """
    if sums[0] <= 0.0:
        return level
    of_estimates = sums[3] - sums[1] * sums[1] / sums[0] + TRUSTED_JOBS
    of_sizes = sums[4] - sums[2] * sums[2] / sums[0] + TRUSTED_JOBS
    together = sums[5] - sums[1] * sums[2] / sums[0] + TRUSTED_JOBS
    correlation = max(together, 0.0) / sqrt(of_estimates * of_sizes)
    return int(level * sqrt(min(correlation, 1.0)) + 0.5)


def sum_work(
    work: _Numbers, log_rank: _Numbers, log_jobs: float, usual: float
) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return the spread, lean and height of work on jobs, given ln i and ln m.

    The work is the fraction of a job that was done, times what the job counts.
    """
    lean = work * (log_rank - log_jobs)
    return lean * (log_rank - log_jobs), lean, lean * (log_jobs - usual)


def count_end(sums: Sums, spread: float, lean: float, height: float, log_jobs: float) -> None:
    """Count a job that ends, given its own sums, with e^log_jobs jobs present."""
    decay = _DECAY if sums.denominator > _MIN_DENOMINATOR else 1.0
    sums.numerator = decay * sums.numerator + (lean * (log_jobs - sums.usual) - height)
    sums.denominator = decay * sums.denominator + spread
    sums.ended_since += 1


def update_focus(sums: Sums, present: int, new: int, log_jobs: float, differ: bool) -> None:
    """Choose the level when new jobs, which have been counted as seen, join those present.

    ``log_jobs`` is the logarithm of the number, or of the weight, of all jobs in the system now.
    If jobs have speedups of their own, they ``differ``.
    """
    if present > 0 and not sums.is_stream:
        sums.is_stream = True
        sums.numerator += PRIOR_FOCUS * PRIOR_WEIGHT
        sums.denominator += PRIOR_WEIGHT
    # Evidence beyond the ends of the range must not have to be undone later.
    least = _MIN_FOCUS * sums.denominator
    sums.numerator = min(max(sums.numerator, least), sums.denominator)
    focus = sums.numerator / sums.denominator
    batch = (BATCH_IF_DIFFERENT if differ else 1.0) * (present + new) / sums.jobs_seen
    focus += (1.0 - focus) * min(batch, 1.0)
    sums.focus_at_arrival = focus
    sums.arrival_times += 1
    sums.usual += (log_jobs - sums.usual) / min(float(sums.arrival_times), USUAL_MEMORY)
    sums.ended_since = 0
    sums.level = int(LEVELS * sqrt(focus) + 0.5)


def raise_focus(sums: Sums) -> None:
    """Choose the level again if unusually many jobs have ended since jobs last arrived."""
    # Hardly ever is that so, and this test needs no division.
    usual = max(PATIENCE * sums.jobs_seen, float(sums.arrival_times))
    if sums.ended_since * float(sums.arrival_times) > usual:
        stopped = min(sums.ended_since * float(sums.arrival_times) / usual - 1.0, 1.0)
        focus = sums.focus_at_arrival + (1.0 - sums.focus_at_arrival) * stopped
        sums.level = int(LEVELS * sqrt(focus) + 0.5)
