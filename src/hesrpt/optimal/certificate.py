"""The proof of optimality of a plan, and its verification without the solver.

A certificate gives each unit of work a value. If no phase can earn more than it costs, the total
value of all work is a lower bound on the cost (weak duality), and a plan that costs no more than
this bound is optimal. Verification needs only the speedups, the timeline of the plan and this
argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING, Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray, scalar
from hesrpt.errors import CertificateError, InputError
from hesrpt.objectives import COSTS, is_flow_objective
from hesrpt.optimal.closed_form import ClosedFormTimeline
from hesrpt.schedule import Timeline
from hesrpt.speedups import PowerLaw, SpeedupVector
from hesrpt.units import format_count
from hesrpt.workload import Workload

if TYPE_CHECKING:
    from hesrpt.optimal.bounds import LowerBound
    from hesrpt.optimal.planner import Plan

#: The relative error that rounding may cause in a correct certificate.
TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """What is proven about a plan: a lower bound on its cost, and the job values it follows from.

    ``lower_bound`` is Σ v_i x_i, in units of the objective (the total, not the mean). If the plan
    is ``proven``, no schedule costs less. Otherwise no schedule that ends the jobs in the same
    order (``first_to_last``) costs less, and ``reason`` says why that does not prove the plan to be
    optimal. ``certified_gap`` then says how far the plan is from the optimum at most. That takes
    some time, and is computed when it is asked for.

    A certificate holds nothing of its own. Each of its claims is computed from the fields of the
    plan, and :func:`~hesrpt.verify` checks these.

    >>> import hesrpt
    >>> speedups = [hesrpt.PowerLaw(0.3), hesrpt.PowerLaw(0.6), hesrpt.PowerLaw(0.9)]
    >>> jobs = hesrpt.Workload([3, 2, 1], speedups)
    >>> hesrpt.plan(jobs, servers=10).certificate  # doctest: +ELLIPSIS
    <Certificate: at most 1...% above the optimum, whatever the order>
    """

    plan: Plan

    @property
    def first_to_last(self) -> IntArray:
        """The jobs in the order in which they end."""
        return self.plan.first_to_last

    @property
    def job_values(self) -> FloatArray:
        """The value of a unit of each job's work, in the order in which the jobs were given."""
        values = np.empty_like(self.plan.values_in_order)
        values[self.first_to_last] = self.plan.values_in_order
        return values

    @property
    def lower_bound(self) -> float:
        """The total value of all work."""
        return float(self.plan.values_in_order @ self.plan.workload.sizes[self.first_to_last])

    @property
    def gap(self) -> float:
        """How far the plan's cost is above the lower bound; 0.008 means by 0.8%."""
        return self.plan.cost / self.lower_bound - 1

    @property
    def holds_for_all_orders(self) -> bool:
        """Whether the lower bound holds for all schedules, in whatever order they end the jobs.

        With one speedup, shortest-first is optimal if no job weighs more than a smaller one. The
        bound on a makespan does not depend on the order.
        """
        plan, order = self.plan, self.first_to_last
        if not is_flow_objective(plan.objective):
            return True
        if plan.workload.speedups.shared is None or not _is_rising(plan.workload.sizes[order]):
            return False
        return plan.weights is None or _is_rising(-plan.weights[order])

    @property
    def proven(self) -> bool:
        """Whether no schedule costs less than the plan, up to rounding."""
        return abs(self.gap) <= TOLERANCE and self.holds_for_all_orders

    @property
    def reason(self) -> str:
        """Why the plan is proven to be optimal, or why it is not."""
        plan = self.plan
        if self.holds_for_all_orders:
            if abs(self.gap) <= TOLERANCE:
                return "no schedule does better"
            return "the speedup cannot be computed exactly enough for this many servers"
        if plan.workload.speedups.shared is None:
            return "jobs have different speedups, so the best completion order is not known"
        if (weights := plan.weights) is not None:
            by_size = np.lexsort((-weights, plan.workload.sizes))
            if not _is_rising(-weights[by_size]):
                return (
                    "a larger job weighs more than a smaller one, so the best completion order is "
                    "not known"
                )
        return "shortest first is the best completion order, but jobs end in another order"

    @property
    def any_order_bound(self) -> LowerBound | None:
        """A bound on the cost of all schedules; None if ``lower_bound`` already is one."""
        return self.plan.any_order_bound

    @property
    def certified_gap(self) -> float:
        """How far the plan's cost is above that of any other schedule at most.

        0.008 means that no schedule costs less than this plan's cost divided by 1.008, in whatever
        order it ends the jobs.
        """
        if self.holds_for_all_orders:
            return max(self.gap, 0.0)
        bound = self.any_order_bound
        return inf if bound is None or not bound.total > 0 else self.plan.cost / bound.total - 1

    @property
    def summary(self) -> str:
        """The claim of the certificate in one line."""
        if self.proven:
            return f"optimal: {self.reason}"
        return f"at most {format_gap(self.certified_gap)} above the optimum, whatever the order"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}>"


