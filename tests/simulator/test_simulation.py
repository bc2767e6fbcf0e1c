"""Simulations against closed forms, queueing theory, hand calculation and each other."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hesrpt import (
    Amdahl,
    Custom,
    InputError,
    Measured,
    OverloadWarning,
    PolicyError,
    PowerLaw,
    Speedup,
    Workload,
    plan,
    simulate,
)
from hesrpt.arrays import FloatArray
from hesrpt.policies import (
    Equi,
    HeSrpt,
    Policy,
    Srpt,
    State,
    describe_workload,
    get_malleable_policy,
)

sizes_lists = st.lists(st.floats(-6, 6), min_size=1, max_size=30).map(
    lambda exponents: 10.0 ** np.array(exponents)
)
powers = st.floats(0.01, 0.99)


# --- batches, against formulas ----------------------------------------------------------------


@given(sizes_lists, powers, st.sampled_from([0.5, 10.0, 1e6]))
def test_batches_agree_with_the_formulas(sizes: FloatArray, p: float, servers: float) -> None:
    batch = Workload(sizes, PowerLaw(p))
    x, k = -np.sort(-sizes), np.arange(1, len(sizes) + 1)
    speed = servers**p
    for policy, total in (
        ("hesrpt", plan(batch, servers).total_flow_time),
        ("optimal", plan(batch, servers).total_flow_time),
        ("equi", float(x @ (k ** (1 + p) - (k - 1) ** (1 + p))) / speed),
        ("srpt", float(x @ k) / speed),
    ):
        assert simulate(batch, servers, policy).total_flow_time == pytest.approx(total, rel=1e-9)
    makespan = plan(batch, servers, objective="makespan").makespan
    assert simulate(batch, servers, "helrpt").makespan == pytest.approx(makespan, rel=1e-9)


@pytest.mark.parametrize(
    "p",
    [
        pytest.param(1e-6, marks=pytest.mark.slow),
        0.5,
        pytest.param(0.999, marks=pytest.mark.slow),
        1 - 1e-9,
    ],
)
@pytest.mark.parametrize("policy", ["hesrpt", "equi", "srpt"])
def test_large_batches_agree_with_the_formulas(policy: str, p: float) -> None:
    """Jobs are simulated without touching each of them at each departure."""
    jobs = 200_000 if p < 0.9 else 20_000
    batch = Workload.pareto(jobs, seed=1, speedup=PowerLaw(p))
    x, k = -np.sort(-batch.sizes), np.arange(1.0, jobs + 1)
    # (k^(1+p) − (k−1)^(1+p)), without cancelling digits.
    steps = -(k ** (1 + p)) * np.expm1((1 + p) * np.log1p(-1 / np.maximum(k, 1.5)) * (k > 1))
    steps[0] = 1.0
    totals = {
        "hesrpt": plan(batch, 1000).total_flow_time,
        "equi": float(x @ steps) / 1000**p,
        "srpt": float(x @ k) / 1000**p,
    }
    run = simulate(batch, 1000, policy)
    assert run.total_flow_time == pytest.approx(totals[policy], rel=1e-9)
    if policy == "hesrpt":
        assert_allclose(run.completion_times, plan(batch, 1000).completion_times, rtol=1e-9)
        assert run.servers_at(run.makespan / 3).sum() == pytest.approx(1000)


@pytest.mark.parametrize(
    "speedup", [Amdahl(0.9), PowerLaw(0.6).limited(3), Measured([1, 4], [1, 3]), np.log1p], ids=str
)
@pytest.mark.parametrize("whole", [False, True])
def test_optimal_policy_reproduces_the_plan(speedup: Speedup, whole: bool) -> None:
    batch = Workload(np.random.default_rng(0).pareto(1.5, 20) + 1, speedup)
    best = plan(batch, 12, whole=whole)
    run = simulate(batch, 12, "optimal", whole=whole)
    assert_allclose(run.completion_times, best.completion_times, rtol=1e-8)


def test_hesrpt_for_slowdown_reproduces_the_plan() -> None:
    batch = Workload.pareto(30, seed=2, speedup=PowerLaw(0.4))
    best = plan(batch, 64, objective="slowdown")
    run = simulate(batch, 64, "hesrpt-slowdown")
    assert_allclose(run.completion_times, best.completion_times, rtol=1e-9)


# --- arrivals ---------------------------------------------------------------------------------


def test_two_jobs_by_hand() -> None:
    """Size 4 alone on 4 servers (rate 2) until 1; then both on 2 servers (rate √2)."""
    jobs = Workload([4, 1], PowerLaw(0.5), arrivals=[0, 1])
    run = simulate(jobs, 4, "equi")
    small_ends = 1 + 1 / 2**0.5
    large_ends = small_ends + (2 - 1) / 2
    assert_allclose(run.completion_times, [large_ends, small_ends])
    assert_allclose(run.servers_at(0.5), [4, 0])
    assert_allclose(run.servers_at(1.2), [2, 2])
    assert_allclose(run.remaining_at(1.0), [2, 1])
    assert_allclose(run.flow_times, [large_ends, small_ends - 1])
    assert run.mean_jobs == pytest.approx(run.flow_times.sum() / large_ends)
    assert run.utilisation == pytest.approx(1)


def test_an_idle_system_waits_for_the_next_arrival() -> None:
    run = simulate(Workload([1, 1], PowerLaw(0.5), arrivals=[2, 10]), 1, "hesrpt")
    assert_allclose(run.completion_times, [3, 11])
    assert_array_equal(run.servers_at(5), [0, 0])
    assert run.utilisation == pytest.approx(2 / 9)


def proportional(state: State) -> FloatArray:
    return state.servers * state.remaining / float(state.remaining.sum())


@pytest.mark.parametrize("policy", ["hesrpt", "equi", "srpt", "optimal", "helrpt", proportional])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("size_error", [0.0, 0.5])
@pytest.mark.parametrize("resize_cost", [0.0, 0.05])
def test_recorded_phases_add_up_to_the_work(
    policy: str, whole: bool, size_error: float, resize_cost: float
) -> None:
    """Work is the rate integrated over time, except while a job pauses after a resize."""
    jobs = Workload.poisson(3, 60, seed=4, speedup=PowerLaw(0.6))
    run = simulate(
        jobs, 8, policy, whole=whole, size_error=size_error, resize_cost=resize_cost, seed=1
    )
    done, last = np.zeros(60), np.zeros(60)
    held_before, started, ready = np.zeros(60), np.zeros(60, dtype=bool), np.zeros(60)
    arrivals = jobs.arrivals
    assert arrivals is not None
    for phase in run.phases():
        held = phase.servers
        assert held.sum() <= 8 * (1 + 1e-9)
        assert not held[(arrivals > phase.start) | (run.completion_times <= phase.start)].any()
        changed = started & (held > 0) & ~np.isclose(held, held_before, rtol=1e-9)
        ready[changed] = phase.start + resize_cost
        started |= held > 0
        working = np.maximum(phase.end - np.maximum(phase.start, ready), 0)
        done += held**0.6 * working
        last[held > 0] = phase.end
        held_before = held
    assert_allclose(done, jobs.sizes, rtol=1e-7)
    assert_allclose(last, run.completion_times)


@given(
    st.integers(0, 10_000),
    st.sampled_from(["hesrpt", "equi", "srpt", "hell", "optimal"]),
    st.sampled_from([0.0, 0.3]),
    st.booleans(),
)
def test_rows_and_decisions_give_the_same_schedule(
    seed: int, name: str, resize_cost: float, whole: bool
) -> None:
    """A ranked policy in compiled code, and the same policy called at each event."""
    rng = np.random.default_rng(seed)
    arrivals = np.round(rng.exponential(1, 25).cumsum(), 1)  # some at the same time
    jobs = Workload(rng.choice([0.5, 1, 3], 25), PowerLaw(0.5), arrivals=arrivals)
    policy = get_malleable_policy(name).bind(describe_workload(jobs, 4, whole))
    by_rows, by_decisions = (
        simulate(jobs, 4, tried, whole=whole, resize_cost=resize_cost)
        for tried in (policy, lambda state: policy(state))
    )
    assert by_rows.total_flow_time == pytest.approx(by_decisions.total_flow_time, rel=1e-9)


@pytest.mark.parametrize("policy", ["hesrpt", "equi", "srpt", "hell", "helrpt", "hesrpt-slowdown"])
def test_littles_law(policy: str) -> None:
    """The simulator integrates the number of jobs independently of the flow times."""
    jobs = Workload.poisson(4, 3000, seed=5, speedup=PowerLaw(0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverloadWarning)
        run = simulate(jobs, 10, policy)
    throughput = 3000 / run.duration
    assert run.mean_jobs == pytest.approx(throughput * run.mean_flow_time, rel=1e-9)


def mean_and_error(values: FloatArray, batches: int = 40) -> tuple[float, float]:
    """Return the mean of a correlated series and its standard error, by batch means."""
    means = [part.mean() for part in np.array_split(values, batches)]
    return float(np.mean(means)), float(np.std(means, ddof=1)) / batches**0.5


@pytest.mark.parametrize(("p", "rate"), [(0.3, 6.0), (0.5, 10.0), (0.7, 12.0), (0.5, 30.0)])
def test_equal_shares_agree_with_a_birth_and_death_chain(p: float, rate: float) -> None:
    """With m jobs of exponential size, one ends at rate m s(N/m)."""
    servers, max_jobs = 16.0, 400
    m = np.arange(1, max_jobs)
    log_weights = np.concatenate(([0.0], np.cumsum(np.log(rate / (m * (servers / m) ** p)))))
    weights = np.exp(log_weights - log_weights.max())
    expected = float(weights @ np.arange(max_jobs)) / weights.sum() / rate
    jobs = Workload.poisson(rate, 200_000, seed=6, speedup=PowerLaw(p))
    run = simulate(jobs, servers, "equi")
    mean, error = mean_and_error(run.flow_times[2000:])
    assert abs(mean - expected) < 4 * error


@pytest.mark.parametrize("sizes", ["deterministic", "hyperexponential"])
def test_nearly_linear_equal_shares_agree_with_processor_sharing(sizes: str) -> None:
    """E[T] = E[S] / (1 − ρ), whatever the distribution of sizes."""
    jobs = Workload.poisson(0.7, 300_000, sizes=sizes, seed=7, speedup=PowerLaw(1 - 1e-9))
    mean, error = mean_and_error(simulate(jobs, 1, "equi").flow_times[2000:])
    assert abs(mean - 1 / 0.3) < 4 * error


def test_srpt_on_one_server_agrees_with_schrage_and_miller() -> None:
    rate = 0.7
    x = np.linspace(0, 40, 400_001)
    density = np.exp(-x)
    step = x[1]

    def integral(values: FloatArray) -> FloatArray:
        return np.concatenate(([0.0], np.cumsum((values[1:] + values[:-1]) / 2 * step)))

    load = rate * integral(x * density)
    waits = rate / 2 * (integral(x**2 * density) + x**2 * np.exp(-x)) / (1 - load) ** 2
    residence = integral(1 / (1 - load))
    expected = float(integral((waits + residence) * density)[-1])
    jobs = Workload.poisson(rate, 300_000, seed=8, speedup=PowerLaw(1 - 1e-9))
    mean, error = mean_and_error(simulate(jobs, 1, "srpt").flow_times[2000:])
    assert abs(mean - expected) < 4 * error


def test_overload_is_detected_and_warned_about() -> None:
    crowded = Workload.poisson(30, 4000, seed=9, speedup=PowerLaw(0.5))
    with pytest.warns(OverloadWarning, match="4 servers can serve them under srpt:"):
        assert simulate(crowded, 4, "srpt").is_overloaded
    linear = Workload.poisson(5, 2000, seed=9, speedup=PowerLaw(0.5).time_shared())
    with pytest.warns(OverloadWarning):
        assert simulate(linear, 4, "equi").is_overloaded
    for load in (0.5, 0.8, 0.9):
        calm = Workload.poisson(4 * load, 4000, seed=9, speedup=PowerLaw(0.5).time_shared())
        assert not simulate(calm, 4, "equi").is_overloaded
    assert not simulate(Workload.pareto(1000, speedup=PowerLaw(0.5)), 4, "equi").is_overloaded
    # One giant job is not an overload.
    sizes = np.full(1000, 0.5)
    sizes[500] = 2000.0
    giant = Workload(sizes, PowerLaw(0.5).time_shared(), arrivals=np.arange(1000.0))
    assert not simulate(giant, 1, "srpt").is_overloaded


@pytest.mark.parametrize("sizes", ["exponential", "hyperexponential", "pareto"])
def test_a_busy_system_is_not_overloaded(sizes: str) -> None:
    for seed in range(12):
        for jobs in (300, 2000):
            stream = Workload.poisson(
                0.9, jobs, sizes=sizes, seed=seed, speedup=PowerLaw(0.5).time_shared()
            )
            if stream.arrivals is not None and stream.sizes.sum() < stream.arrivals[-1]:
                assert not simulate(stream, 1, "equi").is_overloaded


def test_jobs_hold_nothing_at_their_completion_time() -> None:
    run = simulate(Workload([7, 6, 5.0], PowerLaw(0.5), arrivals=[1, 1, 0]), 4, "equi")
    for job, end in enumerate(run.completion_times):
        assert run.servers_at(end)[job] == 0


def test_an_error_in_a_policy_says_when_it_happened() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        simulate(Workload([1, 2], PowerLaw(0.5)), 4, lambda state: 1 / 0)  # type: ignore[arg-type, return-value]
    assert raised.value.__notes__ == ["in policy <lambda> at time 0"]


# --- resize costs, size errors, different speedups, reviews -----------------------------------


def test_resized_jobs_pause() -> None:
    """Both start at once; when the first ends, the other pauses for a second."""
    jobs = Workload([1, 2], PowerLaw(0.5))
    run = simulate(jobs, 2, "equi", resize_cost=1.0)
    assert_allclose(run.completion_times, [1, 1 + 1 + 1 / 2**0.5])
    assert_allclose(run.remaining_at(1.5), [0, 1])
    assert simulate(jobs, 2, "srpt", resize_cost=1.0).makespan == pytest.approx(3 / 2**0.5)


def test_jobs_without_servers_keep_what_remains() -> None:
    jobs = Workload([4, 3, 2, 1], [PowerLaw(p) for p in (0.5, 0.6, 0.7, 0.8)])
    run = simulate(jobs, 2, "adaptive", whole=True, resize_cost=0.1)
    assert_allclose(run.remaining_at(0.5), [4, 3, 1.5, 0.5])


def test_flow_times_grow_with_the_resize_cost() -> None:
    jobs = Workload.poisson(4, 2000, seed=10, speedup=PowerLaw(0.5))
    times = [
        simulate(jobs, 16, "hesrpt", resize_cost=cost).mean_flow_time
        for cost in (0, 1e-9, 1e-3, 1e-2)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-5)
    assert times[0] < times[2] < times[3]


def test_size_errors_change_decisions_but_not_the_work() -> None:
    batch = Workload.pareto(200, seed=11, speedup=PowerLaw(0.9))
    exact, blurred = (simulate(batch, 100, "hesrpt", size_error=e) for e in (0.0, 1.0))
    assert blurred.mean_flow_time > exact.mean_flow_time * 1.05
    again = simulate(batch, 100, "hesrpt", size_error=1.0)
    assert_array_equal(again.completion_times, blurred.completion_times)
    other = simulate(batch, 100, "hesrpt", size_error=1.0, seed=1)
    assert other.mean_flow_time != blurred.mean_flow_time
    # Equal shares need no sizes.
    equal = [simulate(batch, 100, "equi", size_error=e).mean_flow_time for e in (0.0, 1.0)]
    assert equal[0] == pytest.approx(equal[1], rel=1e-9)


def test_the_policy_sees_sizes_with_errors() -> None:
    seen: list[FloatArray] = []

    def spy(state: State) -> FloatArray:
        seen.append(state.sizes.copy())
        return np.full(len(state), state.servers / len(state))

    simulate(Workload([1, 1, 1], PowerLaw(0.5)), 3, spy, size_error=0.3)
    assert np.ptp(seen[0]) > 0


@pytest.mark.parametrize("policy", ["equi", "srpt", "optimal", "hell"])
@pytest.mark.parametrize("whole", [False, True])
def test_each_job_has_its_own_speedup_and_limit(policy: str, whole: bool) -> None:
    speedups = [PowerLaw(0.5), Amdahl(0.9), PowerLaw(0.9).limited(2), Custom(np.log1p)]
    jobs = Workload([4, 3, 2, 1], speedups, arrivals=[0, 0, 1, 1])
    run = simulate(jobs, 8, policy, whole=whole)
    done = np.zeros(4)
    for phase in run.phases():
        done += jobs.speedups.rate(phase.servers) * (phase.end - phase.start)
        if policy != "hell":
            assert phase.servers[2] <= 2 * (1 + 1e-9)
    assert_allclose(done, jobs.sizes, rtol=1e-6)


def test_policy_decides_again_after_each_review_interval() -> None:
    class RoundRobin(Policy):
        """Round robin: all servers to one job at a time."""

        review_every = 0.5

        def __call__(self, state: State) -> FloatArray:
            held = np.zeros(len(state))
            held[int(state.time / 0.5 + 0.5) % len(state)] = state.servers
            return held

    run = simulate(Workload([1, 1], PowerLaw(0.5)), 1, RoundRobin())
    assert_allclose(run.completion_times, [1.5, 2.0])


# --- bad policies -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda s: s.remaining * np.nan, "policy <lambda> at time 0 returned nan for job 0"),
        (lambda s: s.remaining - 5, "returned -4.0 for job 0 of the 2 .* must return at least 0"),
        (lambda s: s.remaining[:1], r"shape \(1,\), but must return one number for each of the 2"),
        (lambda s: s.remaining * 100, "assigns 300.0 servers, but there are 4.0"),
        (lambda s: s.remaining * 0, "serves none of the remaining jobs, and never will"),
        (
            lambda s: np.where(s.remaining == s.remaining.max(), 0, 1.0) * (len(s) > 1),
            "at time 1 serves none",
        ),
        (lambda s: ["1", "2"], "must return an array of numbers"),
        (lambda s: "all", "returned 'all', but must return an array of numbers"),
        (lambda s: None, "returned None, but must return an array of numbers"),
    ],
)
def test_impossible_decisions_are_rejected(policy: object, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        simulate(Workload([1, 2], PowerLaw(0.5)), 4, policy)  # type: ignore[arg-type]


def test_a_policy_that_never_serves_any_job_is_rejected_despite_its_reviews() -> None:
    class Lazy(Policy):
        review_every = 1.0

        def __call__(self, state: State) -> FloatArray:
            return np.zeros(len(state))

    with pytest.raises(PolicyError, match="never will"):
        simulate(Workload([1, 2], PowerLaw(0.5)), 4, Lazy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"servers": 0}, "servers must be greater than 0, got 0"),
        ({"servers": 1.5, "whole": True}, "whole number for whole servers, got 1.5"),
        ({"servers": 2, "resize_cost": -1}, "resize_cost must lie between 0 and 1e\\+15, got -1"),
        ({"servers": 2, "size_error": "much"}, "size_error must be a number, got 'much'"),
        ({"servers": 2, "policy": "best"}, "no policy named 'best'"),
        ({"servers": 2, "policy": Equi}, r"must be an instance: Equi\(\), not the class"),
        ({"servers": 2, "seed": "a", "size_error": 1}, "seed must be a number"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(Workload([1, 2], PowerLaw(0.5)), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["equi", "hesrpt", "adaptive", "srpt"])
@pytest.mark.parametrize("whole", [False, True])
def test_servers_come_from_the_loop_that_found_the_ends(policy: str, whole: bool) -> None:
    """To the last digit: a job holds servers until it ends, and none from then on."""
    jobs = Workload.poisson(20, 150, seed=5, speedup=PowerLaw(0.5))
    run = simulate(jobs, 32, policy, whole=whole)
    ended = np.argsort(run.completion_times)
    ends = run.completion_times[ended]
    before = run.timeline.servers_at_each(np.nextafter(ends, 0))
    after = run.timeline.servers_at_each(ends)
    for job, held_before, held_after in zip(ended, before, after, strict=True):
        assert held_before[job] > 0
        assert held_after[job] == 0
    for time, held in zip(ends[::50], list(run.timeline.servers_at_each(ends))[::50], strict=True):
        assert_array_equal(run.servers_at(float(time)), held)


# --- large runs -------------------------------------------------------------------------------


def test_large_runs_can_be_queried_at_single_times() -> None:
    batch = Workload.pareto(20_000, seed=12, speedup=PowerLaw(0.5))
    run = simulate(batch, 100, "hesrpt")
    best = plan(batch, 100)
    for time in (0.0, run.makespan / 10, run.makespan / 2, run.makespan * 2):
        assert_allclose(run.servers_at(time), best.servers_at(time), rtol=1e-8, atol=1e-300)
        assert_allclose(run.remaining_at(time), best.remaining_at(time), rtol=1e-6, atol=1e-6)
    assert_allclose(next(run.phases()).servers, run.servers_at(0.0))


def test_progress_is_reported() -> None:
    reports: list[tuple[int, int]] = []
    jobs = Workload.poisson(30, 200_000, seed=13, speedup=PowerLaw(0.5))
    simulate(jobs, 64, "equi", progress=lambda done, all_jobs: reports.append((done, all_jobs)))
    assert reports[-1] == (200_000, 200_000)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


def test_policies_compare_by_value() -> None:
    assert Equi() == Equi()
    assert {Srpt(), Equi(), Equi()} == {Equi(), Srpt()}
    assert HeSrpt(p=0.5) == HeSrpt(p=0.5) != HeSrpt(p=0.6)
