"""The proof of a lower bound from the prices of servers, and ``verify_bound()``.

For any prices μ(t) ≥ 0, every schedule costs at least

    Σ over jobs of min over C of J(C)  −  N ∫ μ dt,

because all jobs together never use more than N servers. J(C) is the least that a job costs if it
ends at C and pays for its servers; :mod:`hesrpt.optimal.proven_costs` bounds it from below.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.errors import CertificateError, InputError
from hesrpt.objectives import weight_of_each_job
from hesrpt.optimal.certificate import verify
from hesrpt.optimal.earnings import TOLERANCE
from hesrpt.optimal.proven_costs import ROUNDING, bound_job_costs, total_bound
from hesrpt.units import format_count

if TYPE_CHECKING:
    from hesrpt.optimal.bounds import LowerBound


def verify_bound(bound: LowerBound) -> float:
    """Verify a lower bound from first principles, and return the total cost that was proven.

    Raises :class:`~hesrpt.errors.CertificateError` if the proof fails. The search for prices is not
    used: only the jobs, their speedups, the prices, and the argument in this module.

    >>> import hesrpt
    >>> jobs = hesrpt.Workload.poisson(rate=3, jobs=20, speedup=hesrpt.PowerLaw(0.5), seed=1)
    >>> bound = hesrpt.lower_bound(jobs, servers=4)
    >>> hesrpt.verify_bound(bound) >= bound.total
    True
    """
    from hesrpt.optimal.bounds import LowerBound  # which imports this module

    if not isinstance(bound, LowerBound):
        raise InputError(f"verify_bound() needs a LowerBound, got {type(bound).__name__}")
    bound.workload.speedups.check(bound.servers)
    if bound.windows:
        proven = _prove_by_windows(bound)
    else:
        proven = _prove_by_prices(bound) if bound.plan is None else _prove_by_plan(bound)
    if not bound.total <= proven:  # also true of NaN
        raise CertificateError(f"the bound is {bound.total!r}, but only {proven!r} is proven")
    return proven


def _prove_by_prices(bound: LowerBound) -> float:
    times, prices, jobs = bound.times, bound.prices, len(bound.workload)
    if len(times) != len(prices) + 1 or not np.all(np.isfinite(times)):
        raise CertificateError("there must be one more time than prices, and times must be finite")
    if not np.all(np.diff(times) > 0):
        raise CertificateError("the times of a bound must ascend")
    if not np.all((prices >= 0) & np.isfinite(prices)):
        raise CertificateError("each price must be finite and at least 0")
    if len(bound.job_costs) != jobs or not np.all(bound.job_costs >= 0):
        raise CertificateError(
            f"there must be a cost of at least 0 for each of {format_count(jobs, 'job')}"
        )
    costs = bound_job_costs(
        bound.workload, bound.servers, bound.whole, bound.weights, times, prices, bound.job_costs
    )
    return total_bound(costs, bound.servers, times, prices)


def _prove_by_windows(bound: LowerBound) -> float:
    """Return the sum of what is proven of each window, if their jobs are those of the bound.

    A schedule of all jobs, restricted to those of a window, is a schedule of these alone. So their
    cost is at least the bound of the window, and each job is in one window.
    """
    by_arrival = np.argsort(bound.workload.arrival_times, kind="stable")
    sizes = [len(window.workload) for window in bound.windows]
    if sum(sizes) != len(bound.workload):
        raise CertificateError("each job must be in one window")
    for window, jobs in zip(
        bound.windows, np.split(by_arrival, np.cumsum(sizes)[:-1]), strict=True
    ):
        same = (
            np.array_equal(window.workload.sizes, bound.workload.sizes[jobs])
            and np.array_equal(window.workload.arrival_times, bound.workload.arrival_times[jobs])
            and np.array_equal(window.weights, bound.weights[jobs])
            and window.workload.speedups.equals(bound.workload.speedups.take(jobs)).all()
            and window.servers == bound.servers
            and (bound.whole or not window.whole)
        )
        if not same:
            raise CertificateError("a window of the bound is for other jobs or servers")
    return fsum(verify_bound(window) for window in bound.windows) * (1 - 4 * ROUNDING)


def _prove_by_plan(bound: LowerBound) -> float:
    """Return what the certificate of a plan for the same jobs proves."""
    plan, workload = bound.plan, bound.workload
    assert plan is not None
    arrivals = workload.arrival_times
    if not np.all(arrivals == arrivals[0]):
        raise CertificateError("only jobs that arrive together can be bounded by a plan")
    weights = weight_of_each_job(plan.objective, plan.workload.sizes, plan.workload.weights)
    if (
        len(plan.workload) != len(workload)
        or not np.array_equal(plan.workload.sizes, workload.sizes)
        or not plan.workload.speedups.equals(workload.speedups).all()
        or not np.array_equal(weights, bound.weights)
        or plan.servers != bound.servers
        or (plan.whole and not bound.whole)
    ):
        raise CertificateError("the plan of the bound is for other jobs or servers")
    if not plan.certificate.proven:
        raise CertificateError("the plan of the bound is not proven")
    verify(plan)
    # The certificate is verified up to this tolerance.
    return plan.certificate.lower_bound * (1 - 1.1 * TOLERANCE)
