"""The scheduler's decisions: events in, exact lists of commands out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.core_jobs import HALF, bag, command, count_servers, fail, starts

from hesrpt import InputError
from hesrpt.arrays import FloatArray
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    CapacityChanged,
    Drop,
    Finish,
    ItemFailed,
    ItemsExhausted,
    ItemsFinished,
    ItemsRead,
    JobArrived,
    JobCancelled,
    Resize,
    Start,
    Stop,
    Tick,
)
from hesrpt.decisions.learning import ItemDurations
from hesrpt.jobs.job_end import STOPPED
from hesrpt.jobs.job_spec import PRIOR_P, JobSpec
from hesrpt.policies import State


def test_single_job_gets_all_servers_and_ends() -> None:
    core = Core(2)
    assert core.handle(JobArrived(0, bag("a", 3, 300))) == starts("a", 0, 1)
    assert core.handle(ItemsFinished(100, "a", (1,), (100.0,))) == starts("a", 2)
    assert core.handle(ItemsFinished(101, "a", (0,), (101.0,))) == []
    assert core.handle(ItemsFinished(200, "a", (2,), (99.0,))) == [Finish("a")]
    assert core.jobs == {}


def test_jobs_that_arrive_together_are_planned_together() -> None:
    # Two equal jobs, ten servers, p = 0.5: 7.5 and 2.5, in whole servers 7 and 3 (or 8 and 2).
    core = Core(10)
    commands = core.handle(JobArrived(0, bag("a", 50, 500)), JobArrived(0, bag("b", 50, 500)))
    assert len(commands) == 10
    assert sorted(planned for planned, _ in count_servers(core).values()) in ([2, 8], [3, 7])
    assert all(planned == observed for planned, observed in count_servers(core).values())


def test_job_whose_items_are_read_slowly_leaves_servers_to_others() -> None:
    core = Core(2, policy="srpt")
    slow = bag("slow", 3, 3, is_streamed=True)
    assert core.handle(JobArrived(0, slow), JobArrived(0, bag("large", 9, 90))) == starts(
        "large", 0, 1
    )
    # Once an item has been read, the smaller job gets the next server that becomes free.
    assert core.handle(ItemsRead(1, "slow", 1)) == []
    assert core.handle(ItemsFinished(10, "large", (0,), (10.0,))) == starts("slow", 0)
    assert core.handle(ItemsFinished(11, "slow", (0,), (1.0,))) == starts("large", 2)


def test_smaller_job_gets_servers_only_as_items_end() -> None:
    core = Core(4)
    assert core.handle(JobArrived(0, bag("large", 100, 1000))) == starts("large", 0, 1, 2, 3)
    assert core.handle(JobArrived(1, bag("small", 10, 10))) == []
    planned = core.jobs["small"].planned
    assert count_servers(core) == {"large": (4 - planned, 4), "small": (planned, 0)}
    for item in range(planned):
        assert core.handle(ItemsFinished(1.5, "large", (item,), (10.0,))) == starts("small", item)
    assert count_servers(core) == {"large": (4 - planned, 4 - planned), "small": (planned, planned)}


def test_servers_a_job_cannot_use_go_to_others() -> None:
    core = Core(8)
    core.handle(JobArrived(0, bag("tiny", 2, 2)), JobArrived(0, bag("large", 100, 1000)))
    assert count_servers(core) == {"tiny": (2, 2), "large": (6, 6)}
    core.handle(ItemsFinished(1, "tiny", (0,), (1.0,)))
    assert count_servers(core) == {"tiny": (1, 1), "large": (7, 7)}


def test_planned_requested_and_observed_servers_differ() -> None:
    core = Core(4)
    core.handle(JobArrived(0, bag("a", 6, 600)))
    core.handle(JobArrived(1, bag("b", 2, 2)))
    a, b = core.jobs["a"], core.jobs["b"]
    assert (a.planned, a.requested, a.observed) == (2, 2, 4)  # four items have started
    assert (b.planned, b.requested, b.observed) == (2, 2, 0)  # no server is free yet
    core.handle(ItemsFinished(1.2, "a", (0,), (1.0,)), ItemsFinished(1.2, "a", (1,), (1.0,)))
    assert (b.planned, b.requested, b.observed) == (2, 2, 2)
    b.planned = 9
    assert b.requested == 2  # it has no more items


def test_failed_item_is_retried_before_its_job_fails() -> None:
    core = Core(3)
    core.handle(JobArrived(0, bag("a", 5, 500, retries=1)), JobArrived(0, bag("b", 9, 9000)))
    first = core.jobs["a"].observed
    assert first >= 1
    core.handle(ItemFailed(1, "a", 0, "item 0: boom"))
    assert 0 in core.jobs["a"].in_flight  # retried
    commands = core.handle(ItemFailed(2, "a", 0, "item 0: boom"))
    stops = [Stop("a", item) for item in range(1, first)]
    drop = Drop("a", 0, "item 0: boom")
    assert commands[: first + 1] == [
        drop,
        *stops,
        fail("a", "item 0: boom"),
    ]
    assert count_servers(core) == {"b": (3, 3)}


def test_cancelling_a_job_stops_its_items() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", 5, 500)))
    commands = core.handle(JobCancelled(1, "a"))
    assert commands == [Stop("a", 0), Stop("a", 1), Finish("a", STOPPED)]
    assert core.handle(ItemsFinished(2, "a", (0,), (1.0,))) == []  # too late to matter


def test_number_of_running_items_follows_the_capacity() -> None:
    core = Core(1)
    assert core.handle(JobArrived(0, bag("a", 9, 900))) == starts("a", 0)
    assert core.handle(CapacityChanged(1, 3)) == starts("a", 1, 2)
    assert core.handle(CapacityChanged(2, 0)) == []
    assert core.handle(ItemsFinished(3, "a", (0,), (3.0,))) == []
    assert core.handle(CapacityChanged(4, 3)) == starts("a", 3)


def test_job_of_unknown_length_ends_when_items_run_out() -> None:
    core = Core(4)
    assert core.handle(JobArrived(0, bag("a", None))) == []  # none of its items is known yet
    assert core.handle(ItemsRead(0, "a", 2)) == starts("a", 0, 1)
    assert core.handle(ItemsExhausted(0, "a", 2)) == []
    core.handle(ItemsFinished(1, "a", (0,), (1.0,)))
    assert core.handle(ItemsFinished(1, "a", (1,), (1.0,))) == [Finish("a")]
    assert core.handle(JobArrived(2, bag("empty", 0))) == [Finish("empty")]


def test_items_done_before_are_skipped() -> None:
    core = Core(2)
    done = (range(1), range(2, 4))
    assert core.handle(JobArrived(0, bag("a", 6, 600), done)) == starts("a", 1, 4)
    assert core.handle(ItemsFinished(1, "a", (1,), (1.0,))) == starts("a", 5)
    assert core.handle(JobArrived(2, bag("all", 2, 2), (range(2),))) == [Finish("all")]


def test_one_short_item_is_queued_ahead() -> None:
    core = Core(2)
    core.handle(JobArrived(0, bag("a", 9)))
    assert core.handle(ItemsFinished(0.01, "a", (0,), (0.01,))) == starts("a", 2, 3)
    assert core.jobs["a"].observed == 2
    assert core.handle(ItemsFinished(0.02, "a", (1,), (0.01,))) == starts("a", 4)
    assert core.jobs["a"].observed == 2


def test_command_that_never_resizes_keeps_its_servers() -> None:
    core = Core(8)
    assert core.handle(JobArrived(0, command("c", resize="never"))) == [Start("c", 0, 8)]
    assert core.handle(JobArrived(1, bag("a", 50, 5))) == []
    assert count_servers(core) == {"c": (8, 8), "a": (0, 0)}
    assert core.handle(ItemsFinished(9, "c", (0,), (9.0,))) == [
        Finish("c"),
        *starts("a", *range(8)),
    ]


def test_command_with_affinity_shrinks_and_grows_at_once() -> None:
    core = Core(8)
    core.handle(JobArrived(0, command("c", resize="affinity")))
    commands = core.handle(JobArrived(1, bag("a", 50, 5)))
    assert isinstance(commands[0], Resize)  # the shrink comes first
    width = commands[0].servers
    assert commands == [Resize("c", 0, width), *starts("a", *range(8 - width))]
    assert core.handle(JobCancelled(2, "a"))[-1] == Resize("c", 0, 8)


@pytest.mark.parametrize("policy", ["equi", "optimal"])
def test_command_restarts_only_where_it_pays(policy: str) -> None:
    for cost, remaining in ((3.0, 100.0), (3.0, 0.5), (1000.0, 100.0)):
        core = Core(8, policy)
        first = replace(command("a", resize="restart", restart_cost=cost), size=80 + remaining)
        second = replace(first, name="b", size=80.0)
        core.handle(JobArrived(0, first), JobArrived(0, second))
        widths = {name: job.observed for name, job in core.jobs.items()}
        assert sum(widths.values()) == 8
        # What is left of the first when the second ends takes as long as it says on its servers.
        time = 80.0 / widths["a"] ** 0.5
        commands = core.handle(ItemsFinished(time, "b", (0,), (time,)))
        restarts = [Stop("a", 0), Start("a", 0, 8)]
        assert commands == [Finish("b"), *(restarts if cost < remaining / 8 else [])]


def test_command_makes_room_for_others_if_it_loses_less_than_its_speed_changes_by() -> None:
    core = Core(8, "equi")
    core.handle(JobArrived(0, command("c", resize="restart", restart_cost=12.0)))
    # It needs 34 more seconds and would lose 12. On four servers instead of eight it is 29% slower
    assert core.handle(JobArrived(1, bag("a", 9, 500))) == []
    # … on three, 39%.
    commands = core.handle(JobArrived(1, bag("b", 9, 500)))
    assert commands[0] == Stop("c", 0)
    assert Start("c", 0, 3) in commands
    assert {count_servers(core)[name][1] for name in "ab"} == {2, 3}


def test_restarts_cost_what_they_were_measured_to_take() -> None:
    core = Core(8, "equi")
    spec = command("c", resize="restart", restart_cost=0.1)
    core.handle(JobArrived(0, spec), JobArrived(0, bag("a", 4, 4)))
    items = (0, 1, 2, 3)
    for item in items:
        commands = core.handle(ItemsFinished(1, "a", (item,), (1.0,)))
    assert commands == [Finish("a"), Stop("c", 0), Start("c", 0, 8)]
    # It took 25 seconds to stop it and start it again.
    core.handle(ItemsFinished(60, "c", (0,), (34.0,)))
    core.handle(JobArrived(60, replace(spec, name="d")), JobArrived(60, bag("b", 4, 4)))
    for item in items:
        commands = core.handle(ItemsFinished(61, "b", (item,), (1.0,)))
    assert commands == [Finish("b")]


def test_policy_that_does_not_count_resizes_shares_what_is_left() -> None:
    """Of two commands, one is about to end: it keeps its servers, the other one makes room."""
    core = Core(8, "equi")
    short = replace(command("short", resize="restart"), size=21.0)
    long = replace(command("long", resize="restart"), size=10_000.0)
    core.handle(JobArrived(0, short), JobArrived(0, long))
    assert count_servers(core) == {"short": (4, 4), "long": (4, 4)}
    assert core.handle(JobArrived(10, replace(long, name="c"))) == []  # short ends in a moment
    commands = core.handle(JobArrived(10, replace(long, name="d")))
    assert commands[0] == Stop("long", 0)
    widths = {name: observed for name, (_, observed) in count_servers(core).items()}
    assert widths.pop("short") == 4
    assert sorted(widths.values()) == [1, 1, 2]


def test_duplicate_job_name_is_refused() -> None:
    core = Core(1)
    core.handle(JobArrived(0, bag("a", 2, 2)))
    with pytest.raises(InputError, match="already a job named 'a'"):
        core.handle(JobArrived(0, bag("a", 2, 2)))


def test_callable_is_accepted_as_policy() -> None:
    def last_first(state: State) -> FloatArray:
        decision = np.zeros(len(state))
        decision[-1] = state.servers
        return decision

    core = Core(3, last_first)
    core.handle(JobArrived(0, bag("a", 9, 9)), JobArrived(0, bag("b", 9, 9)))
    assert count_servers(core) == {"a": (0, 0), "b": (3, 3)}


def test_sizes_and_speedups_are_learned() -> None:
    learned = ItemDurations()
    assert learned.p == PRIOR_P
    assert learned.estimate_item_seconds(0.5) is None
    for _ in range(50):
        for width in (1, 2, 4, 8):
            learned.add(width, 3.0 * width**0.4)
    assert learned.p == pytest.approx(0.6, abs=0.02)
    assert learned.estimate_item_seconds(0.6) == pytest.approx(3.0)


def test_size_is_estimated_from_other_jobs_before_the_first_item_ends() -> None:
    core = Core(4)
    core.handle(JobArrived(0, JobSpec(name="known", items=10)))
    for item in range(4):
        core.handle(ItemsFinished(20, "known", (item,), (20.0,)))
    core.handle(JobArrived(21, JobSpec(name="new", items=3)))
    alone = 20 * 4 ** (PRIOR_P - 1)  # four of them ran together
    assert core.estimator.estimate_remaining(core.jobs["new"], 21) == pytest.approx(3 * alone)


def test_command_of_unknown_size_leaves_servers_to_others() -> None:
    core = Core(4)
    core.handle(
        JobArrived(0, JobSpec(name="c", speedup=HALF, resize="affinity")),
        JobArrived(0, bag("b", 99, 99)),
    )
    assert core.jobs["b"].planned >= 2
    core.handle(Tick(3600))
    assert core.jobs["b"].planned >= 2


def test_restarted_command_keeps_the_work_it_has_done() -> None:
    core = Core(4)
    spec = command("c", resize="restart", restart_cost=1.0)
    core.handle(JobArrived(0, spec))
    core.handle(JobArrived(10, bag("a", 50, 500)))
    assert core.jobs["c"].observed < 4  # restarted
    assert core.estimator.estimate_remaining(core.jobs["c"], 10) == pytest.approx(100 - 10 * 4**0.5)


def test_size_in_the_spec_is_used_for_a_job_of_unknown_length() -> None:
    core = Core(4)
    core.handle(
        JobArrived(0, JobSpec(name="long", size=1e5, speedup=HALF)),
        JobArrived(0, bag("short", 50, 50)),
    )
    assert core.estimator.estimate_remaining(core.jobs["long"], 0) == pytest.approx(1e5)
    assert core.jobs["short"].planned > core.jobs["long"].planned


def test_items_are_started_as_they_are_read() -> None:
    core = Core(2)
    spec = JobSpec(name="a", items=3, size=300, speedup=HALF, is_streamed=True)
    assert core.handle(JobArrived(0, spec, (range(1),))) == []
    assert core.handle(ItemsRead(1, "a", 1)) == starts("a", 1)
    assert core.handle(ItemsRead(1, "a", 2)) == starts("a", 2)
    assert core.handle(ItemsExhausted(1, "a", 3)) == []
    core.handle(ItemsFinished(2, "a", (1,), (1.0,)))
    assert core.handle(ItemsFinished(2, "a", (2,), (1.0,))) == [Finish("a")]


def test_items_found_to_be_done_are_skipped_as_they_are_read() -> None:
    core = Core(2)
    core.handle(JobArrived(0, JobSpec(name="a", items=9, speedup=HALF, is_streamed=True)))
    assert core.handle(ItemsRead(1, "a", 0, (range(2),))) == []
    assert core.handle(ItemsRead(1, "a", 1, (range(2, 3), range(4, 6)))) == starts("a", 3)
    assert core.handle(ItemsRead(1, "a", 3, (range(7, 8),))) == starts("a", 6)
    assert core.handle(ItemsFinished(2, "a", (3,), (1.0,))) == starts("a", 8)
    core.handle(ItemsFinished(2, "a", (6,), (1.0,)), ItemsFinished(2, "a", (8,), (1.0,)))
    assert core.handle(ItemsExhausted(3, "a", 9)) == [Finish("a")]


def test_job_whose_items_are_all_done_ends_when_they_have_been_read() -> None:
    core = Core(2)
    spec = JobSpec(name="a", items=2, speedup=HALF, is_streamed=True)
    core.handle(JobArrived(0, spec), ItemsRead(1, "a", 0, (range(2),)))
    assert "a" in core.jobs  # there may be more items than it says
    assert core.handle(ItemsExhausted(1, "a", 2)) == [Finish("a")]


def test_job_may_have_more_items_than_it_says() -> None:
    core = Core(1)
    core.handle(JobArrived(0, JobSpec(name="a", items=1, speedup=HALF, is_streamed=True)))
    assert core.handle(ItemsRead(0, "a", 2)) == starts("a", 0)
    assert core.handle(ItemsFinished(1, "a", (0,), (1.0,))) == starts("a", 1)
    core.handle(ItemsExhausted(1, "a", 2))
    assert core.handle(ItemsFinished(2, "a", (1,), (1.0,))) == [Finish("a")]
