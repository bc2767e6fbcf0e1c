"""The proof of optimality of a plan, and its verification without the solver.

A certificate gives each unit of work a value. If no phase can earn more than it costs, the total
value of all work is a lower bound on the cost (weak duality), and a plan that costs no more than
this bound is optimal. Verification needs only the speedups, the timeline of the plan and this
argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray, scalar
from hesrpt.errors import CertificateError, InputError
from hesrpt.objectives import COSTS, favours_small_jobs, is_flow_objective
from hesrpt.optimal.closed_form import ClosedFormTimeline
from hesrpt.schedule import Timeline
from hesrpt.speedups import PowerLaw, SpeedupVector
from hesrpt.speedups.speedup import Elementwise
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
    def values_in_order(self) -> FloatArray:
        """The value of a unit of each job's work, in that order."""
        return self.plan.values_in_order

    @property
    def job_values(self) -> FloatArray:
        """The value of a unit of each job's work, in the order in which the jobs were given."""
        values = np.empty_like(self.values_in_order)
        values[self.first_to_last] = self.values_in_order
        return values

    @property
    def lower_bound(self) -> float:
        """The total value of all work."""
        return float(self.values_in_order @ self.plan.workload.sizes[self.first_to_last])

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
        weights = None if favours_small_jobs(plan.objective) else plan.weights
        return weights is None or _is_rising(-weights[order])

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
        weights = None if favours_small_jobs(plan.objective) else plan.weights
        if weights is not None:
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
    if type(order) is not np.ndarray or not _is_permutation(order, jobs):
        raise CertificateError(
            "the completion order of the certificate does not contain each job once"
        )
    ends = plan.completion_times[order]
    if not np.all(ends[1:] >= ends[:-1] * (1 - TOLERANCE)):
        raise CertificateError("the jobs do not end in the order of the certificate")


def _is_permutation(order: IntArray, jobs: int) -> bool:
    is_list = order.shape == (jobs,) and order.dtype.kind == "i"
    if not is_list or np.any((order < 0) | (order >= jobs)):
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
    values = plan.certificate.job_values
    if not is_flow_objective(plan.objective):
        if (p := _find_exponent(plan)) is not None:
            earned = float(max_power_law_earnings(values, p, plan.servers)[-1])
        else:
            enough, price = 1 + TOLERANCE, 1 / plan.servers
            earned = bound_earnings(plan.speedups, plan.servers, values, enough, price).bound
        if not earned <= 1 + TOLERANCE:
            raise CertificateError(f"the servers can earn {earned!r} per second, more than 1")
        return
    present = plan.first_to_last[::-1]
    weights = np.ones(len(present)) if plan.weights is None else plan.weights[present]
    cost = np.cumsum(weights)
    problems = (
        f"with {format_count(jobs, 'job')} present the servers can earn {float(earned)!r} per "
        f"second, which is more than the cost of {float(cost[jobs - 1])!r}"
        for jobs, earned in _bound_each_phase(plan, present, cost * (1 + TOLERANCE))
        if not earned <= cost[jobs - 1] * (1 + TOLERANCE)
    )
    if (problem := next(problems, None)) is not None:
        raise CertificateError(problem)


def _find_exponent(plan: Plan) -> float | None:
    """Return the p of the power law that all jobs share, unless a subclass has rates of its own."""
    shared = plan.speedups.shared
    return shared.p if type(shared) is PowerLaw else None


def _bound_each_phase(
    plan: Plan, present: IntArray, enough: FloatArray
) -> Iterator[tuple[int, float]]:
    """Yield the number of jobs in each phase, and a bound on the phase's earnings per second."""
    values = plan.certificate.job_values[present]
    if (p := _find_exponent(plan)) is not None:
        earned = max_power_law_earnings(values, p, plan.servers)
        worst = int(np.argmax(earned / enough))
        yield worst + 1, float(earned[worst])
        return
    speedups = plan.speedups.take(present)
    # If all jobs share one speedup and values rise along the list, the jobs without demand are at
    # its head: if a job gets no servers at a price, neither does any job of lower value.
    is_rising = speedups.shared is not None and _is_rising(values)
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


# Bounds on what servers can earn per second if a unit of each job's work has a value. Their proof
# uses only rates: the demand that a speedup computes merely suggests where to look.


def max_power_law_earnings(values: FloatArray, p: float, servers: float) -> FloatArray:
    """Return the maximum that the first k jobs can earn, for each k.

    Hölder's inequality gives the maximum of Σ v_i n_i^p: N^p (Σ v_i^c)^(1−p), c = 1/(1−p).
    """
    with np.errstate(divide="ignore"):
        powers = np.logaddexp.accumulate(np.log(values) / (1 - p))
    maximum: FloatArray = np.exp((1 - p) * powers) * servers**p
    return maximum


class EarningsBound(NamedTuple):
    """A bound on the earnings, and the price of a server that gives it."""

    bound: float
    price: float
    buyers: int  # the number of jobs that demand servers at that price


