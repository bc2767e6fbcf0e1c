"""The sums of a calibration in the loop for policies whose rates are products, compiled.

While the job of rank i (the i-th largest) runs with m jobs present, its sums grow, per unit of
virtual time, by base[i] times

    spread: (ln i − ln m)²,   lean: ln i − ln m,   height: (ln i − ln m)(ln m − u).

See :mod:`hesrpt.policies.calibration`. So what a rank has gained since some time is a product of
its coefficients and of integrals over virtual time, which all jobs share: ``Passed``. A job's own
sums have to be touched only when its rank changes, because a larger job arrives, and when it ends:
they hold what the job has gained, less what its present rank has gained.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.compiled import compiled, inlined
from hesrpt.simulator.calibration_kernel_data import CalibrationData
from hesrpt.simulator.ranked_kernel_data import Queue

# Loops over this many numbers, or a multiple, leave none to be handled one by one.
AT_A_TIME = 16
# A job must not lose its digits in differences of sums that are more than this many times larger.
_MAX_CANCELLED = 1e5


class Passed(NamedTuple):
    """Integrals over virtual time since all sums were up to date."""

    time: float
    log_jobs: float  # of ln m
    log_jobs_squared: float  # of ln² m
    above: float  # of ln m − u
    log_jobs_above: float  # of (ln m)(ln m − u)


@inlined
def add_passed(passed: Passed, time: float, log_jobs: float, usual: float) -> Passed:
    """Return the integrals after some more time with e^log_jobs jobs present."""
    more = time * log_jobs
    above = log_jobs - usual
    return Passed(
        passed.time + time,
        passed.log_jobs + more,
        passed.log_jobs_squared + more * log_jobs,
        passed.above + time * above,
        passed.log_jobs_above + more * above,
    )


@inlined
def sum_up(log_rank: float, base: float, passed: Passed) -> tuple[float, float, float]:
    """Return the spread, lean and height that a rank has gained."""
    lean = log_rank * passed.time - passed.log_jobs
    spread = log_rank * (lean - passed.log_jobs) + passed.log_jobs_squared
    height = log_rank * passed.above - passed.log_jobs_above
    return base * spread, base * lean, base * height


@inlined
def sum_up_drops(
    drop: float, log_drop: float, squared_log_drop: float, passed: Passed
) -> tuple[float, float, float]:
    """Return how much more spread, lean and height a rank has gained than the next."""
    spread = (
        squared_log_drop * passed.time
        - log_drop * (2.0 * passed.log_jobs)
        + drop * passed.log_jobs_squared
    )
    lean = log_drop * passed.time - drop * passed.log_jobs
    height = log_drop * passed.above - drop * passed.log_jobs_above
    return spread, lean, height


@inlined
def is_lost_beside(passed: Passed, base: float, work: float) -> bool:
    """Whether some work is so small that it would be lost beside what a rank has gained."""
    return passed.time * base > _MAX_CANCELLED * work


@inlined
def add_to_sums(
    queue: Queue,
    base: FloatArray,
    calibration: CalibrationData,
    idle: int,
    present: int,
    passed: Passed,
) -> None:
    """Bring the sums of all jobs up to date. No time has passed since then."""
    log_rank = calibration.log_rank
    spreads, leans, heights = queue.spread, queue.lean, queue.height
    # What is added behind the last job does no harm: it is overwritten when a job takes that place.
    stop = idle + round_up(present - idle)
    one = np.uint64(1)
    for place in range(np.uint64(idle), np.uint64(stop)):
        spread, lean, height = sum_up(log_rank[place + one], base[place + one], passed)
        spreads[place] += spread
        leans[place] += lean
        heights[place] += height


@inlined
def round_up(count: int) -> int:
    """Return the next number that leaves none to be handled one by one."""
    return (count + AT_A_TIME - 1) // AT_A_TIME * AT_A_TIME


@compiled
def find_usual_sizes(
    arrivals: FloatArray, log_sizes: FloatArray, first: int, total: float, usual: FloatArray
) -> float:
    """Compute the mean of all logarithms of sizes up to each job; return their sum.

    The jobs are a part of the stream, with ``first`` jobs and the sum ``total`` before them. Those
    that arrive at the same time all know the mean up to the last of them.
    """
    start = 0
    for job in range(log_sizes.size):
        total += log_sizes[job]
        if job + 1 == log_sizes.size or arrivals[job + 1] != arrivals[job]:
            mean = total / (first + job + 1)
            for known in range(start, job + 1):
                usual[known] = mean
            start = job + 1
    return total
