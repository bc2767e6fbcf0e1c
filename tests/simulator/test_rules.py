"""Policies that run compiled decide as they do when they are called at each event."""

from __future__ import annotations

import numpy as np
import pytest

from hesrpt import Amdahl, Measured, PowerLaw, Workload, plan, simulate
from hesrpt.arrays import FloatArray
from hesrpt.policies import (
    Adaptive,
    Equi,
    Fifo,
    HeSrpt,
    Knee,
    Optimal,
    Policy,
    Srpt,
    State,
    find_rule,
    optimal,
)
from hesrpt.policies.sharing import Leftover
from hesrpt.simulator import loop
from hesrpt.simulator.simulation import Simulation, run_simulation
from hesrpt.speedups import Speedup, SpeedupVector

ANY_SPEEDUPS = SpeedupVector.create([PowerLaw(0.5), PowerLaw(0.6)])


def interpret(policy: Policy) -> Policy:
    """Return the same policy without a rule: the simulator calls it at each event."""
    base = type(policy)
    interpreted = type(
        base.__name__, (base,), {"__call__": lambda self, state: base.__call__(self, state)}
    )
    copy: Policy = object.__new__(interpreted)
    vars(copy).update(vars(policy))
    assert find_rule(copy, ANY_SPEEDUPS, whole=False) is None
    return copy


def draw_speedup(rng: np.random.Generator, family: str) -> Speedup:
    speedup: Speedup
    if family == "any":
        family = rng.choice(["power", "Amdahl", "measured"])
    if family == "power":
        speedup = PowerLaw(float(rng.uniform(0.05, 0.95)))
    elif family == "Amdahl":
        speedup = Amdahl(float(rng.uniform(0.3, 1)))
    else:
        gains = np.sort(rng.uniform(0, 1, 5))[::-1] * [1, 1, 2, 4, 4]
        speedup = Measured([1, 2, 4, 8, 12], np.cumsum(gains))
    if rng.random() < 0.3:
        speedup = speedup.time_shared()
    if rng.random() < 0.4:
        speedup = speedup.limited(float(rng.choice([1, 2, 3.5, 8])))
    return speedup


def draw_workload(rng: np.random.Generator, max_jobs: int = 30) -> Workload:
    """Return jobs that differ, or whose weights do, with many ties of all kinds."""
    jobs = int(rng.integers(1, max_jobs))
    family = str(rng.choice(["power", "Amdahl", "measured", "any"]))
    speedups = [draw_speedup(rng, family) for _ in range(jobs)]
    if rng.random() < 0.3:
        speedups = [speedups[number] for number in rng.integers(min(3, jobs), size=jobs)]
    sizes = rng.pareto(1.5, jobs) + 0.1
    if rng.random() < 0.3:
        sizes = np.ceil(sizes)
    arrivals = None
    if rng.random() < 0.7:
        arrivals = np.cumsum(rng.exponential(1 / 8, jobs))
        if rng.random() < 0.3:
            arrivals = np.floor(4 * arrivals) / 4
    few_weights = rng.random() < 0.5
    return Workload(
        sizes,
        speedups[0] if rng.random() < 0.25 else speedups,
        arrivals=arrivals,
        weights=rng.choice([0.5, 1, 3], jobs) if few_weights else rng.uniform(0.1, 3, jobs),
    )


def list_simple_policies(rng: np.random.Generator) -> list[Policy]:
    p = float(rng.uniform(0.1, 0.95))
    return [
        Equi(),
        Srpt(),
        Fifo(),
        HeSrpt(p),
        HeSrpt(p, "slowdown"),
        HeSrpt(p, "weighted"),
    ]


def list_planning_policies(rng: np.random.Generator) -> list[Policy]:
    return [
        Optimal(),
        Optimal("slowdown"),
        Optimal("weighted"),
        Adaptive(),
        Adaptive(focus=float(rng.uniform(0, 1))),
        Adaptive(objective="slowdown"),
        Adaptive(objective="weighted"),
    ]


def run_policy(
    workload: Workload, servers: float, policy: Policy, options: dict[str, float]
) -> Simulation:
    return run_simulation(workload, servers, policy, **options)  # type: ignore[arg-type]


def draw_policies(rng: np.random.Generator) -> list[Policy]:
    simple, planning = list_simple_policies(rng), list_planning_policies(rng)
    first, second = rng.choice(len(planning), 2, replace=False)
    return [simple[rng.integers(len(simple))], planning[first], planning[second]]


