"""The proof that a plan carries, and its check without the solver.

A certificate gives each unit of work a value. If no phase can earn more than it costs, the values
of all the work together are a lower bound on the cost (weak duality), and a plan that costs no more
than the bound is optimal. The check needs only the speedups, the record of the plan and this
argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray, IntArray, scalar
from hesrpt.errors import CertificateError, InputError
from hesrpt.objectives import COSTS
from hesrpt.optimal.bounds import TOLERANCE, Earnings, most_earned, most_with_power_law
from hesrpt.optimal.ordering import provably_shortest_first
from hesrpt.speedups import PowerLaw

if TYPE_CHECKING:
    from hesrpt.optimal.planner import Plan

# How exactly a float tells the time, with the rounding of the phases before.
_CLOCK = 1e-14
# A plan with more phases × jobs than this is replayed for a sample of its phases and jobs only.
# With a power law, the work of all jobs is then summed in closed form.
_REPLAY_LIMIT = 1_000_000_000
_REPLAY_LIMIT_POWER_LAW = 20_000_000


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is known about how good a plan is.

    ``lower_bound`` is Σ v_i x_i in units of the objective (the total, not the mean). If the
    plan is ``proven``, no schedule whatever costs less; otherwise no schedule that ends jobs in
    the same order (``first_to_last``) does, and ``reason`` says why no more is known.
    """

    proven: bool
    reason: str
    first_to_last: IntArray
    values_in_order: FloatArray
    lower_bound: float
    gap: float

    @cached_property
    def job_values(self) -> FloatArray:
        """What a unit of each job's work is worth, in the order the jobs were given."""
        values = np.empty_like(self.values_in_order)
        values[self.first_to_last] = self.values_in_order
        return values


def verify(plan: Plan) -> float:
    """Check a plan and its certificate from first principles, and return the gap.

    Raises :class:`~hesrpt.errors.CertificateError` if anything that they claim does not hold. No
    part of the solver is used. A plan of very many jobs is replayed for a sample of its phases and
    jobs; its bound is checked for all of them.

    >>> import hesrpt
    >>> jobs = hesrpt.Workload(sizes=[9, 4, 1], speedup=hesrpt.PowerLaw(0.5))
    >>> hesrpt.verify(hesrpt.plan(jobs, servers=10)) < 1e-12
    True
    """
    from hesrpt.optimal.planner import Plan  # which needs this module

    if not isinstance(plan, Plan):
        raise InputError(f"verify() needs a Plan, got {type(plan).__name__}")
    if plan.workload.arrivals is not None and plan.workload.arrivals.any():
        raise CertificateError("a plan is for jobs that are all present at time 0")
    _check_claim(plan)
    _check_tables(plan)
    _check_values(plan)
    _check_record(plan)
    return _check_gap(plan)


def _check_claim(plan: Plan) -> None:
    """Check that the certificate speaks of the right jobs, and claims no more than it may."""
    certificate, jobs = plan.certificate, len(plan.workload)
    order = certificate.first_to_last
    if plan.objective not in COSTS:
        raise CertificateError(f"there is no objective {plan.objective!r}")
    if len(plan.completion_times) != jobs or len(certificate.values_in_order) != jobs:
        raise CertificateError(f"a time and a value for each of the {jobs} jobs are wanted")
    if (
        len(order) != jobs
        or order.dtype.kind != "i"
        or not np.array_equal(np.sort(order), np.arange(jobs))
    ):
        raise CertificateError(
            "the completion order of the certificate does not name each job once"
        )
    if plan.objective == "makespan":
        return
    if certificate.proven:
        shortest_first = provably_shortest_first(
            plan.workload.sizes, plan.workload.speedups, plan.weights
        )
        if shortest_first is None or not np.array_equal(shortest_first[0], order):
            raise CertificateError("the plan is called proven, but its completion order is not")
    else:
        ends = plan.completion_times[order]
        if np.any(ends[1:] < ends[:-1] * (1 - TOLERANCE)):
            raise CertificateError("jobs do not end in the order that the certificate speaks of")


def _check_tables(plan: Plan) -> None:
    """Check that functions of the user's are what the planner took them for, up to their peaks."""
    given = plan.workload.speedups
    known = given.known_on(plan.servers)
    if known is given:
        return
    servers = np.concatenate(([0.0], plan.servers * np.geomspace(1e-12, 1.0, 10_007)))
    for job in range(len(plan.workload) if given.shared is None else 1):
        peak = float(known[job].demand(scalar(0.0), plan.servers))
        up_to_peak = servers[servers <= peak]
        true, taken_for = (speedups[job].rate(up_to_peak) for speedups in (given, known))
        wrong = ~(np.abs(taken_for - true) <= TOLERANCE * (true + 1e-4 * true.max()))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise CertificateError(
                f"the speedup on {servers[at]:.6g} servers is {float(true[at])!r}, but was taken "
                f"for {float(taken_for[at])!r}"
            )