def bound_earnings(
    speedups: SpeedupVector,
    servers: float,
    values: FloatArray,
    enough: float,
    price: float,
    value_before: float = 0.0,
) -> EarningsBound:
    """Return a bound on max Σ v_i s_i(n_i) over Σ n_i ≤ N.

    Every price gives a bound: the cost of all servers, plus the most that jobs can earn beyond the
    price they pay. The bound is least at the right price, at which the jobs together demand exactly
    N servers. The search starts at ``price`` and may stop once the bound is below ``enough``.

    ``value_before`` is the total value of jobs that are not listed. They must have the speedup of
    the first job and a value no greater than its value.
    """
    from scipy.optimize import minimize_scalar

    is_valuable = values > 0
    with np.errstate(over="ignore"):
        price_of_work = np.minimum(1 / np.where(is_valuable, values, 1.0), 1e150)

    def demand_at(price: float) -> FloatArray:
        return np.where(is_valuable, speedups.demand(price * price_of_work, servers), 0.0)

    def bound_at(price: float) -> tuple[float, bool]:
        demand = demand_at(price)
        total = float(demand.sum())
        bound = price * (servers - total) + float(values @ speedups.rate(demand))
        return bound, total > servers

    # Bracket the right price in growing steps from the given one, then bisect.
    least, is_too_low = bound_at(price)
    best = price
    low, high, factor = (price, inf, 1.001) if is_too_low else (0.0, price, 1.001)
    close = enough * (1 - 0.9 * TOLERANCE)
    while least > close and (high == inf or high - low > 1e-15 * high):
        if high == inf:
            price = low * factor
        elif low == 0:
            price = high / factor if high > 1e-250 else 0.0
        else:
            price = (low + high) / 2
        if not low < price < high:
            break
        factor = min(factor**2, 1e30)
        bound, is_too_low = bound_at(price)
        low, high = (price, high) if is_too_low else (low, price)
        if bound < least:
            least, best = bound, price
    if least > close and bound_at(low)[0] < least:
        best = low

    # The search relied on the demand that speedups compute. The final bound uses rates only.
    def rigorous_bound_at(price: float) -> float:
        prices, beyond_price, bound = price * price_of_work, np.full(len(values), inf), inf
        floor = _idle_profits(speedups, demand_at(price), prices, servers)
        for guess in (demand_at(price), None):
            if guess is None:
                guess = _search_demand(speedups, prices, servers)
            for step in _STEPS:
                profits = bound_profits(speedups, guess, prices, servers, step)
                beyond_price = np.maximum(np.minimum(beyond_price, profits), floor)
                bound = price * servers + float(values @ beyond_price)
                bound += value_before * float(beyond_price[0])
                if bound <= enough:
                    return bound
        return bound

    if (least := rigorous_bound_at(best)) > enough and best > 0:
        # If the demand was found numerically, neither it nor the price is exact.
        nearby = best * (1 - 1e-6), best * (1 + 1e-6)
        found = minimize_scalar(
            rigorous_bound_at, bounds=nearby, method="bounded", options={"xatol": 1e-14 * best}
        )
        least = min(least, float(found.fun))
    return EarningsBound(least, best, int(np.count_nonzero(demand_at(best))))


# The relative distances from the demand at which rates are compared: short ones for curved
# speedups, long ones for speedups that are nearly straight.
_STEPS = 1e-5, 1e-3, 0.3, 0.01, 0.6, 1e-7


def _idle_profits(
    speedups: SpeedupVector, demand: FloatArray, price: FloatArray, servers: float
) -> FloatArray:
    """Return the greatest profit of each job without demand, over a few numbers of servers to try.

    The bounds of such jobs compare rates so close to 0 that rounding may hide a profit.
    """
    idle = np.flatnonzero(demand == 0)
    profits = np.zeros(len(demand))
    if len(idle) and speedups.shared is not None:
        # If all jobs share one speedup, none earns more than the most valuable one.
        idle = idle[[np.argmin(price[idle])]]
    if len(idle):
        idle_speedups = speedups.take(idle)
        for part in np.geomspace(1e-9, 1.0, 28):
            trial = np.full(len(idle), part * servers)
            profit = idle_speedups.rate(trial) - price[idle] * trial
            profits[idle] = np.maximum(profits[idle], profit)
    return profits


def _search_demand(speedups: SpeedupVector, price: FloatArray, servers: float) -> FloatArray:
    """Return the most profitable number of servers on a grid of all magnitudes."""
    best, best_profit = np.zeros(len(price)), np.zeros(len(price))
    for part in np.geomspace(1e-40, 1.0, 401):
        trial = np.full(len(price), part * servers)
        profit = speedups.rate(trial) - price * trial
        best, best_profit = (
            np.where(profit > best_profit, trial, best),
            np.maximum(profit, best_profit),
        )
    return best


def bound_profits(
    speedups: Elementwise, guess: FloatArray, price: FloatArray, servers: float, step: float
) -> FloatArray:
    """Return a bound on max s(n) − price·n over 0 ≤ n ≤ N, tight if ``guess`` is near the maximum.

    It uses only rates.
    """
    from hesrpt.optimal.proof_kernel import bound_profits_by_chords

    # Where the guess is 0, half of the points are 0 and the others are just above.
    sides = np.array([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0]])
    just_above = np.maximum(sides, 0.0) * step**3 * servers
    at = np.clip(np.where(guess > 0, guess * (1 + sides * step), just_above), 0.0, servers)
    rates = np.stack([speedups.rate(each) for each in at], axis=1)
    fastest = speedups.rate(np.full(len(guess), servers))
    bounds = np.empty(len(guess))
    bound_profits_by_chords(np.ascontiguousarray(at.T), rates, fastest, servers, price, bounds)
    return bounds


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
