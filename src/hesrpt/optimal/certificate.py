"""The proof of optimality of a plan, and its verification without the solver.

A certificate gives each unit of work a value. If no phase can earn more than it costs, the total
value of all work is a lower bound on the cost (weak duality), and a plan that costs no more than
this bound is optimal. Verification needs only the speedups, the timeline of the plan and this
argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray, IntArray, scalar
from hesrpt.errors import CertificateError, InputError
from hesrpt.objectives import COSTS
from hesrpt.optimal.all_orders import PlanPrices
from hesrpt.optimal.earnings import (
    TOLERANCE,
    EarningsBound,
    bound_earnings,
    max_power_law_earnings,
)
from hesrpt.optimal.replay import check_timeline
from hesrpt.speedups import PowerLaw
from hesrpt.units import format_count

if TYPE_CHECKING:
    from hesrpt.optimal.bounds import LowerBound
    from hesrpt.optimal.planner import Plan


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """The proof of a plan: a lower bound on the cost, and the job values that it follows from.

    ``lower_bound`` is Σ v_i x_i, in units of the objective (the total, not the mean). If the plan
    is ``proven``, no schedule costs less. Otherwise no schedule that ends the jobs in the same
    order (``first_to_last``) costs less, and ``reason`` says why that does not prove the plan to be
    optimal. ``certified_gap`` then says how far the plan is from the optimum at most. That takes
    some time, and is computed when it is asked for.

    >>> import hesrpt
    >>> speedups = [hesrpt.PowerLaw(0.3), hesrpt.PowerLaw(0.6), hesrpt.PowerLaw(0.9)]
    >>> jobs = hesrpt.Workload([3, 2, 1], speedups)
    >>> hesrpt.plan(jobs, servers=10).certificate  # doctest: +ELLIPSIS
    <Certificate: at most 1...% above the optimum, whatever the order>
    """

    proven: bool
    reason: str
    first_to_last: IntArray
    values_in_order: FloatArray
    lower_bound: float
    gap: float
    prices: PlanPrices | None = None  # in each phase, if the best order is not known

    @cached_property
    def any_order_bound(self) -> LowerBound | None:
        """A bound on the cost of all schedules; None if ``lower_bound`` already is one."""
        return None if self.prices is None else self.prices.find_bound()

    @property
    def certified_gap(self) -> float:
        """How far the plan's cost is above that of any other schedule at most.

        0.008 means that no schedule costs less than this plan's cost divided by 1.008, in whatever
        order it ends the jobs.
        """
        if self.any_order_bound is None:
            return max(self.gap, 0.0)
        return self.lower_bound * (1 + self.gap) / self.any_order_bound.total - 1

    @property
    def summary(self) -> str:
        """The claim of the certificate in one line."""
        if self.proven:
            return f"optimal: {self.reason}"
        return f"at most {format_gap(self.certified_gap)} above the optimum, whatever the order"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}>"

    @cached_property
    def job_values(self) -> FloatArray:
        """The value of a unit of each job's work, in the order in which the jobs were given."""
        values = np.empty_like(self.values_in_order)
        values[self.first_to_last] = self.values_in_order
        return values


def format_gap(gap: float) -> str:
    """Return a gap as a percentage with two digits, rounded up: it must not claim too much.

    >>> format_gap(0.00791), format_gap(0.1234), format_gap(0.0), format_gap(2.5)
    ('0.8%', '13%', '0.0001%', '250%')
    """
    percentage = max(100 * gap, 1e-4)
    step = 10.0 ** (floor(log10(percentage)) - 1)
    return f"{ceil(percentage / step * (1 - 1e-12)) * step:.6g}%"