def _check_values(plan: Plan) -> None:
    """Check that no phase can earn more than it costs."""
    certificate = plan.certificate
    values = certificate.job_values
    if len(values) != len(plan.workload) or not np.all(values >= 0) or np.any(np.isinf(values)):
        raise CertificateError("job values must be finite, at least 0, and one for each job")
    if plan.objective == "makespan":
        if isinstance(shared := plan.speedups.shared, PowerLaw):
            earned = float(most_with_power_law(values, shared.p, plan.servers)[-1])
        else:
            enough, price = 1 + TOLERANCE, 1 / plan.servers
            earned = most_earned(plan.speedups, plan.servers, values, enough, price).bound
        if earned > 1 + TOLERANCE:
            raise CertificateError(f"the servers can earn {earned!r} per second, more than 1")
        return
    present = certificate.first_to_last[::-1]
    weights = np.ones(len(present)) if plan.weights is None else plan.weights[present]
    cost = np.cumsum(weights)
    too_much = (
        f"with {jobs} jobs present the servers can earn {float(earned)!r} per second, more than "
        f"the {float(cost[jobs - 1])!r} that this costs"
        for jobs, earned in _earnings(plan, present, cost * (1 + TOLERANCE))
        if earned > cost[jobs - 1] * (1 + TOLERANCE)
    )
    if (problem := next(too_much, None)) is not None:
        raise CertificateError(problem)


def _earnings(plan: Plan, present: IntArray, enough: FloatArray) -> Iterator[tuple[int, float]]:
    """Yield the number of jobs of each phase, and a bound on what it can earn per second."""
    values = plan.certificate.job_values[present]
    if isinstance(shared := plan.speedups.shared, PowerLaw):
        earned = most_with_power_law(values, shared.p, plan.servers)
        worst = int(np.argmax(earned / enough))
        yield worst + 1, float(earned[worst])
        return
    speedups = plan.speedups.take(present)
    # Of jobs with one speedup, those that are worth less than one that wants nothing want nothing.
    rising = shared is not None and bool(np.all(values[1:] >= values[:-1]))
    value_before = np.concatenate(([0.0], np.cumsum(values)))
    most = Earnings(inf, float(enough[-1]) / plan.servers, len(present))
    for jobs in range(len(present), 0, -1):
        first = max(jobs - 2 * most.wanting - 8, 0) if rising else 0
        limit, price = float(enough[jobs - 1]), most.price
        most = most_earned(
            speedups[first:jobs],
            plan.servers,
            values[first:jobs],
            limit,
            price,
            value_before[first],
        )
        if first and most.wanting == jobs - first:
            most = most_earned(speedups[:jobs], plan.servers, values[:jobs], limit, price)
        yield jobs, most.bound


def _check_record(plan: Plan) -> None:
    """Replay the plan: its allocations must be possible, and end the jobs when it says."""
    jobs, phases = len(plan.workload), len(plan.timeline.ends)
    ends = plan.timeline.ends
    lengths = np.diff(ends, prepend=0.0)
    if np.any(lengths < 0):
        raise CertificateError("the phases of the plan do not follow each other in time")
    if not np.all(np.isfinite(plan.completion_times)):
        raise CertificateError("completion times must be finite")
    power_law = isinstance(plan.speedups.shared, PowerLaw)
    if jobs * phases > (_REPLAY_LIMIT_POWER_LAW if power_law else _REPLAY_LIMIT):
        _check_sample(plan, lengths)
        return
    done, last_held = np.zeros(jobs), np.zeros(jobs)
    for phase in range(phases):
        held = plan.timeline.servers(phase)
        _check_allocation(plan, held, phase)
        working = np.flatnonzero(held)
        rates = plan.speedups.take(working).rate(held[working])
        done[working] += rates * lengths[phase]
        last_held[working] = ends[phase]
    _check_work(plan, np.arange(jobs), done, last_held)