def _is_rising(numbers: FloatArray) -> bool:
    return bool(np.all(numbers[1:] >= numbers[:-1]))


def format_gap(gap: float) -> str:
    """Return a gap as a percentage with two digits, rounded up: it must not claim too much.

    >>> format_gap(0.00791), format_gap(0.1234), format_gap(0.0), format_gap(2.5), format_gap(inf)
    ('0.8%', '13%', '0.0001%', '250%', 'inf%')
    """
    if gap == inf:
        return "inf%"
    percentage = max(100 * gap, 1e-4)
    step = 10.0 ** (floor(log10(percentage)) - 1)
    return f"{ceil(percentage / step * (1 - 1e-12)) * step:.6g}%"


def verify(plan: Plan) -> float:
    """Verify a plan and its certificate from first principles, and return the gap.

    Raises :class:`~hesrpt.errors.CertificateError` if any of their claims is false. No part of the
    solver is used, and nothing that was computed before. The whole timeline is replayed: for
    100,000 jobs without a power law, that takes minutes. docs/explanation/theory.md says what is
    checked and what is not.

    >>> import hesrpt
    >>> jobs = hesrpt.Workload(sizes=[9, 4, 1], speedup=hesrpt.PowerLaw(0.5))
    >>> hesrpt.verify(hesrpt.plan(jobs, servers=10)) < 1e-12
    True
    """
    from hesrpt.optimal.planner import Plan  # which imports this module

    if not isinstance(plan, Plan):
        raise InputError(f"verify() needs a Plan, got {type(plan).__name__}")
    _check_fields(plan)
    remembered = vars(plan)
    plan = replace(plan)  # which forgets what was computed from earlier fields
    _check_tables(plan)
    _check_values(plan)
    check_timeline(plan)
    _check_remembered(plan, remembered)
    gap = plan.certificate.gap
    if not gap > -4 * TOLERANCE:  # also true of NaN
        raise CertificateError(f"the plan costs less than its lower bound: the gap is {gap!r}")
    return gap


def check_problem(workload: Workload, servers: float, objective: object, whole: object) -> None:
    """Check what a plan or a bound is about: its jobs, servers and objective."""
    if not isinstance(workload, Workload):
        raise CertificateError(f"the workload must be a Workload, got {workload!r}")
    jobs = len(workload)
    for name, numbers in (("size", workload.sizes), ("weight", workload.weights)):
        if numbers is not None:
            check_numbers(name, numbers, jobs)
            if not np.all(numbers > 0):
                raise CertificateError(f"each {name} must be greater than 0")
    if workload.arrivals is not None:
        check_numbers("arrival", workload.arrivals, jobs)
    if len(workload.speedups) != jobs:
        raise CertificateError(f"there must be a speedup for each of {format_count(jobs, 'job')}")
    if objective not in tuple(COSTS):
        raise CertificateError(f"unknown objective {objective!r}")
    is_number = isinstance(servers, int | float) and not isinstance(servers, bool)
    if not is_number or not 0 < servers < inf:
        raise CertificateError(f"servers must be a number greater than 0, got {servers!r}")
    if whole is not True and whole is not False:
        raise CertificateError(f"whole must be True or False, got {whole!r}")
    if whole and servers != int(servers):
        raise CertificateError(f"there must be a whole number of whole servers, got {servers!r}")
    workload.speedups.check(servers)


