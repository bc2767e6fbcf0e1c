"""Asking a policy about the first of many jobs, rather than about all of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hesrpt import PowerLaw
from hesrpt.arrays import FloatArray
from hesrpt.policies import (
    Adaptive,
    Equi,
    Fifo,
    HeLrpt,
    HeSrpt,
    Knee,
    Optimal,
    Policy,
    Srpt,
    State,
    round_fairly,
)
from hesrpt.speedups import Speedup, SpeedupVector

JOBS, SERVERS, FIRST = 300, 4, 40
ORDERED: list[Policy] = [
    Adaptive(focus=0.3),
    Adaptive(focus=1.0),
    Adaptive(focus=0.3, objective="weighted"),
    Adaptive(sizes="unknown"),
    HeSrpt(0.8),
    HeSrpt(0.8, objective="weighted"),
    Optimal(),
    Srpt(),
    Equi(),
    Fifo(),
]


def describe(speedups: list[Speedup], remaining: FloatArray, weights: FloatArray) -> State:
    return State(
        time=0.0,
        servers=float(SERVERS),
        whole=True,
        jobs=np.arange(len(remaining)),
        remaining=remaining,
        sizes=remaining,
        arrivals=np.zeros(len(remaining)),
        weights=weights,
        speedups=SpeedupVector.create(speedups),
    )


@pytest.mark.parametrize("policy", ORDERED, ids=repr)
@pytest.mark.parametrize("p", [0.5, 0.9, None])
def test_the_first_of_many_jobs_get_what_they_get_among_all(
    policy: Policy, p: float | None
) -> None:
    rng = np.random.default_rng(7)
    remaining, weights = rng.pareto(1.5, JOBS) + 1, rng.integers(1, 4, JOBS).astype(np.float64)
    speedups: list[Speedup] = [PowerLaw(p or each) for each in rng.uniform(0.6, 0.95, JOBS)]
    everyone = describe(speedups, remaining, weights)
    order = policy.order(everyone)
    assert order is not None
    first = np.sort(order[:FIRST])
    state = describe([speedups[job] for job in first], remaining[first], weights[first])
    is_weighted = "weighted" in repr(policy)
    # The live scheduler rounds the shares of many jobs with this policy.
    everyone.whole = state.whole = not (isinstance(policy, HeSrpt) and is_weighted)
    state.others = float(weights.sum() - state.weights.sum()) if is_weighted else JOBS - FIRST
    expected = round_fairly(policy(everyone), SERVERS)
    assert_array_equal(round_fairly(policy(state), SERVERS), expected[first])
    assert expected[first].sum() == SERVERS


@pytest.mark.parametrize("policy", [HeLrpt(), Knee(0.1), Knee()], ids=repr)
def test_policies_without_an_order_see_all_jobs(policy: Policy) -> None:
    state = describe([PowerLaw(0.5)] * 3, np.array([3.0, 2.0, 1.0]), np.ones(3))
    assert policy.order(state) is None
