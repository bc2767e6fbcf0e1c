"""``lower_bound()``: a cost that no schedule can beat, even one that knows all arrivals.

``verify_bound()`` proves it again from the prices of servers.

For any prices μ(t) ≥ 0, every schedule costs at least

    Σ over jobs of min over C of J(C)  −  N ∫ μ dt,

because all jobs together never use more than N servers. J(C) is the least that a job of size x
costs if it ends at C and pays for its servers. For any value ψ of a unit of its work,

    J(C) ≥ H(ψ, C) = ψ x + ∫ from its arrival to C of (weight − π(ψ, μ(t))) dt,
    π(ψ, μ) = max over 0 ≤ n ≤ N of ψ s(n) − μ n.

H is linear in C where the price is constant, so it is enough to look at the ends of each interval.
Each interval needs only one value ψ for which H is high enough at both ends, and one ψ serves many
intervals. How these values are found does not matter, and profits are bounded from above with rates
alone. Verification uses neither the search for prices nor its compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import fsum, inf
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import CertificateError, InputError
from hesrpt.objectives import (
    COSTS,
    FlowObjective,
    check_flow_objective,
    check_weights,
    is_flow_objective,
    weight_of_each_job,
)
from hesrpt.optimal.certificate import TOLERANCE, check_numbers, check_problem, verify
from hesrpt.optimal.planner import Plan, plan
from hesrpt.parallel import run_tasks
from hesrpt.schedule import Schedule, Timeline
from hesrpt.units import format_count
from hesrpt.validation import check_servers, check_whole_number
from hesrpt.workload import Workload

if TYPE_CHECKING:
    from hesrpt.optimal.price_search import PricedJobs, Prices

#: The most jobs that are bounded together by default. This many take minutes.
WINDOW = 20_000
#: The steps that ``progress`` counts.
BOUND_STEPS = 100
# The part of them that the search for prices takes. The rest is the proof.
_SEARCH_PART = 0.6
# Bounds leave this relative margin, because they are verified with other values of work and other
# roundings; and more if there are tables, whose rates may be wrong by several parts in a billion.
_MARGIN, _MARGIN_OF_TABLES = 1e-9, 3e-8


@dataclass(frozen=True, eq=False, repr=False)
class LowerBound:
    """A cost that no schedule can beat, and its proof.

    The proof is a price of a server at each time: ``prices[i]`` from ``times[i]`` to
    ``times[i + 1]``, and 0 before and after. Given these prices, job j costs at least
    ``job_costs[j]`` whatever it does, and ``total`` is the sum of these costs less the price of all
    servers. Jobs that arrive together may have the certificate of a ``plan`` as a proof instead. A
    long stream is cut into ``windows``, and the bounds of these are added.
    :func:`~hesrpt.verify_bound` checks all three.
    """

    workload: Workload
    servers: float
    whole: bool
    objective: FlowObjective
    total: float
    times: FloatArray = field(default_factory=partial(np.empty, 0))
    prices: FloatArray = field(default_factory=partial(np.empty, 0))
    job_costs: FloatArray = field(default_factory=partial(np.empty, 0))
    plan: Plan | None = None
    windows: tuple[LowerBound, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.times, self.prices, self.job_costs):
            array.flags.writeable = False

    @property
    def mean(self) -> float:
        """The bound on the mean over all jobs: of the flow time, if that is the objective."""
        return self.total / len(self.workload)

    @property
    def weights(self) -> FloatArray:
        """The cost of a second of each job's flow time."""
        return weight_of_each_job(self.objective, self.workload.sizes, self.workload.weights)

    @property
    def proof(self) -> str:
        """What the bound follows from, in words."""
        jobs = format_count(len(self.workload), "job")
        if self.plan is not None:
            return f"the certificate of an optimal plan for {jobs}"
        if self.windows:
            return (
                f"the sum of the bounds of {format_count(len(self.windows), 'window')}, each of "
                f"them for its jobs without the others, {jobs} in all"
            )
        return (
            f"one path of prices of a server over {format_count(len(self.prices), 'interval')}, "
            f"for {jobs} together"
        )

    def gap(self, schedule: Schedule) -> float:
        """Return how far the cost of a schedule is above the bound, and so at most above the best.

        0.06 means that no schedule of these jobs costs less than this one divided by 1.06.
        """
        if len(schedule.workload) != len(self.workload) or not np.array_equal(
            schedule.workload.sizes, self.workload.sizes
        ):
            raise InputError("gap() needs a schedule of the jobs that the bound is for")
        cost = float(self.weights @ schedule.flow_times)
        return cost / self.total - 1 if self.total > 0 else inf

    def __repr__(self) -> str:
        cost = COSTS[self.objective]
        return f"<LowerBound: every schedule has a {cost} of at least {self.total:.6g}>"


