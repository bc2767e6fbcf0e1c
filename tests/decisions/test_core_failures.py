"""What the scheduler decides when items fail: keep going, and retry them."""

from __future__ import annotations

from dataclasses import replace

from support.core_jobs import HALF, bag, command, fail, starts

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    CapacityChanged,
    Drop,
    Finish,
    ItemFailed,
    ItemLost,
    ItemsExhausted,
    ItemsFinished,
    ItemsRead,
    ItemsRetried,
    JobArrived,
    JobCancelled,
    Reopen,
    Start,
    Stop,
)
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_end import STOPPED, JobEnd
from hesrpt.jobs.job_spec import JobSpec

UNREADABLE = JobEnd("unreadable_items", "cannot read its items")


def test_other_items_go_on_and_the_job_fails_at_its_end() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", 4, 8, retries=0, on_error="keep")))
    commands = core.handle(ItemFailed(1, "a", 1, "item 1: boom"))
    assert commands == [Drop("a", 1, "item 1: boom"), Start("a", 2)]
    core.handle(ItemsFinished(2, "a", (2,), (1.0,)))
    core.handle(ItemFailed(3, "a", 3, "item 3: bang"))
    assert core.handle(ItemsFinished(4, "a", (0,), (1.0,))) == [
        fail("a", "2 of 4 items failed; the first: item 1: boom")
    ]
    assert core.jobs == {}


def test_single_failed_item_is_named_alone() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", 2, 8, retries=0, on_error="keep")))
    core.handle(ItemFailed(1, "a", 1, "item 1: boom"))
    (end,) = core.handle(ItemsFinished(2, "a", (0,), (1.0,)))
    assert end == fail("a", "1 of 2 items failed: item 1: boom")


def test_failed_command_that_keeps_going_has_the_error_of_its_item() -> None:
    core = Core(2)
    core.handle(JobArrived(0, command("c", resize="never", retries=0, on_error="keep")))
    *_, end = core.handle(ItemFailed(1, "c", 0, "item 0: exit code 3"))
    assert end == fail("c", "item 0: exit code 3")
    assert core.handle(ItemsRetried(2, "c")) == [Reopen("c"), Start("c", 0, 2)]


def test_failed_items_run_again_while_the_others_go_on() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", 4, 8, retries=0, on_error="keep")))
    core.handle(ItemFailed(1, "a", 1, "x"))
    assert core.handle(ItemsRetried(2, "a")) == [Reopen("a")]
    assert core.handle(ItemsFinished(3, "a", (0,), (1.0,))) == starts(
        "a", 1
    )  # before those to come
    core.handle(ItemsFinished(4, "a", (1,), (1.0,)), ItemsFinished(4, "a", (2,), (1.0,)))
    assert core.handle(ItemsFinished(5, "a", (3,), (1.0,))) == [Finish("a")]


def test_job_that_was_stopped_by_a_failure_continues_where_it_was() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", 5, 8, retries=0)))
    core.handle(ItemsFinished(1, "a", (0,), (1.0,)))
    commands = core.handle(ItemFailed(2, "a", 1, "x"))
    assert commands == [Drop("a", 1, "x"), Stop("a", 2), fail("a", "x")]
    assert core.handle(CapacityChanged(3, 4)) == []
    # What was stopped, what failed, and what never ran; but not what is done.
    assert core.handle(ItemsRetried(4, "a")) == [Reopen("a"), *starts("a", 2, 1, 3, 4)]
    for item in (1, 2, 3):
        core.handle(ItemsFinished(5, "a", (item,), (1.0,)))
    assert core.handle(ItemsFinished(6, "a", (4,), (1.0,))) == [Finish("a")]
    assert core.handle(ItemsRetried(7, "a")) == []  # nothing has failed


def test_item_that_ended_when_its_job_failed_does_not_run_again() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", 3, 8, retries=0)))
    core.handle(ItemFailed(1, "a", 0, "x"), ItemsFinished(1, "a", (1,), (1.0,)))
    assert core.handle(ItemsRetried(2, "a")) == [Reopen("a"), *starts("a", 0, 2)]


def test_retried_item_gets_all_its_attempts_again() -> None:
    core = Core(1)
    core.handle(JobArrived(0, bag("a", 1, 8, retries=1)))
    for time in (1, 3):
        assert core.handle(ItemFailed(time, "a", 0, "x")) == starts("a", 0)
        drop, end = core.handle(ItemFailed(time + 1, "a", 0, "x"))
        assert (drop, end) == (Drop("a", 0, "x"), fail("a", "x"))
        assert core.handle(ItemsRetried(time + 1, "a")) == [Reopen("a"), *starts("a", 0)]