def check_numbers(name: str, numbers: object, length: int) -> None:
    """Check that an array has the right length and only finite numbers of at least 0."""
    # A masked array, for instance, hides its numbers from all checks.
    if type(numbers) is not np.ndarray or numbers.dtype != np.float64:
        raise CertificateError(f"the {name}s must be an array of numbers, got {numbers!r}")
    if numbers.shape != (length,):
        raise CertificateError(
            f"there must be {format_count(length, name)}, got an array of shape {numbers.shape}"
        )
    if not np.all((numbers >= 0) & (numbers < inf)):
        raise CertificateError(f"each {name} must be finite and at least 0")


def _check_fields(plan: Plan) -> None:
    """Check that the fields of a plan fit together, and that jobs end in the order it says."""
    check_problem(plan.workload, plan.servers, plan.objective, plan.whole)
    jobs = len(plan.workload)
    if plan.workload.arrivals is not None and plan.workload.arrivals.any():
        raise CertificateError("all jobs of a plan must be present at time 0")
    check_numbers("completion time", plan.completion_times, jobs)
    check_numbers("job value", plan.values_in_order, jobs)
    order = plan.first_to_last
    is_list = type(order) is np.ndarray and order.dtype.kind == "i" and order.ndim == 1
    if not is_list or not np.array_equal(np.sort(order), np.arange(jobs)):
        raise CertificateError(
            "the completion order of the certificate does not contain each job once"
        )
    ends = plan.completion_times[order]
    if not np.all(ends[1:] >= ends[:-1] * (1 - TOLERANCE)):
        raise CertificateError("the jobs do not end in the order of the certificate")


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
    """Check that no phase can earn more than it costs. A makespan has a single phase."""
    jobs, values = len(plan.workload), plan.values_in_order[::-1].copy()
    if is_flow_objective(plan.objective):
        weights = np.ones(jobs) if plan.weights is None else plan.weights[plan.first_to_last[::-1]]
        cost = np.cumsum(weights)
    else:
        cost = np.append(np.full(jobs - 1, inf), 1.0)
    earned = _bound_earnings(plan, values, cost)
    is_wrong = ~(earned <= cost * (1 + TOLERANCE))
    if is_wrong.any():
        last = int(np.flatnonzero(is_wrong)[-1])
        raise CertificateError(
            f"with {format_count(last + 1, 'job')} present the servers can earn "
            f"{float(earned[last])!r} per second, which is more than the cost of "
            f"{float(cost[last])!r}"
        )


def _find_exponent(plan: Plan) -> float | None:
    """Return the p of the power law that all jobs share, unless a subclass has rates of its own."""
    shared = plan.speedups.shared
    return shared.p if type(shared) is PowerLaw else None


