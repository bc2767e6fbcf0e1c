"""Predictions by simulation: when active jobs will end, and how other policies would have done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hesrpt import PowerLaw, Workload, simulate
from hesrpt.runtime.core import Core
from hesrpt.runtime.events import ItemFinished, JobArrived
from hesrpt.runtime.jobs import JobSpec
from hesrpt.runtime.predictions import (
    estimate_remaining_work,
    predict_ends,
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


def test_ends_of_active_jobs_are_predicted() -> None:
    core = Core(4)
    core.handle(
        JobArrived(0, JobSpec(name="large", items=100, size=100, speedup=HALF)),
        JobArrived(0, JobSpec(name="small", items=10, size=10, speedup=HALF)),
    )
    expected = simulate(Workload([100, 10], HALF), 4, "hesrpt", whole=True)
    large, small = expected.completion_times
    assert predict_ends(estimate_remaining_work(core, 0.0)) == pytest.approx(
        {"large": large, "small": small}
    )
    core.handle(ItemFinished(2.0, "small", 0, 1.0))
    assert predict_ends(estimate_remaining_work(core, 2.0))["small"] > 2.0


def test_predicted_job_uses_at_most_one_server_per_item() -> None:
    core = Core(16)
    core.handle(JobArrived(0, JobSpec(name="narrow", items=4, size=4, speedup=HALF)))
    assert predict_ends(estimate_remaining_work(core, 0.0)) == pytest.approx({"narrow": 4 / 4**0.5})


def test_predictions_respect_how_many_servers_jobs_may_have() -> None:
    core = Core(4)
    core.handle(
        JobArrived(0, JobSpec(name="a", size=16, speedup=HALF, resize="restart", max_servers=1)),
        JobArrived(0, JobSpec(name="b", size=20, speedup=HALF, resize="restart", min_servers=4)),
    )
    ends = predict_ends(estimate_remaining_work(core, 0.0))
    assert ends == pytest.approx({"a": 16.0, "b": 16 + 20 / 4**0.5})  # one after the other


def test_command_that_keeps_its_servers_is_predicted_to_keep_them() -> None:
    core = Core(4)
    core.handle(JobArrived(0, JobSpec(name="c", size=16, resize="never", speedup=HALF)))
    core.handle(JobArrived(1, JobSpec(name="b", items=4, size=4, speedup=HALF)))
    assert core.jobs["c"].observed == 4
    ends = predict_ends(estimate_remaining_work(core, 1.0))
    assert ends == pytest.approx({"c": 8.0, "b": 8 + 4 / 4**0.5})


def test_command_that_waits_for_a_larger_node_has_no_prediction() -> None:
    core = Core(4)
    core.handle(JobArrived(0, JobSpec(name="wide", resize="never", min_servers=5)))
    core.handle(JobArrived(0, JobSpec(name="b", items=4, size=4, speedup=HALF)))
    assert list(predict_ends(estimate_remaining_work(core, 0.0))) == ["b"]


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


def test_no_prediction_without_servers_or_for_too_many_jobs() -> None:
    core = Core(0)
    core.handle(JobArrived(0, JobSpec(name="a", items=4)))
    assert predict_ends(estimate_remaining_work(core, 0.0)) == {}
    core = Core(4)
    core.handle(*(JobArrived(0, JobSpec(name=str(job), items=1)) for job in range(201)))
    assert predict_ends(estimate_remaining_work(core, 0.0)) == {}


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
