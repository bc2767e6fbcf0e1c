"""Waiting for the jobs of a pool to end."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from hesrpt.runtime.driver import Driver
from hesrpt.runtime.items.call_source import CallSource
from hesrpt.runtime.live_job import LiveJob


def wait_for_all_jobs(driver: Driver, timeout: float | None) -> bool:
    """Wait for all jobs, for at most ``timeout`` seconds; return whether they have ended."""
    return driver.wait(lambda: _have_ended(driver.jobs.values()), timeout)


def wait_except_for_executors(driver: Driver) -> None:
    """Wait for all jobs except for executors, which go on until they are shut down."""
    driver.wait(
        lambda: _have_ended(job for job in driver.jobs.values() if not job.spec.is_executor), None
    )


def shut_down_and_wait(driver: Driver) -> None:
    """Shut down the executors, and wait for all jobs, their callbacks and the jobs these add."""
    while True:
        jobs = list(driver.jobs.values())
        for job in jobs:
            if isinstance(job.source, CallSource):
                job.source.shutdown()
        # Not for all jobs: a callback may have added an executor that nobody has shut down.
        driver.wait(partial(_have_ended, jobs), None)
        driver.callbacks.wait_until_idle()
        if len(jobs) == len(driver.jobs) and _have_ended(jobs):
            return


def _have_ended(jobs: Iterable[LiveJob]) -> bool:
    return all(job.has_ended for job in jobs)
