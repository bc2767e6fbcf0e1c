"""Jobs that say how many servers they may have: the scheduler's decisions."""

from __future__ import annotations

import pytest
from support.core_jobs import bag, command, count_servers, starts

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    CapacityChanged,
    Finish,
    ItemLost,
    ItemsFinished,
    JobArrived,
    Resize,
    Start,
    Stop,
    Tick,
)
from hesrpt.jobs.job_spec import JobSpec

POLICIES = ["adaptive", "hesrpt", "equi", "srpt", "fifo", "optimal"]


@pytest.mark.parametrize("policy", POLICIES)
def test_commands_on_one_server_run_side_by_side(policy: str) -> None:
    core = Core(4, policy)
    jobs = [JobSpec(name=name, resize="never", max_servers=1) for name in "abcd"]
    commands = core.handle(*(JobArrived(0, job) for job in jobs))
    assert commands == [Start(name, 0, 1) for name in "abcd"]


def test_limits_hold_for_many_jobs_too() -> None:
    core = Core(8)
    jobs = [JobSpec(name=f"c{n}", resize="never", max_servers=2) for n in range(120)]
    core.handle(*(JobArrived(0, job) for job in jobs))
    assert core.tally.observed == 8
    assert max(job.observed for job in core.jobs.values()) <= 2


@pytest.mark.parametrize("policy", POLICIES)
def test_job_never_has_more_than_its_most_servers(policy: str) -> None:
    core = Core(8, policy)
    core.handle(JobArrived(0, bag("few", 50, 50, max_servers=3)))
    assert count_servers(core) == {"few": (3, 3)}
    core.handle(JobArrived(0, bag("many", 99, 99)))
    assert count_servers(core)["many"] == (8 - core.jobs["few"].planned, 5)


def test_items_are_not_queued_beyond_the_limit() -> None:
    core = Core(3)
    core.handle(JobArrived(0, bag("few", 50, max_servers=1)), JobArrived(0, bag("many", 99)))
    time = 0.0
    for _ in range(60):
        time += 0.01
        job, item = next(
            (name, item)
            for name, active in core.jobs.items()
            for item, in_flight in active.in_flight.items()
            if in_flight.servers > 0
        )
        core.handle(ItemsFinished(time, job, (item,), (0.01,)))
        assert core.jobs["few"].observed <= 1


def test_command_waits_until_all_its_servers_are_free() -> None:
    core = Core(4)
    core.handle(JobArrived(0, bag("b", 8, 8000)))
    assert core.handle(JobArrived(1, command("c", resize="never", min_servers=3))) == []
    assert count_servers(core) == {"b": (1, 4), "c": (3, 0)}
    for item in range(2):
        assert core.handle(ItemsFinished(2, "b", (item,), (2.0,))) == []
    assert core.handle(ItemsFinished(3, "b", (2,), (2.0,))) == [Start("c", 0, 3)]


def test_other_jobs_use_servers_that_a_waiting_command_cannot() -> None:
    core = Core(4, "fifo")
    core.handle(JobArrived(0, _fixed("a", 3)))
    # Three servers are not free, and nobody else may have more than this one.
    assert core.handle(JobArrived(1, _fixed("b", 3)), JobArrived(1, bag("c", 9, 9))) == starts(
        "c", 0
    )
    assert core.handle(ItemsFinished(9, "a", (0,), (9.0,))) == [Finish("a"), Start("b", 0, 3)]


def _fixed(name: str, servers: int) -> JobSpec:
    return command(name, resize="never", min_servers=servers, max_servers=servers)


def test_bag_keeps_its_fewest_servers() -> None:
    core = Core(4, "srpt")
    core.handle(JobArrived(0, bag("small", 40, 4)), JobArrived(0, bag("large", 50, 500)))
    assert count_servers(core) == {"small": (4, 4), "large": (0, 0)}
    core = Core(4, "srpt")
    large = bag("large", 50, 500, min_servers=1)
    core.handle(JobArrived(0, bag("small", 40, 4)), JobArrived(0, large))
    assert count_servers(core) == {"small": (3, 3), "large": (1, 1)}


def test_command_with_affinity_shrinks_to_its_fewest_servers_only() -> None:
    core = Core(8, "srpt")
    assert core.handle(
        JobArrived(0, command("c", resize="affinity", min_servers=3, max_servers=6))
    ) == [Start("c", 0, 6)]
    commands = core.handle(JobArrived(1, bag("a", 50, 5)))
    assert commands == [Resize("c", 0, 3), *starts("a", *range(5))]


def test_command_that_restarts_has_its_fewest_servers_or_none() -> None:
    core = Core(8, "srpt")
    core.handle(JobArrived(0, command("c", resize="restart", min_servers=6, restart_cost=1.0)))
    assert core.handle(JobArrived(5, bag("a", 40, 40, max_servers=6))) == [
        Stop("c", 0),
        *starts("a", *range(6)),
    ]
    assert core.handle(Tick(9)) == []


def test_command_that_no_node_can_hold_waits_for_a_larger_one() -> None:
    core = Core(0)
    core.handle(CapacityChanged(0, 8, max_width=4))
    assert core.handle(JobArrived(0, _fixed("c", 6)), JobArrived(0, bag("b", 99, 99))) == starts(
        "b", *range(8)
    )
    assert core.jobs["c"].max_servers_later == 6  # what a cluster is asked for
    core.handle(CapacityChanged(1, 14, max_width=6))
    assert count_servers(core)["c"] == (6, 6)
    # Its node dies, and the others are too small.
    core.handle(ItemLost(2, "c", 0), CapacityChanged(2, 8, max_width=4))
    assert count_servers(core)["c"] == (0, 0)


@pytest.mark.parametrize("policy", ["adaptive", "hesrpt", "equi", "fifo", "optimal"])
def test_command_that_needs_all_servers_does_not_starve(policy: str) -> None:
    """Small jobs of two seconds keep arriving, one a second, so there are never four servers."""
    core = Core(4, policy)
    ends: dict[str, int] = {}
    core.handle(JobArrived(0, bag("s0", 1, 2)))
    core.handle(JobArrived(0, _fixed("wide", 4)))
    ends["s0"] = 2
    for second in range(1, 600):
        due = [name for name, end in ends.items() if end == second]
        events = [ItemsFinished(second, name, (0,), (2.0,)) for name in due]
        for each in core.handle(*events, JobArrived(second, bag(f"s{second}", 1, 2))):
            if isinstance(each, Start):
                if each.job == "wide":
                    assert core.tally.observed == 4
                    return
                ends[each.job] = second + 2
    pytest.fail("it never started")
