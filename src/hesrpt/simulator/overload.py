"""Detecting overload: jobs that arrive faster than they are served."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from math import inf

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import OverloadWarning
from hesrpt.units import format_count
from hesrpt.workload import Workload

# With fewer jobs than this, growth cannot be told from chance.
_MIN_JOBS = 200


def detect_overload(workload: Workload, servers: float, completion_times: FloatArray) -> bool:
    """Return whether the number of jobs in the system keeps growing while jobs arrive.

    If it grows steadily, arriving jobs find numbers in proportion to 1, 3, 5 and 7 in the four
    quarters of the time, on average.
    """
    arrivals, jobs = workload.arrivals, len(workload)
    if arrivals is None or jobs < _MIN_JOBS:
        return False
    arrivals = arrivals if np.all(arrivals[1:] >= arrivals[:-1]) else np.sort(arrivals)
    first, last = float(arrivals[0]), float(arrivals[-1])
    if last <= first:
        return False
    # In a busy system, the number of jobs fluctuates like the square root of the number of
    # arrivals. If no more than that remain when the last job arrives, it may be chance.
    if np.count_nonzero(completion_times > last) <= 10 + 0.01 * jobs + 2 * jobs**0.5:
        return False
    speedup = workload.speedups.shared
    max_efficiency = inf if speedup is None else speedup.tabulate(servers).max_slope()
    offered = float(workload.sizes.sum()) / (last - first)
    if max_efficiency < inf and offered > 1.02 * max_efficiency * servers:
        return True  # more work arrives than the servers can do, however they are shared
    present = np.arange(jobs) - np.searchsorted(np.sort(completion_times), arrivals)
    quarter = np.minimum((4 * (arrivals - first) / (last - first)).astype(int), 3)
    counts = np.bincount(quarter, minlength=4)
    if counts.min() < _MIN_JOBS // 8:
        return False
    q = np.bincount(quarter, weights=present, minlength=4) / counts
    return bool(q[1] > 1.5 * q[0] and q[2] > 1.3 * q[1] and q[3] > 1.2 * q[2])


def warn_of_overload(policies: Iterable[str], servers: float, stacklevel: int) -> None:
    """Issue a warning that names the overloaded policies."""
    warnings.warn(
        f"jobs arrive faster than {format_count(servers, 'server')} can serve them under "
        f"{', '.join(policies)}: "
        "the queue keeps growing, and averages depend on the number of jobs",
        OverloadWarning,
        stacklevel=stacklevel + 1,
    )
