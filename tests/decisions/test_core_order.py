"""Jobs that wait for others: events in, exact lists of commands out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from support.core_jobs import bag, command, fail, starts

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    Admit,
    Drop,
    Finish,
    ItemFailed,
    ItemsFinished,
    ItemsRetried,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobSteered,
    Reopen,
    Start,
)
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_end import STOPPED, JobEnd
from hesrpt.jobs.job_spec import find_cycle


def test_job_starts_when_the_last_of_its_predecessors_has_ended() -> None:
    core = Core(2, "srpt")
    first = core.handle(
        JobArrived(0, bag("last", 1, 1, after=("a", "b"))),
        JobArrived(0, bag("a", 1, 10)),
        JobArrived(0, bag("b", 1, 20)),
    )
    assert first == [*starts("a", 0), *starts("b", 0)]
    assert core.predecessors.waiting["last"].unfinished == {"a", "b"}
    assert core.handle(ItemsFinished(10, "a", (0,), (10.0,))) == [Finish("a")]
    assert core.predecessors.waiting["last"].unfinished == {"b"}
    assert core.handle(ItemsFinished(20, "b", (0,), (20.0,))) == [
        Finish("b"),
        Admit("last"),
        *starts("last", 0),
    ]
    assert core.jobs["last"].arrived == 20  # for the policy, it has arrived now


def test_predecessors_that_have_ended_before_count() -> None:
    core = Core(1)
    core.handle(JobArrived(0, bag("a", 1, 1)))
    core.handle(ItemsFinished(1, "a", (0,), (1.0,)))
    ready = core.handle(
        JobEnded(2, "old", "done"), JobArrived(2, bag("b", 1, 1, after=("a", "old")))
    )
    assert ready == [Admit("b"), *starts("b", 0)]
    cancelled = core.handle(
        JobEnded(3, "bad", "failed"), JobArrived(3, bag("c", 1, after=("bad",)))
    )
    assert cancelled == [Finish("c", JobEnd("predecessor_failed", "bad"))]


def test_failed_predecessor_cancels_or_releases() -> None:
    core = Core(1)
    core.handle(
        JobArrived(0, bag("a", 1, 1, retries=0)),
        JobArrived(0, bag("strict", 1, 1, after=("a",))),
        JobArrived(0, bag("behind", 1, 1, after=("strict",))),
        JobArrived(0, bag("lax", 1, 1, after=("a", "behind"), after_failure="release")),
    )
    assert core.handle(ItemFailed(1, "a", 0, "no")) == [
        Drop("a", 0, "no"),
        fail("a", "no"),
        Finish("strict", JobEnd("predecessor_failed", "a")),
        Finish("behind", JobEnd("predecessor_cancelled", "strict")),
        Admit("lax"),
        *starts("lax", 0),
    ]


def test_retrying_a_predecessor_brings_back_what_was_cancelled_because_of_it() -> None:
    core = Core(1)
    core.handle(
        JobArrived(0, bag("a", 1, 1, retries=0)),
        JobArrived(0, bag("b", 1, 1, after=("a",))),
        JobArrived(0, bag("c", 1, 1, after=("b",))),
    )
    core.handle(ItemFailed(1, "a", 0, "no"))
    assert core.can_retry("b")
    assert core.handle(ItemsRetried(2, "b")) == [  # its predecessor has not been retried
        Reopen("b"),
        Finish("b", JobEnd("predecessor_failed", "a")),
        Reopen("c"),
        Finish("c", JobEnd("predecessor_cancelled", "b")),
    ]
    again = core.handle(ItemsRetried(3, "a"))
    assert again == [Reopen("a"), Reopen("b"), Reopen("c"), *starts("a", 0)]
    assert core.handle(ItemsFinished(4, "a", (0,), (1.0,))) == [
        Finish("a"),
        Admit("b"),
        *starts("b", 0),
    ]
    assert core.handle(ItemsFinished(5, "b", (0,), (1.0,))) == [
        Finish("b"),
        Admit("c"),
        *starts("c", 0),
    ]


def test_job_that_waits_can_be_cancelled_and_retried() -> None:
    core = Core(1)
    template = CommandTemplate(job="b", command="true", items=None)
    core.handle(
        JobArrived(0, bag("a", 1, 1)),
        JobArrived(0, command("b", resize="never", command=template, after=("a",))),
        JobArrived(0, bag("c", 1, 1, after=("b",))),
    )
    assert core.handle(JobCancelled(1, "b")) == [
        Finish("b", STOPPED),
        Finish("c", JobEnd("predecessor_cancelled", "b")),
    ]
    assert core.handle(ItemsRetried(2, "a")) == []  # it has no failed items
    assert core.handle(ItemsRetried(2, "b")) == [Reopen("b"), Reopen("c")]
    assert core.handle(ItemsFinished(3, "a", (0,), (3.0,))) == [
        Finish("a"),
        Admit("b"),
        Start("b", 0, 1),
    ]


def test_function_that_is_cancelled_while_it_waits_is_let_go() -> None:
    core = Core(1)
    core.handle(JobArrived(0, bag("a", 1, 1)), JobArrived(0, bag("b", 1, 1, after=("a",))))
    assert core.handle(JobCancelled(1, "b")) == [Finish("b", STOPPED)]
    assert not core.can_retry("b")
    assert core.handle(ItemsRetried(2, "b")) == []


def test_job_that_waits_can_be_steered() -> None:
    core = Core(1)
    core.handle(JobArrived(0, bag("a", 1, 1)), JobArrived(0, bag("b", 1, 1, after=("a",))))
    assert core.handle(JobSteered(1, "b", is_paused=True), JobSteered(1, "b", weight=4.0)) == []
    assert core.handle(ItemsFinished(2, "a", (0,), (2.0,))) == [Finish("a"), Admit("b")]
    assert (core.jobs["b"].is_paused, core.jobs["b"].weight) == (True, 4.0)
    assert core.handle(JobSteered(3, "b", is_paused=False)) == starts("b", 0)


def test_long_chain_of_empty_jobs_ends_at_once() -> None:
    core = Core(1)
    names = [str(number) for number in range(3000)]
    chain = [bag(name, 0, after=(before,)) for before, name in pairwise(names)]
    core.handle(*(JobArrived(0, spec) for spec in reversed(chain)))
    assert len(core.predecessors.waiting) == 2999
    assert not core.jobs
    ended = core.handle(JobArrived(1, bag("0", 0)))
    assert [each.job for each in ended if isinstance(each, Finish)] == names
    assert not core.predecessors.waiting


@pytest.mark.parametrize(
    ("after", "cycle"),
    [
        ({"a": [], "b": ["a"], "c": ["a", "b"]}, []),
        ({"a": ["a"]}, ["a", "a"]),
        ({"a": ["b"], "b": ["c"], "c": ["b", "x"]}, ["b", "c", "b"]),
        ({str(n): [str(n + 1)] for n in range(5000)}, []),
    ],
)
def test_cycles_are_found(after: dict[str, list[str]], cycle: list[str]) -> None:
    assert find_cycle(after) == cycle
