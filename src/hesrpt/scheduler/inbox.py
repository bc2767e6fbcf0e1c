"""The scheduler's side of requests: what other processes ask of a run, taken from the journal.

A request stays in the journal until it is answered, in one transaction with what was done about it.
So it is obeyed exactly once, even if the scheduler is killed between.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence

from hesrpt.jobs.job_end import describe_end
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.steering import RequestReceived
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Answer, Changes, Request

#: How often to look for requests, in seconds.
POLL_SECONDS = 0.25

#: Adds jobs to a pool, unless that is closed: lists of jobs that were submitted together. Returns
#: refusals if jobs can be refused.
AddJobs = Callable[[Sequence[Sequence[LiveJob]], bool], Sequence[Answer]]


class Inbox:
    """Takes the requests to a run, in the driver's thread."""

    def __init__(self, journal: Journal, add_jobs: weakref.WeakMethod[AddJobs]) -> None:
        self._journal, self._add_jobs = journal, add_jobs
        self._deferred: set[int] = set()  # requests about jobs that the run does not have yet
        self.has_job_requests = False  # whether a request was, at the last look
        self._is_closed = False
        self._has_looked = False
        journal.requests.open()

    def take(self, list_jobs: Callable[[], Iterable[LiveJob]]) -> list[RequestReceived]:
        """Return the requests about jobs of this run, and add the jobs that were submitted."""
        # Those who submit jobs now wait for an answer, unlike those who did before the start.
        can_refuse, self._has_looked = self._has_looked, True
        self.has_job_requests = False
        if self._is_closed or not (requests := self._journal.requests.read()):
            return []
        submitted: dict[int, list[LiveJob]] = {}
        for request in requests:
            if request.spec is not None:
                job = LiveJob.from_command(request.spec, submission=request.number)
                submitted.setdefault(request.submission or request.number, []).append(job)
        received = []
        by_number: dict[int | None, LiveJob] = {}
        by_submission: dict[int | None, LiveJob] = {}
        self.has_job_requests = any(request.spec is None for request in requests)
        for job in list_jobs() if self.has_job_requests else ():
            by_number[job.number], by_submission[job.spec.submission] = job, job
        by_submission.pop(None, None)
        for request in requests:
            if request.spec is not None:
                continue
            job_found = by_number.get(request.job) or by_submission.get(request.submission)
            if job_found is not None:
                received.append(RequestReceived(job_found, request))
            elif request.group is not None:
                received.append(RequestReceived(None, request))
            elif request.number not in self._deferred:
                self._defer(request)
        if submitted and (add_jobs := self._add_jobs()) is not None:
            refusals = add_jobs(list(submitted.values()), can_refuse)
            self._journal.write(Changes(answers=list(refusals)))
            # All others are in the journal before this method is called again.
        return received

    def _defer(self, request: Request) -> None:
        """Keep a request about a job that is not in this run, unless it is too late for it."""
        records = self._journal.read_records()
        record = next((record for record in records if request.is_about(record)), None)
        if record is None or not record.has_ended or request.kind == "retry":
            self._deferred.add(request.number)  # its script or jobs file may add it
            return
        answer = Answer(request.number, True, describe_end(record.state))
        self._journal.write(Changes(answers=[answer]))

    def close(self) -> bool:
        """Take no more requests; return False if there is one that has not been answered."""
        self._is_closed = self._is_closed or self._journal.requests.close(self._deferred)
        return self._is_closed
