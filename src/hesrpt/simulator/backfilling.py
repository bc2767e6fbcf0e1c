"""Rigid disciplines: first come, first served, and EASY backfilling.

Jobs hold the servers they ask for from start to end, so a job's end is known when it starts. Only
starts must be decided, at every submission and every end. Disciplines know only the users'
estimates: they do not foresee that a job runs longer than estimated.
"""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies import Easy, RigidDiscipline
from hesrpt.simulator.backfilling_kernel import find_starts_of_sorted_jobs
from hesrpt.workload import Workload


def find_start_times(
    workload: Workload, servers: float, discipline: RigidDiscipline
) -> tuple[FloatArray, FloatArray]:
    """Return when each job starts, and the start time of its reservation.

    EASY makes a reservation for a job that is the first in the queue and has to wait. NaN means
    that a job never had one.
    """
    assert workload.requested is not None
    jobs = len(workload)
    arrivals = workload.arrival_times
    runtimes = run_times(workload)
    estimates = runtimes if workload.estimates is None else workload.estimates
    order = np.argsort(arrivals, kind="stable")
    starts, reservations = np.empty(jobs), np.empty(jobs)
    starts[order], reservations[order] = find_starts_of_sorted_jobs(
        arrivals[order],
        workload.requested[order],
        runtimes[order],
        estimates[order],
        float(servers),
        isinstance(discipline, Easy),
    )
    return starts, reservations


def run_times(workload: Workload) -> FloatArray:
    """Return how long each job runs on the servers that it asks for."""
    assert workload.requested is not None
    times = workload.sizes / workload.speedups.rate(workload.requested)
    # Sizes are r·s(q), and r·s(q)/s(q) is not r to the last digit. Rounding makes equal run times
    # equal again, so that such jobs end at the same time.
    digits = 10.0 ** (12 - np.floor(np.log10(times)))
    return np.rint(times * digits) / digits
