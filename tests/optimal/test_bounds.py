"""Lower bounds hold for every schedule, are close to the best ones, and are verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize
from support.speedups import SPEEDUPS, any_speedup

from hesrpt import (
    Amdahl,
    CertificateError,
    InputError,
    LowerBound,
    PowerLaw,
    Speedup,
    Workload,
    lower_bound,
    plan,
    simulate,
    verify_bound,
)
from hesrpt.arrays import FloatArray
from hesrpt.optimal.bounds import bound_by_prices
from hesrpt.optimal.price_search import PricedJobs, Prices, search_prices
from hesrpt.speedups import SpeedupVector

ALL_SPEEDUPS: list[Speedup | Callable[[FloatArray], FloatArray]] = [*SPEEDUPS, np.log1p]


def slow(*values: object) -> Any:
    """Return parameters of a test that only the slow suite tries."""
    return pytest.param(*values, marks=pytest.mark.slow)


def stream(jobs: int, speedup: object, *, rate: float = 3.0, seed: int = 1) -> Workload:
    return Workload.poisson(rate, jobs, speedup=speedup, seed=seed)  # type: ignore[arg-type]


def assert_below(bound: LowerBound, flow_times: FloatArray) -> None:
    """Assert that a bound holds, up to the rounding of completion times."""
    workload = bound.workload
    latest = float((workload.arrival_times + flow_times).max())
    assert bound.total <= float(bound.weights @ flow_times) + 1e-15 * latest * bound.weights.sum()


# --- a batch: the bound is the plan's certificate -------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("speedup", ALL_SPEEDUPS, ids=str)
@pytest.mark.parametrize("arrival", [0.0, 7.0])
def test_batch_is_bounded_by_its_plan(speedup: Speedup, whole: bool, arrival: float) -> None:
    sizes = [9.0, 4.0, 4.0, 2.0, 0.5]
    best = plan(Workload(sizes, speedup), servers=8, whole=whole)
    bound = lower_bound(Workload(sizes, speedup, arrivals=[arrival] * 5), servers=8, whole=whole)
    assert_allclose(bound.total, best.certificate.lower_bound, rtol=1e-7)
    assert bound.total < best.total_flow_time
    assert verify_bound(bound) >= bound.total


@pytest.mark.parametrize("arrival", [0.0, 7.5])
def test_batch_without_a_proven_order_is_bounded_by_the_prices_of_its_plan(arrival: float) -> None:
    speedups = [PowerLaw(p) for p in (0.3, 0.6, 0.9, 0.5, 0.7, 0.4)]
    sizes, weights = [3, 1, 4, 1, 5, 9], [1, 3, 2, 5, 1, 4]
    workload = Workload(sizes, speedups, weights=weights, arrivals=[arrival] * 6)
    bound = lower_bound(workload, 10, objective="weighted")
    best = plan(Workload(sizes, speedups, weights=weights), 10, objective="weighted")
    expected = best.certificate.any_order_bound
    assert expected is not None
    assert bound.total == pytest.approx(expected.total, rel=1e-6)
    assert bound.times[0] == arrival
    assert verify_bound(bound) >= bound.total * (1 - 1e-9)
    assert 0.97 * best.cost <= bound.total <= best.cost


@pytest.mark.parametrize("whole", [False, slow(True)])
@pytest.mark.parametrize("speedup", ALL_SPEEDUPS, ids=str)
def test_prices_alone_come_close_to_the_plan_of_a_batch(speedup: Speedup, whole: bool) -> None:
    jobs = Workload([9, 4, 4, 2, 0.5], speedup)
    bound = bound_by_prices(jobs, 8.0, "flow", whole, search_prices)
    optimum = plan(jobs, servers=8, whole=whole).total_flow_time
    assert 0.985 * optimum < bound.total < optimum * (1 + 1e-12)
    assert verify_bound(bound) >= bound.total


# --- arrivals -------------------------------------------------------------------------------------


any_power_law = st.floats(0.01, 0.99).map(PowerLaw)


@given(
    st.lists(
        st.tuples(st.floats(1e-3, 1e3), st.floats(0, 20), st.floats(0.1, 10)),
        min_size=1,
        max_size=6,
    ),
    any_speedup | any_power_law,
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from(["flow", "slowdown", "weighted"]),
)
@settings(max_examples=settings().max_examples // 6)
def test_no_policy_beats_the_bound(
    jobs: list[tuple[float, float, float]],
    speedup: Speedup,
    servers: int,
    whole: bool,
    objective: str,
) -> None:
    sizes, arrivals, weights = zip(*jobs, strict=True)
    workload = Workload(sizes, speedup, arrivals=arrivals, weights=weights)
    bound = lower_bound(workload, servers, whole=whole, objective=objective)  # type: ignore[arg-type]
    assert 0 < bound.total < np.inf
    for policy in ("equi", "srpt", "optimal", "adaptive", "fifo", "helrpt"):
        assert_below(bound, simulate(workload, servers, policy, whole=whole).flow_times)
    assert verify_bound(bound) >= bound.total


@given(st.lists(any_speedup, min_size=2, max_size=5), st.integers(0, 1000))
@settings(max_examples=settings().max_examples // 6)
def test_no_policy_beats_the_bound_for_jobs_with_their_own_speedups(
    speedups: list[Speedup], seed: int
) -> None:
    jobs = stream(len(speedups), speedups, seed=seed)
    bound = lower_bound(jobs, servers=5)
    for policy in ("equi", "srpt", "optimal", "adaptive"):
        assert_below(bound, simulate(jobs, 5, policy).flow_times)
    assert verify_bound(bound) >= bound.total


def flow_time_at_values(log_values: FloatArray, p: float, jobs: Workload, servers: float) -> float:
    """Return the total flow time if n_i is proportional to exp(log_values[i]) at all times.

    Some choice of these values is optimal: the value of a job's work never changes.
    """
    arrivals, remaining = jobs.arrival_times, jobs.sizes.copy()
    ends, now = np.full(len(jobs), np.inf), 0.0
    while np.isinf(ends).any():
        present = np.isinf(ends) & (arrivals <= now)
        later = arrivals[arrivals > now]
        until_arrival = later.min() - now if len(later) else np.inf
        if not present.any():
            now += until_arrival
            continue
        value = np.where(present, log_values, -np.inf)
        shares = np.exp(value - value.max())
        rates = np.maximum((servers * shares / shares.sum()) ** p, 1e-200)
        until_end = np.where(present, remaining / rates, np.inf)
        step = min(until_arrival, until_end.min())
        remaining = np.where(present, np.maximum(remaining - rates * step, 0.0), remaining)
        now = now + step if step < until_arrival else later.min()
        ends[present & (until_end <= step * (1 + 1e-12))] = now
    return float(np.sum(ends - arrivals))


@pytest.mark.parametrize(
    ("p", "jobs"),
    [
        (0.3, 4),
        (0.5, 2),
        (0.7, 3),
        (0.9, 4),
        slow(0.7, 5),
        slow(0.5, 6),
        slow(0.9, 6),
        slow(0.97, 4),
    ],
)
def test_local_search_finds_schedules_close_to_the_bound(p: float, jobs: int) -> None:
    rng = np.random.default_rng(jobs)
    workload = Workload(
        rng.exponential(size=jobs), PowerLaw(p), arrivals=rng.exponential(0.3, jobs)
    )
    bound = lower_bound(workload, servers=4)
    starts = [np.zeros(jobs), -np.log(workload.sizes), -3 * np.log(workload.sizes)]
    best = min(
        minimize(
            flow_time_at_values,
            start,
            args=(p, workload, 4.0),
            method="Nelder-Mead",
            options={"maxiter": 150 * jobs, "initial_simplex": _simplex(start)},
        ).fun
        for start in starts
    )
    assert 0.98 * best < bound.total < best


def _simplex(start: FloatArray) -> FloatArray:
    return np.vstack([start, start + 0.7 * np.eye(len(start))])


Event = tuple[bool, int]  # whether the job ends (otherwise it arrives), and its number


def list_orders(jobs: int, arrived: int = 0, ended: tuple[int, ...] = ()) -> Iterator[list[Event]]:
    """Yield all orders of arrivals and departures of jobs that are listed as they arrive."""
    if len(ended) == jobs:
        yield []
    if arrived < jobs:
        for rest in list_orders(jobs, arrived + 1, ended):
            yield [(False, arrived), *rest]
    for job in set(range(arrived)) - set(ended):
        for rest in list_orders(jobs, arrived, (*ended, job)):
            yield [(True, job), *rest]


def least_flow_time(
    events: list[Event], jobs: Workload, held: FloatArray, rates: FloatArray
) -> float:
    """Return the least total flow time with this order of events, by linear programming.

    The variables are the lengths of the phases between events, and how long each job holds each of
    the numbers of servers ``held`` in each phase, when it works at ``rates[job]``.
    """
    phases = len(events) - 1
    present: list[set[int]] = [set()]
    for is_end, job in events[:-1]:
        present.append(present[-1] ^ {job})
        assert is_end == (job in present[-2])
    pairs = [(phase, job) for phase in range(phases) for job in sorted(present[phase + 1])]
    width = phases + len(pairs) * len(held)
    work, room, time = (np.zeros((n, width)) for n in (len(jobs), phases, len(pairs)))
    room[:, :phases] = -held.max() * np.eye(phases)
    for row, (phase, job) in enumerate(pairs):
        here = slice(phases + row * len(held), phases + (row + 1) * len(held))
        work[job, here], room[phase, here], time[row, here] = -rates[job], held, 1
        time[row, phase] = -1
    arrivals = {place: job for place, (is_end, job) in enumerate(events) if place and not is_end}
    until = np.zeros((len(arrivals), width))
    for row, place in enumerate(arrivals):
        until[row, :place] = 1
    found = linprog(
        [*(len(there) for there in present[1:]), *np.zeros(width - phases)],
        A_ub=np.vstack((work, room, time)),
        b_ub=np.concatenate((-jobs.sizes, np.zeros(phases + len(pairs)))),
        A_eq=until,
        b_eq=jobs.arrival_times[list(arrivals.values())] - jobs.arrival_times[0],
    )
    return float(found.fun) if found.success else np.inf


@pytest.mark.parametrize(
    ("whole", "mixed", "cases"),
    [
        (False, False, 3),
        (True, True, 3),
        slow(False, False, 60),
        slow(True, False, 60),
        slow(False, True, 60),
        slow(True, True, 60),
    ],
)
def test_best_schedule_of_three_jobs_is_close_to_the_bound(
    whole: bool, mixed: bool, cases: int
) -> None:
    """The page on bounds has the distances of 2 to 4 jobs."""
    held = np.arange(1.0, 5.0) if whole else np.geomspace(0.02, 4, 40)
    for seed in range(cases):
        rng = np.random.default_rng(3000 + seed)
        sizes, arrivals = rng.exponential(size=3), np.sort(rng.exponential(0.3, 3))
        powers = rng.choice([0.3, 0.5, 0.7, 0.9], 3 if mixed else 1)
        jobs = Workload(sizes, [PowerLaw(p) for p in np.resize(powers, 3)], arrivals=arrivals)
        bound = lower_bound(jobs, servers=4, whole=whole)
        rates = held ** np.resize(powers, (3, 1))
        best = min(least_flow_time(events, jobs, held, rates) for events in list_orders(3))
        assert bound.total < best * (1 + 1e-9)
        assert best < bound.total * (1.05 if mixed else 1.02)
        for policy in ("equi", "srpt", "adaptive"):
            assert simulate(jobs, 4, policy, whole=whole).total_flow_time > best * (1 - 1e-3)


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_bound_of_a_stream_is_close_to_the_best_policy(p: float) -> None:
    jobs = stream(50, PowerLaw(p), rate=30)
    bound = lower_bound(jobs, servers=64)
    best = min(simulate(jobs, 64, policy).total_flow_time for policy in ("equi", "hesrpt", "srpt"))
    assert 0.93 < bound.total / best < 1
    assert bound.mean == bound.total / 50
    assert verify_bound(bound) >= bound.total


def test_parallel_search_of_many_jobs() -> None:
    jobs = stream(160, PowerLaw(0.5), rate=8)
    bound = lower_bound(jobs, servers=16)
    best = simulate(jobs, 16, "equi").total_flow_time
    assert 0.9 < bound.total / best < 1
    assert verify_bound(bound) >= bound.total


@given(
    st.lists(st.tuples(st.floats(1e-2, 1e2), st.floats(0, 20)), min_size=2, max_size=9),
    st.integers(1, 4),
    any_power_law,
)
@settings(max_examples=settings().max_examples // 10)
def test_sum_over_windows_is_a_bound(
    jobs: list[tuple[float, float]], window: int, speedup: Speedup
) -> None:
    sizes, arrivals = zip(*jobs, strict=True)
    workload = Workload(sizes, speedup, arrivals=arrivals)
    bound = lower_bound(workload, servers=4, window=window)
    for policy in ("equi", "srpt", "adaptive"):
        assert_below(bound, simulate(workload, 4, policy).flow_times)
    assert verify_bound(bound) >= bound.total > 0


def test_windows_of_jobs_that_never_meet_lose_nothing() -> None:
    sizes, arrivals = [3.0, 2.0, 3.0, 2.0, 1.0], [100.0, 100.5, 0.0, 0.5, 200.0]
    jobs = Workload(sizes, PowerLaw(0.7), arrivals=arrivals)
    together, apart = lower_bound(jobs, servers=4), lower_bound(jobs, servers=4, window=2)
    assert [len(window.workload) for window in apart.windows] == [2, 2, 1]
    assert_allclose(apart.total, together.total, rtol=1e-3)
    assert "3 windows" in apart.proof
    assert "one path of prices" in together.proof
    assert "optimal plan" in lower_bound(Workload(sizes, PowerLaw(0.7)), servers=4).proof


def test_false_windows_are_detected() -> None:
    bound = lower_bound(stream(6, PowerLaw(0.6)), servers=4, window=3)
    first, second = bound.windows
    falsified = [
        replace(bound, total=bound.total * (1 + 1e-6)),
        replace(bound, windows=(first,)),
        replace(bound, windows=(second, first)),
        replace(bound, windows=(first, replace(second, servers=5.0))),
        replace(bound, windows=(first, replace(second, total=second.total * 1.1))),
        replace(bound, objective="slowdown"),
    ]
    for false in falsified:
        with pytest.raises(CertificateError):
            verify_bound(false)
    assert verify_bound(bound) >= bound.total


@pytest.mark.slow
def test_long_stream() -> None:
    """Its proof is divided between the cores."""
    jobs = stream(2500, PowerLaw(0.9), rate=45)
    bound = lower_bound(jobs, servers=64)
    best = simulate(jobs, 64, "adaptive").total_flow_time
    assert 0.85 < bound.total / best < 1
    assert verify_bound(bound) >= bound.total


def test_jobs_that_never_meet_are_bounded_exactly() -> None:
    jobs = Workload([5, 3, 8], PowerLaw(0.7), arrivals=[0, 100, 200])
    assert_allclose(lower_bound(jobs, servers=10).total, 16 / 10**0.7, rtol=1e-8)


def test_whole_servers_are_bounded_more_tightly() -> None:
    # With more jobs than servers, most of what k^p promises below one server is out of reach.
    jobs = stream(15, PowerLaw(0.5), rate=20)
    divisible, whole = (lower_bound(jobs, servers=3, whole=whole) for whole in (False, True))
    assert whole.total > 1.1 * divisible.total
    assert_below(whole, simulate(jobs, 3, "srpt", whole=True).flow_times)


def test_gap_is_the_distance_to_a_schedule() -> None:
    jobs = stream(10, Amdahl(0.9))
    bound = lower_bound(jobs, servers=4, objective="slowdown")
    schedule = simulate(jobs, servers=4, policy="equi")
    assert_allclose(bound.gap(schedule), schedule.slowdowns.sum() / bound.total - 1)
    assert repr(bound).startswith("<LowerBound: every schedule has a total slowdown of at least")


# --- extreme values -------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1e-3, 0.999])
@pytest.mark.parametrize("scale", [1e-12, slow(1e12)])
def test_bound_is_scale_invariant(p: float, scale: float) -> None:
    sizes, arrivals = np.array([3.0, 1.0, 2.0, 0.5]), np.array([0.0, 0.3, 0.4, 1.1])
    speedup = PowerLaw(p)
    bound = lower_bound(Workload(sizes, speedup, arrivals=arrivals), servers=4)
    scaled = lower_bound(Workload(scale * sizes, speedup, arrivals=scale * arrivals), servers=4)
    assert_allclose(scaled.total, scale * bound.total, rtol=1e-4)
    assert_below(scaled, simulate(scaled.workload, 4, "hesrpt").flow_times)


@pytest.mark.parametrize("speedup", [PowerLaw(0.5), PowerLaw(0.99), Amdahl(1.0), np.log1p])
def test_sizes_of_all_magnitudes(speedup: Speedup) -> None:
    jobs = Workload([1e-12, 1e12, 1.0, 1e-6, 1e6], speedup, arrivals=[0, 0, 1e-9, 1e3, 1e3])
    bound = lower_bound(jobs, servers=16)
    assert verify_bound(bound) >= bound.total > 0
    for policy in ("equi", "srpt"):
        assert_below(bound, simulate(jobs, 16, policy).flow_times)


def test_speedups_that_fall_again() -> None:
    def falling(servers: FloatArray) -> FloatArray:
        return servers - servers**2 / 40

    jobs = Workload([20.0, 10.0, 30.0], falling, arrivals=[0, 0.5, 0.7])
    bound = lower_bound(jobs, servers=30)
    assert 9 > bound.total > 60 / 10  # the peak is 10, on 20 servers
    assert_below(bound, simulate(jobs, 30, "optimal").flow_times)
    assert verify_bound(bound) >= bound.total


def test_one_job() -> None:
    jobs = Workload([2.0], PowerLaw(0.5).limited(4), arrivals=[1e9])
    assert_allclose(lower_bound(jobs, servers=100).total, 1.0, rtol=1e-7)


# --- verification ---------------------------------------------------------------------------------


def test_false_bounds_are_detected() -> None:
    bound = lower_bound(stream(8, PowerLaw(0.6)), servers=4)
    falsified = [
        replace(bound, total=bound.total * (1 + 1e-6)),
        replace(bound, total=float("nan")),
        replace(bound, prices=bound.prices * 1.1),
        replace(bound, prices=-bound.prices),
        replace(bound, prices=bound.prices[1:]),
        replace(bound, times=bound.times[::-1]),
        replace(bound, job_costs=bound.job_costs[1:]),
        replace(bound, job_costs=bound.job_costs - np.inf),
        replace(bound, job_costs=bound.job_costs * 1.001),
        replace(bound, servers=5.0),
        replace(bound, workload=stream(8, PowerLaw(0.6), seed=2)),
    ]
    for false in falsified:
        with pytest.raises(CertificateError):
            verify_bound(false)


def test_false_plans_are_detected() -> None:
    jobs = Workload([9, 4, 1], PowerLaw(0.5))
    bound = lower_bound(jobs, servers=10)
    assert bound.plan is not None
    falsified = [
        replace(bound, total=bound.total * (1 + 1e-6)),
        replace(bound, servers=11.0),
        replace(bound, workload=Workload([9, 4, 2], PowerLaw(0.5))),
        replace(bound, workload=Workload([9, 4, 1], PowerLaw(0.6))),
        replace(bound, workload=Workload([9, 4, 1], PowerLaw(0.5), arrivals=[0, 0, 1])),
        replace(bound, objective="slowdown"),
        replace(bound, plan=plan(jobs, servers=10, order=[0, 1, 2])),
    ]
    for false in falsified:
        with pytest.raises(CertificateError):
            verify_bound(false)


def test_arguments_are_checked() -> None:
    jobs = Workload([1, 2], PowerLaw(0.5))
    with pytest.raises(InputError, match=r"lower_bound\(\) needs a Workload, got list"):
        lower_bound([1, 2], servers=2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="objective must be one of flow, slowdown, weighted"):
        lower_bound(jobs, servers=2, objective="makespan")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="servers must be a whole number"):
        lower_bound(jobs, servers=2.5, whole=True)
    with pytest.raises(InputError, match="needs a workload with weights"):
        lower_bound(jobs, servers=2, objective="weighted")
    with pytest.raises(InputError, match=r"verify_bound\(\) needs a LowerBound, got Plan"):
        verify_bound(plan(jobs, servers=2))  # type: ignore[arg-type]


# --- the kernel -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, slow(1), slow(2), slow(3)])
@pytest.mark.parametrize("speedup", SPEEDUPS, ids=str)
def test_least_cost_of_a_job_at_given_prices(speedup: Speedup, seed: int) -> None:
    """Compare with an exhaustive search over completion times."""
    rng = np.random.default_rng(seed)
    times, prices = np.append(0.0, np.cumsum(rng.exponential(size=6))), rng.exponential(0.3, 6)
    size, arrival, servers = rng.exponential(4.0), times[rng.integers(3)], 8.0
    jobs = PricedJobs(
        np.array([size]),
        np.array([arrival]),
        np.ones(1),
        SpeedupVector.repeat(speedup, 1),
        servers,
    )
    cost = jobs.evaluate(Prices(times, prices), 1e-6, max_steps=100).costs[0]
    searched = _least_cost_by_search(speedup, size, arrival, times, prices, servers)
    assert cost <= searched * (1 + 1e-9)
    assert_allclose(cost, searched, rtol=2e-3)


def _least_cost_by_search(
    speedup: Speedup,
    size: float,
    arrival: float,
    times: FloatArray,
    prices: FloatArray,
    servers: float,
) -> float:
    fastest = size / float(speedup(servers))
    ends = np.linspace(arrival + fastest * (1 + 1e-9), times[-1] + fastest, 200)
    least = np.inf
    for end in np.append(ends, times[times > arrival + fastest]):
        cuts = np.unique(np.concatenate((times[(times > arrival) & (times < end)], [arrival, end])))
        price = np.append(prices, 0.0)[np.searchsorted(times, cuts[:-1], side="right") - 1]
        low, high = 1e-12, 1e12
        for _ in range(60):
            value = (low * high) ** 0.5
            held = speedup.demand(price / value, servers)
            done = float(speedup.rate(held) @ np.diff(cuts))
            low, high = (value, high) if done < size else (low, value)
        profit = float((high * speedup.rate(held) - price * held) @ np.diff(cuts))
        least = min(least, end - arrival + high * size - profit)
    return least
