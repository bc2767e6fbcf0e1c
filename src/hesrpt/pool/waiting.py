"""Waiting for the jobs of a pool to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from hesrpt.scheduler.call_source import CallSource
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_job import LiveJob


def wait_for_all_jobs(driver: Driver, timeout: float | None) -> bool:
    """Wait for all jobs, for at most ``timeout`` seconds; return whether they have ended."""
    return driver.wait(_Ends(lambda: driver.jobs.values()).are_all_there, timeout)


def wait_except_for_executors(driver: Driver) -> None:
    """Wait for all jobs except for executors, which go on until they are shut down."""
    jobs = driver.jobs
    ends = _Ends(lambda: (job for job in jobs.values() if not job.spec.is_executor))
    driver.wait(ends.are_all_there, None)


def shut_down_and_wait(driver: Driver) -> None:
    """Shut down the executors, and wait for all jobs, their callbacks and the jobs these add."""
    while True:
        jobs = list(driver.jobs.values())
        for job in jobs:
            if isinstance(job.source, CallSource):
                job.source.shutdown()
        # Not for all jobs: a callback may have added an executor that nobody has shut down.
        driver.wait(_Ends(partial(iter, jobs)).are_all_there, None)
        driver.callbacks.wait_until_idle()
        if len(jobs) == len(driver.jobs) and _have_ended(jobs):
            return


class _Ends:
    """Tells whether jobs have ended, without looking at all of them each time."""

    def __init__(self, list_jobs: Callable[[], Iterable[LiveJob]]) -> None:
        self._list_jobs = list_jobs
        self._waiting: list[LiveJob] = []  # had not ended when the jobs were last listed

    def are_all_there(self) -> bool:
        """Return whether all jobs have ended."""
        while self._waiting and self._waiting[-1].has_ended:
            self._waiting.pop()
        if not self._waiting:  # others may have been added, or go on after their end
            self._waiting = [job for job in self._list_jobs() if not job.has_ended]
        return not self._waiting


def _have_ended(jobs: Iterable[LiveJob]) -> bool:
    return all(job.has_ended for job in jobs)
