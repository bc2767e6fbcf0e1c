"""The scheduler as the web layer sees it: jobs to show, and requests to write to the journal.

All methods may block, so they are called in threads. What changes jobs goes through the journal,
exactly as when another process asks for it: it is durable before it is confirmed.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hesrpt.errors import InputError
from hesrpt.jobs.job_end import ENDED, JobEnd
from hesrpt.jobs.job_spec import PLAIN_GROUP, Group, JobSpec
from hesrpt.pool.batch_run import RunOptions, create_pool
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.job_names import describe_names, name_submitted
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Answer, JobRecord, Request, RequestKind
from hesrpt.storage.journal_requests import KeyedRequests

#: How long to wait until the scheduler has taken a job or answered a request, in seconds.
ANSWER_SECONDS = 5.0
# How long to wait after a write to the journal before the next one, in seconds.
_WRITE_SECONDS = 0.1
# Why a job fails that a script has left in the state directory, or an early version of the client.
_LOST = "it calls a Python function, and a service runs commands only"

_LOG = logging.getLogger("hesrpt")
_UNANSWERED = "will be done; the scheduler has not answered yet"


class UnknownJobError(InputError):
    """There is no job of this name."""


class RefusedError(InputError):
    """A job cannot do what is asked of it."""


class RemovedError(InputError):
    """What a request added was removed since."""


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
        self.driver.expect_pauses()
        self.driver.write_less_often(_WRITE_SECONDS)
        self.journal = Journal.read(self.directory)  # to read, which may take long
        assert self.driver.journal is not None
        # The scheduler's own: two writers of one process would make SQLite sleep, up to 0.1 s.
        self._requests = self.driver.journal.requests
        self._earlier: dict[str, JobRecord] = {}
        self.is_stopping = self.is_closed = False

    @property
    def driver(self) -> Driver:
        """The scheduler."""
        return self.pool.driver

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
        found = self.driver.jobs.get(name) or self.earlier.get(name)
        if found is not None:
            return found
        for spec in self.list_submitted():
            if spec.name == name:
                return spec
        known = [job.spec.name for job in self.list_jobs()]
        raise UnknownJobError(f"there is no job {name!r}; {describe_names(known, name)}")

    def __contains__(self, name: object) -> bool:
        """Return whether there is a job of this name."""
        if name in self.driver.jobs or name in self.earlier:
            return True
        return any(spec.name == name for spec in self.list_submitted())

    # --- requests -------------------------------------------------------------------------------

    def write_submissions(
        self, submissions: Sequence[KeyedRequests], time: float
    ) -> list[list[int] | None]:
        """Write the requests of several clients: see :meth:`RequestTable.add_once`."""
        return self._requests.add_once(submissions, time)

    def has_unanswered(self, numbers: Sequence[int]) -> bool:
        """Return whether the scheduler has not answered all of these requests yet."""
        return self._requests.has_unanswered(numbers)

    def explain_missing(self, numbers: Sequence[int], key: str) -> InputError:
        """Return why requests that the scheduler has answered have not led to jobs."""
        for answer in self._requests.read_answers(numbers).values():
            if answer.is_refused:  # it was possible a moment ago
                return RefusedError(answer.text)
        return RemovedError(
            f"nothing was added: Idempotency-Key {key!r} was used before, and what it added was "
            "removed since"
        )

    def find_submitted(self, numbers: Sequence[int]) -> dict[int, KnownJob]:
        """Return the jobs that have come from requests, by the numbers of these, if they have."""
        wanted, found = set(numbers), dict[int, KnownJob]()
        with self.driver.condition:
            for job in reversed(self.driver.jobs.values()):
                number = job.spec.submission
                if number in wanted and job.arrived is not None:
                    found[number] = job
                if len(found) == len(wanted) or (number and number < min(wanted)):
                    break  # earlier jobs were submitted earlier
        if len(found) < len(wanted):
            for record in self.earlier.values():
                if (number := record.spec.submission) in wanted:
                    found.setdefault(number, record)
        return found

    def _wait_until(self, is_ready: Callable[[], bool]) -> bool:
        return self.driver.wait(is_ready, ANSWER_SECONDS)

    def change(self, name: str, kind: RequestKind, weight: float | None = None) -> str:
        """Ask the scheduler to change a job; return what was done."""
        job = self.find_job(name)
        if isinstance(job, JobSpec):
            raise RefusedError(
                "has not arrived yet; try again in a moment", argument=f"job {name!r}"
            )
        if isinstance(job, JobRecord):
            problem = "has no failed items" if kind == "retry" else f"is {job.state} already"
            raise RefusedError(problem, argument=f"job {name!r}")
        request = Request(kind=kind, job=job.number, weight=weight)
        answer = self._request(request)
        if answer is None:
            return _UNANSWERED
        if answer.is_refused:
            text = answer.text.removeprefix(f"job {name!r}: ")
            raise RefusedError(text, argument=f"job {name!r}")
        if kind == "cancel":  # the journal has it a moment before other threads may see it
            self._wait_until(lambda: job.has_ended)
        return answer.text

    def change_group(self, name: str, kind: RequestKind, weight: float | None = None) -> str:
        """Ask the scheduler to change a group of jobs; return what was done."""
        answer = self._request(Request(kind=kind, group=name, weight=weight))
        if answer is None:
            return _UNANSWERED
        if answer.is_refused:
            raise RefusedError(answer.text)
        return answer.text

    def _request(self, request: Request) -> Answer | None:
        """Write a request to the journal; return the scheduler's answer, if it comes in time."""
        numbers, _ = self._requests.add([request])
        self.driver.look_for_requests()
        return self._wait_for_answer(numbers[0])

    def _wait_for_answer(self, number: int) -> Answer | None:
        answers: dict[int, Answer] = {}

        def is_answered() -> bool:
            answers.update(self.journal.requests.read_answers([number]))
            return bool(answers)

        self._wait_until(is_answered)
        return answers.get(number)

    def change_all(self, kind: RequestKind, is_meant: Callable[[LiveJob], bool]) -> Iterator[str]:
        """Ask for a change of several jobs; yield the names of those that were changed."""
        for job in list(self.driver.jobs.values()):
            if job.state not in ENDED and is_meant(job):
                with suppress(RefusedError):
                    self.change(job.name, kind)
                    yield job.name

    # --- the end --------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Return whether no item runs now."""
        return self.driver.core.observed == 0

    def count_running_items(self) -> int:
        """Return how many items run now."""
        with self.driver.condition:
            batches = [each for job in self.driver.core.jobs.values() for each in job.batches]
            return sum(batch.items_left for batch in batches if batch.servers > 0)

    def drain(self, timeout: float) -> bool:
        """Take no more jobs, and let running items end; return whether all have ended."""
        self.is_stopping = True
        self.driver.start_nothing_more()
        if not self.driver.wait(lambda: self.driver.core.observed == 0, timeout):
            return False
        calls = itertools.count()
        self.driver.wait(lambda: next(calls) > 0, 1.0)  # until the last end is written and shown
        return True

    def close(self) -> None:
        """Stop what is running; all of it goes on when the service is started again."""
        self.is_stopping = self.is_closed = True
        self.pool.close()
        self.journal.close()
