"""Iterating over the jobs of a pool as they end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from hesrpt.errors import InputError
from hesrpt.runtime.driver import Driver
from hesrpt.runtime.handles.job_handle import Job
from hesrpt.runtime.handles.job_handles import JobHandles
from hesrpt.runtime.live_job import LiveJob


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
    while True:
        waiting = list(given) if given is not None else _list_unyielded(driver)
        if not waiting:
            return
        remaining = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        if not driver.wait(partial(_has_any_ended, waiting), remaining):
            count = "1 job has" if len(waiting) == 1 else f"{len(waiting)} jobs have"
            raise TimeoutError(f"{count} not ended after {timeout:g} s")
        ended = [job for job in waiting if job.has_ended]
        for job in sorted(ended, key=lambda job: job.ended or 0.0):
            if given is not None:
                yield given.pop(job)
            elif job.has_ended and not job.is_yielded:  # it may be retried, or yielded elsewhere
                job.is_yielded = True
                yield handles.take(job)


def _list_unyielded(driver: Driver) -> list[LiveJob]:
    return [job for job in list(driver.jobs.values()) if not job.is_yielded]


def _has_any_ended(jobs: list[LiveJob]) -> bool:
    return any(job.has_ended for job in jobs)
