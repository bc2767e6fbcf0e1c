"""The optimal plan of a batch of jobs, with its proof."""

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
from hesrpt.optimal import closed_form, makespan
from hesrpt.optimal.certificate import Certificate
from hesrpt.optimal.decisions import decide
from hesrpt.optimal.ordering import promising_order, provably_shortest_first
from hesrpt.optimal.power_law import PowerLawTimeline
from hesrpt.optimal.recursion import job_values
from hesrpt.schedule import Schedule, Timeline
from hesrpt.speedups import PowerLaw, SpeedupVector
from hesrpt.validation import check_flag, check_positive, check_same_length
from hesrpt.workload import Workload


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Schedule):
    """A schedule with what is known about how good it is."""

    objective: Objective
    whole: bool
    certificate: Certificate

    @cached_property
    def speedups(self) -> SpeedupVector:
        """The speedups that the plan is computed with: tables in place of custom functions."""
        known = self.workload.speedups.known_on(self.servers)
        return known.on_whole_servers() if self.whole else known

    @cached_property
    def weights(self) -> FloatArray | None:
        """What a second of each job's flow time costs, if that is not 1 for all."""
        return flow_time_weights(self.objective, self.workload.sizes, self.workload.weights)

    @property
    def cost(self) -> float:
        """What the plan minimises: the total over all jobs, or the makespan."""
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
        The jobs. With one speedup for all, and smaller jobs weighing no less than larger ones
        (always so for "flow" and "slowdown"), the plan is optimal and its certificate proves it.
        Otherwise it is very good, and ``certificate.proven`` is False.
    servers
        How many servers there are.
    objective
        "flow" minimises the mean flow time, "slowdown" the mean of flow time over size,
        "weighted" the flow times times the jobs' weights, "makespan" the time of the last end.
    whole
        Whether servers are handed out whole. The plan is then optimal even against schedules that
        share servers in time.
    order
        The jobs from the first to end to the last, where another order is wanted than the best
        one. A job may still end before its turn, if holding it back would help nobody.

    >>> from hesrpt import PowerLaw, Workload, plan
    >>> best = plan(Workload(sizes=[9, 4, 1], speedup=PowerLaw(0.5)), servers=10)
    >>> best.completion_times
    array([3.71776799, 1.60201484, 0.42426407])
    >>> best.servers_at(0.0)
    array([1.11111111, 3.33333333, 5.55555556])
    """
    servers = _check(workload, servers, objective, whole)
    speedups = workload.speedups.known_on(servers)
    speedups = speedups.on_whole_servers() if whole else speedups
    # What overflows, or is undefined because of it, shows in the cost.
    with np.errstate(over="ignore", invalid="ignore"):
        if objective == "makespan":
            if order is not None:
                raise InputError("order has no meaning for the makespan: all jobs end together")
            solved = _shortest_makespan(workload, speedups, servers, whole)
        else:
            wished = None if order is None else _permutation(order, len(workload))
            solved = _least_flow_time(workload, speedups, servers, objective, wished)
        cost = _cost(solved.completion_times, workload, objective)
    if not (np.isfinite(cost) and np.isfinite(solved.bound) and solved.bound > 0):
        raise InputError(
            "sizes, weights and servers are too extreme together: the cost of the plan is "
            f"{cost!r}, beyond what a float can hold"
        )
    gap = cost / solved.bound - 1
    reason = _INEXACT if solved.reason == _PROVEN and abs(gap) > _EXACT else solved.reason
    certificate = Certificate(
        proven=reason == _PROVEN,
        reason=reason,
        first_to_last=solved.first_to_last,
        values_in_order=solved.values,
        lower_bound=solved.bound,
        gap=gap,
    )
    return Plan(
        workload, servers, solved.completion_times, solved.timeline, objective, whole, certificate
    )


# Plans are exact to this: a greater gap proves nothing.
_EXACT = 1e-8
_PROVEN = "no schedule does better"
_MIXED = "jobs have different speedups, so the best order of completion is not known"
_WEIGHTS = "a larger job weighs more than a smaller one, so the best order is not known"
_WISHED = "the order of completion was given"
_INEXACT = "the speedup is not known exactly enough for so many servers"


@dataclass(frozen=True)
class _Solution:
    completion_times: FloatArray
    timeline: Timeline
    first_to_last: IntArray
    values: FloatArray  # in that order
    bound: float
    reason: str


def _least_flow_time(
    workload: Workload,
    speedups: SpeedupVector,
    servers: float,
    objective: Objective,
    wished: IntArray | None,
) -> _Solution:
    sizes = workload.sizes
    weights = flow_time_weights(objective, sizes, workload.weights)
    # For the slowdown, smaller jobs weigh more by definition.
    agreed = None if objective == "slowdown" else weights
    best = provably_shortest_first(sizes, speedups, agreed)
    if wished is not None:
        order, sizes_in_order = wished, sizes[wished]
        reason = _PROVEN if best is not None and np.array_equal(best[0], wished) else _WISHED
    elif best is not None:
        (order, sizes_in_order), reason = best, _PROVEN
    else:
        order = promising_order(
            sizes, speedups, servers, weight_of_each_job(objective, sizes, workload.weights)
        )
        sizes_in_order = sizes[order]
        reason = _MIXED if speedups.shared is None else _WEIGHTS

    if isinstance(shared := speedups.shared, PowerLaw):
        if objective == "slowdown":
            weights_in_order: FloatArray | None = 1 / sizes_in_order
        else:
            weights_in_order = None if weights is None else weights[order]
        optimum = closed_form.solve(sizes_in_order, order, servers, shared.p, weights_in_order)
        if optimum.in_order or reason == _PROVEN:
            timeline = PowerLawTimeline(servers, shared.p, weights, optimum)
            return _Solution(
                optimum.completion_times,
                timeline,
                order,
                optimum.values,
                optimum.value_of_all,
                reason,
            )

    each_weight = weight_of_each_job(objective, sizes, workload.weights)
    outcome = decide(sizes, speedups, servers, each_weight, order, in_order=reason == _PROVEN)
    values = outcome.values
    if not np.array_equal(outcome.first_to_last, order):
        # The bound of an order holds for that order: take the one that came about.
        order = outcome.first_to_last
        last_to_first = order[::-1]
        values = job_values(speedups.take(last_to_first), servers, each_weight[last_to_first])
    value = values.values[::-1]
    return _Solution(
        outcome.completion_times,
        outcome.timeline,
        order,
        value,
        float(value @ sizes[order]),
        reason,
    )


def _shortest_makespan(
    workload: Workload, speedups: SpeedupVector, servers: float, whole: bool
) -> _Solution:
    sizes = workload.sizes
    optimum = makespan.solve(sizes, speedups, servers)
    timeline: Timeline
    if whole:
        timeline = makespan.SwitchingTimeline(optimum.makespan, optimum.held, servers)
        times = timeline.completion_times
    else:
        early = sizes / speedups.rate(optimum.held)
        times = np.where(early < optimum.makespan * (1 - 1e-9), early, optimum.makespan)
        timeline = makespan.ConstantTimeline(optimum.held, times)
    order = np.argsort(times, kind="stable")
    value = optimum.job_values
    return _Solution(times, timeline, order, value[order], float(value @ sizes), _PROVEN)


def _cost(times: FloatArray, workload: Workload, objective: Objective) -> float:
    return total_cost(objective, times, workload.sizes, workload.weights)


def _check(workload: Workload, servers: float, objective: str, whole: bool) -> float:
    if not isinstance(workload, Workload):
        raise InputError(f"plan() needs a Workload, got {type(workload).__name__}")
    servers = check_positive("servers", servers)
    check_objective(objective)
    if check_flag("whole", whole) and servers != int(servers):
        raise InputError(
            f"must be a whole number for whole servers, got {servers!r}", argument="servers"
        )
    if objective == "weighted" and workload.weights is None:
        raise InputError(
            'objective "weighted" needs a workload with weights (in a file, a column "weight")'
        )
    if workload.arrivals is not None and workload.arrivals.any():
        job = int(np.argmax(workload.arrivals > 0))
        raise InputError(
            f"job {workload.names[job]} arrives at {workload.arrivals[job]:g}, but a plan is for "
            "jobs that are all present at time 0; simulate jobs that arrive later"
        )
    workload.speedups.check(servers)
    return servers


def _permutation(order: Iterable[int], jobs: int) -> IntArray:
    if not isinstance(order, Iterable):
        raise InputError(f"order must be a list of job numbers, got {order!r}")
    listed = list(order)
    check_same_length("order", listed, jobs)
    whole = all(isinstance(job, int | np.integer) and job is not True for job in listed)
    if not whole or set(listed) != set(range(jobs)):
        raise InputError(f"order must name each of the jobs 0 to {jobs - 1} once, got {listed!r}")
    return np.array(listed, dtype=np.int64)
