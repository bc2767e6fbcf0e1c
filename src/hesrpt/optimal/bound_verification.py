"""The proof of a lower bound from the prices of servers, and ``verify_bound()``.

For any prices μ(t) ≥ 0, every schedule costs at least

    Σ over jobs of min over C of J(C)  −  N ∫ μ dt,

because all jobs together never use more than N servers. J(C) is the least that a job of size x
costs if it ends at C and pays for its servers. For any value ψ of a unit of its work,

    J(C) ≥ H(ψ, C) = ψ x + ∫ from its arrival to C of (weight − π(ψ, μ(t))) dt,
    π(ψ, μ) = max over 0 ≤ n ≤ N of ψ s(n) − μ n.

H is linear in C where the price is constant, so it is enough to look at the ends of each interval.
Each interval needs only one value ψ for which H is high enough at both ends, and one ψ serves many
intervals. How these values are found does not matter, and profits are bounded from above with rates
alone. Nothing here uses the search for prices or its compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import fsum
from typing import TYPE_CHECKING, get_args

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import CertificateError, InputError
from hesrpt.objectives import FlowObjective, weight_of_each_job
from hesrpt.optimal.certificate import check_numbers, check_problem, verify
from hesrpt.optimal.earnings import TOLERANCE
from hesrpt.parallel import run_tasks
from hesrpt.workload import Workload

if TYPE_CHECKING:
    from hesrpt.optimal.bounds import LowerBound

# The relative part of a job's cost that a second proof may miss.
_COST_TOLERANCE = 1e-7


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
    check_problem(bound.workload, bound.servers, bound.objective, bound.whole)
    if bound.objective not in get_args(FlowObjective):
        raise CertificateError(f"bounds are on flow times, got the objective {bound.objective!r}")
    if (bound.plan is not None) + bool(bound.windows) + bool(len(bound.prices)) != 1:
        raise CertificateError("a bound must have one proof: prices, a plan or windows")
    if bound.windows:
        proven = _prove_by_windows(bound)
    else:
        proven = _prove_by_prices(bound) if bound.plan is None else _prove_by_plan(bound)
    if not bound.total <= proven:  # also true of NaN
        raise CertificateError(f"the bound is {bound.total!r}, but only {proven!r} is proven")
    return proven


def _prove_by_prices(bound: LowerBound) -> float:
    times, prices, jobs = bound.times, bound.prices, len(bound.workload)
    check_numbers("price", prices, len(prices))
    check_numbers("time", times, len(prices) + 1)
    if not np.all(np.diff(times) > 0):
        raise CertificateError("the times of a bound must ascend")
    check_numbers("job cost", bound.job_costs, jobs)
    costs = bound_job_costs(
        bound.workload, bound.servers, bound.whole, bound.weights, times, prices, bound.job_costs
    )
    # Other values of work and other roundings may prove a little less than before.
    is_too_high = ~(costs >= bound.job_costs * (1 - _COST_TOLERANCE))
    if is_too_high.any():
        job = int(np.argmax(is_too_high))
        raise CertificateError(
            f"job {bound.workload.names[job]} is said to cost {float(bound.job_costs[job])!r} at "
            f"least, but only {float(costs[job])!r} is proven"
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
    return fsum(verify_bound(window) for window in bound.windows) * (1 - 4 * _ROUNDING)


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
    verify(plan)
    if not plan.certificate.proven:
        raise CertificateError("the plan of the bound is not proven")
    # The certificate is verified up to this tolerance.
    return plan.certificate.lower_bound * (1 - 1.1 * TOLERANCE)


# The relative rounding error of a product or a sum of two numbers.
_ROUNDING = 2.3e-16
# The jobs of a task. Tasks run in threads: compiled code releases the interpreter's lock.
_JOBS_AT_A_TIME = 250


def bound_job_costs(
    workload: Workload,
    servers: float,
    whole: bool,
    weights: FloatArray,
    times: FloatArray,
    prices: FloatArray,
    targets: FloatArray,
    report: Callable[[float], None] = lambda part: None,
) -> FloatArray:
    """Return lower bounds on what jobs cost if they pay for servers, ``targets`` at most.

    Prices are constant between ``times``, and 0 before and after. ``report`` is called with the
    part of the jobs that is done.
    """
    from hesrpt.optimal.proof_kernel import prove_costs

    speedups = workload.speedups.tabulate(servers)
    shapes = (speedups.on_whole_servers() if whole else speedups).shapes(servers, True)
    arrivals = workload.arrival_times
    times, prices = np.array(times), np.array(prices)  # compiled code takes no frozen arrays
    with np.errstate(divide="ignore"):
        log_prices = np.log(prices)

    def prove(jobs: IntArray) -> FloatArray:
        costs = np.empty(len(jobs))
        prove_costs(
            shapes.records,
            shapes.corners,
            shapes.of_job[jobs],
            workload.sizes[jobs],
            weights[jobs],
            arrivals[jobs],
            servers,
            times,
            prices,
            log_prices,
            targets[jobs],
            costs,
        )
        return costs

    parts = np.array_split(np.arange(len(workload)), -(-len(workload) // _JOBS_AT_A_TIME))
    tasks = {number: partial(prove, part) for number, part in enumerate(parts)}
    done = 0

    def count(_: int) -> None:
        nonlocal done
        done += 1
        report(done / len(tasks))

    found = run_tasks(tasks, in_threads=tasks, on_done=count)
    return np.concatenate([found[number] for number in tasks])


def total_bound(costs: FloatArray, servers: float, times: FloatArray, prices: FloatArray) -> float:
    """Return the bound on the cost of all schedules: what jobs cost less the price of servers."""
    paid = servers * fsum(prices * np.diff(times))
    return fsum(costs) * (1 - 4 * _ROUNDING) - paid * (1 + 8 * _ROUNDING)