def assert_same(compiled: Simulation, called: Simulation, servers: float, message: str) -> None:
    # If demand hardly depends on the price, as with few servers and jobs that share them in time,
    # rounding errors change the price, and with it the jobs that hold next to nothing.
    np.testing.assert_allclose(
        compiled.completion_times, called.completion_times, rtol=1e-6, err_msg=message
    )
    assert compiled.events == called.events
    assert compiled.utilisation == pytest.approx(called.utilisation, rel=1e-6)
    assert compiled.job_seconds == pytest.approx(called.job_seconds, rel=1e-6)
    starts, ends = compiled.timeline.phase_starts, compiled.timeline.ends
    times = ((starts + ends) / 2)[ends - starts > 1e-5 * compiled.makespan]
    decided = compiled.timeline.servers_at_each(times), called.timeline.servers_at_each(times)
    for ours, theirs in zip(*decided, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9 * servers, err_msg=message)


@pytest.mark.parametrize("seed", range(20))
def test_rules_decide_as_the_policies_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    workload = draw_workload(rng)
    options: dict[str, float] = {
        "whole": bool(rng.random() < 0.5),
        "resize_cost": float(rng.choice([0, 0, 0.05])),
        "size_error": float(rng.choice([0, 0, 0.5])),
    }
    servers = float(rng.choice([1, 4, 16, 64] if options["whole"] else [0.5, 4, 10.5, 64]))
    for policy in draw_policies(rng):
        compiled = run_policy(workload, servers, policy, options)
        called = run_policy(workload, servers, interpret(policy), options)
        assert_same(compiled, called, servers, repr(policy))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("leftover", ["idle", "smallest", "equal"])
def test_knee_is_compiled_for_any_speedups(leftover: Leftover, whole: bool) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        workload, policy = draw_workload(rng), Knee(float(rng.uniform(0.05, 1)), leftover)
        compiled = run_policy(workload, 16.0, policy, {"whole": whole})
        called = run_policy(workload, 16.0, interpret(policy), {"whole": whole})
        assert_same(compiled, called, 16.0, repr(policy))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("policy", [Adaptive(), Optimal(), Optimal("slowdown")], ids=repr)
def test_rules_decide_as_the_policies_do_with_many_jobs(
    policy: Policy, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more jobs than the planner values, it expects prices; the focus has time to fall."""
    monkeypatch.setattr(optimal, "MAX_VALUED", 10)
    monkeypatch.setattr(loop, "MAX_VALUED", 10)
    rng = np.random.default_rng(1)
    speedups = [PowerLaw(p).limited(n) for p, n in zip((0.4, 0.6, 0.9), (8, 3, 16), strict=True)]
    workload = Workload(
        rng.exponential(1, 60),
        [speedups[number] for number in rng.integers(3, size=60)],
        arrivals=np.cumsum(rng.exponential(1 / 16, 60)),
    )
    options: dict[str, float] = {"whole": whole}
    compiled = run_policy(workload, 16.0, policy, options)
    arrivals = workload.arrival_times
    assert max(np.sum((arrivals <= t) & (compiled.completion_times > t)) for t in arrivals) > 10
    called = run_policy(workload, 16.0, interpret(policy), options)
    assert_same(compiled, called, 16.0, repr(policy))


def test_a_proven_order_is_planned_exactly_for_any_number_of_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimal, "MAX_VALUED", 3)
    monkeypatch.setattr(loop, "MAX_VALUED", 3)
    jobs = Workload([9, 5, 4, 2, 1], Amdahl(0.9), weights=[1, 2, 2, 3, 3])
    best = plan(jobs, servers=6, objective="weighted")
    for policy in (Optimal("weighted"), interpret(Optimal("weighted"))):
        found = simulate(jobs, servers=6, policy=policy)
        np.testing.assert_allclose(found.completion_times, best.completion_times, rtol=1e-9)


class Reversed(Equi):
    """Decides differently than EQUI, but inherits what EQUI says about itself."""

    def __call__(self, state: State) -> FloatArray:
        held = np.zeros(len(state))
        held[-1] = state.servers
        return held


def test_a_subclass_that_decides_differently_has_no_rule() -> None:
    workload = Workload([4, 2], [PowerLaw(0.5), PowerLaw(0.6)])
    assert find_rule(Reversed(), workload.speedups, whole=False) is None
    last_first = simulate(workload, 1, Reversed())
    np.testing.assert_allclose(last_first.completion_times, [6, 2])


class Reviewed(Equi):
    review_every = 0.5


def test_a_policy_that_is_reviewed_has_no_rule() -> None:
    assert find_rule(Reviewed(), ANY_SPEEDUPS, whole=False) is None
    assert find_rule(Equi(), ANY_SPEEDUPS, whole=False) is not None