def verify(plan: Plan) -> float:
    """Verify a plan and its certificate from first principles, and return the gap.

    Raises :class:`~hesrpt.errors.CertificateError` if any of their claims is false. No part of the
    solver is used. For a very large plan, only a sample of its phases and jobs is replayed, but its
    bound is verified for all of them.

    >>> import hesrpt
    >>> jobs = hesrpt.Workload(sizes=[9, 4, 1], speedup=hesrpt.PowerLaw(0.5))
    >>> hesrpt.verify(hesrpt.plan(jobs, servers=10)) < 1e-12
    True
    """
    from hesrpt.optimal.planner import Plan  # which imports this module

    if not isinstance(plan, Plan):
        raise InputError(f"verify() needs a Plan, got {type(plan).__name__}")
    if plan.workload.arrivals is not None and plan.workload.arrivals.any():
        raise CertificateError("all jobs of a plan must be present at time 0")
    _check_claim(plan)
    _check_tables(plan)
    _check_values(plan)
    check_timeline(plan)
    _check_any_order_bound(plan)
    return _check_gap(plan)


def _check_claim(plan: Plan) -> None:
    """Check that the certificate covers all jobs and that its completion order supports it."""
    certificate, jobs = plan.certificate, len(plan.workload)
    order = certificate.first_to_last
    if plan.objective not in COSTS:
        raise CertificateError(f"unknown objective {plan.objective!r}")
    if len(plan.completion_times) != jobs or len(certificate.values_in_order) != jobs:
        raise CertificateError(
            "the plan must have a completion time and a value for each of its "
            f"{format_count(jobs, 'job')}"
        )
    if not _is_permutation(order, jobs):
        raise CertificateError(
            "the completion order of the certificate does not contain each job once"
        )
    if plan.objective == "makespan":
        return
    if certificate.proven:
        # With one speedup, shortest-first is optimal if no job weighs more than a smaller one.
        sizes, weights = plan.workload.sizes[order], plan.weights
        is_proven = plan.workload.speedups.shared is not None and np.all(sizes[1:] >= sizes[:-1])
        if plan.objective != "slowdown" and weights is not None and is_proven:
            weights = weights[order]
            is_proven = np.all(weights[1:] <= weights[:-1])
        if not is_proven:
            raise CertificateError("the plan claims to be proven, but its completion order is not")
    else:
        ends = plan.completion_times[order]
        if np.any(ends[1:] < ends[:-1] * (1 - TOLERANCE)):
            raise CertificateError("the jobs do not end in the order of the certificate")


def _is_permutation(order: IntArray, jobs: int) -> bool:
    if len(order) != jobs or order.dtype.kind != "i" or np.any((order < 0) | (order >= jobs)):
        return False
    is_listed = np.zeros(jobs, dtype=bool)
    is_listed[order] = True
    return bool(is_listed.all())


def _check_tables(plan: Plan) -> None:
    """Check that the tables of custom functions are close to the functions, up to their peaks."""
    exact = plan.workload.speedups
    tabulated = exact.tabulate(plan.servers)
    if tabulated is exact:
        return
    servers = np.concatenate(([0.0], plan.servers * np.geomspace(1e-12, 1.0, 10_007)))
    for job in range(len(plan.workload) if exact.shared is None else 1):
        peak = float(tabulated[job].demand(scalar(0.0), plan.servers))
        up_to_peak = servers[servers <= peak]
        true, table = (speedups[job].rate(up_to_peak) for speedups in (exact, tabulated))
        is_wrong = ~(np.abs(table - true) <= TOLERANCE * (true + 1e-4 * true.max()))
        if is_wrong.any():
            at = int(np.argmax(is_wrong))
            raise CertificateError(
                f"the speedup on {format_count(float(servers[at]), 'server')} is "
                f"{float(true[at])!r}, but the plan assumes {float(table[at])!r}"
            )


