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
    target: FloatArray  # when the job ends, counted from the last decision
    rate: FloatArray  # since the last decision
    held: FloatArray  # servers, since the last decision
    started: IntArray  # whether the job has ever held servers
    paused_until: FloatArray  # the end of the pause that follows a change of servers
    by_arrival: IntArray  # the jobs as they arrive; of simultaneous ones, the largest first
    present: IntArray  # the jobs in the system, at the front of this array
    decided_servers: FloatArray  # the caller's decision: the servers of the jobs present …
    decided_rates: FloatArray  # … and their rates


class Rows(NamedTuple):
    """Servers and rates by rank; row m, for m jobs, starts at ``start[m]``, or is missing at -1.

    A row starts with the last job in the list. Jobs that it does not reach hold nothing. If rows
    depend on a calibration, those of each level follow those of the level below.
    """

    start: IntArray
    length: IntArray
    held: FloatArray
    rate: FloatArray


class Phases(NamedTuple):
    """The jobs that held servers in each phase, and how many, if the run is recorded."""

    ends: FloatArray
    start: IntArray  # where the entries of a phase start
    job: IntArray
    held: FloatArray


class Settings(Protocol):
    """Settings, which stay the same during a run."""

    by_rank: bool  # decisions come from the table of rows, not from the caller
    sorted_by_size: bool  # the list of jobs is sorted, largest first
    keeps_order: bool  # running jobs cannot overtake each other in that order
    recording: bool
    max_servers: float
    resize_cost: float
    review_every: float
    stop_at: float
    max_events: int  # return to the caller after this many


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
    phases: int  # recorded so far …
    entries: int  # … and their entries
    allocations: int  # running jobs, summed over phases
    now: float
    elapsed: float  # time since the last decision
    held: float  # servers, at the last decision
    next_review: float
    server_seconds: float
    job_seconds: float  # the number of jobs in the system, integrated over time


def create_record(fields: type, **values: float) -> Any:
    """Return an array of one record with these fields, zero unless given.

    Compiled code reads and writes the fields of its entry as attributes. It is an array because
    passing a record to compiled code takes numba ten times as long.
    """
    kinds = {"bool": np.bool_, "int": np.int64, "float": np.float64}
    record = np.zeros(1, [(name, kinds[kind]) for name, kind in fields.__annotations__.items()])
    for name, value in values.items():
        record[name] = value
    return record