def _bound_earnings(plan: Plan, values: FloatArray, cost: FloatArray) -> FloatArray:
    """Return a bound on what the first k jobs can earn per second, for each k with a finite cost.

    Jobs are listed from the last to end to the first. Under one power law, Hölder's inequality
    gives the maximum of Σ v_i n_i^p: N^p (Σ v_i^c)^(1−p), c = 1/(1−p).
    """
    if (p := _find_exponent(plan)) is not None:
        with np.errstate(divide="ignore"):
            powers = np.logaddexp.accumulate(np.log(values) / (1 - p))
        maximum: FloatArray = np.exp((1 - p) * powers) * plan.servers**p
        return maximum
    from hesrpt.optimal.proof_kernel import bound_phases

    # A new list forgets the shapes that the plan was computed with.
    speedups = SpeedupVector.create(plan.speedups.take(plan.first_to_last[::-1]))
    shapes = speedups.shapes(plan.servers, tabulated=True)
    is_rising = speedups.shared is not None and _is_rising(values)
    earned = np.zeros(len(values))
    bound_phases(shapes, values, plan.servers, cost * (1 + 0.1 * TOLERANCE), is_rising, earned)
    return earned


def _check_remembered(plan: Plan, remembered: dict[str, object]) -> None:
    """Check what was computed before: it must be what the fields of the plan give."""
    from hesrpt.optimal.bounds import verify_bound  # which imports this module

    flow_times = remembered.get("flow_times", plan.flow_times)
    if type(flow_times) is not np.ndarray or not np.array_equal(flow_times, plan.flow_times):
        raise CertificateError("the flow times are not those of the completion times")
    if "any_order_bound" not in remembered:
        return  # it will be computed, and proven, from the fields
    bound: Any = remembered["any_order_bound"]
    if bound is None and plan.certificate.holds_for_all_orders:
        return
    if bound is None:
        raise CertificateError("there must be a bound on all schedules, whatever their order")
    verify_bound(bound)
    if (
        bound.workload is not plan.workload
        or bound.servers != plan.servers
        or bound.objective != plan.objective
        or (bound.whole and not plan.whole)
    ):
        raise CertificateError("the bound on all schedules is for other jobs or servers")


# The relative precision of times, after rounding in all earlier phases.
_CLOCK_PRECISION = 1e-14
# Above this many phases × jobs, a plan in closed form is not replayed phase by phase: the work of
# all jobs is added up by formula.
_REPLAY_LIMIT = 20_000_000


def check_timeline(plan: Plan) -> None:
    """Replay the plan: its allocations must be possible and lead to its completion times."""
    jobs, timeline = len(plan.workload), plan.timeline
    ends = timeline.ends if isinstance(timeline, Timeline) else None
    if type(ends) is not np.ndarray or ends.ndim != 1 or ends.dtype != np.float64:
        raise CertificateError("a plan must have a timeline, with the end of each phase")
    phases = len(ends)
    lengths = np.diff(ends, prepend=0.0)
    if not (np.all(lengths >= 0) and np.all(np.isfinite(ends))):
        raise CertificateError("the phases of the plan do not end in ascending order")
    if jobs * phases > _REPLAY_LIMIT and type(timeline) is ClosedFormTimeline:
        _check_closed_form(plan, timeline, lengths)
        return
    done, last_held = np.zeros(jobs), np.zeros(jobs)
    for phase in range(phases):
        try:
            held = timeline.servers(phase)
        except (IndexError, ValueError) as error:
            raise CertificateError(f"phase {phase} has no allocation: {error}") from error
        _check_allocation(plan, held, phase)
        working = np.flatnonzero(held)
        rates = plan.speedups.take(working).rate(held[working])
        done[working] += rates * lengths[phase]
        last_held[working] = ends[phase]
    _check_work(plan, done, last_held)


