"""Items that need GPUs, memory and the like: events in, exact lists of commands out."""

from __future__ import annotations

import pytest
from support.core_jobs import bag, command, count_servers

from hesrpt import InputError
from hesrpt.decisions.active_job import ResourceStock, to_parts
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    Continue,
    Finish,
    ItemFailed,
    ItemsFinished,
    JobArrived,
    JobCancelled,
    JobSteered,
    Start,
    Stop,
    Suspend,
    Tick,
)
from hesrpt.jobs.item_resources import check_resources, describe_shortage
from hesrpt.jobs.job_end import STOPPED
from hesrpt.jobs.job_spec import JobSpec

GPU = {"gpu": 1.0}


def test_items_get_gpus_of_their_own_and_servers_go_to_jobs_that_can_use_them() -> None:
    core = Core(4, "equi", resources={"gpu": 2})
    first = core.handle(
        JobArrived(0, bag("gpu", 9, 90, resources=GPU)), JobArrived(0, bag("plain", 9, 90))
    )
    assert first == [
        Start("gpu", 0, gpus=(0,)),
        Start("gpu", 1, gpus=(1,)),
        Start("plain", 0),
        Start("plain", 1),
    ]
    assert core.handle(ItemsFinished(5, "gpu", (0,), (5.0,))) == [Start("gpu", 2, gpus=(0,))]
    assert core.handle(JobArrived(6, bag("other", 9, 90, resources=GPU))) == []
    # Two jobs share the GPUs, and the third has the other servers.
    assert count_servers(core) == {"gpu": (1, 2), "plain": (2, 2), "other": (1, 0)}
    assert core.handle(ItemsFinished(7, "gpu", (1,), (7.0,))) == [Start("other", 0, gpus=(1,))]


def test_servers_are_not_planned_for_jobs_without_resources() -> None:
    core = Core(8, "equi", resources={"gpu": 1})
    core.handle(
        JobArrived(0, bag("a", 9, 90, resources=GPU)),
        JobArrived(0, bag("b", 9, 90, resources=GPU)),
        JobArrived(0, bag("c", 20, 90)),
    )
    planned = {name: planned for name, (planned, _) in count_servers(core).items()}
    assert planned == {"a": 1, "b": 0, "c": 7}


def test_commands_hold_their_resources_until_they_end() -> None:
    core = Core(4, "fifo", resources={"gpu": 2, "memory": 10e9})
    needs = {"gpu": 1.0, "memory": 6e9}
    first = core.handle(
        JobArrived(0, command("a", resize="never", max_servers=1, resources=needs)),
        JobArrived(0, command("b", resize="never", max_servers=1, resources=needs)),
        JobArrived(0, command("c", resize="never", max_servers=1, resources=GPU)),
    )
    assert first == [Start("a", 0, 1, gpus=(0,)), Start("c", 0, 1, gpus=(1,))]
    assert core.stock.describe() == {"gpu": (2.0, 0.0), "memory": (10e9, 4e9)}
    assert core.handle(ItemsFinished(9, "a", (0,), (9.0,))) == [
        Finish("a"),
        Start("b", 0, 1, gpus=(0,)),
    ]


def test_suspended_command_keeps_its_resources_and_a_stopped_one_does_not() -> None:
    core = Core(2, "fifo", resources={"gpu": 1})
    core.handle(
        JobArrived(0, command("a", resize="never", max_servers=1, resources=GPU)),
        JobArrived(0, bag("b", 4, 8, resources=GPU)),
    )
    assert core.handle(JobSteered(1, "a", is_paused=True)) == [Suspend("a", 0)]
    assert core.handle(Tick(5)) == []
    assert core.handle(JobSteered(6, "a", is_paused=False)) == [Continue("a", 0, 1)]
    assert core.handle(JobCancelled(7, "a")) == [
        Stop("a", 0),
        Finish("a", STOPPED),
        Start("b", 0, gpus=(0,)),
    ]


def test_batch_needs_the_resources_of_one_item() -> None:
    core = Core(2, "equi", batch_seconds=1.0, resources={"gpu": 1})
    core.handle(JobArrived(0, bag("a", 100, resources=GPU)))
    assert core.handle(ItemsFinished(0.1, "a", (0,), (0.1,))) == [
        Start("a", 1, next_items=tuple(range(2, 11)), gpus=(0,))
    ]


def test_failed_item_gives_back_what_it_held() -> None:
    core = Core(1, "equi", resources={"gpu": 1})
    core.handle(JobArrived(0, bag("a", 1, 1, retries=1, resources=GPU)))
    assert core.handle(ItemFailed(1, "a", 0, "no")) == [Start("a", 0, gpus=(0,))]