def test_item_whose_servers_are_lost_again_and_again_is_dropped() -> None:
    core = Core(1)
    core.handle(JobArrived(0, bag("a", 2, 8, on_error="keep")))
    for time in range(10):
        assert core.handle(ItemLost(time, "a", 0)) == starts("a", 0)
    drop, start = core.handle(ItemLost(10, "a", 0))
    assert drop == Drop("a", 0, "item 0: its server was lost 11 times", losses=11)
    assert start == Start("a", 1)


def test_items_that_are_read_after_a_failure_are_there_when_it_is_retried() -> None:
    core = Core(2)
    spec = JobSpec(name="a", items=None, size=8, speedup=HALF, is_streamed=True, retries=0)
    core.handle(JobArrived(0, spec), ItemsRead(0, "a", 2))
    core.handle(ItemFailed(1, "a", 0, "x"))
    assert core.handle(ItemsRead(2, "a", 4), ItemsExhausted(2, "a", 4)) == []
    assert core.handle(ItemsRetried(3, "a")) == [Reopen("a"), *starts("a", 1, 0)]
    core.handle(ItemsFinished(4, "a", (0,), (1.0,)), ItemsFinished(4, "a", (1,), (1.0,)))
    assert set(core.jobs["a"].in_flight) == {2, 3}


def test_retried_job_ends_if_its_items_could_not_be_read_meanwhile() -> None:
    core = Core(2)
    spec = JobSpec(name="a", items=None, size=8, speedup=HALF, is_streamed=True, retries=0)
    core.handle(JobArrived(0, spec), ItemsRead(0, "a", 2))
    core.handle(ItemFailed(1, "a", 0, "x"))
    assert core.handle(JobCancelled(2, "a", UNREADABLE)) == []
    assert core.handle(ItemsRetried(3, "a")) == [
        Reopen("a"),
        Finish("a", UNREADABLE),
    ]
    assert not core.can_retry("a")


def test_command_goes_on_after_it_was_cancelled() -> None:
    core = Core(2)
    template = CommandTemplate(job="a", command=("true", "{item}"), items=tuple("wxyz"))
    spec = replace(bag("a", 4, 8, retries=0, on_error="keep"), command=template)
    core.handle(JobArrived(0, spec))
    core.handle(ItemFailed(1, "a", 0, "x"), ItemsFinished(1, "a", (1,), (1.0,)))
    assert core.handle(JobCancelled(2, "a"))[-1] == Finish("a", STOPPED)
    core.handle(
        JobCancelled(2, "a"), ItemsFinished(2, "a", (2,), (1.0,))
    )  # it could not be stopped
    assert core.handle(ItemsRetried(3, "a")) == [Reopen("a"), *starts("a", 3, 0)]
    core.handle(
        JobCancelled(4, "a"),
        ItemsFinished(4, "a", (3,), (1.0,)),
        ItemsFinished(4, "a", (0,), (1.0,)),
    )
    assert core.handle(ItemsRetried(5, "a")) == [Reopen("a"), Finish("a")]


def test_items_that_were_done_before_they_could_be_stopped_do_not_run_again() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", 6, 8, retries=0)))
    assert core.handle(ItemFailed(1, "a", 0, "x"))[-2:] == [
        Stop("a", 1),
        fail("a", "x"),
    ]
    core.handle(ItemsFinished(1, "a", (1,), (1.0,)))  # while the job has ended
    assert core.handle(ItemsRetried(2, "a")) == [Reopen("a"), *starts("a", 0, 2)]
    core.handle(ItemsFinished(3, "a", (2,), (1.0,)))
    assert core.handle(ItemFailed(4, "a", 0, "x"))[-2:] == [
        Stop("a", 3),
        fail("a", "x"),
    ]
    core.handle(ItemsRetried(5, "a"), ItemsFinished(5, "a", (3,), (1.0,)))  # while it is queued
    assert set(core.jobs["a"].in_flight) == {0, 4}
    assert core.jobs["a"].done_count == 3


def test_cancelled_job_cannot_be_retried() -> None:
    core = Core(1)
    core.handle(JobArrived(0, bag("a", 3, 8, retries=0, on_error="keep")))
    core.handle(ItemFailed(1, "a", 0, "x"))
    assert core.handle(JobCancelled(2, "a")) == [Stop("a", 1), Finish("a", STOPPED)]
    assert not core.can_retry("a")
    assert core.handle(ItemsRetried(3, "a")) == []
