"""The plugin in Dask's scheduler: what clients, workers and tasks do, and which items start."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hesrpt.integrations.dask_shares import JOBS_TOPIC, SharesPlugin


class FakeScheduler:
    """The few attributes of Dask's scheduler that the plugin uses; logs what it is told."""

    def __init__(self, threads: int) -> None:
        self.workers = {"first": SimpleNamespace(nthreads=threads)}
        self.started: list[tuple[str, str, list[int]]] = []
        self.plugin = SharesPlugin("hesrpt")
        asyncio.run(self.plugin.start(self))

    def log_event(self, topic: str, message: Any) -> None:
        client = topic.removeprefix("hesrpt-starts-")
        self.started.append((client, message["job"], message["items"]))

    def take_started(self) -> list[tuple[str, str, list[int]]]:
        started, self.started = self.started, []
        return started

    def announce(self, client: str, job: str, items: int | None, **options: Any) -> None:
        values = {"kind": job, "items": items, "size": None, "weight": 1.0, "has_graphs": False}
        message = {"action": "submit", "client": client, "job": job, **values, **options}
        self.plugin.log_event(JOBS_TOPIC, message)

    def tell(self, job: str, action: str, **values: Any) -> None:
        self.plugin.log_event(JOBS_TOPIC, {"action": action, "job": job, **values})

    def end(self, job: str, item: int, finish: str = "memory", seconds: float = 1.0) -> None:
        phases = ({"action": "compute", "start": 5.0, "stop": 5.0 + seconds},)
        self.plugin.transition((job, item), "processing", finish, startstops=phases)


def test_first_job_may_use_all_threads() -> None:
    scheduler = FakeScheduler(threads=2)
    scheduler.announce("ann", "large", 100)
    assert scheduler.take_started() == [("ann", "large", [0, 1])]
    scheduler.end("large", 1)
    assert scheduler.take_started() == [("ann", "large", [2])]


def test_threads_pass_to_the_shorter_job_of_another_client() -> None:
    scheduler = FakeScheduler(threads=4)
    scheduler.announce("ann", "large", 100, size=100.0)
    scheduler.announce("bob", "small", 4, size=4.0)
    assert scheduler.take_started() == [("ann", "large", [0, 1, 2, 3])]
    for item in range(3):
        scheduler.end("large", item)
    started = scheduler.take_started()
    assert started == [("bob", "small", [0]), ("bob", "small", [1]), ("bob", "small", [2])]


def test_weights_count() -> None:
    scheduler = FakeScheduler(threads=4)
    scheduler.announce("ann", "first", 100, size=100.0)
    scheduler.take_started()
    scheduler.announce("bob", "second", 100, size=100.0, weight=100.0)
    for item in range(3):
        scheduler.end("first", item)
    assert {job for _, job, _ in scheduler.take_started()} == {"second"}


def test_capacity_follows_workers() -> None:
    scheduler = FakeScheduler(threads=1)
    scheduler.announce("ann", "job", 100)
    scheduler.workers["second"] = SimpleNamespace(nthreads=2)
    scheduler.plugin.add_worker(scheduler, "second")
    assert scheduler.take_started() == [("ann", "job", [0]), ("ann", "job", [1, 2])]
    scheduler.plugin.remove_worker(scheduler, "second", stimulus_id="")
    scheduler.end("job", 0)
    scheduler.end("job", 1)
    assert scheduler.take_started() == []
    scheduler.end("job", 2)
    assert scheduler.take_started() == [("ann", "job", [3])]


def test_failed_items_are_left_to_dask() -> None:
    scheduler = FakeScheduler(threads=1)
    scheduler.announce("ann", "job", 3)
    scheduler.end("job", 0, "erred")
    scheduler.end("job", 1, "forgotten")
    assert scheduler.take_started() == [("ann", "job", [number]) for number in range(3)]


def test_task_that_dask_runs_again_keeps_its_thread() -> None:
    scheduler = FakeScheduler(threads=1)
    scheduler.announce("ann", "job", 3)
    for start, finish in [("processing", "released"), ("released", "waiting")]:
        scheduler.plugin.transition(("job", 0), start, finish)
    assert scheduler.take_started() == [("ann", "job", [0])]


@pytest.mark.parametrize("how", ["cancel", "disconnect"])
def test_threads_of_a_cancelled_job_are_free(how: str) -> None:
    scheduler = FakeScheduler(threads=2)
    scheduler.announce("ann", "one", 100)
    scheduler.announce("bob", "two", 100)
    scheduler.take_started()
    if how == "cancel":
        scheduler.tell("one", "cancel")
    else:
        scheduler.plugin.remove_client(scheduler, "ann")
    assert scheduler.take_started() == [("bob", "two", [0, 1])]
    scheduler.end("one", 0)  # still on its way
    assert scheduler.take_started() == []


def test_calls_of_an_executor_start_as_they_come() -> None:
    scheduler = FakeScheduler(threads=2)
    scheduler.announce("ann", "calls", None)
    assert scheduler.take_started() == []
    scheduler.tell("calls", "add", items=1)
    scheduler.tell("calls", "add", items=5)
    assert scheduler.take_started() == [("ann", "calls", [0]), ("ann", "calls", [1])]


def test_events_of_others_are_ignored() -> None:
    scheduler = FakeScheduler(threads=2)
    scheduler.plugin.log_event("all", {"action": "add-worker"})
    scheduler.plugin.transition("sum-123", "processing", "memory")
    assert scheduler.take_started() == []