def _check_closed_form(plan: Plan, timeline: ClosedFormTimeline, lengths: FloatArray) -> None:
    """Check the completion times of all jobs in one pass, for a power law.

    In the phase with total weight W_m, job k holds N b_k (W_k/W_m)^c servers, where b_k is
    1 − (W_{k−1}/W_k)^c; these add up to N. So its work is (N b_k)^p Σ l_m (W_k/W_m)^(c p), summed
    over the phases (of lengths l_m) until its completion.
    """
    p, order = _find_exponent(plan), plan.first_to_last
    if len(lengths) != len(order):
        raise CertificateError(
            f"there must be one phase for each of {format_count(len(order), 'job')}, "
            f"got {len(lengths)}"
        )
    same_weights = timeline.weights is plan.weights or (
        timeline.weights is not None
        and plan.weights is not None
        and np.array_equal(timeline.weights, plan.weights)
    )
    if (
        p is None
        or not is_flow_objective(plan.objective)
        or plan.whole
        or timeline.p != p
        or timeline.total != plan.servers
        or not np.array_equal(timeline.first_to_last, order)
        or not same_weights
    ):
        raise CertificateError("the timeline is for other jobs or servers")
    c = 1 / (1 - p)
    weights = np.ones(len(order)) if plan.weights is None else plan.weights[order]
    present = np.cumsum(weights[::-1])[::-1]
    part, later = weights / present, np.append(present[1:], 0.0)
    with np.errstate(divide="ignore"):
        log_ratio = np.where(part > 0.5, np.log(later / present), np.log1p(-part))
        log_own = np.log(-np.expm1(c * log_ratio))  # of b_k
        log_present = np.log(present / present[0])
        log_time = np.logaddexp.accumulate(np.log(lengths) - c * p * log_present)
        work = p * (np.log(plan.servers) + log_own + c * log_present) + log_time
    sizes = plan.workload.sizes[order]
    error = np.abs(np.expm1(work - np.log(sizes)))
    rounding = 1e-14 * c * p * (1 + np.abs(log_present))
    is_wrong = ~(error <= 10 * TOLERANCE + rounding)
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        raise CertificateError(
            f"job {plan.workload.names[order[place]]} does {float(np.exp(work[place]))!r} of its "
            f"{float(sizes[place])!r} units of work in the timeline"
        )
    difference = np.abs(plan.completion_times[order] - timeline.ends)
    if not np.all(difference <= TOLERANCE * timeline.ends):
        raise CertificateError("the completion times differ from the ends of the phases")


def _check_allocation(plan: Plan, held: FloatArray, phase: int) -> None:
    if type(held) is not np.ndarray or held.shape != (len(plan.workload),):
        raise CertificateError(f"phase {phase} does not allocate servers to each job")
    if not np.all(held >= 0):
        raise CertificateError(f"a job holds {float(held.min())!r} servers in phase {phase}")
    if not held.sum() <= plan.servers * (1 + TOLERANCE):
        raise CertificateError(
            f"phase {phase} allocates {float(held.sum())!r} servers of {plan.servers!r}"
        )
    if plan.whole and np.any(held != np.rint(held)):
        raise CertificateError(f"phase {phase} allocates fractions of servers")


def _check_work(plan: Plan, done: FloatArray, last_held: FloatArray) -> None:
    sizes, ends, names = plan.workload.sizes, plan.completion_times, plan.workload.names
    # A tiny job that runs late may run for less time than the clock can resolve.
    usable = plan.speedups.demand(np.zeros(len(plan.workload)), plan.servers)
    fastest = plan.speedups.rate(usable)
    tolerance = TOLERANCE * sizes + fastest * _CLOCK_PRECISION * ends
    # Holding servers for a moment longer than needed does no harm.
    does_enough = done >= sizes - tolerance
    does_not_too_much = done <= sizes * (1 + 100 * TOLERANCE) + tolerance
    if (is_wrong := ~(does_enough & does_not_too_much)).any():
        job = int(np.argmax(is_wrong))
        raise CertificateError(
            f"job {names[job]} does {float(done[job])!r} of its {float(sizes[job])!r} units of "
            "work in the timeline"
        )
    if (is_wrong := ~(np.abs(last_held - ends) <= TOLERANCE * ends)).any():
        job = int(np.argmax(is_wrong))
        raise CertificateError(
            f"job {names[job]} ends at {float(last_held[job])!r} in the timeline, not at "
            f"{float(ends[job])!r}"
        )
