"""Jobs that clients submit: several are written at once, and each client waits for its own.

The scheduler's thread writes them when it looks for requests, a few times a second. So clients that
wait take no threads, and the disk is not waited for once for each job.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from hesrpt.errors import InputError
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.scheduler.feasibility import explain_impossible
from hesrpt.service.job_queue import (
    ANSWER_SECONDS,
    JobQueue,
    KnownJob,
    RefusedError,
    StoppingError,
)
from hesrpt.storage.journal_entries import Request
from hesrpt.storage.journal_requests import KeyedRequests


@dataclass(eq=False)
class _Submission:
    """The jobs of one client."""

    specs: Sequence[JobSpec]
    key: str
    digest: str
    answer: asyncio.Future[list[KnownJob]]
    numbers: Sequence[int] = ()  # of the requests, once they are in the journal

    def to_requests(self) -> KeyedRequests:
        """Return the submission as the journal keeps it."""
        requests = [Request(kind="submit", spec=spec) for spec in self.specs]
        return KeyedRequests(requests, self.key, self.digest)

    def set_answer(self, answer: list[KnownJob] | InputError) -> None:
        """Answer the client; any thread may call this."""

        def set_now() -> None:
            if self.answer.done():  # the client has given up
                return
            if isinstance(answer, InputError):
                self.answer.set_exception(answer)
            else:
                self.answer.set_result(answer)

        with suppress(RuntimeError):  # the service has stopped
            self.answer.get_loop().call_soon_threadsafe(set_now)


class Submissions:
    """The jobs that clients have submitted and for which they wait."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._lock = threading.Lock()  # guards the first list
        self._unwritten: list[_Submission] = []
        self._written: list[_Submission] = []  # touched by the scheduler's thread only
        queue.driver.take_submissions(self)

    async def add(self, specs: Sequence[JobSpec], key: str, digest: str) -> list[KnownJob]:
        """Add jobs, unless that was done with the same key before; they are durable then."""
        if self._queue.is_stopping:
            raise StoppingError("the service is stopping, and takes no more jobs")
        driver = self._queue.driver
        driver.raise_failure()
        for spec in specs:
            if problem := explain_impossible(spec, driver.engine):
                others = "; no job was added" if len(specs) > 1 else ""
                raise RefusedError(f"job {spec.name!r}: {problem}{others}")
        answer: asyncio.Future[list[KnownJob]] = asyncio.get_running_loop().create_future()
        submission = _Submission(specs, key, digest, answer)
        with self._lock:
            self._unwritten.append(submission)
        driver.look_for_requests()
        while True:
            with suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(answer), ANSWER_SECONDS)
            driver.raise_failure()
            with self._lock:
                if submission in self._unwritten:
                    self._unwritten.remove(submission)
                    raise StoppingError("the scheduler is busy; try again in a moment")
            if submission.numbers:  # otherwise, it is being written
                return await run_in_threadpool(self._answer_late, submission)

    def _answer_late(self, submission: _Submission) -> list[KnownJob]:
        """Return what is known of jobs that the scheduler has not taken in time."""
        numbers = submission.numbers
        is_waiting = self._queue.has_unanswered(numbers)  # before it looks for those that are there
        found = self._queue.find_submitted(numbers)
        if not is_waiting and len(found) < len(numbers):
            raise self._queue.explain_missing(numbers, submission.key)
        pairs = zip(numbers, submission.specs, strict=True)
        return [found.get(number, spec) for number, spec in pairs]

    # --- called by the scheduler's thread ---------------------------------------------------------

    def write(self) -> None:
        """Write the jobs of all clients to the journal, as requests."""
        with self._lock:
            submissions, self._unwritten = self._unwritten, []
        if not submissions:
            return
        try:
            requests = [each.to_requests() for each in submissions]
            numbers = self._queue.write_submissions(requests, time.time())
        except InputError as error:  # the disk is full, for instance: nothing was written
            for submission in submissions:
                submission.set_answer(error)
            return
        for submission, written in zip(submissions, numbers, strict=True):
            if written is None:
                reason = f"Idempotency-Key {submission.key!r} was used for another request"
                submission.set_answer(InputError(reason))
            else:
                submission.numbers = written
                self._written.append(submission)

    def answer(self) -> None:
        """Answer the clients whose jobs are there, were refused, or were removed since."""
        if not self._written:
            return
        found = self._queue.find_submitted([n for each in self._written for n in each.numbers])
        waiting = []
        for submission in self._written:
            numbers = submission.numbers
            missing = [number for number in numbers if number not in found]
            if not missing:
                submission.set_answer([found[number] for number in numbers])
            elif submission.answer.done():  # the client has given up
                continue
            elif self._queue.has_unanswered(missing):
                waiting.append(submission)
            else:
                submission.set_answer(self._queue.explain_missing(missing, submission.key))
        self._written = waiting
