"""Binding policies to jobs: missing parameters, approximations, and repeated binding."""

from __future__ import annotations

import numpy as np
import pytest

from hesrpt import Amdahl, InputError, PowerLaw, Speedup, Workload
from hesrpt.policies import (
    Equi,
    HeSrpt,
    Knee,
    Optimal,
    PolicyBinder,
    WorkloadFacts,
    approximate_exponent,
    describe_workload,
)
from hesrpt.policies.knee import estimate_alpha
from hesrpt.speedups import SpeedupVector


def create_facts(*speedups: Speedup, approximate_p: float | None = None) -> WorkloadFacts:
    workload = Workload(np.arange(1.0, len(speedups) + 1), list(speedups))
    return describe_workload(workload, servers=8, approximate_p=approximate_p)


def test_hesrpt_takes_the_p_that_all_jobs_share() -> None:
    shared = create_facts(PowerLaw(0.7), PowerLaw(0.7).limited(3), approximate_p=0.2)
    assert HeSrpt().bind(shared) == HeSrpt(p=0.7)


def test_hesrpt_uses_an_approximate_p_if_speedups_differ() -> None:
    different = create_facts(PowerLaw(0.7), Amdahl(0.9), approximate_p=0.6)
    assert HeSrpt(objective="slowdown").bind(different) == HeSrpt(0.6, "slowdown")
    with pytest.raises(InputError, match="policy hesrpt needs one power law"):
        HeSrpt().bind(create_facts(PowerLaw(0.7), Amdahl(0.9)))


def test_binding_keeps_parameters_that_are_set() -> None:
    assert HeSrpt(p=0.3).bind(create_facts(PowerLaw(0.7))) == HeSrpt(p=0.3)
    assert Knee(0.1).bind(create_facts(PowerLaw(0.7))) == Knee(0.1)


def test_binding_estimates_the_alpha_of_knee() -> None:
    jobs = create_facts(PowerLaw(0.5), PowerLaw(0.5), PowerLaw(0.5))
    alpha = Knee().bind(jobs).alpha
    assert alpha is not None
    knees = jobs.speedups.knee(jobs.sizes / (4 * alpha), 8)
    assert knees.sum() == pytest.approx(8, rel=1e-6)


def test_knee_uses_all_servers_that_limited_jobs_can_use() -> None:
    sizes = np.array([5.0, 2.0, 1.0])
    speedups = SpeedupVector.repeat(PowerLaw(0.5).limited(2), 3)
    alpha = estimate_alpha(sizes, speedups, servers=100)
    np.testing.assert_allclose(speedups.knee(sizes / alpha, 100), 2)


def test_bound_policies_do_not_share_a_cache() -> None:
    policy = Optimal()
    first, second = (policy.bind(create_facts(PowerLaw(0.5))) for _ in range(2))
    assert first == second == policy
    assert first is not second


def test_a_binder_keeps_the_policy_until_its_parameters_change() -> None:
    binder = PolicyBinder(HeSrpt())
    first = binder.bind(create_facts(PowerLaw(0.5), PowerLaw(0.5)))
    assert binder.bind(create_facts(PowerLaw(0.5))) is first
    assert binder.bind(create_facts(PowerLaw(0.6))) == HeSrpt(p=0.6)
    assert PolicyBinder(equi := Equi()).bind(create_facts(PowerLaw(0.5))) is equi


def test_the_approximate_exponent_is_a_mean_weighted_by_work() -> None:
    speedups = SpeedupVector.create([PowerLaw(0.2), PowerLaw(0.8).limited(4), Amdahl(1.0)])
    sizes = np.array([3.0, 1.0, 1.0])
    assert approximate_exponent(speedups, sizes) == pytest.approx((0.6 + 0.8 + 1.0) / 5)
    assert approximate_exponent(speedups, np.array([0.0, 0.0, 1.0])) == 0.99
