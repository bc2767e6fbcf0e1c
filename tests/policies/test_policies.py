"""Properties that all policies share, and the characteristics of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hesrpt import Amdahl, InputError, Measured, PowerLaw, Speedup, Workload, plan, simulate
from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.policies import (
    Adaptive,
    Equi,
    Hell,
    HeLrpt,
    HeSrpt,
    Knee,
    Optimal,
    Policy,
    RankedPolicy,
    Srpt,
    State,
    get_malleable_policy,
    get_policy,
    list_malleable_policies,
    round_fairly,
)
from hesrpt.policies.hell import most_efficient
from hesrpt.policies.sharing import Leftover, assign_leftover
from hesrpt.simulator.loop import create_loop
from hesrpt.simulator.simulation import create_run, tune_knee
from hesrpt.speedups import SpeedupVector

POLICIES: list[str | Policy] = [
    *(name for name in list_malleable_policies() if name != "knee"),
    *(Knee(0.1), Knee(0.1, "smallest"), Hell("equal"), Hell("smallest"), Optimal("weighted")),
]
# heSRPT needs one power law; for other speedups, the tests choose p = 0.5.
SPEEDUPS: list[Speedup | SpeedupVector] = [
    PowerLaw(0.5),
    PowerLaw(0.9).limited(3),
    PowerLaw(0.3).time_shared(),
    Amdahl(0.9),
    Measured([1, 2, 4, 8], [1, 1.8, 3, 3.5]),
    SpeedupVector.create([PowerLaw(0.5), Amdahl(0.9), PowerLaw(0.7).limited(2), Amdahl(1.0)]),
]


def create_policy(policy: str | Policy) -> Policy:
    created = get_malleable_policy(policy)
    if isinstance(created, HeSrpt):
        return HeSrpt(p=0.5, objective=created.objective)
    return created


def create_speedups(jobs: int, speedup: Speedup | SpeedupVector) -> SpeedupVector:
    """Return the given speedup for all jobs, or the given speedups in turn."""
    if isinstance(speedup, Speedup):
        return SpeedupVector.repeat(speedup, jobs)
    return speedup.take(np.arange(jobs) % len(speedup))


def create_state(
    remaining: FloatArray,
    speedup: Speedup | SpeedupVector,
    servers: float,
    whole: bool = False,
) -> State:
    jobs = len(remaining)
    order = np.arange(jobs)
    speedups = create_speedups(jobs, speedup)
    arrivals, weights = np.linspace(0, 1, jobs), np.resize([1.0, 2.0, 3.0], jobs)
    return State(
        1.0, servers, whole, order, remaining, remaining * 1.5, arrivals, weights, speedups
    )


remaining_sizes = st.lists(st.floats(-6, 6), min_size=1, max_size=15).map(
    lambda exponents: 10.0 ** np.array(exponents)
)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(remaining_sizes, st.sampled_from(SPEEDUPS), st.sampled_from([1.0, 4.0, 64.0]), st.booleans())
def test_no_policy_assigns_more_servers_than_there_are(
    policy: str | Policy,
    remaining: FloatArray,
    speedup: Speedup | SpeedupVector,
    servers: float,
    whole: bool,
) -> None:
    state = create_state(remaining, speedup, servers, whole)
    held = create_policy(policy)(state)
    assert held.shape == remaining.shape
    assert np.all(held >= 0)
    assert held.sum() <= servers * (1 + 1e-9)
    assert state.speedups.rate(held).max() > 0  # some job makes progress
    assert_array_equal(create_policy(policy)(state), held)  # the same state, the same decision
    if whole:
        rounded = round_fairly(held, servers)
        assert_array_equal(rounded, np.rint(rounded))
        assert rounded.sum() <= servers


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("speedup", SPEEDUPS, ids=str)
@pytest.mark.parametrize("whole", [False, True])
def test_every_policy_finishes_all_jobs_within_the_bounds(
    policy: str | Policy, speedup: Speedup | SpeedupVector, whole: bool
) -> None:
    rng = np.random.default_rng(0)
    sizes, weights = rng.pareto(1.5, 12) + 0.1, rng.uniform(0.5, 2, 12)
    batch = Workload(sizes, list(create_speedups(12, speedup)), weights=weights)
    run = simulate(batch, 8, create_policy(policy), whole=whole)
    assert np.isfinite(run.completion_times).all()
    for phase in run.phases():
        assert phase.servers.sum() <= 8 * (1 + 1e-9)
        assert not whole or np.array_equal(phase.servers, np.rint(phase.servers))
    if batch.speedups.shared is not None:
        best = plan(batch, 8, whole=whole)
        assert best.certificate.proven
        assert run.total_flow_time >= best.certificate.lower_bound * (1 - 1e-9)
        assert run.makespan >= plan(batch, 8, objective="makespan").makespan * (1 - 1e-9)


def has_rows(policy: str | Policy) -> bool:
    created = get_policy(policy)
    return isinstance(created, RankedPolicy) and created.is_ranked


@pytest.mark.parametrize("policy", [p for p in POLICIES if has_rows(p)], ids=str)
@pytest.mark.parametrize("whole", [False, True])
def test_rows_and_states_give_the_same_decision(policy: str | Policy, whole: bool) -> None:
    """The simulator reads rows; the live scheduler passes a state."""
    ranked = create_policy(policy)
    assert isinstance(ranked, RankedPolicy)
    remaining = np.random.default_rng(1).pareto(1.5, 9) + 1
    row = ranked.row(9, 16.0, PowerLaw(0.5), whole)
    state = create_state(remaining, PowerLaw(0.5), 16.0, whole)
    held = ranked(state)
    by_rank = held[ranked.ranking(state)]
    assert_allclose(by_rank[: len(row)], row, rtol=1e-12)
    assert not by_rank[len(row) :].any()
    many = ranked.row(60, 16.0, PowerLaw(0.5), whole)
    if ranked.serves_first_only and len(many) < 60:
        for jobs in (len(many), len(many) + 1, 500):
            assert_array_equal(ranked.row(jobs, 16.0, PowerLaw(0.5), whole), many)


@pytest.mark.parametrize("policy", [HeSrpt(), Equi(), Optimal(), Adaptive(focus=0.3)], ids=str)
@pytest.mark.parametrize("p", [0.05, 0.5, 0.95, 0.99, 0.9999])
@pytest.mark.parametrize("jobs", [1, 2, 20, 3000])
def test_rank_rates_agree_with_the_rows(policy: RankedPolicy, p: float, jobs: int) -> None:
    speedup = PowerLaw(p)
    rates = policy.rank_rates(jobs, 4000, 8.0, speedup)
    assert rates is not None
    assert 1 <= rates.fewest <= jobs <= rates.most <= 4000
    for present in {rates.fewest, jobs, rates.most}:
        if isinstance(policy, Optimal) and present > 100:
            continue  # its rows take long
        row = speedup.rate(policy.row(present, 8.0, speedup, False))
        served = present + 1 - rates.first
        by_rank = (rates.base[:served] / rates.pace[served - 1])[::-1]
        least = float(row.max()) * 1e-140
        assert_allclose(by_rank[: len(row)], row[:served], rtol=1e-10, atol=least)
        assert not np.any(row[served:] > least)


def test_hesrpt_shares_agree_with_the_theorem() -> None:
    row = HeSrpt().row(7, 10.0, PowerLaw(0.4), False)
    assert_allclose(row[::-1], 10 * closed_form.shares(7, 0.4))


@pytest.mark.parametrize("policy", [Optimal(), Optimal("weighted"), HeSrpt(p=0.5)], ids=str)
def test_cached_values_do_not_change_decisions(policy: Policy) -> None:
    rng = np.random.default_rng(0)
    remaining = rng.pareto(1.5, 6) + 1
    for speedup in (*SPEEDUPS, *SPEEDUPS[::-1]):
        for servers, whole in ((4.0, False), (4.0, True), (9.0, False)):
            state = create_state(remaining, speedup, servers, whole)
            fresh = type(policy)(
                **{
                    name: getattr(policy, name)
                    for name in ("objective", "p")
                    if hasattr(policy, name)
                }
            )
            assert_array_equal(policy(state), fresh(state))


def test_servers_beyond_a_limit_go_to_other_jobs() -> None:
    limited = PowerLaw(0.5).limited(4)
    remaining = np.array([1.0, 2.0, 3.0])
    for policy in (HeSrpt(), Equi(), Srpt(), Optimal()):
        held = policy(create_state(remaining, limited, 10.0))
        assert held.max() <= 4 * (1 + 1e-12)
        assert held.sum() == pytest.approx(10)
    assert_allclose(Srpt()(create_state(remaining, limited, 10.0)), [4, 4, 2])


def test_hell_serves_every_job_once_or_only_the_smallest() -> None:
    assert_array_equal(Hell().row(3, 10.0, PowerLaw(0.3), False), [1, 1, 1])
    assert_array_equal(Hell().row(30, 10.0, PowerLaw(0.3), False), np.ones(10))
    assert_array_equal(Hell().row(3, 10.0, PowerLaw(0.7), False), [10])
    assert_array_equal(Hell("smallest").row(3, 10.0, PowerLaw(0.3), False), [8, 1, 1])
    assert_allclose(Hell("equal").row(4, 10.0, PowerLaw(0.3), False), np.full(4, 2.5))


@pytest.mark.parametrize("speedup", [Amdahl(0.9), Amdahl(0.5), Measured([3], [2])], ids=str)
@pytest.mark.parametrize("servers", [3.0, 50.0, 3000.0])
def test_hell_finds_the_most_efficient_number_of_servers(speedup: Speedup, servers: float) -> None:
    k = np.arange(1, servers + 1)
    assert most_efficient(speedup, servers) == k[np.argmax(speedup.rate(k) ** 2 / k)]


@pytest.mark.parametrize("speedup", [PowerLaw(0.5), Amdahl(0.9), PowerLaw(0.5).limited(1e6)])
def test_one_more_server_saves_alpha_at_the_knee(speedup: Speedup) -> None:
    remaining, alpha = np.array([5.0, 1.0, 0.2]), 1e-4
    knees = Knee(alpha)(create_state(remaining, speedup, 1e9))
    step = 1e-3
    for x, k in zip(remaining, knees, strict=True):
        gain = (x / float(speedup(k - step / 2)) - x / float(speedup(k + step / 2))) / step
        assert gain == pytest.approx(alpha, rel=1e-4)


def test_knee_serves_the_lowest_knee_first() -> None:
    remaining = np.array([8.0, 1.0, 1.0])
    few = Knee(0.01)(create_state(remaining, PowerLaw(0.5), 20.0))
    knee = (0.5 / 0.01) ** (2 / 3)
    assert_allclose(few, [0, knee, 20 - knee])
    many = Knee(1.0)(create_state(remaining, PowerLaw(0.5), 20.0))
    assert many.sum() < 20
    kept_busy = Knee(1.0, "equal")(create_state(remaining, PowerLaw(0.5), 20.0))
    assert kept_busy.sum() == pytest.approx(20)


def test_tuning_finds_the_best_alpha() -> None:
    batch = Workload.pareto(40, seed=3, speedup=PowerLaw(0.3))
    tuned = tune_knee(Knee(), batch, 1000)
    assert tuned.alpha is not None
    best = simulate(batch, 1000, tuned).mean_flow_time
    tried = [
        simulate(batch, 1000, Knee(float(alpha))).mean_flow_time
        for alpha in tuned.alpha * np.geomspace(1e-3, 1e3, 61)
    ]
    assert best <= min(tried) * 1.005
    assert simulate(batch, 1000, "knee").mean_flow_time == best


def test_trials_give_up_when_the_flow_time_is_too_long() -> None:
    batch = Workload.pareto(40, seed=3, speedup=PowerLaw(0.3))
    run = create_run(batch, 1000, Knee(0.1))
    total = create_loop(run).execute().job_seconds
    long, short = (replace(run, max_flow_time=total * part) for part in (1.1, 0.5))
    assert np.isfinite(create_loop(long).execute().completion_times).all()
    assert np.isnan(create_loop(short).execute().completion_times).any()


@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=15),
    st.floats(0.02, 0.98),
    st.integers(1, 100),
    st.floats(1e-6, 100),
    st.sampled_from(["idle", "smallest", "equal"]),
    st.booleans(),
    st.booleans(),
)
def test_compiled_knee_agrees_with_the_policy(
    sizes: list[float],
    p: float,
    servers: int,
    alpha: float,
    rule: Leftover,
    whole: bool,
    arriving: bool,
) -> None:
    arrivals = [round(0.37 * job % 1.1, 2) for job in range(len(sizes))] if arriving else None
    workload = Workload(sizes, PowerLaw(p), arrivals=arrivals)
    knee = Knee(alpha, rule)
    compiled = simulate(workload, servers, knee, whole=whole)
    called = simulate(workload, servers, knee.__call__, whole=whole)
    assert_allclose(compiled.completion_times, called.completion_times, rtol=1e-8)


def test_knee_serves_the_smallest_of_jobs_that_could_use_all_servers() -> None:
    held = Knee(1e-9)(create_state(np.array([8.0, 1.0, 3.0]), PowerLaw(0.5), 20.0))
    assert_allclose(held, [0, 20, 0])


@pytest.mark.parametrize("own", [False, True])
def test_with_p_near_1_excess_servers_go_to_the_next_smallest_job(own: bool) -> None:
    speedup: Speedup | SpeedupVector = PowerLaw(1 - 1e-9).limited(8.0)
    if own:
        limits = 8.0, 7.0, 8.0, 8.0, 8.0
        speedup = SpeedupVector.create(PowerLaw(1 - 1e-9).limited(limit) for limit in limits)
    state = create_state(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), speedup, 20.0)
    assert_allclose(HeSrpt(p=1 - 1e-9)(state), [0, 0, 4, 8, 8], atol=1e-6)


def test_rounding_errors_are_not_leftover() -> None:
    # 5e-14 servers would still give 5% of the speed of a server with p = 0.1.
    held = np.array([20 - 5e-14, 0.0])
    assert_allclose(assign_leftover(held, 20.0, "equal"), held, rtol=0, atol=0)


def test_helrpt_ends_all_jobs_together() -> None:
    run = simulate(Workload([9, 4, 1], Amdahl(0.9)), 10, HeLrpt())
    assert_allclose(run.completion_times, run.makespan)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=12))
def test_rounding_is_fair(shares: list[float]) -> None:
    held = np.array(shares)
    whole = round_fairly(held, 1000)
    assert_array_equal(whole, np.rint(whole))
    assert whole.sum() == np.floor(held.sum() + 1e-9)
    assert np.all(np.abs(whole - held) < 1 + 1e-6)


def test_equal_shares_are_rounded_up_for_the_first_to_arrive() -> None:
    assert_array_equal(round_fairly(np.full(4, 1.5), 6), [2, 2, 1, 1])
    assert_array_equal(round_fairly(np.full(4, 0.5), 2), [1, 1, 0, 0])


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: get_policy("sprt"), "no policy named 'sprt'; choose one of: hesrpt, "),
        (lambda: get_policy(3), "must be a name or a callable, got 3"),  # type: ignore[arg-type]
        (lambda: Knee(alpha=-1), "alpha must be greater than 0, got -1"),
        (lambda: Knee(0.1, "most"), "leftover must be one of idle, smallest, equal"),  # type: ignore[arg-type]
        (lambda: Hell("all"), "leftover must be one of idle, smallest, equal"),  # type: ignore[arg-type]
        (lambda: HeSrpt(p=2), r"p must lie in \(0, 1\), got 2"),
        (lambda: Optimal("fun"), "objective must be one of flow"),  # type: ignore[arg-type]
        (
            lambda: simulate(Workload([1, 2], Amdahl(0.9)), 2, "hesrpt"),
            "policy hesrpt needs one power law .* use policy optimal",
        ),
    ],
)
def test_invalid_policies_are_rejected(create: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        create()  # type: ignore[operator]