def _check_values(plan: Plan) -> None:
    """Check that no phase can earn more than it costs."""
    certificate = plan.certificate
    values = certificate.job_values
    if len(values) != len(plan.workload) or not np.all(values >= 0) or np.any(np.isinf(values)):
        raise CertificateError("each job must have a finite value of at least 0")
    if plan.objective == "makespan":
        if isinstance(shared := plan.speedups.shared, PowerLaw):
            earned = float(max_power_law_earnings(values, shared.p, plan.servers)[-1])
        else:
            enough, price = 1 + TOLERANCE, 1 / plan.servers
            earned = bound_earnings(plan.speedups, plan.servers, values, enough, price).bound
        if earned > 1 + TOLERANCE:
            raise CertificateError(f"the servers can earn {earned!r} per second, more than 1")
        return
    present = certificate.first_to_last[::-1]
    weights = np.ones(len(present)) if plan.weights is None else plan.weights[present]
    cost = np.cumsum(weights)
    problems = (
        f"with {format_count(jobs, 'job')} present the servers can earn {float(earned)!r} per "
        f"second, which is more than the cost of {float(cost[jobs - 1])!r}"
        for jobs, earned in _bound_each_phase(plan, present, cost * (1 + TOLERANCE))
        if earned > cost[jobs - 1] * (1 + TOLERANCE)
    )
    if (problem := next(problems, None)) is not None:
        raise CertificateError(problem)


def _bound_each_phase(
    plan: Plan, present: IntArray, enough: FloatArray
) -> Iterator[tuple[int, float]]:
    """Yield the number of jobs in each phase, and a bound on the phase's earnings per second."""
    values = plan.certificate.job_values[present]
    if isinstance(shared := plan.speedups.shared, PowerLaw):
        earned = max_power_law_earnings(values, shared.p, plan.servers)
        worst = int(np.argmax(earned / enough))
        yield worst + 1, float(earned[worst])
        return
    speedups = plan.speedups.take(present)
    # If all jobs share one speedup and values rise along the list, the jobs without demand are at
    # its head: if a job gets no servers at a price, neither does any job of lower value.
    is_rising = shared is not None and bool(np.all(values[1:] >= values[:-1]))
    value_before = np.concatenate(([0.0], np.cumsum(values)))
    last = EarningsBound(inf, float(enough[-1]) / plan.servers, len(present))
    for jobs in range(len(present), 0, -1):
        first = max(jobs - 2 * last.buyers - 8, 0) if is_rising else 0
        limit, price = float(enough[jobs - 1]), last.price
        last = bound_earnings(
            speedups[first:jobs],
            plan.servers,
            values[first:jobs],
            limit,
            price,
            value_before[first],
        )
        if first and last.buyers == jobs - first:
            last = bound_earnings(speedups[:jobs], plan.servers, values[:jobs], limit, price)
        yield jobs, last.bound


def _check_any_order_bound(plan: Plan) -> None:
    """Check the bound on all schedules, if it has been asked for: there is no claim otherwise."""
    from hesrpt.optimal.bound_verification import verify_bound  # which imports this module

    bound = vars(plan.certificate).get("any_order_bound")
    if bound is None:
        return
    if (
        bound.workload is not plan.workload
        or bound.servers != plan.servers
        or bound.objective != plan.objective
        or (bound.whole and not plan.whole)
    ):
        raise CertificateError("the bound on all schedules is for other jobs or servers")
    verify_bound(bound)


def _check_gap(plan: Plan) -> float:
    """Check that cost, bound and gap agree, and return the gap."""
    certificate = plan.certificate
    bound = float(certificate.job_values @ plan.workload.sizes)
    gap = plan.cost / bound - 1
    if not abs(certificate.lower_bound - bound) <= TOLERANCE * bound:  # also true of NaN
        raise CertificateError(
            f"the job values give a bound of {bound!r}, not {certificate.lower_bound!r}"
        )
    if not abs(certificate.gap - gap) <= TOLERANCE:
        raise CertificateError(f"the gap is {gap!r}, not {certificate.gap!r}")
    if certificate.proven and not abs(gap) <= TOLERANCE:
        raise CertificateError(f"the plan claims to be proven, but has a gap of {gap:.3g}")
    return gap
