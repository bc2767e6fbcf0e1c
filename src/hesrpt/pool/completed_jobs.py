"""Iterating over the jobs of a pool as they end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from hesrpt.errors import InputError
from hesrpt.pool.job_handle import Job
from hesrpt.pool.job_handles import JobHandles
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.watches import Watch


def iterate_completed(
    driver: Driver, handles: JobHandles, jobs: Iterable[Job[Any]] | None, timeout: float | None
) -> Iterator[Job[Any]]:
    """Yield these jobs as they end; if ``jobs`` is None, all that no iterator has yielded yet.

    The time for ``timeout`` starts to run now, not when the first job is asked for.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    given = None
    if jobs is not None:
        if not isinstance(jobs, Iterable):
            raise InputError(f"must be several jobs, got {jobs!r}", argument="jobs")
        given = {handles.get_live_job(job): job for job in jobs}
    return _iterate(driver, handles, given, timeout, deadline)


def _iterate(
    driver: Driver,
    handles: JobHandles,
    given: dict[LiveJob, Job[Any]] | None,
    timeout: float | None,
    deadline: float | None,
) -> Iterator[Job[Any]]:
    with closing(_EndedJobs(driver, given)) as ended:
        while ended.are_awaited:
            remaining = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not driver.wait(ended.has_news, remaining):
                awaited = len(ended.awaited)
                count = "1 job has" if awaited == 1 else f"{awaited} jobs have"
                raise TimeoutError(f"{count} not ended after {timeout:g} s")
            for job in sorted(ended.take(), key=lambda job: job.ended or 0.0):
                if given is not None:
                    yield given[job]
                elif job.has_ended and not job.is_yielded:  # or yielded elsewhere
                    job.is_yielded = True
                    yield handles.take(job)


class _EndedJobs:
    """Collects jobs as they end, without looking at all jobs each time.

    Without given jobs, these are all that nobody has yielded, including those that are added or
    retried meanwhile.
    """

    def __init__(self, driver: Driver, given: Iterable[LiveJob] | None) -> None:
        self._driver, self._takes_all = driver, given is None
        self._ended: deque[LiveJob] = deque()  # may have been retried since
        self._known = (0, 0)  # how many jobs had been added and retried
        self.awaited: dict[LiveJob, Watch] = {}
        self._add(given or ())

    @property
    def are_awaited(self) -> bool:
        """Whether there are jobs that have not been taken."""
        self._find_others()
        return bool(self.awaited)

    def has_news(self) -> bool:
        """Return whether a job has ended, or there are others."""
        return bool(self._ended) or (self._takes_all and self._known != self._driver.count_jobs())

    def take(self) -> Iterator[LiveJob]:
        """Yield the jobs that have ended since the last time."""
        self._find_others()
        while self._ended:
            job = self._ended.popleft()
            if (watch := self.awaited.pop(job, None)) is not None:
                self._driver.unwatch(watch)
                if job.has_ended:
                    yield job
                else:  # it was retried
                    self._add((job,))

    def _find_others(self) -> None:
        """Await jobs that were added or retried since the last time."""
        if self._takes_all and self._known != (count := self._driver.count_jobs()):
            self._known = count
            self._add(job for job in list(self._driver.jobs.values()) if not job.is_yielded)

    def _add(self, jobs: Iterable[LiveJob]) -> None:
        for job in jobs:
            if job not in self.awaited:
                wake = partial(self._ended.append, job)
                watch = self.awaited[job] = Watch(job, partial(_has_ended, job), wake)
                if not self._driver.watch(watch) and job.has_ended:  # else the scheduler has failed
                    wake()

    def close(self) -> None:
        """Await no more jobs."""
        for watch in self.awaited.values():
            self._driver.unwatch(watch)


def _has_ended(job: LiveJob) -> bool:
    return job.has_ended