def test_job_that_needs_two_gpus_is_not_kept_waiting_by_a_stream_of_others() -> None:
    core = Core(8, "equi", resources={"gpu": 2})
    core.handle(JobArrived(0, bag("small 0", 1, 10, resources=GPU)))
    core.handle(JobArrived(0, bag("small 1", 1, 10, resources=GPU)))
    core.handle(JobArrived(0, bag("large", 2, 20, resources={"gpu": 2.0})))
    running = ["small 0", "small 1"]
    for second in range(1, 200):
        # Whenever one ends, the next one is there already.
        core.handle(JobArrived(second, bag(f"small {second + 1}", 1, 10, resources=GPU)))
        started = core.handle(ItemsFinished(second, running.pop(0), (0,), (1.0,)))
        running += [each.job for each in started if isinstance(each, Start)]
        if "large" in running:
            break
        if not running:
            break
    assert "large" in running
    assert second < 60


def test_job_of_unknown_size_does_not_wait_long_for_a_gpu() -> None:
    core = Core(4, "equi", resources={"gpu": 1})
    core.handle(JobArrived(0, bag("long", 500, 5000, resources=GPU)))
    unknown = JobSpec(name="unknown", resize="never", max_servers=1, resources=GPU)
    assert core.handle(JobArrived(1, unknown)) == []
    for second in range(2, 50):
        started = core.handle(ItemsFinished(second, "long", (second - 2,), (1.0,)))
        if started == [Start("unknown", 0, 1, gpus=(0,))]:
            break
        assert started == [Start("long", second - 1, gpus=(0,))]
    assert second < 20


def test_policy_decides_who_gets_a_gpu_first() -> None:
    core = Core(4, "srpt", resources={"gpu": 1})
    started = core.handle(
        JobArrived(0, bag("large", 1, 50, resources=GPU)),
        JobArrived(0, bag("small", 1, 5, resources=GPU)),
        JobArrived(0, bag("middle", 1, 20, resources=GPU)),
    )
    assert started == [Start("small", 0, gpus=(0,))]
    ended = core.handle(ItemsFinished(5, "small", (0,), (5.0,)))
    assert ended == [Finish("small"), Start("middle", 0, gpus=(0,))]


def test_long_queue_for_gpus_keeps_no_others_waiting() -> None:
    core = Core(4, "srpt", resources={"gpu": 1})
    queue = [bag(f"gpu {n}", 1, 40 + n / 1000, resources=GPU) for n in range(300)]
    core.handle(*(JobArrived(0, spec) for spec in queue))
    started = core.handle(*(JobArrived(1, bag(f"plain {n}", 1, 50)) for n in range(300)))
    assert [each.job for each in started if isinstance(each, Start)] == [
        "plain 0",
        "plain 1",
        "plain 2",
    ]
    ended = core.handle(ItemsFinished(2, "gpu 0", (0,), (1.0,)))
    assert ended == [Finish("gpu 0"), Start("gpu 1", 0, gpus=(0,))]
    for n in range(200):
        ended = core.handle(ItemsFinished(3 + n, f"plain {n}", (0,), (1.0,)))
        assert [type(each) for each in ended] == [Finish, Start]


def test_amounts_add_up_after_many_changes() -> None:
    stock = ResourceStock({"licence": 1.0})
    need = to_parts({"licence": 0.1})
    for _ in range(1000):
        for _ in range(10):
            stock.take(need)
        assert not stock.can_take(need)
        for _ in range(10):
            stock.give_back(need, ())
    assert stock.describe() == {"licence": (1.0, 1.0)}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"gpu": 0.5}, "resources must have whole gpus, got 0.5"),
        ({"gpu": -1}, "resources must have a number of at least 0 for gpu"),
        ({"memory": "lots"}, "resources must have a number of at least 0 for memory"),
        ({"gpu": True}, "resources must have a number of at least 0 for gpu"),
        ({"a b": 1}, "resources must have names of kinds such as gpu, got 'a b'"),
        ([1], "resources must be a table such as"),
    ],
)
def test_wrong_resources_are_refused(given: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        check_resources(given)


def test_shortage_is_described() -> None:
    free = {"gpu": 0.0, "memory": 1e9}
    text = describe_shortage({"gpu": 1, "memory": 4e9, "licence": 1}, free, "free")
    assert text == "needs 1 gpu, 0 free; needs 4 GB memory, 1 GB free; needs 1 licence, 0 free"
