"""The data of the compiled loop for policies whose rates are products: see ``ranked_kernel``."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hesrpt.arrays import FloatArray, IntArray


class Stream(NamedTuple):
    """The jobs as they arrive; of simultaneous ones, the largest first."""

    arrivals: FloatArray
    sizes: FloatArray
    completion: FloatArray
    weights: FloatArray  # what a unit of work counts, if the policy is calibrated


class Queue(NamedTuple):
    """The jobs in the system, at the front of these arrays, the largest first."""

    number: IntArray  # the place of the job in the stream
    work: FloatArray  # what remained when virtual time was 0
    # If the policy is calibrated, the sums of the job, as if a unit of its work counted 1, less
    # what its rank has gained: see hesrpt.simulator.ranked_calibration_kernel.
    spread: FloatArray
    lean: FloatArray
    height: FloatArray


class RateTable(NamedTuple):
    """With m jobs, the i-th largest runs at the rate ``base[i] / pace[m]``.

    The first index is the level of the calibration. Each level holds for ``fewest`` to ``most``
    jobs; ``most`` is 0 if it is missing.
    """

    base: (
        FloatArray  # has more entries, all 0: for jobs that may arrive, and for loops over several
    )
    inverse: FloatArray  # 1 / base
    pace: FloatArray
    speed: FloatArray  # 1 / pace
    fewest: IntArray
    most: IntArray
    idle: IntArray  # this many of the largest jobs get nothing
    # If the policy is calibrated, how much more rank i has than rank i + 1 of base, base · ln i and
    # base · ln² i.
    drop: FloatArray
    log_drop: FloatArray
    squared_log_drop: FloatArray


class RankedState(Protocol):
    """The state of the loop apart from the jobs, and its settings."""

    uniform: bool  # all jobs run at one rate
    stop_at: float
    max_events: int  # return to the caller after this many
    present: int
    arrived: int
    events: int
    allocations: int  # running jobs, summed over phases
    now: float
    virtual_time: float
    busy_seconds: float
    job_seconds: float  # the number of jobs in the system, integrated over time
