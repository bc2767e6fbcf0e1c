"""The adaptive policy: what theory says of it, and what its calibration must survive."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log
from random import Random
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from hesrpt import Amdahl, InputError, Measured, PowerLaw, Workload, plan, simulate
from hesrpt.arrays import FloatArray
from hesrpt.optimal.recursion import compute_job_values
from hesrpt.policies import Adaptive, Calibration, Equi, HeSrpt, Optimal, Policy, State
from hesrpt.policies.calibration_kernel import LEVELS, MIN_LEVEL
from hesrpt.policies.lifetimes import expect_remaining, record_lives
from hesrpt.policies.pricing import Resizes
from hesrpt.policies.registry import describe_workload
from hesrpt.simulator.simulation import run_simulation
from hesrpt.speedups import Speedup, SpeedupVector
from hesrpt.workload import SIZES

SPEEDUPS: list[Speedup] = [
    PowerLaw(0.5),
    PowerLaw(0.97),
    PowerLaw(0.9).time_shared(),
    PowerLaw(0.8).limited(3),
    Amdahl(0.9),
    Measured([1, 2, 4, 8], [1, 1.9, 3.2, 4.5]),
]


class Interpreted(Adaptive):
    """The same policy, called at each event instead of being compiled."""

    @property
    def is_ranked(self) -> bool:
        return False

    def state_rule(self, speedups: SpeedupVector, whole: bool) -> None:
        return None


def create_state(
    remaining: list[float], jobs: list[int], sizes: list[float] | None = None, servers: float = 8.0
) -> State:
    count = len(remaining)
    return State(
        0.0,
        servers,
        False,
        np.array(jobs),
        np.array(remaining),
        np.array(remaining if sizes is None else sizes),
        np.zeros(count),
        np.ones(count),
        SpeedupVector.repeat(PowerLaw(0.5), count),
    )


# --- batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Adaptive(), Interpreted()], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("speedup", SPEEDUPS, ids=repr)
def test_batch_gets_the_optimum(speedup: Speedup, whole: bool, policy: Policy) -> None:
    sizes = np.random.default_rng(1).pareto(1.5, 60) + 1
    sizes[10:14] = sizes[9]  # equal sizes
    workload = Workload(sizes, speedup)
    mean = simulate(workload, 8, policy, whole=whole).mean_flow_time
    assert mean == pytest.approx(plan(workload, 8, whole=whole).mean_flow_time, rel=1e-9)


@pytest.mark.parametrize("objective", ["slowdown", "weighted"])
def test_batch_with_weights_gets_the_shares_of_hesrpt(objective: str) -> None:
    rng = np.random.default_rng(2)
    workload = Workload(rng.exponential(size=30), PowerLaw(0.7), weights=rng.uniform(1, 5, 30))
    times = [
        simulate(workload, 8, policy).completion_times
        for policy in (Adaptive(objective=objective), HeSrpt(objective=objective))  # type: ignore[arg-type]
    ]
    np.testing.assert_allclose(times[0], times[1], rtol=1e-9)


# --- the parameter ------------------------------------------------------------------------------


@pytest.mark.parametrize("speedup", SPEEDUPS, ids=repr)
def test_without_focus_work_is_done_as_fast_as_with_equal_shares(speedup: Speedup) -> None:
    """All jobs are worth the same. Where speedups are linear, small jobs may come first."""
    state = replace(
        create_state([5.0, 2.0, 1.0], [0, 1, 2]), speedups=SpeedupVector.repeat(speedup, 3)
    )
    held = Adaptive(focus=0.0)(state)
    assert held.sum() <= 8 * (1 + 1e-12)
    equal = float(speedup.rate(Equi()(state)).sum())
    assert float(speedup.rate(held).sum()) == pytest.approx(equal, rel=1e-9)


def test_more_focus_gives_the_smallest_job_more() -> None:
    state = create_state([5.0, 2.0, 1.0], [0, 1, 2])
    held = [float(Adaptive(focus=focus)(state)[2]) for focus in (0.0, 0.1, 0.5, 1.0)]
    assert held == sorted(held)
    assert held[0] < held[-1]


def test_focus_is_checked() -> None:
    with pytest.raises(InputError, match="focus"):
        Adaptive(focus=1.5)
    with pytest.raises(InputError, match="sizes"):
        Adaptive(sizes="guessed")  # type: ignore[arg-type]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("speedup", SPEEDUPS, ids=repr)
def test_unknown_sizes_get_equal_shares_until_a_job_has_ended(
    speedup: Speedup, whole: bool
) -> None:
    state = replace(
        create_state([5.0, 2.0, 1.0], [0, 1, 2], [5.0, 3.0, 4.0]),
        speedups=SpeedupVector.repeat(speedup, 3),
        whole=whole,
    )
    policy = Adaptive(sizes="unknown")
    state.calibration = policy.calibrate(None, state)
    np.testing.assert_allclose(policy(state), Equi()(state), rtol=1e-12)


def compare_with_equi(
    policy: Policy, sizes: str, load: float, jobs: int, seeds: int, size_error: float = 0.0
) -> list[float]:
    """Return the mean flow time on streams with p = 0.9 on 16 servers, relative to EQUI."""
    ratios = []
    for seed in range(seeds):
        stream = Workload.poisson(16 * load, jobs, speedup=PowerLaw(0.9), sizes=sizes, seed=seed)
        mean = simulate(stream, 16, policy, size_error=size_error).mean_flow_time
        ratios.append(mean / simulate(stream, 16, "equi").mean_flow_time)
    return ratios


@pytest.mark.parametrize(
    ("sizes", "load", "jobs", "bound"),
    [
        ("exponential", 0.7, 300, 1.01),
        ("pareto", 0.7, 1500, 0.92),
        ("deterministic", 0.9, 300, 1.0),
    ],
)
def test_unknown_sizes_are_learned(sizes: str, load: float, jobs: int, bound: float) -> None:
    """Nothing can be learned from exponential sizes, for which EQUI is optimal."""
    ratios = compare_with_equi(Adaptive(sizes="unknown"), sizes, load, jobs, seeds=3)
    assert np.mean(ratios) < bound


def test_unknown_exponential_sizes_do_not_harm_short_streams() -> None:
    ratios = compare_with_equi(Adaptive(sizes="unknown"), "exponential", 0.9, jobs=200, seeds=4)
    assert max(ratios) < 1.02


@pytest.mark.parametrize("sizes", ["exponential", "hyperexponential", "pareto"])
def test_rough_sizes_are_not_worse_than_none(sizes: str) -> None:
    """The sizes that the policy sees are wrong by a factor of 7 or more for one job in three."""
    ratios = compare_with_equi(Adaptive(), sizes, 0.9, jobs=3000, seeds=4, size_error=2.0)
    assert np.mean(ratios) < 1.005


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 0.99)), min_size=1, max_size=8),
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30),
    st.sampled_from(SPEEDUPS),
    st.randoms(use_true_random=False),
)
def test_shares_by_attained_work(
    jobs: list[tuple[float, float]], ended: list[float], speedup: Speedup, random: Random
) -> None:
    """They are feasible, depend neither on the order of jobs nor on units, and one job gets all."""
    policy, sizes = Adaptive(sizes="unknown"), np.array(ended)
    every = np.ones(len(ended), dtype=np.bool_)
    total = np.array([size for size, _ in jobs])
    remaining = total * (1 - np.array([part for _, part in jobs]))
    order = random.sample(range(len(jobs)), len(jobs))

    def share(scale: float, places: list[int]) -> FloatArray:
        lifetimes = record_lives(np.zeros(0), np.zeros(len(ended)), scale * sizes, every)
        given = (scale * remaining[places]).tolist(), places, (scale * total[places]).tolist()
        state = replace(create_state(*given), calibration=Calibration(lifetimes=lifetimes))
        return policy(replace(state, speedups=SpeedupVector.repeat(speedup, len(jobs))))

    held = share(1.0, list(range(len(jobs))))
    assert (held >= 0).all()
    assert held.sum() <= 8 * (1 + 1e-9)
    np.testing.assert_allclose(share(1.0, order), held[order], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(share(1024.0, order), held[order], rtol=1e-6, atol=1e-9)
    if len(jobs) == 1:
        assert speedup.rate(held)[0] == pytest.approx(float(speedup.rate(np.array([8.0]))[0]))


@pytest.mark.parametrize("kind", ["exponential", "pareto", "deterministic"])
def test_what_remains_follows_from_the_work_done(kind: str) -> None:
    """It is about what remained on average of those jobs that had done as much."""
    sizes = SIZES[kind](np.random.default_rng(5), 20_000)
    ended = np.ones(len(sizes), dtype=np.bool_)
    # The jobs run in two steps, and the end of some is seen in the first one.
    half = np.minimum(sizes, 0.7)
    lifetimes = record_lives(np.zeros(0), 0 * sizes, half, sizes <= 0.7)
    later = sizes > 0.7
    lifetimes = record_lives(lifetimes, half[later], sizes[later], ended[later])
    done = np.array([0.0, 0.5, 0.9, 2.0, 4.0])[: 3 if kind == "deterministic" else 5]
    remained = [float(np.mean(sizes[sizes > each] - each)) for each in done]
    np.testing.assert_allclose(expect_remaining(lifetimes, done), remained, rtol=0.2)


def test_jobs_that_still_run_count_too() -> None:
    """Of 100 jobs one has ended soon, and the others go on and on: much is expected to remain."""
    now = np.concatenate(([1.0], np.full(99, 50.0)))
    lifetimes = record_lives(np.zeros(0), np.zeros(100), now, now == 1.0)
    assert expect_remaining(lifetimes, np.array([50.0]))[0] > 1000


def test_estimates_are_believed_as_far_as_they_tell_the_sizes() -> None:
    rng = np.random.default_rng(6)
    sizes = rng.exponential(size=4000)

    def learn(estimates: FloatArray) -> float:
        calibration = Calibration(level=LEVELS).record_arrivals(
            np.arange(len(sizes)), estimates, 0.0
        )
        calibration = replace(calibration, level=LEVELS)
        return calibration.record_sizes(np.arange(len(sizes)), sizes).focus

    assert learn(sizes) == learn(3 * sizes) == 1.0
    assert learn(rng.permutation(sizes)) < 0.1
    rough = [learn(sizes * np.exp(error * rng.standard_normal(4000))) for error in (0.5, 1.0, 2.0)]
    assert 1.0 > rough[0] > rough[1] > rough[2] > 0.2


@pytest.mark.parametrize(
    "speedups",
    [
        SpeedupVector.repeat(PowerLaw(0.5), 2),
        SpeedupVector.create([PowerLaw(0.5), PowerLaw(0.5).limited(7)]),
    ],
    ids=["shared", "own"],
)
def test_unknown_sizes_get_shares_in_proportion_to_weights(speedups: SpeedupVector) -> None:
    state = replace(
        create_state([5.0, 2.0], [0, 1]), weights=np.array([1.0, 3.0]), speedups=speedups
    )
    held = Adaptive(objective="weighted", sizes="unknown")(state)
    np.testing.assert_allclose(held, [2.0, 6.0], rtol=1e-6)
    assert Adaptive(objective="weighted", sizes="unknown").order(state).tolist() == [1, 0]
    equal = Adaptive(objective="slowdown", sizes="unknown")
    assert equal(state).tolist() == [4.0, 4.0]
    assert equal.order(state).tolist() == [0, 1]


def test_jobs_with_different_speedups_share_servers_in_proportion_to_their_gains() -> None:
    """At one price for all, k^p wants p/(1 − p) servers for each unit of money."""
    state = replace(
        create_state([5.0, 2.0], [0, 1]),
        speedups=SpeedupVector.create([PowerLaw(0.5), PowerLaw(0.75)]),
    )
    np.testing.assert_allclose(Adaptive(focus=0.0)(state), [2.0, 6.0], rtol=1e-6)


def draw_jobs(rng: np.random.Generator, is_shared: bool) -> Workload:
    """Return a stream with flat, measured and smooth speedups, and sizes over five decades."""
    jobs = int(rng.integers(2, 40))
    speedups: list[Speedup] = []
    for _ in range(1 if is_shared else jobs):
        gains = np.sort(rng.uniform(0, 1, 6))[::-1] * [1, 1, 2, 4, 8, 16]
        drawn: list[Speedup] = [
            PowerLaw(float(rng.uniform(0.1, 0.95))),
            Amdahl(float(rng.uniform(0.5, 0.999))),
            Measured([1, 2, 4, 8, 16, 32], np.cumsum(gains)),
        ]
        speedup = drawn[rng.integers(3)]
        if rng.random() < 0.5:
            speedup = speedup.limited(float(2 ** rng.integers(0, 6)))
        speedups.append(speedup)
    sizes = 10 ** rng.uniform(-2, 3, jobs)
    arrivals = np.cumsum(rng.exponential(float(rng.choice([0.1, 1.0, 10.0])), jobs))
    return Workload(sizes, speedups[0] if is_shared else speedups, arrivals=arrivals)


@pytest.mark.parametrize("end", [0.0, 1.0])
@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("whole", [False, True], ids=["divisible", "whole"])
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_family_has_no_jump_at_its_ends(
    end: float, is_shared: bool, whole: bool, seed: int
) -> None:
    workload = draw_jobs(np.random.default_rng(seed), is_shared)
    near = abs(end - 1e-6)
    means = [
        simulate(workload, 16, Adaptive(focus=focus), whole=whole).mean_flow_time
        for focus in (near, end)
    ]
    assert means[0] == pytest.approx(means[1], rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_focus_1_is_the_planners_rule_for_jobs_that_differ(seed: int) -> None:
    workload = draw_jobs(np.random.default_rng(seed), is_shared=False)
    times = [
        simulate(workload, 16, policy, whole=True).completion_times
        for policy in (Adaptive(focus=1.0), Optimal())
    ]
    np.testing.assert_array_equal(times[0], times[1])


@pytest.mark.parametrize("jobs", [5, 40])
@pytest.mark.parametrize("focus", [0.0, 0.3, 0.9])
def test_servers_follow_from_the_values_at_both_ends(jobs: int, focus: float) -> None:
    """Worked out again with a root finder and one server at a time, for few jobs and for many."""
    rng = np.random.default_rng(jobs)
    servers, numbers = 32, np.arange(1, 33)
    speedups: list[Speedup] = [
        Measured(numbers, np.minimum(numbers ** rng.uniform(0.5, 0.95), rng.integers(2, 20)))
        for _ in range(jobs)
    ]
    state = replace(
        create_state(rng.pareto(1.5, jobs).tolist(), list(range(jobs)), servers=servers),
        whole=True,
        speedups=SpeedupVector.create(speedups),
    )
    rates = np.array([speedup.rate(np.arange(33.0)) for speedup in speedups])
    order = np.argsort(state.remaining / rates[:, -1])

    def find_costs(price: float) -> FloatArray:
        costs: FloatArray = (1 + price * numbers) / rates[:, 1:]
        return costs

    low, high = 1e-6, 1e6
    for _ in range(100):
        middle = np.sqrt(low * high)
        is_low = np.sum(1 + find_costs(middle).argmin(axis=1)) > servers
        low, high = (middle, high) if is_low else (low, middle)
    batch = np.empty(jobs)
    batch[order[::-1]] = compute_job_values(
        state.speedups.on_whole_servers().take(order[::-1]), float(servers), np.ones(jobs)
    ).values
    common = find_costs(high).min(axis=1) if high < 1e5 else 1 / rates[:, 1]
    values = common ** (1 - focus) * batch**focus
    gains = np.sort((values[:, None] * np.diff(rates)).ravel())[::-1][:servers]
    held = Adaptive(focus=focus)(state).astype(int)
    assert held.sum() == servers
    # Prices between two on a grid may serve one server otherwise, at next to no loss.
    earned = float(np.sum(values * rates[np.arange(jobs), held]))
    assert earned == pytest.approx(float(gains.sum()), rel=1e-4)


# --- resizes that cost time -----------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Adaptive(focus=0.5), Optimal()], ids=repr)
def test_jobs_keep_their_servers_unless_a_resize_pays(policy: Policy) -> None:
    state = replace(create_state([5.0, 2.0, 1.0], [0, 1, 2]), whole=True)
    now = np.array([3.0, 3.0, 2.0])
    held = {
        loss: policy(replace(state, resizes=Resizes(now, np.full(3, loss)))) for loss in (0.0, 0.9)
    }
    np.testing.assert_array_equal(held[0.0], policy(state))
    np.testing.assert_array_equal(held[0.9], now)
    # A job that has just come takes what it needs, and no more jobs are resized than necessary.
    arrived = Resizes(np.array([4.0, 4.0, 0.0]), np.array([0.3, 0.3, 0.0]))
    shared = policy(replace(state, resizes=arrived))
    assert shared.sum() == 8
    assert shared[2] > 0
    assert np.sum(shared[:2] != 4) == 1


@pytest.mark.parametrize("policy", [Adaptive(), Optimal()], ids=repr)
@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
def test_policies_that_count_resizes_are_better(policy: Policy, is_shared: bool) -> None:
    rng = np.random.default_rng(3)
    measured = Measured([1, 2, 4, 8, 16], [1, 1.9, 3.2, 4.1, 4.3])
    speedups: list[Speedup] = [
        PowerLaw(float(p)).limited(float(limit)) if p > 0.6 else measured
        for p, limit in zip(
            rng.uniform(0.5, 0.95, 300), 2.0 ** rng.integers(0, 5, 300), strict=True
        )
    ]
    workload = Workload(
        rng.pareto(1.5, 300) + 0.1,
        PowerLaw(0.8) if is_shared else speedups,
        arrivals=np.cumsum(rng.exponential(1 / 8, 300)),
    )
    bound = policy.bind(describe_workload(workload, 16, whole=True))
    counting, careless = (
        run_simulation(workload, 16, tried, whole=True, resize_cost=0.05, tallying=True)
        for tried in (policy, lambda state: bound(replace(state, resizes=None)))
    )
    free = run_simulation(workload, 16, policy, whole=True).mean_flow_time
    if not is_shared:
        assert counting.mean_flow_time < 1.15 * free
    assert counting.mean_flow_time < careless.mean_flow_time
    assert counting.tally is not None
    assert careless.tally is not None
    assert counting.tally.resizes.sum() < 0.7 * careless.tally.resizes.sum()


# --- learning -----------------------------------------------------------------------------------


def test_focus_stays_while_jobs_only_leave() -> None:
    policy = Adaptive()
    states = [
        create_state([9.0, 4.0, 1.0], [0, 1, 2]),
        create_state([8.0, 2.0], [0, 1], [9.0, 4.0]),
        create_state([3.0], [0], [9.0]),
    ]
    before = None
    for state in states:
        state.calibration = policy.calibrate(before, state)
        before = state
        assert state.calibration is not None
        assert state.calibration.focus == 1
        assert state.calibration.jobs.tolist() == state.jobs.tolist()


def test_focus_falls_if_jobs_end_while_others_have_come() -> None:
    """The largest job ends when as many jobs are present as at the start: f is near 0."""
    policy = Adaptive()
    levels = []
    before = None
    for number in range(200):
        # Two jobs at a time: the large one ends, a larger one comes, and so on.
        state = create_state([2.0, 1.0], [number, number + 1], [2.0, 3.0 + number])
        state.calibration = policy.calibrate(before, state)
        assert state.calibration is not None
        levels.append(state.calibration.level)
        before = state
    assert levels[0] == LEVELS
    assert levels[-1] < levels[20] < LEVELS
    assert levels[-1] < LEVELS / 2


def test_focus_rises_to_that_of_a_batch_if_jobs_stop_arriving() -> None:
    """Ten departures without an arrival are not unusual; after twenty, the rest is a batch."""
    policy = Adaptive()
    sizes = np.arange(1.0, 41.0)
    calibration = Calibration(
        numerator=10.0, denominator=160.0, is_stream=True, jobs_seen=99_960, arrival_times=100_000
    ).record_arrivals(np.arange(40), sizes, log(40))
    assert calibration.level == 8
    before = replace(create_state(sizes.tolist(), list(range(40))), calibration=calibration)
    levels = []
    for first in range(1, 30):
        state = create_state(sizes[first:].tolist(), list(range(first, 40)))
        state.calibration = policy.calibrate(before, state)
        assert state.calibration is not None
        levels.append(state.calibration.level)
        before = state
    assert levels[:10] == [8] * 10
    assert levels[9:20] == sorted(set(levels[9:20]))
    assert levels[19:] == [LEVELS] * 10
    arrived = create_state([5.0, *sizes[29:].tolist()], [99, *range(29, 40)])
    after = policy.calibrate(before, arrived)
    assert after is not None
    assert after.level < LEVELS
    assert after.ended_since == 0


def test_decision_depends_on_state_and_calibration_only() -> None:
    state = create_state([5.0, 2.0, 1.0], [3, 4, 5])
    calibrated = replace(state, calibration=Calibration(level=LEVELS // 2))
    first = Adaptive()(calibrated)
    np.testing.assert_array_equal(first, Adaptive()(calibrated))
    np.testing.assert_array_equal(first, Adaptive(focus=0.25)(state))
    assert not np.allclose(first, Adaptive()(state))


@pytest.mark.parametrize("sizes", ["known", "unknown"])
def test_calibration_survives_a_restart(sizes: Literal["known", "unknown"]) -> None:
    """A calibration stored as text and read again leads to the same decisions."""

    class Restarting(Interpreted):
        def calibrate(self, before: State | None, state: State) -> Calibration | None:
            if before is not None and before.calibration is not None:
                text = json.dumps(before.calibration.as_json())
                before = replace(before, calibration=Calibration.from_json(json.loads(text)))
            return super().calibrate(before, state)

    workload = Workload.poisson(6, 400, speedup=PowerLaw(0.9), sizes="pareto", seed=3)
    policies = Interpreted(sizes=sizes), Restarting(sizes=sizes)
    times = [simulate(workload, 8, each).completion_times for each in policies]
    np.testing.assert_array_equal(times[0], times[1])


# --- streams ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size_error", [0.0, 0.7])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("speedup", [PowerLaw(0.9), PowerLaw(0.9).time_shared()], ids=repr)
def test_compiled_and_interpreted_schedules_agree(
    speedup: Speedup, whole: bool, size_error: float
) -> None:
    workload = Workload.poisson(6.5, 600, speedup=speedup, sizes="hyperexponential", seed=4)
    times = [
        simulate(workload, 8, policy, whole=whole, size_error=size_error).completion_times
        for policy in (Adaptive(), Interpreted())
    ]
    np.testing.assert_allclose(times[0], times[1], rtol=1e-9)


@pytest.mark.parametrize("whole", [False, True])
def test_jobs_that_are_left_at_the_end_are_a_batch(whole: bool) -> None:
    """Compiled or not, the policy notices that no more jobs arrive."""
    rng = np.random.default_rng(12)
    sizes = rng.exponential(size=500)
    gaps = np.where(np.arange(500) < 300, rng.exponential(1 / 5, 500), rng.exponential(0.02, 500))
    arrivals = np.cumsum(gaps)
    workload = Workload(sizes, PowerLaw(0.9), arrivals=arrivals)
    focused = []

    class Watched(Interpreted):
        def calibrate(self, before: State | None, state: State) -> Calibration | None:
            calibration = super().calibrate(before, state)
            assert calibration is not None
            if state.time > arrivals[-1]:
                focused.append(calibration.focus)
            return calibration

    times = [
        simulate(workload, 8, policy, whole=whole).completion_times
        for policy in (Adaptive(), Watched())
    ]
    np.testing.assert_allclose(times[0], times[1], rtol=1e-9)
    assert focused[0] < 0.5
    assert focused[-1] == 1


def test_schedule_can_be_worked_out_again() -> None:
    """A recorded run repeats the run without factors, with the same calibration."""
    workload = Workload.poisson(6, 500, speedup=PowerLaw(0.9), sizes="pareto", seed=5)
    schedule = simulate(workload, 8, "adaptive")
    work = np.zeros(len(workload))
    start = 0.0
    for phase, end in enumerate(schedule.timeline.ends):
        work += schedule.timeline.servers(phase) ** 0.9 * (end - start)
        start = end
    np.testing.assert_allclose(work, workload.sizes, rtol=1e-6)


def test_system_that_fills_up_is_not_taken_for_a_saturated_one() -> None:
    """It fills up during the whole stream, and heSRPT is better than EQUI."""
    stream = Workload.poisson(460, 10_000, sizes="hyperexponential", speedup=PowerLaw(0.9), seed=0)
    mean = {
        policy: simulate(stream, 512, policy).mean_flow_time
        for policy in ("equi", "hesrpt", "adaptive")
    }
    assert mean["hesrpt"] < 0.9 * mean["equi"]
    assert mean["adaptive"] < 1.05 * mean["hesrpt"]


@pytest.mark.parametrize(("sizes", "gain"), [("exponential", 0.15), ("pareto", 0.22)])
def test_adaptive_is_better_than_equi_and_hesrpt(sizes: str, gain: float) -> None:
    means = dict.fromkeys(("adaptive", "equi", "hesrpt"), 0.0)
    for seed in range(2):
        workload = Workload.poisson(
            0.7 * 64, 100_000, speedup=PowerLaw(0.9), sizes=sizes, seed=seed
        )
        for policy in means:
            means[policy] += simulate(workload, 64, policy).mean_flow_time
    assert means["adaptive"] < (1 - gain) * min(means["equi"], means["hesrpt"])


@pytest.mark.parametrize(
    ("jobs", "error"), [(60_000, 0.02), pytest.param(2_000_000, 0.01, marks=pytest.mark.slow)]
)
def test_adaptive_approaches_srpt_on_one_fast_server(jobs: int, error: float) -> None:
    """As p → 1 the system is one fast server, where SRPT is optimal (Schrage and Miller)."""
    load = 0.7

    def density(t: float) -> float:
        return float(np.exp(-t))

    def load_below(x: float) -> float:
        return float(load * (1 - (1 + x) * np.exp(-x)))

    def flow_time(x: float) -> float:
        squares = integrate.quad(lambda t: t * t * density(t), 0, x)[0] + x * x * np.exp(-x)
        waiting = load * squares / (2 * (1 - load_below(x)) ** 2)
        return float(waiting + integrate.quad(lambda t: 1 / (1 - load_below(t)), 0, x)[0])

    theory = integrate.quad(lambda x: density(x) * flow_time(x), 0, 40)[0]
    workload = Workload.poisson(load, jobs, speedup=PowerLaw(0.9999), seed=6)
    means = {
        policy: simulate(workload, 1, policy).mean_flow_time for policy in ("adaptive", "srpt")
    }
    assert means["adaptive"] == pytest.approx(means["srpt"], rel=0.01)
    assert means["srpt"] == pytest.approx(theory, rel=error)  # sampling error
    assert means["adaptive"] == pytest.approx(theory, rel=error)


def test_littles_law() -> None:
    workload = Workload.poisson(50, 5000, speedup=PowerLaw(0.9), seed=7)
    run = simulate(workload, 64, "adaptive")
    assert run.job_seconds == pytest.approx(run.flow_times.sum(), rel=1e-9)


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**30])
def test_scale_does_not_matter(scale: float) -> None:
    """In other units of time and size, all times change by the same factor."""
    workload = Workload.poisson(6, 1000, speedup=PowerLaw(0.9), sizes="pareto", seed=8)
    assert workload.arrivals is not None
    scaled = Workload(
        workload.sizes * scale, workload.speedups.shared or [], arrivals=workload.arrivals * scale
    )
    times = [simulate(each, 8, "adaptive").completion_times for each in (workload, scaled)]
    np.testing.assert_allclose(times[1], times[0] * scale, rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-12, 12), st.sampled_from([0.0, 0.0, 1e-9, 1.0, 1e9])),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(SPEEDUPS),
    st.booleans(),
)
def test_calibration_is_finite_for_wild_streams(
    jobs: list[tuple[float, float]], speedup: Speedup, whole: bool
) -> None:
    learned: list[Calibration] = []

    class Watched(Interpreted):
        def calibrate(self, before: State | None, state: State) -> Calibration | None:
            calibration = super().calibrate(before, state)
            assert calibration is not None
            learned.append(calibration)
            return calibration

    sizes = 10.0 ** np.array([exponent for exponent, _ in jobs])
    arrivals = np.cumsum([gap for _, gap in jobs])
    workload = Workload(sizes, speedup, arrivals=arrivals)
    for policy in (Watched(), Adaptive()):
        assert np.isfinite(simulate(workload, 4, policy, whole=whole).completion_times).all()
    for calibration in learned:
        assert MIN_LEVEL <= calibration.level <= LEVELS
        numbers = calibration.numerator, calibration.denominator, calibration.log_sizes
        assert np.isfinite(numbers).all()
        assert np.isfinite(calibration.samples).all()


def test_ties_and_equal_sizes() -> None:
    """Among equal jobs that arrive together, it does not matter which is served first."""
    sizes, arrivals = np.ones(60), np.repeat(np.arange(20.0), 3) / 4
    ends = [
        np.sort(simulate(workload, 4, policy).completion_times)
        for order in (np.arange(60), np.arange(60)[::-1])
        for workload in [Workload(sizes, PowerLaw(0.8), arrivals=arrivals[order])]
        for policy in (Adaptive(), Interpreted())
    ]
    for others in ends[1:]:
        np.testing.assert_allclose(others, ends[0], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.7, 0.95])
def test_calibration_is_finite_after_a_million_jobs(load: float) -> None:
    workload = Workload.poisson(
        load * 8, 1_000_000, speedup=PowerLaw(0.9), sizes="hyperexponential", seed=10
    )
    runs = {policy: simulate(workload, 8, policy) for policy in ("adaptive", "equi", "hesrpt")}
    assert np.isfinite(runs["adaptive"].completion_times).all()
    means = {policy: run.mean_flow_time for policy, run in runs.items()}
    assert means["adaptive"] < min(means["equi"], means["hesrpt"]) * 1.03
    assert runs["adaptive"].job_seconds == pytest.approx(1e6 * means["adaptive"])


def test_many_jobs_at_once() -> None:
    """More jobs in the system than the table of rows has room for at first."""
    sizes = np.random.default_rng(9).exponential(size=1500)
    arrivals = np.repeat([0.0, 0.01, 0.02], 500)
    workload = Workload(sizes, PowerLaw(0.9), arrivals=arrivals)
    times = [simulate(workload, 8, each).completion_times for each in (Adaptive(), Interpreted())]
    np.testing.assert_allclose(times[0], times[1], rtol=1e-9)
