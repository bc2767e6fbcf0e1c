"""``plan()``: the optimal plan of a batch of jobs, with a proof."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.objectives import (
    Objective,
    check_objective,
    flow_time_weights,
    total_cost,
    weight_of_each_job,
)
from hesrpt.optimal.all_orders import PlanPrices
from hesrpt.optimal.certificate import Certificate
from hesrpt.optimal.closed_form_batch import solve_batch
from hesrpt.optimal.closed_form_timeline import ClosedFormTimeline
from hesrpt.optimal.execution import ExecutionTimeline, execute
from hesrpt.optimal.makespan import ConstantTimeline, SwitchingTimeline, minimise_makespan
from hesrpt.optimal.ordering import find_good_order, find_proven_order
from hesrpt.optimal.recursion import compute_job_values
from hesrpt.schedule import Schedule, Timeline
from hesrpt.speedups import PowerLaw, SpeedupVector
from hesrpt.validation import check_flag, check_positive, check_same_length
from hesrpt.workload import Workload


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Schedule):
    """A schedule with a certificate: a bound on the cost of all schedules."""

    objective: Objective
    whole: bool
    certificate: Certificate

    @cached_property
    def speedups(self) -> SpeedupVector:
        """The speedups that the plan is computed with: tables in place of custom functions."""
        tabulated = self.workload.speedups.tabulate(self.servers)
        return tabulated.on_whole_servers() if self.whole else tabulated

    @cached_property
    def weights(self) -> FloatArray | None:
        """The cost of a second of each job's flow time; None if it is 1 for all jobs."""
        return flow_time_weights(self.objective, self.workload.sizes, self.workload.weights)

    @property
    def cost(self) -> float:
        """The cost that the plan minimises: the total over all jobs, or the makespan."""
        return _cost(self.completion_times, self.workload, self.objective)


def plan(
    workload: Workload,
    servers: float,
    *,
    objective: Objective = "flow",
    whole: bool = False,
    order: Iterable[int] | None = None,
) -> Plan:
    """Return the optimal plan for jobs that are all present at time 0.

    Parameters
    ----------
    workload
        The jobs. If all share one speedup and smaller jobs weigh no less than larger ones (always
        so for "flow" and "slowdown"), the plan is optimal and its certificate proves it. Otherwise
        it is close to the optimum, and ``certificate.proven`` is False.
    servers
        The number of servers.
    objective
        "flow" minimises the mean flow time, "slowdown" the mean of flow time over size,
        "weighted" the sum of flow time times weight, "makespan" the time of the last completion.
    whole
        Whether to allocate whole servers only. The plan is then optimal even against schedules
        that share servers in time.
    order
        The completion order to plan for, from the first job to the last, instead of the best one.
        A job may still end before its turn if holding it back would help no other job.

    >>> from hesrpt import PowerLaw, Workload, plan
    >>> best = plan(Workload(sizes=[9, 4, 1], speedup=PowerLaw(0.5)), servers=10)
    >>> best.completion_times
    array([3.71776799, 1.60201484, 0.42426407])
    >>> best.servers_at(0.0)
    array([1.11111111, 3.33333333, 5.55555556])
    """
    servers = _check_arguments(workload, servers, objective, whole)
    speedups = workload.speedups.tabulate(servers)
    speedups = speedups.on_whole_servers() if whole else speedups
    # An overflow makes the cost infinite or undefined, which is checked below.
    with np.errstate(over="ignore", invalid="ignore"):
        if objective == "makespan":
            if order is not None:
                raise InputError("order has no meaning for the makespan: all jobs end at once")
            solution = _solve_makespan(workload, speedups, servers, whole)
        else:
            requested = None if order is None else _check_order(order, len(workload))
            solution = _solve_flow_time(workload, speedups, servers, objective, requested)
        cost = _cost(solution.completion_times, workload, objective)
    if not (np.isfinite(cost) and np.isfinite(solution.bound) and solution.bound > 0):
        raise InputError(
            f"the cost of the plan is {cost!r}: this combination of sizes, weights and servers is "
            "too extreme for floating-point numbers"
        )
    gap = cost / solution.bound - 1
    is_inexact = solution.reason == _PROVEN and abs(gap) > _MAX_GAP
    reason = _INEXACT if is_inexact else solution.reason
    certificate = Certificate(
        proven=reason == _PROVEN,
        reason=reason,
        first_to_last=solution.first_to_last,
        values_in_order=solution.values,
        lower_bound=solution.bound,
        gap=gap,
        prices=_find_prices(workload, servers, objective, whole, solution),
    )
    return Plan(
        workload,
        servers,
        solution.completion_times,
        solution.timeline,
        objective,
        whole,
        certificate,
    )


def _find_prices(
    workload: Workload, servers: float, objective: Objective, whole: bool, solution: _Solution
) -> PlanPrices | None:
    """Return the prices of the plan's phases if nothing is known about other completion orders."""
    timeline = solution.timeline
    if solution.reason == _PROVEN or objective == "makespan":
        return None
    assert isinstance(timeline, ClosedFormTimeline | ExecutionTimeline)
    return PlanPrices(workload, servers, objective, whole, timeline.ends, timeline.prices)


