"""What clients ask for at the same time: written together, and answered once it is durable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.served_queue import ServedQueue
from support.waiting import wait_until

from hesrpt.errors import StateError
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.requests import BusyError, ImpossibleJobError
from hesrpt.service import job_queue
from hesrpt.service.job_queue import KnownJob
from hesrpt.service.job_requests import read_jobs
from hesrpt.service.views import get_spec
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Changes


def create_spec(name: str) -> JobSpec:
    (spec,) = read_jobs({"command": "true", "name": name}, ())
    return spec


def submit(
    served: ServedQueue, *names: str, key: str = ""
) -> list[Sequence[KnownJob] | BaseException]:
    """Let several clients submit a job each, at the same time."""

    async def add_all() -> list[Sequence[KnownJob] | BaseException]:
        clients = [served.queue.add([create_spec(name)], key, name) for name in names]
        return await asyncio.gather(*clients, return_exceptions=True)

    return asyncio.run(add_all())


def test_jobs_of_many_clients_are_written_together(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = Journal.write

    def count(journal: Journal, changes: Changes) -> None:
        arrived = [job for job in changes.jobs if not job.has_ended]
        written.extend([len(arrived)] if arrived else [])
        write(journal, changes)

    monkeypatch.setattr(Journal, "write", count)
    answers = submit(served, *(f"together {n}" for n in range(30)))
    names = [get_spec(answer[0]).name for answer in answers if isinstance(answer, list)]
    assert names == [f"together {n}" for n in range(30)]
    assert sum(written) == 30  # each of them once
    assert len(written) <= 3


def test_jobs_wait_for_those_of_their_own_client(served: ServedQueue) -> None:
    async def add_all() -> list[Sequence[KnownJob]]:
        content = [
            {"command": "true", "name": "own"},
            {"command": "true", "name": "next", "after": ["own"]},
        ]
        clients = (served.queue.add(read_jobs({"jobs": content}, ()), "", str(n)) for n in range(6))
        return await asyncio.gather(*clients)

    batches = asyncio.run(add_all())
    assert len({get_spec(first).name for first, _ in batches}) == 6
    for first, second in batches:
        assert get_spec(second).after == (get_spec(first).name,)


def test_one_of_two_clients_with_the_same_key_is_refused(served: ServedQueue) -> None:
    first, second, third = submit(served, "k1", "k2", "k1", key="same")
    assert isinstance(first, list)
    assert str(second) == "Idempotency-Key 'same' was used for another request"
    assert third == first
    assert "k2" not in served.queue


def test_failed_write_is_reported_and_does_no_other_harm(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Journal.write

    def fail(journal: Journal, changes: Changes) -> None:
        if any(job.name.startswith("lost") for job in changes.jobs):
            raise StateError("state.db: the disk is full")
        write(journal, changes)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", fail)
        answers = submit(served, "lost 1", "lost 2", key="")
    assert list(map(str, answers)) == ["state.db: the disk is full"] * 2
    assert "lost 1" not in served.queue
    (answer,) = submit(served, "lost 1")
    assert isinstance(answer, list)
    assert get_spec(answer[0]).name == "lost 1"  # the name is free


def test_refusal_of_the_scheduler_is_answered_at_once(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_queue, "ANSWER_SECONDS", 300.0)
    spec = replace(create_spec("stuck"), after=("removed meanwhile",))
    began = time.monotonic()
    with pytest.raises(ImpossibleJobError, match="there is no such job"):
        asyncio.run(served.queue.add([spec], "", ""))
    assert time.monotonic() - began < 200


def test_job_is_withdrawn_if_the_scheduler_does_not_take_it(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_queue, "ANSWER_SECONDS", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_add_client_jobs", lambda driver: [])
        (answer,) = submit(served, "withdrawn")
    assert isinstance(answer, BusyError)
    assert str(answer) == "the scheduler is busy; try again in a moment"
    monkeypatch.setattr(job_queue, "ANSWER_SECONDS", 60.0)
    submit(served, "next")
    assert "withdrawn" not in served.queue


def test_change_is_withdrawn_if_the_scheduler_does_not_take_it(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = served.add("sleep 60")
    monkeypatch.setattr(job_queue, "ANSWER_SECONDS", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_take_questions", lambda driver: [])
        with pytest.raises(BusyError, match="the scheduler is busy"):
            served.queue.change(name, "pause")
    monkeypatch.setattr(job_queue, "ANSWER_SECONDS", 60.0)
    assert served.queue.change(name, "weight", 2.0) == "now has weight 2"
    job = served.queue.find_job(name)
    assert isinstance(job, LiveJob)
    assert (job.state, job.spec.is_paused) == ("running", False)
    assert served.queue.change(name, "cancel") == "cancelled"
    assert job.state == "cancelled"


def test_cancelling_that_takes_long_is_promised_once_the_journal_has_it(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that dies meanwhile must find the request again."""
    name = served.add("sleep 60")
    number = served.queue.driver.jobs[name].number
    monkeypatch.setattr(job_queue, "ANSWER_SECONDS", 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(served.queue.driver.engine, "is_stopping", lambda job: True)
        text = served.queue.change(name, "cancel")
        assert text == "will be done; the scheduler has not answered yet"
        (request,) = served.queue.journal.requests.read()
        assert (request.kind, request.job) == ("cancel", number)
    assert served.client.wait(name, timeout=60)[0].state == "cancelled"
    wait_until(lambda: not served.queue.journal.requests.read())
