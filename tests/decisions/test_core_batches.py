"""The scheduler's decisions on a cluster, in batches, and for executors."""

from __future__ import annotations

from support.core_jobs import HALF, bag, fail, starts

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
    JobArrived,
    JobCancelled,
    Start,
    Stop,
)
from hesrpt.jobs.job_end import STOPPED
from hesrpt.jobs.job_spec import JobSpec


def test_lost_item_is_retried_ten_times() -> None:
    core = Core(2)
    assert core.handle(JobArrived(0, bag("a", 3, 300, retries=0))) == starts("a", 0, 1)
    for time in range(10):
        assert core.handle(ItemLost(time, "a", 1)) == starts("a", 1)
    # A loss does not count if the item had not started.
    assert core.handle(ItemLost(10, "a", 1, was_started=False)) == starts("a", 1)
    error = "item 1: its server was lost 11 times"
    commands = core.handle(ItemLost(11, "a", 1))
    assert commands == [
        Drop("a", 1, error, losses=11),
        Stop("a", 0),
        fail("a", error),
    ]


def test_short_items_are_batched_when_starting_is_slow() -> None:
    core = Core(2, batch_seconds=0.1)
    assert core.handle(JobArrived(0, bag("a", 1000))) == starts("a", 0, 1)  # nothing is known yet
    first, queued, _ = core.handle(ItemsFinished(0.01, "a", (0,), (0.01,)))
    assert first == Start("a", 2, next_items=tuple(range(3, 12)))
    # This batch is queued for whichever server is free next, and another one after it.
    assert queued == Start("a", 12, next_items=tuple(range(13, 22)))
    job = core.jobs["a"]
    assert (job.observed, len(job.in_flight)) == (2, 31)
    # The server of item 1 takes the queued batch, and another batch is queued.
    assert core.handle(ItemsFinished(0.02, "a", (1,), (0.01,))) == [
        Start("a", 32, next_items=tuple(range(33, 42)))
    ]
    assert job.in_flight[12].servers == 1
    # Items that were lost run alone.
    lost = core.handle(*(ItemLost(0.1, "a", item) for item in (2, 3)))
    assert all(isinstance(start, Start) and start.next_items == () for start in lost)
    assert {start.item for start in lost if isinstance(start, Start)} <= {2, 3}


def test_batches_shrink_towards_the_end() -> None:
    core = Core(4, batch_seconds=0.1)
    core.handle(JobArrived(0, bag("a", 400)))
    running, sizes, time = [0, 1, 2, 3], [], 0.0
    while running:
        time += 0.01
        commands = core.handle(*(ItemsFinished(time, "a", (item,), (0.001,)) for item in running))
        batches = [command.items for command in commands if isinstance(command, Start)]
        sizes += [len(batch) for batch in batches]
        running = [item for batch in batches for item in batch]
    assert sum(sizes) == 396
    assert max(sizes) == 49  # half of the waiting items, divided among four servers
    assert sizes[-1] <= 10  # but not shorter than a tenth of the usual 100 items
    assert core.jobs == {}


def test_command_is_no_wider_than_a_node() -> None:
    core = Core(0)
    job = JobSpec(name="a", items=1, size=1e6, speedup=HALF, resize="never")
    core.handle(CapacityChanged(0, 12, max_width=4))
    assert core.handle(JobArrived(0, job)) == [Start("a", 0, 4)]
    assert core.handle(JobArrived(1, bag("b", 20, 20))) == starts("b", *range(8))
    # Its node dies: the command restarts on another node.
    commands = core.handle(ItemLost(2, "a", 0), CapacityChanged(2, 10, max_width=2))
    assert commands == [Start("a", 0, 2)]


def test_failed_call_is_dropped_and_others_continue() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", None, is_executor=True, is_streamed=True, retries=0)))
    assert core.jobs["a"].max_servers == 0  # no call has been submitted yet
    assert core.handle(ItemsRead(1, "a", 3)) == starts("a", 0, 1)
    assert core.handle(ItemFailed(2, "a", 0, "crash")) == [Drop("a", 0, "crash"), Start("a", 2)]
    assert (
        core.handle(ItemsFinished(3, "a", (1,), (1.0,)), ItemsFinished(3, "a", (2,), (1.0,))) == []
    )
    assert "a" in core.jobs  # more calls may be submitted
    assert core.handle(ItemsExhausted(4, "a", 3)) == [Finish("a")]


def test_executor_gets_servers_for_its_waiting_calls() -> None:
    core = Core(4)
    core.handle(JobArrived(0, bag("calls", None, is_executor=True, is_streamed=True)))
    core.handle(JobArrived(0, bag("bag", 40, 40)))
    core.handle(ItemsRead(1, "calls", 4), ItemsFinished(1, "bag", (0,), (1.0,)))
    assert core.jobs["calls"].remaining_items == 4
    assert core.jobs["calls"].planned > core.jobs["bag"].planned


def test_items_that_were_given_back_go_in_batches_again() -> None:
    core = Core(1, batch_seconds=0.1)
    core.handle(JobArrived(0, bag("a", 1000)))
    batch, queued = core.handle(ItemsFinished(0.01, "a", (0,), (0.01,)))
    assert (batch, queued) == (
        Start("a", 1, next_items=tuple(range(2, 11))),
        Start("a", 11, next_items=tuple(range(12, 21))),
    )
    # The server is lost while item 3 runs: it goes alone, and the others together.
    core.handle(ItemsFinished(0.02, "a", range(1, 3), (0.01, 0.01)))
    lost = [ItemLost(0.03, "a", item, was_started=item == 3) for item in range(3, 21)]
    assert core.handle(*lost) == [Start("a", 3), Start("a", 4, next_items=tuple(range(5, 14)))]
    assert core.handle(ItemsFinished(0.04, "a", (3,), (0.01,))) == [
        Start("a", 14, next_items=tuple(range(15, 24)))
    ]


def test_batches_are_stopped_as_a_whole() -> None:
    core = Core(1, batch_seconds=0.1)
    core.handle(JobArrived(0, bag("a", 1000)))
    core.handle(ItemsFinished(0.01, "a", (0,), (0.01,)))
    core.handle(ItemsFinished(0.02, "a", range(1, 3), (0.01, 0.01)))
    assert core.handle(JobCancelled(0.03, "a")) == [
        Stop("a", 3, next_items=tuple(range(4, 11))),
        Stop("a", 11, next_items=tuple(range(12, 21))),
        Finish("a", STOPPED),
    ]


def test_items_that_were_given_back_can_start_again_before_others_are_read() -> None:
    core = Core(1)
    core.handle(JobArrived(0, bag("a", None, is_streamed=True)))
    assert core.handle(ItemsRead(1, "a", 1)) == starts("a", 0)
    assert core.handle(ItemLost(2, "a", 0, was_started=False)) == starts("a", 0)