# Rounding explains a relative gap up to this. A plan with a greater gap is not proven.
_MAX_GAP = 1e-8
_PROVEN = "no schedule does better"
_MIXED = "jobs have different speedups, so the best completion order is not known"
_WEIGHTS = "a larger job weighs more than a smaller one, so the best completion order is not known"
_REQUESTED = "the completion order was requested"
_INEXACT = "the speedup cannot be computed exactly enough for this many servers"


@dataclass(frozen=True)
class _Solution:
    completion_times: FloatArray
    timeline: Timeline
    first_to_last: IntArray
    values: FloatArray  # in that order
    bound: float
    reason: str


def _solve_flow_time(
    workload: Workload,
    speedups: SpeedupVector,
    servers: float,
    objective: Objective,
    requested: IntArray | None,
) -> _Solution:
    sizes = workload.sizes
    weights = flow_time_weights(objective, sizes, workload.weights)
    # For the slowdown, smaller jobs weigh more by definition: there is nothing to check.
    proven = find_proven_order(sizes, speedups, None if objective == "slowdown" else weights)
    if requested is not None:
        order, sizes_in_order = requested, sizes[requested]
        is_proven = proven is not None and np.array_equal(proven[0], requested)
        reason = _PROVEN if is_proven else _REQUESTED
    elif proven is not None:
        (order, sizes_in_order), reason = proven, _PROVEN
    else:
        order = find_good_order(
            sizes, speedups, servers, weight_of_each_job(objective, sizes, workload.weights)
        )
        sizes_in_order = sizes[order]
        reason = _MIXED if speedups.shared is None else _WEIGHTS

    if isinstance(shared := speedups.shared, PowerLaw):
        if objective == "slowdown":
            weights_in_order: FloatArray | None = 1 / sizes_in_order
        else:
            weights_in_order = None if weights is None else weights[order]
        optimum = solve_batch(sizes_in_order, order, servers, shared.p, weights_in_order)
        if optimum.is_in_order or reason == _PROVEN:
            timeline = ClosedFormTimeline(servers, shared.p, weights, optimum)
            return _Solution(
                optimum.completion_times,
                timeline,
                order,
                optimum.values,
                optimum.total_value,
                reason,
            )

    each_weight = weight_of_each_job(objective, sizes, workload.weights)
    execution = execute(
        sizes, speedups, servers, each_weight, order, ends_in_order=reason == _PROVEN
    )
    values = execution.values
    if not np.array_equal(execution.first_to_last, order):
        # A bound holds for one completion order: use the order in which the jobs did end.
        order = execution.first_to_last
        last_to_first = order[::-1]
        values = compute_job_values(
            speedups.take(last_to_first), servers, each_weight[last_to_first]
        )
    value = values.values[::-1]
    return _Solution(
        execution.completion_times,
        execution.timeline,
        order,
        value,
        float(value @ sizes[order]),
        reason,
    )


def _solve_makespan(
    workload: Workload, speedups: SpeedupVector, servers: float, whole: bool
) -> _Solution:
    sizes = workload.sizes
    optimum = minimise_makespan(sizes, speedups, servers)
    timeline: Timeline
    if whole:
        timeline = SwitchingTimeline(optimum.makespan, optimum.held, servers)
        times = timeline.completion_times
    else:
        early = sizes / speedups.rate(optimum.held)
        times = np.where(early < optimum.makespan * (1 - 1e-9), early, optimum.makespan)
        timeline = ConstantTimeline(optimum.held, times)
    order = np.argsort(times, kind="stable")
    value = optimum.job_values
    return _Solution(times, timeline, order, value[order], float(value @ sizes), _PROVEN)


def _cost(times: FloatArray, workload: Workload, objective: Objective) -> float:
    return total_cost(objective, times, workload.sizes, workload.weights)


def _check_arguments(workload: Workload, servers: float, objective: str, whole: bool) -> float:
    if not isinstance(workload, Workload):
        raise InputError(f"plan() needs a Workload, got {type(workload).__name__}")
    servers = check_positive("servers", servers)
    check_objective(objective)
    if check_flag("whole", whole) and servers != int(servers):
        raise InputError(
            f"must be a whole number for whole servers, got {servers:g}", argument="servers"
        )
    if objective == "weighted" and workload.weights is None:
        raise InputError(
            'objective "weighted" needs a workload with weights (in a file, a column "weight")'
        )
    if workload.arrivals is not None and workload.arrivals.any():
        job = int(np.argmax(workload.arrivals > 0))
        raise InputError(
            f"job {workload.names[job]} arrives at {workload.arrivals[job]:g}, but all jobs of a "
            "plan must be present at time 0; simulate jobs that arrive later"
        )
    workload.speedups.check(servers)
    return servers


def _check_order(order: Iterable[int], jobs: int) -> IntArray:
    if not isinstance(order, Iterable):
        raise InputError(f"must be a list of job numbers, got {order!r}", argument="order")
    listed = list(order)
    check_same_length("order", listed, jobs)
    are_whole = all(isinstance(job, int | np.integer) and job is not True for job in listed)
    if not are_whole or set(listed) != set(range(jobs)):
        raise InputError(
            f"must contain each of the jobs 0 to {jobs - 1} once, got {listed!r}", argument="order"
        )
    return np.array(listed, dtype=np.int64)