def lower_bound(
    workload: Workload,
    servers: float,
    *,
    objective: FlowObjective = "flow",
    whole: bool = False,
    window: int = WINDOW,
    progress: Callable[[int, int], None] | None = None,
) -> LowerBound:
    """Return a bound on the cost of all schedules, even of those that know all arrivals.

    Parameters
    ----------
    workload
        The jobs, with or without arrivals, with one speedup or their own.
    servers
        The number of servers.
    objective
        "flow" bounds the total flow time, "slowdown" the total of flow time over size, "weighted"
        the sum of flow time times weight.
    whole
        Whether jobs get only whole servers. The bound then also holds for schedules that share
        servers in time.
    window
        The most jobs to bound together. Longer streams are cut into windows of jobs that arrive one
        after the other, and the bounds of the windows are added. That is a bound too, because other
        jobs never help the jobs of a window, but it is lower.
    progress
        Called now and then with the number of steps done and the total number.

    >>> from hesrpt import PowerLaw, Workload, lower_bound, simulate
    >>> jobs = Workload([9, 4, 1], PowerLaw(0.5), arrivals=[0, 1, 2])
    >>> bound = lower_bound(jobs, servers=10)
    >>> round(bound.total, 2)
    5.72
    >>> round(bound.gap(simulate(jobs, servers=10, policy="hesrpt")), 3)
    0.01
    """
    if not isinstance(workload, Workload):
        raise InputError(f"lower_bound() needs a Workload, got {type(workload).__name__}")
    servers, objective = check_servers(servers, whole), check_flow_objective(objective)
    check_weights(objective, workload.weights)
    window = check_whole_number("window", window, 1)
    workload.speedups.check(servers)

    def report(part: float) -> None:
        if progress is not None:
            progress(int(BOUND_STEPS * part), BOUND_STEPS)

    by_plan = _bound_by_plan(workload, servers, objective, whole)
    if by_plan is not None:
        report(1.0)
        return by_plan
    if len(workload) > window:
        return _bound_by_windows(workload, servers, objective, whole, window, report)
    from hesrpt.optimal.price_search import search_prices  # which imports numba: that takes long

    return bound_by_prices(workload, servers, objective, whole, search_prices, report)


def _bound_by_plan(
    workload: Workload, servers: float, objective: FlowObjective, whole: bool
) -> LowerBound | None:
    """Return the bound of a plan, if jobs arrive together.

    If their optimal order is not known, it is the one that the plan's prices prove for all orders.
    """
    if np.any(workload.arrival_times != workload.arrival_times[0]):
        return None
    batch = Workload(
        workload.sizes,
        workload.speedups.shared or list(workload.speedups),
        weights=workload.weights,
    )
    best = plan(batch, servers, objective=objective, whole=whole)
    if not best.certificate.holds_for_all_orders:
        return bound_all_orders(workload, servers, objective, whole, best.timeline)
    if not best.certificate.proven:
        return None
    total = best.certificate.lower_bound * (1 - 2 * TOLERANCE)
    return LowerBound(workload, servers, whole, objective, total, plan=best)


