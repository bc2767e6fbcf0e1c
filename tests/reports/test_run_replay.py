"""Replays of known work under each policy: ends that can be worked out by hand."""

from __future__ import annotations

import pytest

from hesrpt import PowerLaw, Workload, simulate
from hesrpt.jobs.job_spec import JobSpec, Prior
from hesrpt.reports.counterfactuals import Capacity, ReplayedJob, replay_run

LINEAR = PowerLaw(1 - 1e-12)
HALF = PowerLaw(0.5)
FOUR = [Capacity(0.0, 4)]


def bag(
    name: str, items: int, seconds: float = 1.0, speedup: PowerLaw = LINEAR, arrived: float = 0.0
) -> ReplayedJob:
    return ReplayedJob(
        spec=JobSpec(name=name, items=items, speedup=speedup, prior=Prior(item_seconds=seconds)),
        arrived=arrived,
        seconds=[seconds] * items,
        speedup=speedup,
    )


def command(name: str, size: float, **limits: int) -> ReplayedJob:
    spec = JobSpec(name=name, resize="never", size=size, speedup=HALF, **limits)  # type: ignore[arg-type]
    return ReplayedJob(spec=spec, arrived=0.0, seconds=[size], speedup=HALF)


def test_items_are_whole() -> None:
    assert replay_run([bag("a", 7)], FOUR, "fifo") == pytest.approx({"a": 2.0})  # not 7/4


def test_items_slow_each_other_down_as_long_as_they_run_together() -> None:
    """Four items at half speed end at 2 s; the fifth runs alone, at full speed."""
    assert replay_run([bag("a", 5, speedup=HALF)], FOUR, "fifo") == pytest.approx({"a": 3.0})


def test_fifo_and_short_jobs_first() -> None:
    jobs = [bag("long", 8, seconds=3.0), bag("short", 4)]
    assert replay_run(jobs, FOUR, "fifo") == pytest.approx({"long": 6.0, "short": 7.0})
    assert replay_run(jobs, FOUR, "hesrpt") == pytest.approx({"short": 1.0, "long": 7.0})
    ends = replay_run(jobs, FOUR, "equi")
    assert ends["short"] == pytest.approx(2.0)


@pytest.mark.parametrize("policy", ["hesrpt", "fifo", "equi"])
def test_replay_of_small_items_agrees_with_the_simulator(policy: str) -> None:
    """Two models that share no code: items in the core, and work that flows like water."""
    sizes = [60.0, 30.0, 12.0]
    jobs = [bag(str(size), int(size * 5), seconds=0.2, speedup=PowerLaw(0.8)) for size in sizes]
    ends = replay_run(jobs, FOUR, policy)
    expected = simulate(Workload(sizes, PowerLaw(0.8)), 4, policy, whole=True).completion_times
    assert [ends[str(size)] for size in sizes] == pytest.approx(expected, rel=0.03)


def test_arrivals_and_servers_that_come_and_go() -> None:
    jobs = [bag("a", 4, arrived=1.0)]
    servers = [Capacity(0.0, 1), Capacity(2.0, 3)]
    assert replay_run(jobs, servers, "fifo") == pytest.approx({"a": 3.0})
    assert replay_run(jobs, [Capacity(0.0, 0)], "fifo") == {}


@pytest.mark.parametrize("policy", ["fifo", "equi", "hesrpt"])
def test_commands_on_one_server_run_side_by_side(policy: str) -> None:
    jobs = [command(name, 3.0, max_servers=1) for name in "abcd"]
    assert replay_run(jobs, FOUR, policy) == pytest.approx(dict.fromkeys("abcd", 3.0))


def test_command_has_its_fewest_servers_or_none() -> None:
    jobs = [command("a", 3.0, min_servers=2, max_servers=2)]
    jobs += [command(name, 3.0, max_servers=1) for name in "bcd"]
    ends = replay_run(jobs, FOUR, "fifo")
    pair = 3 / 2**0.5
    assert ends == pytest.approx({"a": pair, "b": 3.0, "c": 3.0, "d": pair + 3.0})


def test_command_that_is_resized_goes_faster() -> None:
    """Half of the servers for 4 s, which is 4·√2 of the work, and then all of them."""
    spec = JobSpec(name="a", resize="affinity", size=16.0, speedup=HALF)
    resized = ReplayedJob(spec=spec, arrived=0.0, seconds=[16.0], speedup=HALF)
    ends = replay_run([resized], [Capacity(0.0, 2), Capacity(4.0, 4)], "equi")
    assert ends == pytest.approx({"a": 4 + (16 - 4 * 2**0.5) / 2})


def test_items_that_wait_in_the_engine_take_over_servers() -> None:
    """Items are so short that the core gives the engine one more than there are servers."""
    assert replay_run([bag("a", 40, seconds=0.01)], FOUR, "fifo") == pytest.approx({"a": 0.1})
