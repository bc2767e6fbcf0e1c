"""Waiting for the jobs of a pool: for the end of all, or for one after another."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from hesrpt.errors import InputError
from hesrpt.pool.job_handle import Job, JobHandles
from hesrpt.scheduler.call_source import CallSource
from hesrpt.scheduler.driver import Driver, Watch
from hesrpt.scheduler.live_job import LiveJob

# --- one job after another, as they end ---------------------------------------------------------


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


def wait_for_all_jobs(driver: Driver, timeout: float | None) -> bool:
    """Wait for all jobs, for at most ``timeout`` seconds; return whether they have ended."""
    return driver.wait(_Ends(lambda: driver.jobs.values()).have_all_ended, timeout)


def wait_except_for_executors(driver: Driver) -> None:
    """Wait for all jobs except for executors, which go on until they are shut down."""
    jobs = driver.jobs
    ends = _Ends(lambda: (job for job in jobs.values() if not job.spec.is_executor))
    driver.wait(ends.have_all_ended, None)


def shut_down_and_wait(driver: Driver) -> None:
    """Shut down the executors, and wait for all jobs, their callbacks and the jobs these add."""
    while True:
        jobs = list(driver.jobs.values())
        for job in jobs:
            if isinstance(job.source, CallSource):
                job.source.shutdown()
        # Not for all jobs: a callback may have added an executor that nobody has shut down.
        driver.wait(_Ends(partial(iter, jobs)).have_all_ended, None)
        driver.callbacks.wait_until_idle()
        if len(jobs) == len(driver.jobs) and _have_ended(jobs):
            return


class _Ends:
    """Tells whether jobs have ended, without looking at all of them each time."""

    def __init__(self, list_jobs: Callable[[], Iterable[LiveJob]]) -> None:
        self._list_jobs = list_jobs
        self._waiting: list[LiveJob] = []  # had not ended when the jobs were last listed

    def have_all_ended(self) -> bool:
        """Return whether all jobs have ended."""
        while self._waiting and self._waiting[-1].has_ended:
            self._waiting.pop()
        if not self._waiting:  # others may have been added, or go on after their end
            self._waiting = [job for job in self._list_jobs() if not job.has_ended]
        return not self._waiting


def _have_ended(jobs: Iterable[LiveJob]) -> bool:
    return all(job.has_ended for job in jobs)