def _bound_by_windows(
    workload: Workload,
    servers: float,
    objective: FlowObjective,
    whole: bool,
    window: int,
    report: Callable[[float], None],
) -> LowerBound:
    """Return the sum of the bounds of windows of about the same number of jobs."""
    by_arrival = np.argsort(workload.arrival_times, kind="stable")
    parts = np.array_split(by_arrival, -(-len(workload) // window))

    def report_window(number: int) -> Callable[[int, int], None]:
        return lambda done, total: report((number + done / total) / len(parts))

    windows = tuple(
        lower_bound(
            workload.take(part),
            servers,
            objective=objective,
            whole=whole,
            window=window,
            progress=report_window(number),
        )
        for number, part in enumerate(parts)
    )
    total = sum(part.total for part in windows) * (1 - _MARGIN)
    return LowerBound(workload, servers, whole, objective, total, windows=windows)


def bound_by_prices(
    workload: Workload,
    servers: float,
    objective: FlowObjective,
    whole: bool,
    search: Callable[[PricedJobs, Callable[[float], None]], tuple[Prices, FloatArray]],
    report: Callable[[float], None] = lambda part: None,
) -> LowerBound:
    """Return the bound that follows from the prices that a search finds."""
    from hesrpt.optimal.price_search import PricedJobs  # which imports numba: that takes long
    from hesrpt.speedups.shape_kernel import TABLE

    weights = weight_of_each_job(objective, workload.sizes, workload.weights)
    speedups = workload.speedups.tabulate(servers)
    speedups = speedups.on_whole_servers() if whole else speedups
    jobs = PricedJobs(workload.sizes, workload.arrival_times, weights, speedups, servers)
    found, searched_costs = search(jobs, lambda part: report(_SEARCH_PART * part))
    times, prices = found.times, found.prices
    costs = bound_job_costs(
        workload,
        servers,
        whole,
        weights,
        times,
        prices,
        searched_costs,
        lambda part: report(_SEARCH_PART + (1 - _SEARCH_PART) * part),
    )
    has_tables = bool(np.any(speedups.shapes(servers, tabulated=True).records["family"] == TABLE))
    margin = (_MARGIN_OF_TABLES if has_tables else _MARGIN) * float(costs.sum())
    total = total_bound(costs, servers, times, prices) - margin
    return LowerBound(workload, servers, whole, objective, total, times, prices, costs)


# The most intervals of a path of prices, and the same for more jobs than that.
_MAX_INTERVALS, _MANY_JOBS, _MAX_INTERVALS_OF_MANY = 100, 10_000, 50


def bound_all_orders(
    workload: Workload, servers: float, objective: FlowObjective, whole: bool, timeline: Timeline
) -> LowerBound:
    """Return a bound that no schedule of these jobs can beat, in whatever order they end.

    They must arrive together. The prices of the timeline, that of a plan for these jobs, are only
    where the search starts: the bound is proven from the prices that are found.
    """
    from hesrpt.optimal.price_search import Prices, merge_phases, refine_prices, search_prices

    ends, paid = timeline.ends, getattr(timeline, "prices", None)
    search = search_prices
    if paid is not None and len(paid) == len(ends) and np.all((paid >= 0) & np.isfinite(paid)):
        most = _MAX_INTERVALS if len(workload) <= _MANY_JOBS else _MAX_INTERVALS_OF_MANY
        start = merge_phases(ends, paid, most)
        start = Prices(start.times + float(workload.arrival_times[0]), start.prices)
        search = partial(refine_prices, start)
    return bound_by_prices(workload, servers, objective, whole, search)


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
    if not isinstance(bound, LowerBound):
        raise InputError(f"verify_bound() needs a LowerBound, got {type(bound).__name__}")
    check_problem(bound.workload, bound.servers, bound.objective, bound.whole)
    if not is_flow_objective(bound.objective):
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
        arrivals = bound.workload.arrival_times[jobs]
        same_arrivals = np.array_equal(window.workload.arrival_times, arrivals)
        if not same_arrivals or not _is_about(window, bound, jobs):
            raise CertificateError("a window of the bound is for other jobs or servers")
    return fsum(verify_bound(window) for window in bound.windows) * (1 - 4 * _ROUNDING)


def _prove_by_plan(bound: LowerBound) -> float:
    """Return what the certificate of a plan for the same jobs proves."""
    plan, workload = bound.plan, bound.workload
    assert plan is not None
    arrivals = workload.arrival_times
    if not np.all(arrivals == arrivals[0]):
        raise CertificateError("only jobs that arrive together can be bounded by a plan")
    if not _is_about(plan, bound, np.arange(len(workload))):
        raise CertificateError("the plan of the bound is for other jobs or servers")
    verify(plan)
    if not plan.certificate.proven:
        raise CertificateError("the plan of the bound is not proven")
    # The certificate is verified up to this tolerance.
    return plan.certificate.lower_bound * (1 - 1.1 * TOLERANCE)


def _is_about(part: Plan | LowerBound, bound: LowerBound, jobs: IntArray) -> bool:
    """Return whether a plan or a bound is about some jobs of a bound, apart from arrivals."""
    workload = part.workload
    weights = weight_of_each_job(part.objective, workload.sizes, workload.weights)
    return bool(
        np.array_equal(workload.sizes, bound.workload.sizes[jobs])
        and np.array_equal(weights, bound.weights[jobs])
        and workload.speedups.equals(bound.workload.speedups.take(jobs)).all()
        and part.servers == bound.servers
        and (bound.whole or not part.whole)
    )


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
    from hesrpt.optimal.proof_kernel import Intervals, prove_costs

    speedups = workload.speedups.tabulate(servers)
    shapes = (speedups.on_whole_servers() if whole else speedups).shapes(servers, True)
    arrivals = workload.arrival_times
    path = Intervals(np.array(times), np.array(prices))  # compiled code takes no frozen arrays

    def prove(jobs: IntArray) -> FloatArray:
        costs = np.empty(len(jobs))
        prove_costs(
            shapes._replace(of_job=shapes.of_job[jobs]),
            workload.sizes[jobs],
            weights[jobs],
            arrivals[jobs],
            servers,
            path,
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
