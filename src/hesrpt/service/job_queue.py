"""The scheduler as the web layer sees it: jobs to show, to add and to change.

What adds or changes jobs is done by the scheduler's thread, and is durable before it is confirmed.
All methods but :meth:`JobQueue.add` may block, so they are called in threads.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hesrpt.errors import InputError
from hesrpt.jobs.job_end import JobEnd
from hesrpt.jobs.job_spec import PLAIN_GROUP, Group, JobSpec
from hesrpt.pool.batch_run import RunOptions, create_pool
from hesrpt.scheduler.driver import ClientJobs
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.requests import (
    NEEDS_SCRIPT,
    NOT_ARRIVED,
    BusyError,
    RequestResult,
    UnknownTargetError,
    describe_answers,
    explain_refusal,
    find_targets,
    list_requests,
)
from hesrpt.storage.job_names import describe_names, name_submitted
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Answer, JobRecord, Request, RequestKind

#: How long to wait until the scheduler has taken a job or answered a request, in seconds.
ANSWER_SECONDS = 5.0
# How long to wait after a write to the journal before the next one, in seconds.
_WRITE_SECONDS = 0.1
# Why a job fails that a script has left in the state directory, or an early version of the client.
_LOST = "it calls a Python function, and a service runs commands only"

_LOG = logging.getLogger("hesrpt")
_UNANSWERED = "will be done; the scheduler has not answered yet"


class RefusedError(InputError):
    """A job cannot do what is asked of it."""


class StoppingError(InputError):
    """The service is stopping, and takes no more jobs."""


#: A job of the scheduler, one that ended before the scheduler started, or one just submitted.
KnownJob = LiveJob | JobRecord | JobSpec


class JobQueue:
    """The jobs of a service."""

    def __init__(self, options: RunOptions) -> None:
        assert options.state is not None
        self.options, self.directory = options, Path(options.state)
        self.pool = create_pool(options)
        self.driver = self.pool.driver
        self.driver.warner.warns_of_pauses = False  # somebody looks after them
        self.driver.write_seconds = _WRITE_SECONDS
        self.journal = Journal.read(self.directory)  # to read, which may take long
        self._earlier: dict[str, JobRecord] = {}
        self.is_stopping = self.is_closed = False

    def continue_jobs(self) -> None:
        """Continue the commands that are not done, and let other unfinished jobs fail.

        Jobs that have failed or were cancelled stay so, until somebody asks to retry them.
        """
        records = [record for record in self.earlier.values() if record.state != "done"]
        lost = [each for each in records if each.spec.command is None and not each.has_ended]
        if lost:
            names = ", ".join(repr(record.name) for record in lost)
            _LOG.warning("hesrpt: %s: these jobs have failed: %s: %s", self.directory, names, _LOST)
            self.pool.end_earlier_jobs(lost, JobEnd("lost_function", _LOST))
            self._earlier = {}
        jobs = []
        for record in records:
            if record.spec.command is None:
                continue
            job = LiveJob.from_record(record)
            job.stays_ended = True
            if record.has_ended:
                failures = self.journal.read_failures(record)
                job.failures = {failure.item: failure for failure in failures}
            jobs.append(job)
        self.pool.add_jobs(sorted(jobs, key=lambda job: job.number))

    # --- what there is --------------------------------------------------------------------------

    @property
    def earlier(self) -> dict[str, JobRecord]:
        """The jobs that ended before this start, by name, unless they were removed since."""
        records = self.pool.earlier_jobs
        if len(records) != len(self._earlier):
            self._earlier = {record.name: record for record in records}
        return self._earlier

    def list_jobs(self) -> list[LiveJob | JobRecord]:
        """Return all jobs in order of arrival."""
        jobs: list[LiveJob | JobRecord] = [*self.earlier.values(), *self.driver.jobs.values()]
        return sorted(jobs, key=lambda job: job.number)

    def list_flow_times(self) -> list[float]:
        """Return the flow times of the jobs that are done."""
        return [
            job.ended - job.arrived
            for job in self.list_jobs()
            if job.ended is not None and job.arrived is not None and job.state == "done"
        ]

    def list_submitted(self) -> list[JobSpec]:
        """Return the jobs that were submitted and that the scheduler has not taken yet."""
        requests = self.journal.requests.read()
        if not any(request.spec for request in requests):
            return []
        named = name_submitted(requests, self.list_jobs())
        return [request.spec for request in named if request.spec is not None]

    def list_groups(self) -> dict[str, Group]:
        """Return the groups of all jobs, and those with settings, by their names."""
        earlier = {record.spec.group for record in self.earlier.values() if record.spec.group}
        return dict.fromkeys(sorted(earlier), PLAIN_GROUP) | self.pool.groups

    def find_job(self, name: str) -> KnownJob:
        """Return the job of a name, or raise an error."""
        found: KnownJob | None = self.driver.jobs.get(name) or self.earlier.get(name)
        if found is None:
            found = next((spec for spec in self.list_submitted() if spec.name == name), None)
        if found is None:
            known = [job.spec.name for job in self.list_jobs()]
            raise UnknownTargetError(f"there is no job {name!r}; {describe_names(known, name)}")
        return found

    def __contains__(self, name: object) -> bool:
        """Return whether there is a job of this name."""
        with suppress(UnknownTargetError):
            return self.find_job(str(name)) is not None
        return False

    # --- changes --------------------------------------------------------------------------------

    async def add(
        self, specs: Sequence[JobSpec], key: str, digest: str
    ) -> Sequence[LiveJob | JobRecord]:
        """Add jobs, unless that was done with the same key before; they are durable then.

        Clients that wait take no threads.
        """
        if self.is_stopping:
            raise StoppingError("the service is stopping, and takes no more jobs")
        self.driver.raise_failure()
        answer: Future[Sequence[LiveJob | JobRecord]] = Future()

        def reply(found: Sequence[LiveJob | JobRecord] | InputError) -> None:
            if isinstance(found, InputError):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        jobs = ClientJobs(specs, key, digest, time.time(), reply)
        self.driver.add_for_client(jobs)
        answered = asyncio.wrap_future(answer)
        while True:
            with suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(answered), ANSWER_SECONDS)
            self.driver.raise_failure()
            if self.driver.withdraw(jobs):  # otherwise, they are being written
                raise BusyError("the scheduler is busy; try again in a moment")

    def change(self, name: str, kind: RequestKind, weight: float | None = None) -> str:
        """Ask the scheduler to change a job; return what was done."""
        job = self.find_job(name)
        if isinstance(job, JobSpec):
            raise RefusedError(NOT_ARRIVED, argument=f"job {name!r}")
        if isinstance(job, JobRecord):
            problem = explain_refusal(kind, job) or NEEDS_SCRIPT
            raise RefusedError(problem, argument=f"job {name!r}")
        return self._ask_once(Request(kind=kind, job=job.number, weight=weight), f"job {name!r}")

    def change_group(self, name: str, kind: RequestKind, weight: float | None = None) -> str:
        """Ask the scheduler to change a group of jobs; return what was done."""
        return self._ask_once(Request(kind=kind, group=name, weight=weight))

    def change_chosen(
        self,
        kind: RequestKind,
        names: Sequence[str] = (),
        group: str | None = None,
        weight: float | None = None,
    ) -> list[RequestResult]:
        """Ask for a change of jobs, of a group, or of all jobs that it applies to.

        Return what became of each: see :func:`~hesrpt.scheduler.requests.find_targets`.
        """
        submitted = self.journal.requests.read()
        with self.driver.condition:
            live = {job.number for job in self.driver.jobs.values()}
            jobs = self.list_jobs()
            records = [job.to_record() if isinstance(job, LiveJob) else job for job in jobs]
        targets = find_targets(
            kind,
            names,
            group,
            records=records,
            submitted=name_submitted(submitted, records),
            groups=self.list_groups(),
        )
        targets = [
            replace(each, refusal=NEEDS_SCRIPT)
            if each.refusal is None and each.number is not None and each.number not in live
            else each
            for each in targets
        ]
        answers = self._ask(list_requests(targets, kind, weight))
        return describe_answers(targets, answers, _UNANSWERED)

    def _ask_once(self, request: Request, subject: str | None = None) -> str:
        """Return what was done about a job or a group; raise an error if it was refused."""
        (answer,) = self._ask([request])
        if answer is not None and answer.is_refused:
            raise RefusedError(answer.text, argument=subject)
        return _UNANSWERED if answer is None else answer.text

    def _ask(self, requests: Sequence[Request]) -> list[Answer | None]:
        return self.driver.ask(requests, ANSWER_SECONDS) if requests else []

    # --- the end --------------------------------------------------------------------------------

    def count_running_items(self) -> int:
        """Return how many items run now."""
        with self.driver.condition:
            batches = [each for job in self.driver.core.jobs.values() for each in job.batches]
            return sum(batch.items_left for batch in batches if batch.servers > 0)

    def drain(self, timeout: float) -> bool:
        """Take no more jobs, and let running items end; return whether all have ended."""
        self.is_stopping = True
        self.driver.starts_items = False
        if not self.driver.wait(lambda: self.driver.core.tally.observed == 0, timeout):
            return False
        calls = itertools.count()
        self.driver.wait(lambda: next(calls) > 0, 1.0)  # until the last end is written and shown
        return True

    def close(self) -> None:
        """Stop what is running; all of it goes on when the service is started again."""
        self.is_stopping = self.is_closed = True
        self.pool.close()
        self.journal.close()
