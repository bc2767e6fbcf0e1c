"""Each objective weighs flow times as its name says, and unknown names are refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hesrpt import InputError
from hesrpt.objectives import (
    Objective,
    check_flow_objective,
    check_objective,
    flow_time_weights,
    total_cost,
    weight_of_each_job,
)

SIZES, WEIGHTS, TIMES = np.array([1.0, 4.0]), np.array([3.0, 2.0]), np.array([2.0, 10.0])


@pytest.mark.parametrize(
    ("objective", "weights", "cost"),
    [
        ("flow", [1, 1], 12.0),
        ("slowdown", [1, 0.25], 4.5),
        ("weighted", [3, 2], 26.0),
        ("makespan", [1, 1], 10.0),
    ],
)
def test_weights_and_cost(objective: Objective, weights: list[float], cost: float) -> None:
    assert_array_equal(weight_of_each_job(objective, SIZES, WEIGHTS), weights)
    assert total_cost(objective, TIMES, SIZES, WEIGHTS) == cost


@pytest.mark.parametrize("objective", ["flow", "makespan"])
def test_equal_weights_need_no_array(objective: Objective) -> None:
    assert flow_time_weights(objective, SIZES, WEIGHTS) is None


@pytest.mark.parametrize("objective", ["fun", None, 3])
def test_unknown_objectives_are_refused(objective: object) -> None:
    with pytest.raises(InputError, match="objective must be one of flow, slowdown, weighted, make"):
        check_objective(objective)


def test_policies_cannot_minimise_the_makespan() -> None:
    assert check_objective("makespan") == "makespan"
    with pytest.raises(InputError, match="must be one of flow, slowdown, weighted, got 'makespan'"):
        check_flow_objective("makespan")
