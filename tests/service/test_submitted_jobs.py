"""Jobs that clients submit at the same time: written together, answered one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.served_queue import ServedQueue

from hesrpt.errors import StateError
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.service import submissions as submissions_module
from hesrpt.service.job_queue import ANSWER_SECONDS, JobQueue, KnownJob, RefusedError, StoppingError
from hesrpt.service.job_requests import read_jobs
from hesrpt.service.submissions import Submissions
from hesrpt.service.views import get_spec
from hesrpt.storage.journal_requests import KeyedRequests


def create_spec(name: str) -> JobSpec:
    (spec,) = read_jobs({"command": "true", "name": name}, ())
    return spec


def submit(
    submissions: Submissions, *names: str, key: str = ""
) -> list[list[KnownJob] | BaseException]:
    """Let several clients submit a job each, at the same time."""

    async def add_all() -> list[list[KnownJob] | BaseException]:
        clients = [submissions.add([create_spec(name)], key, name) for name in names]
        return await asyncio.gather(*clients, return_exceptions=True)

    return asyncio.run(add_all())


def test_jobs_of_many_clients_are_written_together(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = JobQueue.write_submissions

    def count(
        queue: JobQueue, submissions: Sequence[KeyedRequests], time: float
    ) -> list[list[int] | None]:
        written.append(len(submissions))
        return write(queue, submissions, time)

    monkeypatch.setattr(JobQueue, "write_submissions", count)
    answers = submit(Submissions(served.queue), *(f"together {n}" for n in range(30)))
    names = [get_spec(answer[0]).name for answer in answers if isinstance(answer, list)]
    assert names == [f"together {n}" for n in range(30)]
    assert sum(written) == 30
    assert len(written) <= 3


def test_one_of_two_clients_with_the_same_key_is_refused(served: ServedQueue) -> None:
    first, second, third = submit(Submissions(served.queue), "k1", "k2", "k1", key="same")
    assert isinstance(first, list)
    assert str(second) == "Idempotency-Key 'same' was used for another request"
    assert third == first
    assert "k2" not in served.queue


def test_failed_write_is_reported_and_does_no_other_harm(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise StateError("state.db: the disk is full")

    submissions = Submissions(served.queue)
    with monkeypatch.context() as patch:
        patch.setattr(JobQueue, "write_submissions", fail)
        answers = submit(submissions, "lost 1", "lost 2")
    assert list(map(str, answers)) == ["state.db: the disk is full"] * 2
    (answer,) = submit(submissions, "later")
    assert isinstance(answer, list)


def test_refusal_of_the_scheduler_is_answered_at_once(served: ServedQueue) -> None:
    spec = replace(create_spec("stuck"), after=("removed meanwhile",))
    began = time.monotonic()
    with pytest.raises(RefusedError, match="there is no such job"):
        asyncio.run(Submissions(served.queue).add([spec], "", ""))
    assert time.monotonic() - began < ANSWER_SECONDS


def test_job_is_withdrawn_if_the_scheduler_does_not_take_it(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions = Submissions(served.queue)
    monkeypatch.setattr(submissions_module, "ANSWER_SECONDS", 0.01)
    with served.queue.driver.condition, monkeypatch.context() as patch:
        patch.setattr(submissions, "write", lambda: None)
        (answer,) = submit(submissions, "withdrawn")
    assert isinstance(answer, StoppingError)
    assert str(answer) == "the scheduler is busy; try again in a moment"
    monkeypatch.setattr(submissions_module, "ANSWER_SECONDS", 5.0)
    submit(submissions, "next")
    assert "withdrawn" not in served.queue
