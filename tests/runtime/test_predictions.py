"""How other policies would have done, by simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hesrpt import PowerLaw, Workload, simulate
from hesrpt.runtime.jobs import JobSpec
from hesrpt.runtime.predictions import (
    simulate_alternatives,
    simulate_flow_times,
)
from hesrpt.runtime.storage.journal_entries import JobRecord

HALF = PowerLaw(0.5)


def create_record(name: str, size: float, arrived: float = 0.0, done: int = 100) -> JobRecord:
    return JobRecord(
        spec=JobSpec(name=name),
        number=1,
        arrived=arrived,
        ended=arrived + size,
        done=done,
        size=size,
        speedup=HALF,
    )


@pytest.mark.parametrize("policy", ["fifo", "equi", "hesrpt"])
def test_simulated_commands_on_one_server_run_side_by_side(policy: str) -> None:
    records = [_record_command(name, max_servers=1) for name in "abcd"]
    assert simulate_flow_times(records, 4, policy) == pytest.approx([3.0] * 4)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fifo", [3 / 2**0.5, 3.0, 3.0, 3 + 3 / 2**0.5]),
        ("equi", [3 + 3 / 2**0.5, 3.0, 3.0, 3.0]),  # one server each is too few for the first
    ],
)
def test_simulated_command_has_its_fewest_servers_or_none(
    policy: str, expected: list[float]
) -> None:
    pair = _record_command("a", min_servers=2, max_servers=2)
    others = [_record_command(name, max_servers=1) for name in "bcd"]
    assert simulate_flow_times([pair, *others], 4, policy) == pytest.approx(expected)


def _record_command(name: str, **limits: int) -> JobRecord:
    spec = JobSpec(name=name, resize="never", **limits)  # type: ignore[arg-type]
    return replace(create_record(name, 3.0, done=1), spec=spec)


def test_other_policies_are_simulated_on_the_measured_work() -> None:
    records = [create_record("large", 90.0), create_record("small", 10.0)]
    workload = Workload([90, 10], HALF)
    for policy in ("fifo", "equi", "hesrpt"):
        expected = simulate(workload, 4, policy, whole=True).flow_times
        assert simulate_flow_times(records, 4, policy) == pytest.approx(expected)
    fifo = simulate(workload, 4, "fifo", whole=True).mean_flow_time
    assert simulate_alternatives(records, 4, 0.0)["fifo"] == pytest.approx(fifo)


def test_no_policy_starts_before_the_first_server_was_up() -> None:
    records = [create_record("a", 10.0, arrived=1.0)]
    assert simulate_flow_times(records, 4, "fifo", first_start=3.0) == pytest.approx([2 + 5.0])


def test_simulated_bag_uses_at_most_one_server_per_item() -> None:
    assert simulate_flow_times([create_record("a", 10.0, done=1)], 4, "fifo") == pytest.approx(
        [10.0]
    )
