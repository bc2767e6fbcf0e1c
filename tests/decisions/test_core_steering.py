"""Pausing, resuming and weighing jobs: events in, exact lists of commands out."""

from __future__ import annotations

import pytest
from support.core_jobs import bag, command, count_servers, starts

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    CapacityChanged,
    Continue,
    Finish,
    ItemLost,
    ItemsFinished,
    ItemsRead,
    JobArrived,
    JobCancelled,
    JobSteered,
    Resize,
    Start,
    Stop,
    Suspend,
    Tick,
)
from hesrpt.jobs.job_end import STOPPED


def test_paused_bag_starts_no_items_and_leaves_its_servers_to_others() -> None:
    core = Core(2, "srpt")
    core.handle(JobArrived(0, bag("small", 4, 40)), JobArrived(0, bag("large", 9, 900)))
    assert count_servers(core) == {"small": (2, 2), "large": (0, 0)}
    assert core.handle(JobSteered(1, "small", is_paused=True)) == []  # the items in flight go on
    assert core.jobs["small"].is_paused
    assert count_servers(core) == {"small": (0, 2), "large": (2, 0)}
    assert core.handle(ItemsFinished(2, "small", (0,), (2.0,))) == starts("large", 0)
    assert core.handle(ItemsFinished(3, "small", (1,), (3.0,))) == starts("large", 1)
    assert core.handle(Tick(60)) == []
    assert core.handle(JobSteered(61, "small", is_paused=False)) == []
    assert core.handle(ItemsFinished(62, "large", (0,), (60.0,))) == starts("small", 2)


def test_failed_items_of_a_paused_bag_wait() -> None:
    core = Core(1)
    core.handle(JobArrived(0, bag("a", 2, 20)))
    core.handle(JobSteered(0.5, "a", is_paused=True))
    assert core.handle(ItemLost(1, "a", 0)) == []
    assert core.handle(JobSteered(2, "a", is_paused=False)) == starts("a", 0)


def test_paused_bag_ends_with_its_last_item() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", 2, 20)))
    core.handle(JobSteered(0.5, "a", is_paused=True))
    assert core.handle(ItemsFinished(1, "a", (0,), (1.0,))) == []
    assert core.handle(ItemsFinished(1, "a", (1,), (1.0,))) == [Finish("a")]


def test_job_that_arrives_paused_waits() -> None:
    core = Core(2)
    paused = bag("a", None, is_paused=True, is_streamed=True)
    assert core.handle(JobArrived(0, paused), ItemsRead(1, "a", 1)) == []
    assert (core.jobs["a"].max_servers_later, core.jobs["a"].max_servers) == (0, 0)
    assert core.handle(JobSteered(2, "a", is_paused=False)) == starts("a", 0)


@pytest.mark.parametrize("resize", ["affinity", "never"])
def test_paused_command_is_suspended_and_goes_on(resize: str) -> None:
    core = Core(4)
    core.handle(JobArrived(0, command("a", resize=resize)))
    assert core.handle(JobSteered(10, "a", is_paused=True), JobArrived(10, bag("b", 2, 1))) == [
        Suspend("a", 0),
        *starts("b", 0, 1),
    ]
    assert count_servers(core) == {"a": (0, 0), "b": (2, 2)}
    assert core.handle(JobSteered(50, "a", is_paused=False)) == (
        [Continue("a", 0, 2)] if resize == "affinity" else []  # which needs four servers
    )
    core.handle(ItemsFinished(60, "b", (0,), (50.0,)))
    assert core.handle(ItemsFinished(60, "b", (1,), (50.0,))) == [
        Finish("b"),
        Resize("a", 0, 4) if resize == "affinity" else Continue("a", 0, 4),
    ]
    (in_flight,) = core.jobs["a"].in_flight.values()
    assert in_flight.measure_seconds(60) == (20 if resize == "affinity" else 10)
    assert core.handle(ItemsFinished(90, "a", (0,), (40.0,))) == [Finish("a")]


def test_paused_command_that_restarts_is_stopped() -> None:
    core = Core(4)
    core.handle(JobArrived(0, command("a", resize="restart")))
    assert core.handle(JobSteered(1, "a", is_paused=True)) == [Stop("a", 0)]
    assert core.jobs["a"].work_done == 2.0  # a second on four servers with p = 0.5
    assert core.handle(JobSteered(5, "a", is_paused=False)) == [Start("a", 0, 4)]


def test_suspended_commands_go_on_one_after_another_if_there_is_no_room_for_both() -> None:
    core = Core(4)
    first, second = (command(name, resize="never") for name in "ab")
    core.handle(JobArrived(0, first))
    core.handle(JobSteered(1, "a", is_paused=True))
    assert core.handle(JobArrived(1, second)) == [Start("b", 0, 4)]
    core.handle(JobSteered(2, "b", is_paused=True))
    assert core.handle(
        JobSteered(3, "b", is_paused=False), JobSteered(3, "a", is_paused=False)
    ) == [Continue("a", 0, 4)]
    assert core.handle(ItemsFinished(9, "a", (0,), (7.0,))) == [Finish("a"), Continue("b", 0, 4)]


def test_suspended_command_goes_on_when_servers_have_gone() -> None:
    core = Core(4)
    core.handle(JobArrived(0, command("a", resize="never")))
    core.handle(JobSteered(1, "a", is_paused=True))
    core.handle(CapacityChanged(2, 3))
    assert core.handle(JobSteered(3, "a", is_paused=False)) == [Continue("a", 0, 3)]


def test_suspended_command_can_be_cancelled_lost_and_finished() -> None:
    for resize in ("affinity", "never"):
        core = Core(4)
        for name in "abc":
            core.handle(JobArrived(0, command(name, resize=resize)))
            core.handle(JobSteered(1, name, is_paused=True))
        assert core.handle(JobCancelled(2, "a")) == [Stop("a", 0), Finish("a", STOPPED)]
        assert core.handle(ItemLost(2, "b", 0)) == []
        assert core.handle(JobSteered(3, "b", is_paused=False)) == [Start("b", 0, 4)]
        core.handle(ItemsFinished(4, "b", (0,), (1.0,)))
        # It had ended before the signal reached it.
        assert core.handle(ItemsFinished(5, "c", (0,), (1.0,))) == [Finish("c")]


def test_weight_changes_who_gets_servers() -> None:
    core = Core(4, "hesrpt-weighted")
    core.handle(JobArrived(0, bag("a", 90, 900)), JobArrived(0, bag("b", 90, 910)))
    before = core.jobs["a"].planned
    core.handle(JobSteered(1, "b", weight=100.0))
    assert core.jobs["b"].planned == 4 > before
    assert core.jobs["b"].spec.weight == 100.0


def test_events_of_ended_jobs_are_ignored() -> None:
    core = Core(1)
    assert (
        core.handle(
            JobSteered(0, "x", is_paused=True),
            JobSteered(0, "x", is_paused=False),
            JobSteered(0, "x", weight=2.0),
        )
        == []
    )
