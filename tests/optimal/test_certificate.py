"""Correct certificates are accepted, and any change to them or to their plans is detected."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from hesrpt import (
    Amdahl,
    CertificateError,
    Measured,
    Plan,
    PowerLaw,
    Workload,
    plan,
    simulate,
    verify,
)
from hesrpt.arrays import FloatArray
from hesrpt.objectives import Objective
from hesrpt.schedule import Timeline
from hesrpt.speedups import Speedup

SIZES = [9.0, 4.0, 2.0, 1.0]
MEASURED = Measured([1, 2, 4, 8, 16], [1, 1.9, 3.1, 4.0, 3.5])


class Tampered(Timeline):
    """The timeline of a plan with one phase changed."""

    def __init__(self, original: Timeline, change: Callable[[FloatArray], FloatArray]) -> None:
        self.original, self.change, self.ends = original, change, original.ends

    def servers(self, phase: int) -> FloatArray:
        held = self.original.servers(phase)
        return self.change(held) if phase == 1 else held


def with_timeline(original: Plan, change: Callable[[FloatArray], FloatArray]) -> Plan:
    return replace(original, timeline=Tampered(original.timeline, change))


def scale_value(original: Plan, job: int, factor: float) -> Plan:
    values = original.values_in_order.copy()
    values[job] *= factor
    return replace(original, values_in_order=values)


def reverse_order(original: Plan) -> Plan:
    return replace(
        original,
        first_to_last=original.first_to_last[::-1],
        values_in_order=original.values_in_order[::-1],
    )


TAMPERINGS: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "a value too high": (lambda p: scale_value(p, 1, 1.001), "servers can earn"),
    "a negative value": (lambda p: scale_value(p, 1, -1), "at least 0"),
    "an undefined value": (lambda p: scale_value(p, 1, float("nan")), "must be finite"),
    "an invalid order": (
        lambda p: replace(p, first_to_last=np.zeros(4, dtype=int)),
        "does not contain each job once",
    ),
    "a wrong order": (reverse_order, "do not end in the order"),
    "times too early": (
        lambda p: replace(p, completion_times=p.completion_times * 0.99),
        "ends at",
    ),
    "times too late": (lambda p: replace(p, completion_times=p.completion_times * 1.01), "ends at"),
    "undefined times": (
        lambda p: replace(p, completion_times=p.completion_times * np.nan),
        "each completion time must be finite",
    ),
    "too many servers": (lambda p: with_timeline(p, lambda n: n + 1), "of 10.0"),
    "negative servers": (lambda p: with_timeline(p, lambda n: n - 9), "holds -"),
    "too little work": (lambda p: with_timeline(p, lambda n: n * 0.5), "units of work"),
}


@pytest.mark.parametrize("speedup", [PowerLaw(0.5), Amdahl(0.9)], ids=str)
@pytest.mark.parametrize(("tamper", "message"), TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_tampered_plan_is_rejected(
    speedup: Speedup, tamper: Callable[[Plan], Plan], message: str
) -> None:
    original = plan(Workload(SIZES, speedup), 10)
    assert verify(original) < 1e-12
    with pytest.raises(CertificateError, match=message):
        verify(tamper(original))


def test_fractions_of_servers_are_rejected_in_a_whole_plan() -> None:
    original = plan(Workload(SIZES, PowerLaw(0.5)), 10, whole=True)
    with pytest.raises(CertificateError, match="fractions of servers"):
        verify(with_timeline(original, lambda n: n * 0.99))


@pytest.mark.parametrize("speedup", [PowerLaw(0.5), Amdahl(0.9)], ids=str)
def test_lower_values_prove_less(speedup: Speedup) -> None:
    weaker = scale_value(plan(Workload(SIZES, speedup), 10), 1, 0.99)
    assert verify(weaker) > 1e-4
    assert not weaker.certificate.proven
    assert weaker.certificate.certified_gap == weaker.certificate.gap


def test_order_of_jobs_with_their_own_speedups_must_be_that_of_their_ends() -> None:
    mixed = plan(Workload(SIZES, [PowerLaw(0.2), PowerLaw(0.9), Amdahl(0.9), MEASURED]), 10)
    verify(mixed)
    assert not mixed.certificate.proven
    with pytest.raises(CertificateError, match="do not end in the order"):
        verify(reverse_order(mixed))


@pytest.mark.parametrize("whole", [False, True])
def test_wrong_bound_on_the_makespan_is_rejected(whole: bool) -> None:
    original = plan(Workload(SIZES, PowerLaw(0.5)), 10, objective="makespan", whole=whole)
    verify(original)
    with pytest.raises(CertificateError, match="more than the cost of 1"):
        verify(scale_value(original, 0, 1.5))
    weaker = scale_value(original, 0, 0.5)
    verify(weaker)
    assert not weaker.certificate.proven


@pytest.mark.parametrize("objective", ["flow", "slowdown", "makespan"])
def test_large_plan_is_verified(objective: Objective) -> None:
    sizes = np.random.default_rng(0).pareto(1.5, 30_000) + 1
    assert verify(plan(Workload(sizes, PowerLaw(0.3)), 1000, objective=objective)) < 1e-9


def test_tampered_large_plan_is_rejected() -> None:
    sizes = np.random.default_rng(0).pareto(1.5, 30_000) + 1
    original = plan(Workload(sizes, PowerLaw(0.3)), 1000)
    with pytest.raises(CertificateError, match="differ from the ends"):
        verify(replace(original, completion_times=original.completion_times * 0.999))
    with pytest.raises(CertificateError, match="servers can earn"):
        verify(scale_value(original, 15_000, 1.1))
    # Delay one job as much as another is advanced.
    times, ends = original.completion_times.copy(), original.timeline.ends.copy()
    order = original.first_to_last
    shift = 0.4 * (ends[20_001] - ends[20_000])
    for place, sign in ((20_000, 1), (20_002, -1)):
        ends[place] += sign * shift
        times[order[place]] = ends[place]
    shifted = replace(original, timeline=copy(original.timeline), completion_times=times)
    shifted.timeline.ends = ends
    with pytest.raises(CertificateError, match="units of work"):
        verify(shifted)


class WrongDemand(Amdahl):
    """A speedup with a wrong demand. Neither plans nor proofs use it."""

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        return np.where(price > 0, 0.7, 1.0) * super().demand(price, max_servers)


def test_wrong_demand_does_not_matter() -> None:
    assert verify(plan(Workload(SIZES, WrongDemand(0.9)), 10)) < 1e-8


class ExclusiveDemand(Speedup):
    """log(1 + k), inexact near 0, with a demand that is 0 for all but the most valuable job."""

    def rate(self, servers: FloatArray) -> FloatArray:
        return np.log(1 + servers)

    def slope(self, servers: FloatArray) -> FloatArray:
        return 1 / (1 + servers)

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        demand = np.clip(1 / np.maximum(price, 1e-300) - 1, 0, max_servers)
        return np.where(price <= np.min(price, initial=np.inf), demand, 0.0)

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        return np.expm1(rate)


def test_forged_proof_for_shortest_first_is_rejected() -> None:
    """The timeline of SRPT, with values that would prove it if other jobs could earn nothing."""
    sizes = np.array([3.0, 2.0, 1.0])
    speed = float(np.log(11.0))
    ends = np.cumsum(sizes[::-1]) / speed
    original = plan(Workload(sizes, np.log1p), 10)

    class OneByOne(Timeline):
        def servers(self, phase: int) -> FloatArray:
            return np.where(np.arange(3) == 2 - phase, 10.0, 0.0)

    timeline = OneByOne()
    timeline.ends = ends
    values = np.array([3.0, 2.0, 1.0]) / speed
    cost = float(ends.sum())
    forged = replace(
        original,
        workload=Workload(sizes, ExclusiveDemand()),
        completion_times=ends[::-1].copy(),
        timeline=timeline,
        values_in_order=values,
    )
    assert forged.certificate.proven
    assert cost > original.total_flow_time * 1.05
    with pytest.raises(CertificateError, match="servers can earn"):
        verify(forged)


class FasterPowerLaw(PowerLaw):
    """k^0.9, whatever p is."""

    def rate(self, servers: FloatArray) -> FloatArray:
        return servers**0.9


def test_power_law_with_other_rates_is_no_power_law() -> None:
    """A plan for k^0.5, executed on fewer servers, once was proven for a speedup of k^0.9."""
    original = plan(Workload(SIZES, PowerLaw(0.5)), 10)

    class FewerServers(Timeline):
        def servers(self, phase: int) -> FloatArray:
            return original.timeline.servers(phase) ** (0.5 / 0.9)

    timeline = FewerServers()
    timeline.ends = original.timeline.ends
    forged = replace(original, workload=Workload(SIZES, FasterPowerLaw(0.5)), timeline=timeline)
    assert forged.certificate.proven
    with pytest.raises(CertificateError, match="servers can earn"):
        verify(forged)


class FasterMeasured(Measured):
    """Faster between two measured points than the line that connects them."""

    def rate(self, servers: FloatArray) -> FloatArray:
        return super().rate(servers) + 0.15 * np.maximum((servers - 2) * (4 - servers), 0.0)


def test_subclass_is_known_by_its_own_rates() -> None:
    speedup = FasterMeasured([1, 2, 4], [1, 1.8, 2.5])
    found = plan(Workload(SIZES, speedup), 4)
    assert verify(found) < 1e-6
    function = plan(Workload(SIZES, lambda servers: speedup.rate(servers)), 4)
    assert found.total_flow_time == pytest.approx(function.total_flow_time, rel=1e-6)


def test_completion_time_cannot_be_masked() -> None:
    """Whatever is masked is in no sum and in no comparison."""
    original = plan(Workload(SIZES, Amdahl(0.9)), 10)
    equal = simulate(original.workload, 10, policy="equi")
    times = np.ma.array(equal.completion_times, mask=equal.completion_times == equal.makespan)
    forged = replace(
        original,
        completion_times=times,
        timeline=equal.timeline,
        first_to_last=np.argsort(equal.completion_times),
        values_in_order=original.values_in_order * (times.sum() / original.cost),
    )
    assert forged.certificate.proven
    with pytest.raises(CertificateError, match="the completion times must be an array of numbers"):
        verify(forged)


def test_unknown_objective_is_rejected() -> None:
    original = plan(Workload(SIZES, PowerLaw(0.5)), 10)
    with pytest.raises(CertificateError, match="unknown objective 'fun'"):
        verify(replace(original, objective="fun"))  # type: ignore[arg-type]


def test_later_arrivals_are_rejected() -> None:
    original = plan(Workload(SIZES, PowerLaw(0.5)), 10)
    later = Workload(SIZES, PowerLaw(0.5), arrivals=[0, 0, 0, 1])
    with pytest.raises(CertificateError, match="must be present at time 0"):
        verify(replace(original, workload=later))