def _check_sample(plan: Plan, lengths: FloatArray, size: int = 20) -> None:
    rng = np.random.default_rng(0)
    jobs, phases = len(plan.workload), len(lengths)
    extremes = plan.certificate.first_to_last[[0, -1]]
    for phase in np.append(rng.integers(phases, size=size), [0, phases - 1]):
        _check_allocation(plan, plan.timeline.servers(int(phase)), int(phase))
    sample = np.append(rng.integers(jobs, size=size), extremes)
    done, last_held = np.empty(len(sample)), np.empty(len(sample))
    for place, job in enumerate(sample):
        held = plan.timeline.servers_of(int(job))
        done[place] = plan.speedups[int(job)].rate(held) @ lengths
        last_held[place] = plan.timeline.ends[np.flatnonzero(held)[-1]] if held.any() else 0.0
    _check_work(plan, sample, done, last_held)
    if isinstance(shared := plan.speedups.shared, PowerLaw) and plan.objective != "makespan":
        _check_all_work(plan, shared.p, lengths)


def _check_all_work(plan: Plan, p: float, lengths: FloatArray) -> None:
    """Check the times of all jobs, if shares are what they are in the sample, in one pass.

    While W_m is present, job k holds N b_k (W_k/W_m)^c. So the work that it does up to its end is
    (N b_k)^p Σ l_m (W_k/W_m)^(c p), over the phases of lengths l_m up to then.
    """
    order = plan.certificate.first_to_last
    weights = np.ones(len(order)) if plan.weights is None else plan.weights[order]
    present = np.cumsum(weights[::-1])[::-1]
    c = 1 / (1 - p)
    own = plan.timeline.servers(0)[order] / plan.servers  # b_k (W_k/W_M)^c
    with np.errstate(divide="ignore"):
        log_present = np.log(present / present[0])
        log_time = np.logaddexp.accumulate(np.log(lengths) - c * p * log_present)
        done = np.exp(p * np.log(plan.servers * own) + log_time)
    rounding = 1e-14 * c * p * (1 + np.abs(log_present))
    sizes = plan.workload.sizes[order]
    known = own > 1e-290  # what is smaller was rounded
    wrong = known & ~(np.abs(done / sizes - 1) <= 10 * TOLERANCE + rounding)
    if len(lengths) != len(order) or wrong.any():
        place = int(np.argmax(wrong))
        raise CertificateError(
            f"job {plan.workload.names[order[place]]} does work of {float(done[place])!r} in the "
            f"record, not {float(sizes[place])!r}"
        )
    late = np.abs(plan.completion_times[order] - plan.timeline.ends)
    if np.any(late > TOLERANCE * plan.timeline.ends):
        raise CertificateError("jobs do not end with the phases of the record")


def _check_allocation(plan: Plan, held: FloatArray, phase: int) -> None:
    if not np.all(held >= 0):
        raise CertificateError(f"a job holds {float(held.min())!r} servers in phase {phase}")
    if held.sum() > plan.servers * (1 + TOLERANCE):
        raise CertificateError(
            f"{float(held.sum())!r} servers are handed out in phase {phase}, of {plan.servers!r}"
        )
    if plan.whole and np.any(held != np.rint(held)):
        raise CertificateError(f"phase {phase} hands out parts of servers")


def _check_work(plan: Plan, jobs: IntArray, done: FloatArray, last_held: FloatArray) -> None:
    sizes, ends = plan.workload.sizes[jobs], plan.completion_times[jobs]
    # A tiny job may run for less than the clock can tell, when it runs late.
    usable = plan.speedups.demand(np.zeros(len(plan.workload)), plan.servers)
    fastest = plan.speedups.rate(usable)[jobs]
    tolerance = TOLERANCE * sizes + fastest * _CLOCK * ends
    # Holding servers for a moment longer than needed does no harm.
    for wrong, what, got, expected in (
        (done < sizes - tolerance, "does work of", done, sizes),
        (done > sizes * (1 + 100 * TOLERANCE) + tolerance, "does work of", done, sizes),
        (np.abs(last_held - ends) > TOLERANCE * ends, "ends at", last_held, ends),
    ):
        if wrong.any():
            place = int(np.argmax(wrong))
            raise CertificateError(
                f"job {plan.workload.names[jobs[place]]} {what} {float(got[place])!r} "
                f"in the record, not {float(expected[place])!r}"
            )


def _check_gap(plan: Plan) -> float:
    """Compare the cost of the plan with the bound of the certificate."""
    certificate = plan.certificate
    bound = float(certificate.job_values @ plan.workload.sizes)
    gap = plan.cost / bound - 1
    if not abs(certificate.lower_bound - bound) <= TOLERANCE * bound:  # NaN is no bound
        raise CertificateError(
            f"the job values give a bound of {bound!r}, not {certificate.lower_bound!r}"
        )
    if not abs(certificate.gap - gap) <= TOLERANCE:
        raise CertificateError(f"the gap is {gap!r}, not {certificate.gap!r}")
    if certificate.proven and not abs(gap) <= TOLERANCE:
        raise CertificateError(
            f"the plan is called proven, but costs {gap:.3g} more than its bound"
        )
    return gap
