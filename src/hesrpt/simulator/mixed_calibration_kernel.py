"""Learning the focus of the adaptive policy in the loop for jobs that differ, compiled.

The sums are those of :class:`hesrpt.policies.calibration.Calibration`, with weights in the place of
ranks.
"""

from __future__ import annotations

from math import exp, log

from hesrpt.arrays import IntArray
from hesrpt.compiled import compiled
from hesrpt.simulator.calibration_kernel import add_sample, count_end
from hesrpt.simulator.calibration_kernel_data import CalibrationData
from hesrpt.simulator.kernel_data import Jobs
from hesrpt.simulator.mixed_kernel_data import MixedJobs


@compiled
def sum_weights(listed: IntArray, mixed: MixedJobs, first: int, end: int) -> float:
    """Return the weight of the jobs at some places of a list."""
    total = 0.0
    for place in range(first, end):
        total += mixed.weight[listed[place]]
    return total


@compiled
def observe_phase(
    jobs: Jobs,
    mixed: MixedJobs,
    calibration: CalibrationData,
    count: int,
    passed: float,
    due: float,
) -> None:
    """Add the work done in a phase, and count the jobs that end with it: those with targets due.

    ``mixed.order`` has the jobs from the first to end to the last.
    """
    sums = calibration.state[0]
    total = sum_weights(mixed.order, mixed, 0, count)
    log_jobs, up_to, ends = log(total), 0.0, 0
    for place in range(count - 1, -1, -1):
        job = mixed.order[place]
        up_to += mixed.weight[job]
        if jobs.rate[job] <= 0.0:
            continue
        done = jobs.remaining[job]
        if jobs.target[job] > due:
            to_target = max(jobs.target[job] - passed, 0.0) * jobs.rate[job]
            done -= min(done, to_target)
        else:
            ends += 1
        log_rank = log(up_to) if up_to < total else log_jobs
        add_sample(calibration.samples[job], done, log_rank, log_jobs, sums.usual)
    if ends == 0:
        return
    decay = exp(-1.0 / calibration.settings[0].memory)
    for place in range(count):
        job = mixed.order[place]
        if jobs.target[job] <= due:
            count_end(calibration.samples[job], sums, log(max(total, mixed.weight[job])), decay)
            total -= mixed.weight[job]
