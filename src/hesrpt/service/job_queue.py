"""The scheduler as the web layer sees it: jobs to show, and requests to write to the journal.

All methods may block, so they are called in threads. What changes jobs goes through the journal,
exactly as when another process asks for it: it is durable before it is confirmed.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError, StateError
from hesrpt.runtime.batch_run import RunOptions, create_pool, leave_out_blocked
from hesrpt.runtime.decisions.groups import PLAIN_GROUP, Group
from hesrpt.runtime.driver import Driver
from hesrpt.runtime.feasibility import explain_impossible
from hesrpt.runtime.handles.job_handle import Job
from hesrpt.runtime.job_names import describe_names
from hesrpt.runtime.job_spec import JobSpec
from hesrpt.runtime.job_state import ENDED
from hesrpt.runtime.live_job import LiveJob
from hesrpt.runtime.storage.journal import Journal
from hesrpt.runtime.storage.journal_entries import Answer, JobRecord, Request, RequestKind

# How long to wait until the scheduler has taken a job or answered a request, in seconds.
_ANSWER_SECONDS = 5.0
# How long to wait after a write to the journal before the next one, in seconds.
_WRITE_SECONDS = 0.1


class UnknownJobError(InputError):
    """There is no job of this name."""


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

    def continue_jobs(self, python_jobs: Sequence[LiveJob] = ()) -> list[Job[Any]]:
        """Continue the commands that are not done, and Python jobs; return handles of all these.

        Jobs that have failed or were cancelled stay so, until somebody asks to retry them.
        """
        records = [record for record in self.earlier.values() if record.state != "done"]
        jobs = [LiveJob.from_record(record) for record in records if record.spec.command]
        jobs = leave_out_blocked([*python_jobs, *jobs], records)
        by_name = {record.name: record for record in records}
        for job in jobs:
            job.stays_ended = True
            record = by_name.get(job.name)
            if record is not None and record.has_ended:
                failures = self.journal.read_failures(record)
                job.failures = {failure.item: failure for failure in failures}
        return self.pool.add_jobs(sorted(jobs, key=lambda job: job.number or math.inf))

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
        return [each.spec for each in self.journal.requests.read() if each.spec is not None]

    def list_groups(self) -> dict[str, Group]:
        """Return the groups of all jobs, and those of which something was said, by their names."""
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

    def submit(self, specs: Sequence[JobSpec], key: str, digest: str) -> list[KnownJob]:
        """Add jobs, unless that was done with the same key before; they are durable then."""
        if self.is_stopping:
            raise StoppingError("the service is stopping, and takes no more jobs")
        for spec in specs:
            if problem := explain_impossible(spec, self.driver.engine):
                others = "; no job was added" if len(specs) > 1 else ""
                raise RefusedError(f"job {spec.name!r}: {problem}{others}")
        requests = [Request(kind="submit", spec=spec) for spec in specs]
        if key:
            numbers = self._add_once(requests, key, digest)
        else:
            numbers, _ = self._requests.add(requests)
        self.driver.look_for_requests()
        wanted = set(numbers)
        found: dict[int, KnownJob] = {}
        is_there = self.driver.wait_for_arrivals(
            lambda: len(self._find_submitted(wanted, found)) == len(wanted), _ANSWER_SECONDS
        )
        if not is_there:
            for answer in self.journal.requests.read_answers(wanted).values():
                if answer.is_refused:  # it was possible a moment ago
                    raise RefusedError(answer.text)
            for record in self.earlier.values():
                if record.spec.submission in wanted:
                    found[record.spec.submission] = record
        return [found.get(number, spec) for number, spec in zip(numbers, specs, strict=False)]

    def _add_once(self, requests: Sequence[Request], key: str, digest: str) -> list[int]:
        try:
            return self._requests.add_once(requests, key, digest, time.time())
        except StateError:
            raise
        except InputError:
            raise InputError(f"Idempotency-Key {key!r} was used for another request") from None

    def _find_submitted(self, wanted: set[int], found: dict[int, KnownJob]) -> dict[int, KnownJob]:
        for job in reversed(self.driver.jobs.values()):
            number = job.spec.submission
            if number in wanted and job.arrived is not None:
                found[number] = job
            if len(found) == len(wanted) or (number and number < min(wanted)):
                break  # earlier jobs were submitted earlier
        return found

    def _wait_until(self, is_ready: Callable[[], bool]) -> bool:
        return self.driver.wait(is_ready, _ANSWER_SECONDS)

    def change(self, name: str, kind: RequestKind, weight: float | None = None) -> str:
        """Ask the scheduler to change a job; return what was done."""
        job = self.find_job(name)
        if isinstance(job, JobSpec):
            raise RefusedError(f"job {name!r} has not arrived yet; try again in a moment")
        if isinstance(job, JobRecord):
            problem = "has no failed items" if kind == "retry" else f"is {job.state} already"
            raise RefusedError(f"job {name!r} {problem}")
        request = Request(kind=kind, job=job.number, weight=weight)
        numbers, _ = self._requests.add([request])
        self.driver.look_for_requests()
        answer = self._wait_for_answer(numbers[0])
        if answer is None:
            return "will be done; the scheduler has not answered yet"
        if answer.is_refused:
            text = answer.text.removeprefix(f"job {name!r}: ")
            raise RefusedError(f"job {name!r} {text}")
        if kind == "cancel":  # the journal has it a moment before other threads may see it
            self._wait_until(lambda: job.has_ended)
        return answer.text

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
