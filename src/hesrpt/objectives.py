"""The objectives of plans and policies: their names, the weights they imply, and their cost."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeGuard, cast, get_args

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.validation import check_choice

#: Objectives that are a weighted sum of flow times. Policies can follow these.
FlowObjective: TypeAlias = Literal["flow", "slowdown", "weighted"]
#: All objectives of a plan.
Objective: TypeAlias = Literal["flow", "slowdown", "weighted", "makespan"]

#: What each objective minimises.
COSTS: dict[Objective, str] = {
    "flow": "total flow time",
    "slowdown": "total slowdown",
    "weighted": "weighted flow time",
    "makespan": "makespan",
}
#: The same for the help of commands.
SUMMARY = "flow (mean flow time), slowdown, weighted (flow time) or makespan"


def check_objective(objective: object) -> Objective:
    """Return ``objective``, or raise an error if plans have no such objective."""
    return cast(Objective, check_choice("objective", objective, get_args(Objective)))


def check_flow_objective(objective: object) -> FlowObjective:
    """Return ``objective``, or raise an error if policies have no such objective."""
    return cast(FlowObjective, check_choice("objective", objective, get_args(FlowObjective)))


def is_flow_objective(objective: Objective) -> TypeGuard[FlowObjective]:
    """Return whether an objective is a weighted sum of flow times, and not the makespan."""
    return objective in get_args(FlowObjective)


def needs_weights(objective: Objective) -> bool:
    """Return whether jobs must have weights."""
    return objective == "weighted"


def has_equal_weights(objective: Objective) -> bool:
    """Return whether a second of flow time costs the same for all jobs, by definition."""
    return objective == "flow"


def check_weights(objective: Objective, weights: FloatArray | None) -> None:
    """Raise an error if jobs lack the weights that an objective needs."""
    if needs_weights(objective) and weights is None:
        raise InputError(
            f'objective "{objective}" needs a workload with weights (in a file, a column "weight")'
        )


def flow_time_weights(
    objective: Objective, sizes: FloatArray, weights: FloatArray | None
) -> FloatArray | None:
    """Return the cost of a second of each job's flow time; None if it is 1 for all jobs.

    >>> flow_time_weights("slowdown", np.array([1.0, 4.0]), None)
    array([1.  , 0.25])
    """
    if objective == "slowdown":
        return 1 / sizes
    return weights if objective == "weighted" else None


def weight_of_each_job(
    objective: Objective, sizes: FloatArray, weights: FloatArray | None
) -> FloatArray:
    """Return :func:`flow_time_weights`, with an array of ones in place of None."""
    each = flow_time_weights(objective, sizes, weights)
    return np.ones(len(sizes)) if each is None else each


def total_cost(
    objective: Objective, flow_times: FloatArray, sizes: FloatArray, weights: FloatArray | None
) -> float:
    """Return the cost that an objective minimises, for jobs that are all present at time 0.

    >>> total_cost("slowdown", np.array([2.0, 4.0]), np.array([1.0, 4.0]), None)
    3.0
    """
    if not is_flow_objective(objective):
        return float(flow_times.max())
    each = flow_time_weights(objective, sizes, weights)
    return float(flow_times.sum() if each is None else each @ flow_times)
