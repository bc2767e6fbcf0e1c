"""The data of the compiled event loop: jobs, table of rows, recorded phases, settings and state."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from hesrpt.arrays import FloatArray, IntArray


class Jobs(NamedTuple):
    """The jobs; arrays are in the order of the workload unless stated otherwise."""

    arrivals: FloatArray
    remaining: FloatArray  # work that remained at the last decision
    estimate: FloatArray  # the size that the policy sees, relative to the true one
    completion: FloatArray
    target: FloatArray  # the virtual time at which the job ends
    rate: FloatArray  # per unit of virtual time, since the last decision
    held: FloatArray  # servers, since the last decision
    started: IntArray  # whether the job has ever held servers
    paused_until: FloatArray  # the end of the pause that follows a change of servers
    by_arrival: IntArray  # the jobs as they arrive; of simultaneous ones, the largest first
    present: IntArray  # the jobs in the system, at the front of this array
    decided_servers: FloatArray  # the caller's decision: the servers of the jobs present …
    decided_rates: FloatArray  # … and their rates
    samples: FloatArray  # of each job: spread, lean and height, and what a unit of work counts


class Rows(NamedTuple):
    """Servers and rates by rank; row m, for m jobs, starts at ``start[m]``, or is missing at -1.

    A row starts with the last job in the list. Jobs that it does not reach hold nothing. If rows
    depend on a calibration, those of each level follow those of the level below, and each level
    has room for as many rows as there are ``log_rank``.
    """

    start: IntArray
    length: IntArray
    held: FloatArray
    rate: FloatArray
    rate_factor: FloatArray  # by which all rates grow when the last of m jobs leaves, or 0
    held_factor: FloatArray
    log_rank: FloatArray  # ln 0 (unused), ln 1, ln 2, …


class Phases(NamedTuple):
    """The jobs that held servers in each phase, and how many, if the run is recorded."""

    ends: FloatArray
    start: IntArray  # where the entries of a phase start
    job: IntArray
    held: FloatArray


class Settings(Protocol):
    """Settings, which stay the same during a run."""

    by_rank: bool  # decisions come from the table of rows, not from the caller
    uniform: bool  # all jobs present run at the same rate
    sorted_by_size: bool  # the list of jobs is sorted, largest first
    keeps_order: bool  # running jobs cannot overtake each other in that order
    recording: bool
    max_servers: float
    resize_cost: float
    review_every: float
    stop_at: float
    max_events: int  # return to the caller after this many
    # The rest is for calibrations: see hesrpt.policies.calibration.
    calibrated: bool
    exponent: float  # the p of k^p, if rows follow from the closed form; otherwise 0
    levels: int
    min_focus: float
    memory: float
    batch_factor: float
    batch_jobs: float
    patience: float
    prior_focus: float
    prior_weight: float
    size_power: float
    max_size_weight: float


class LoopState(Protocol):
    """The state of the loop apart from the jobs."""

    stage: int
    present: int  # jobs in the system
    running: int  # jobs that hold servers, at the end of the list
    arrived: int
    admitted: int  # jobs that have arrived and are in the list, or have left it
    events: int
    idle_reviews: int  # reviews in a row at which the policy served no job
    present_at_decision: int
    running_at_decision: int
    phases: int  # recorded so far …
    entries: int  # … and their entries
    allocations: int  # running jobs, summed over phases
    now: float
    virtual_time: float  # since the last decision
    pace: float  # seconds for each unit of virtual time
    held: float  # servers, at the last decision
    held_factor: float  # by which each job's servers have grown since the last decision
    next_review: float
    server_seconds: float
    job_seconds: float  # the number of jobs in the system, integrated over time
    # The calibration, apart from the sums of each job.
    level: int
    is_stream: bool
    arrival_times: int
    ended_since: int
    focus_at_arrival: float
    numerator: float
    denominator: float
    log_sizes: float
    # The logarithm of the number of jobs and its square, integrated over virtual time since the
    # last decision.
    log_jobs: float
    log_jobs_squared: float


def create_record(fields: type[Settings | LoopState], **values: float) -> Any:
    """Return an array of one record with these fields, zero unless given.

    Compiled code reads and writes the fields of its entry as attributes. It is an array because
    passing a record to compiled code takes numba ten times as long.
    """
    kinds = {"bool": np.bool_, "int": np.int64, "float": np.float64}
    record = np.zeros(1, [(name, kinds[kind]) for name, kind in fields.__annotations__.items()])
    for name, value in values.items():
        record[name] = value
    return record
