"""A true certificate is accepted; whatever is changed in it or in its plan is found out."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt import Amdahl, CertificateError, Measured, Plan, PowerLaw, Workload, plan, verify
from hesrpt.arrays import FloatArray
from hesrpt.objectives import Objective
from hesrpt.optimal.bounds import most_earned
from hesrpt.schedule import Timeline
from hesrpt.speedups import Speedup, SpeedupVector

SIZES = [9.0, 4.0, 2.0, 1.0]
MEASURED = Measured([1, 2, 4, 8, 16], [1, 1.9, 3.1, 4.0, 3.5])


class Tampered(Timeline):
    """The record of a plan in which one phase has been changed."""

    def __init__(self, true: Timeline, change: Callable[[FloatArray], FloatArray]) -> None:
        self.true, self.change, self.ends = true, change, true.ends

    def servers(self, phase: int) -> FloatArray:
        held = self.true.servers(phase)
        return self.change(held) if phase == 1 else held


def with_certificate(true: Plan, **changes: object) -> Plan:
    return replace(true, certificate=replace(true.certificate, **changes))  # type: ignore[arg-type]


def with_record(true: Plan, change: Callable[[FloatArray], FloatArray]) -> Plan:
    return replace(true, timeline=Tampered(true.timeline, change))


def scaled_value(true: Plan, job: int, factor: float) -> Plan:
    values = true.certificate.values_in_order.copy()
    values[job] *= factor
    bound = float(values @ true.workload.sizes[true.certificate.first_to_last])
    return with_certificate(
        true, values_in_order=values, lower_bound=bound, gap=true.cost / bound - 1
    )


TAMPERINGS: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "a value too high": (lambda p: scaled_value(p, 1, 1.001), "servers can earn"),
    "a value too low": (lambda p: scaled_value(p, 1, 0.99), "called proven, but costs"),
    "a negative value": (lambda p: scaled_value(p, 1, -1), "at least 0"),
    "a missing value": (lambda p: scaled_value(p, 1, float("nan")), "must be finite"),
    "a wrong bound": (
        lambda p: with_certificate(p, lower_bound=p.certificate.lower_bound * 1.01),
        "job values give a bound",
    ),
    "no gap": (lambda p: with_certificate(p, gap=float("nan")), "the gap is"),
    "no bound": (
        lambda p: with_certificate(p, lower_bound=float("nan")),
        "job values give a bound",
    ),
    "a wrong gap": (lambda p: with_certificate(p, gap=0.5), "the gap is"),
    "no order": (
        lambda p: with_certificate(p, first_to_last=np.zeros(4, dtype=int)),
        "does not name each job once",
    ),
    "a wrong order": (
        lambda p: with_certificate(
            p,
            first_to_last=p.certificate.first_to_last[::-1],
            values_in_order=p.certificate.values_in_order[::-1],
        ),
        "completion order is not|servers can earn|called proven",
    ),
    "times too early": (
        lambda p: replace(p, completion_times=p.completion_times * 0.99),
        "ends at",
    ),
    "times too late": (lambda p: replace(p, completion_times=p.completion_times * 1.01), "ends at"),
    "times that are no times": (
        lambda p: replace(p, completion_times=p.completion_times * np.nan),
        "completion times must be finite|ends at",
    ),
    "servers that do not exist": (lambda p: with_record(p, lambda n: n + 1), "of 10.0"),
    "fewer than no servers": (lambda p: with_record(p, lambda n: n - 9), "holds -"),
    "work left undone": (lambda p: with_record(p, lambda n: n * 0.5), "does work of"),
}


@pytest.mark.parametrize("speedup", [PowerLaw(0.5), Amdahl(0.9)], ids=str)
@pytest.mark.parametrize(("tamper", "message"), TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_what_is_tampered_with_is_rejected(
    speedup: Speedup, tamper: Callable[[Plan], Plan], message: str
) -> None:
    true = plan(Workload(SIZES, speedup), 10)
    assert verify(true) < 1e-12
    with pytest.raises(CertificateError, match=message):
        verify(tamper(true))


def test_parts_of_servers_are_no_whole_servers() -> None:
    true = plan(Workload(SIZES, PowerLaw(0.5)), 10, whole=True)
    with pytest.raises(CertificateError, match="parts of servers"):
        verify(with_record(true, lambda n: n * 0.99))


def test_a_plan_that_is_not_proven_must_not_say_so() -> None:
    mixed = plan(Workload(SIZES, [PowerLaw(0.2), PowerLaw(0.9), Amdahl(0.9), MEASURED]), 10)
    verify(mixed)
    with pytest.raises(CertificateError, match="completion order is not"):
        verify(with_certificate(mixed, proven=True))
    with pytest.raises(CertificateError, match="do not end in the order"):
        verify(
            with_certificate(
                mixed,
                first_to_last=mixed.certificate.first_to_last[::-1],
                values_in_order=mixed.certificate.values_in_order[::-1],
            )
        )


@pytest.mark.parametrize("whole", [False, True])
def test_a_makespan_that_is_no_bound_is_rejected(whole: bool) -> None:
    true = plan(Workload(SIZES, PowerLaw(0.5)), 10, objective="makespan", whole=whole)
    verify(true)
    with pytest.raises(CertificateError, match="more than 1"):
        verify(scaled_value(true, 0, 1.5))
    with pytest.raises(CertificateError, match="called proven, but costs"):
        verify(scaled_value(true, 0, 0.5))


@given(
    st.lists(st.floats(0.01, 5), min_size=1, max_size=5),
    st.sampled_from([PowerLaw(0.5), Amdahl(0.9), Amdahl(1.0), MEASURED, PowerLaw(0.3).limited(2)]),
    st.sampled_from([1.0, 4.0, 20.0]),
    st.integers(0, 1000),
)
def test_no_allocation_earns_more_than_the_water_filling(
    values: list[float], speedup: Speedup, servers: float, seed: int
) -> None:
    v = np.array(values)
    speedups = SpeedupVector.repeat(speedup, len(v))
    bound = most_earned(speedups, servers, v, enough=0.0, price=1.0).bound
    rng = np.random.default_rng(seed)
    tried = servers * rng.dirichlet(np.full(len(v), rng.choice([0.1, 1.0])), size=200)
    assert np.all(speedup.rate(tried) @ v <= bound * (1 + 1e-12))
    # And one does earn that much: the greedy one, in small steps.
    steps = 20_000
    grid = np.linspace(0, servers, steps + 1)
    gains = np.multiply.outer(v, np.diff(speedup.rate(grid))).ravel()
    assert np.sort(gains)[-steps:].sum() >= bound * (1 - 1e-3)


@pytest.mark.parametrize("objective", ["flow", "slowdown", "makespan"])
def test_a_plan_of_very_many_jobs_is_verified_by_sample(objective: Objective) -> None:
    sizes = np.random.default_rng(0).pareto(1.5, 30_000) + 1
    assert verify(plan(Workload(sizes, PowerLaw(0.3)), 1000, objective=objective)) < 1e-9


def test_a_tampered_plan_of_very_many_jobs_is_rejected() -> None:
    sizes = np.random.default_rng(0).pareto(1.5, 30_000) + 1
    true = plan(Workload(sizes, PowerLaw(0.3)), 1000)
    with pytest.raises(CertificateError, match="ends at"):
        verify(replace(true, completion_times=true.completion_times * 0.999))
    with pytest.raises(CertificateError, match="servers can earn"):
        verify(scaled_value(true, 15_000, 1.1))
    # Two jobs of which one gains what the other loses.
    times, ends = true.completion_times.copy(), true.timeline.ends.copy()
    order = true.certificate.first_to_last
    shift = 0.4 * (ends[20_001] - ends[20_000])
    for place, sign in ((20_000, 1), (20_002, -1)):
        ends[place] += sign * shift
        times[order[place]] = ends[place]
    shifted = replace(true, timeline=copy(true.timeline), completion_times=times)
    shifted.timeline.ends = ends
    with pytest.raises(CertificateError, match="does work of"):
        verify(shifted)


class Modest(Amdahl):
    """A speedup that does not know its own demand, and so leads to values that are no proof."""

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        return np.where(price > 0, 0.7, 1.0) * super().demand(price, most)


def test_a_speedup_that_misjudges_its_demand_is_found_out() -> None:
    misjudged = plan(Workload(SIZES, Modest(0.9)), 10)
    with pytest.raises(CertificateError, match="servers can earn"):
        verify(misjudged)


class Sly(Speedup):
    """log(1 + k), lost in rounding near 0; its demand lets only the dearest job have any."""

    def rate(self, servers: FloatArray) -> FloatArray:
        return np.log(1 + servers)

    def slope(self, servers: FloatArray) -> FloatArray:
        return 1 / (1 + servers)

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        wanted = np.clip(1 / np.maximum(price, 1e-300) - 1, 0, most)
        return np.where(price <= np.min(price, initial=np.inf), wanted, 0.0)

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        return np.expm1(rate)


def test_a_forged_proof_that_everything_belongs_to_the_shortest_is_rejected() -> None:
    """The record of SRPT, with the values that would prove it if nobody else could earn a thing."""
    sizes = np.array([3.0, 2.0, 1.0])
    speed = float(np.log(11.0))
    ends = np.cumsum(sizes[::-1]) / speed
    true = plan(Workload(sizes, np.log1p), 10)

    class OneByOne(Timeline):
        def servers(self, phase: int) -> FloatArray:
            return np.where(np.arange(3) == 2 - phase, 10.0, 0.0)

    record = OneByOne()
    record.ends = ends
    values = np.array([3.0, 2.0, 1.0]) / speed
    cost = float(ends.sum())
    forged = replace(
        true,
        workload=Workload(sizes, Sly()),
        completion_times=ends[::-1].copy(),
        timeline=record,
        certificate=replace(
            true.certificate, values_in_order=values, lower_bound=cost, gap=0.0, proven=True
        ),
    )
    assert cost > true.total_flow_time * 1.05
    with pytest.raises(CertificateError, match="servers can earn"):
        verify(forged)


def test_an_unknown_objective_is_rejected() -> None:
    true = plan(Workload(SIZES, PowerLaw(0.5)), 10)
    with pytest.raises(CertificateError, match="no objective 'fun'"):
        verify(replace(true, objective="fun"))  # type: ignore[arg-type]


def test_jobs_that_arrive_later_are_no_matter_of_a_plan() -> None:
    true = plan(Workload(SIZES, PowerLaw(0.5)), 10)
    later = Workload(SIZES, PowerLaw(0.5), arrivals=[0, 0, 0, 1])
    with pytest.raises(CertificateError, match="all present at time 0"):
        verify(replace(true, workload=later))


def test_mixed_speedups_bound_each_job_by_its_own() -> None:
    speedups = SpeedupVector.create([PowerLaw(0.5), Amdahl(0.9)])
    bound = most_earned(speedups, 10.0, np.array([1.0, 2.0]), enough=0.0, price=0.1).bound
    split = np.linspace(0, 10, 100_001)
    best = (PowerLaw(0.5).rate(split) + 2 * Amdahl(0.9).rate(10 - split)).max()
    assert bound == pytest.approx(best, rel=1e-8)
