"""The handles of a pool's jobs, and which of them the pool holds."""

from __future__ import annotations

import weakref
from typing import Any

from hesrpt.display.progress import Progress
from hesrpt.errors import InputError
from hesrpt.pool.job_handle import Job
from hesrpt.scheduler.lifetime import Lease
from hesrpt.scheduler.live_job import LiveJob


class JobHandles:
    """The handles of a pool's jobs. It holds those that nobody has read, so their results stay."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.progress: Progress | None = None  # shows the jobs
        self._unread: dict[LiveJob, Job[Any]] = {}
        self._handles: weakref.WeakValueDictionary[LiveJob, Job[Any]] = (
            weakref.WeakValueDictionary()
        )

    def add(self, job: LiveJob) -> Job[Any]:
        """Return the handle of a new job."""
        handle = self._handles[job] = Job(self._lease, job, self)
        if not job.spec.is_executor:  # the results of calls are in their futures
            self._unread[job] = handle
        return handle

    def get(self, job: LiveJob) -> Job[Any]:
        """Return the handle of a job; another one if the first was read and forgotten."""
        handle = self._handles.get(job)
        if handle is None:
            handle = self._handles[job] = Job(self._lease, job, self)
        return handle

    def get_live_job(self, handle: Job[Any]) -> LiveJob:
        """Return the job of a handle, which must be one of this pool."""
        if not isinstance(handle, Job) or handle._lease is not self._lease:
            raise InputError(f"must be jobs of this pool, got {handle!r}", argument="jobs")
        return handle._live

    def hold(self, handle: Job[Any]) -> None:
        """Hold a job that is retried, even if it was read before."""
        self._unread[handle._live] = handle

    def take(self, job: LiveJob) -> Job[Any]:
        """Return the handle of a job, and forget it."""
        handle = self.get(job)
        self.release(job)
        return handle

    def release(self, job: LiveJob) -> None:
        """Forget a job: its results are freed once nobody else holds it."""
        self._unread.pop(job, None)
        if self.progress is not None and not self._lease.driver.core.jobs:
            self.progress.close_if_ended()
