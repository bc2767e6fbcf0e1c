"""``plan()``: the optimal plan of a batch of jobs, with a proof."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.objectives import (
    FlowObjective,
    Objective,
    check_objective,
    check_weights,
    flow_time_weights,
    is_flow_objective,
    total_cost,
    weight_of_each_job,
)
from hesrpt.optimal.certificate import Certificate
from hesrpt.optimal.closed_form import ClosedFormTimeline, solve_batch, sort_by_size
from hesrpt.optimal.makespan import ConstantTimeline, SwitchingTimeline, minimise_makespan
from hesrpt.optimal.recursion import compute_job_values
from hesrpt.schedule import Schedule, Timeline
from hesrpt.speedups import PowerLaw, SpeedupVector
from hesrpt.validation import check_same_length, check_servers
from hesrpt.workload import Workload

if TYPE_CHECKING:
    from hesrpt.optimal.bounds import LowerBound


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Schedule):
    """A schedule with a certificate: a bound on the cost of all schedules.

    ``values_in_order`` gives a value to a unit of each job's work, in the order in which the jobs
    end, ``first_to_last``. All claims of the certificate follow from these two and from the other
    fields.
    """

    objective: Objective
    whole: bool
    first_to_last: IntArray
    values_in_order: FloatArray

    def __post_init__(self) -> None:
        super().__post_init__()
        self.first_to_last.flags.writeable = self.values_in_order.flags.writeable = False

    @property
    def certificate(self) -> Certificate:
        """What is proven about the plan."""
        return Certificate(self)

    @cached_property
    def any_order_bound(self) -> LowerBound | None:
        """A bound on the cost of all schedules; None if the job values already give one."""
        if not is_flow_objective(self.objective) or self.certificate.holds_for_all_orders:
            return None
        from hesrpt.optimal.bounds import bound_all_orders  # which imports this module

        return bound_all_orders(
            self.workload, self.servers, self.objective, self.whole, self.timeline
        )

    @cached_property
    def speedups(self) -> SpeedupVector:
        """The speedups that the plan is computed with: tables in place of custom functions."""
        tabulated = self.workload.speedups.tabulate(self.servers)
        return tabulated.on_whole_servers() if self.whole else tabulated

    @property
    def weights(self) -> FloatArray | None:
        """The cost of a second of each job's flow time; None if it is 1 for all jobs."""
        return flow_time_weights(self.objective, self.workload.sizes, self.workload.weights)

    @property
    def cost(self) -> float:
        """The cost that the plan minimises: the total over all jobs, or the makespan."""
        sizes, weights = self.workload.sizes, self.workload.weights
        return total_cost(self.objective, self.completion_times, sizes, weights)


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
        if not is_flow_objective(objective):
            if order is not None:
                raise InputError("order has no meaning for the makespan: all jobs end at once")
            found, bound = _minimise_makespan(workload, speedups, servers, whole)
        else:
            requested = None if order is None else _check_order(order, len(workload))
            found, bound = _minimise_flow_time(
                workload, speedups, servers, objective, whole, requested
            )
        cost = found.cost
    if not (np.isfinite(cost) and np.isfinite(bound) and bound > 0):
        raise InputError(
            f"the cost of the plan is {cost!r}: this combination of sizes, weights and servers is "
            "too extreme for floating-point numbers"
        )
    return found


def _minimise_flow_time(
    workload: Workload,
    speedups: SpeedupVector,
    servers: float,
    objective: FlowObjective,
    whole: bool,
    requested: IntArray | None,
) -> tuple[Plan, float]:
    """Return a plan for the best order known, or the requested one, and its lower bound."""
    sizes = workload.sizes
    weights = flow_time_weights(objective, sizes, workload.weights)
    proven = find_proven_order(sizes, speedups, weights)
    if requested is not None:
        order, sizes_in_order = requested, sizes[requested]
        is_proven = proven is not None and np.array_equal(proven[0], requested)
    elif proven is not None:
        (order, sizes_in_order), is_proven = proven, True
    else:
        from hesrpt.optimal.ordering import find_good_order

        order = find_good_order(
            sizes, speedups, servers, weight_of_each_job(objective, sizes, workload.weights)
        )
        sizes_in_order, is_proven = sizes[order], False

    if isinstance(shared := speedups.shared, PowerLaw):
        given = None if workload.weights is None else workload.weights[order]
        weights_in_order = flow_time_weights(objective, sizes_in_order, given)
        optimum = solve_batch(sizes_in_order, order, servers, shared.p, weights_in_order)
        if optimum.is_in_order or is_proven:
            line = ClosedFormTimeline(servers, shared.p, weights, optimum)
            ends, values = optimum.completion_times, optimum.values
            found = Plan(workload, servers, ends, line, objective, whole, order, values)
            return found, optimum.total_value

    from hesrpt.optimal.execution import execute

    each_weight = weight_of_each_job(objective, sizes, workload.weights)
    execution = execute(sizes, speedups, servers, each_weight, order, ends_in_order=is_proven)
    job_values = execution.values
    if not np.array_equal(execution.first_to_last, order):
        # A bound holds for one completion order: use the order in which the jobs did end.
        order = execution.first_to_last
        last_to_first = order[::-1]
        job_values = compute_job_values(
            speedups.take(last_to_first), servers, each_weight[last_to_first]
        )
    values = job_values.values[::-1].copy()  # not a part of what the timeline works on
    ends, timeline = execution.completion_times, execution.timeline
    found = Plan(workload, servers, ends, timeline, objective, whole, order, values)
    return found, float(values @ sizes[order])


def find_proven_order(
    sizes: FloatArray, speedups: SpeedupVector, weights: FloatArray | None
) -> tuple[IntArray, FloatArray] | None:
    """Return the jobs shortest first, and their sizes; None if that order is not proven optimal.

    Of jobs of equal size, the heavier ends first, then the one that was given first.

    With one speedup for all jobs, shortest-first is optimal for *every* concave speedup if smaller
    jobs weigh no less than larger ones. Proof: let b be no larger than a, weigh no less, and end
    after a. Swap what the two hold during a part of the time before a's end, such that b now ends
    at that time. What remains of a is then what remained of b, so a can end when b did. No other
    job is affected, and the cost does not rise.
    """
    if speedups.shared is None:
        return None
    order, sizes_in_order = sort_by_size(sizes)
    if weights is None or _is_falling(weights[order]):
        return order, sizes_in_order
    order = np.lexsort((-weights, sizes))
    return (order, sizes_in_order) if _is_falling(weights[order]) else None


def _is_falling(weights: FloatArray) -> bool:
    return bool(np.all(weights[1:] <= weights[:-1]))


def _minimise_makespan(
    workload: Workload, speedups: SpeedupVector, servers: float, whole: bool
) -> tuple[Plan, float]:
    """Return the plan with the least makespan, and its lower bound."""
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
    values = optimum.job_values
    found = Plan(workload, servers, times, timeline, "makespan", whole, order, values[order])
    return found, float(values @ sizes)


def _check_arguments(workload: Workload, servers: float, objective: str, whole: bool) -> float:
    if not isinstance(workload, Workload):
        raise InputError(f"plan() needs a Workload, got {type(workload).__name__}")
    servers = check_servers(servers, whole)
    check_weights(check_objective(objective), workload.weights)
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
