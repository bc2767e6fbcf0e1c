"""Where jobs enter a pool: what can never start is refused, and the others get their names."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hesrpt.errors import InputError
from hesrpt.runtime.driver import Driver, PoolClosedError
from hesrpt.runtime.feasibility import explain_impossible
from hesrpt.runtime.handles.job_handle import Job
from hesrpt.runtime.handles.job_handles import JobHandles
from hesrpt.runtime.job_registry import JobRegistry
from hesrpt.runtime.live_job import LiveJob
from hesrpt.runtime.storage.journal_entries import Answer, JobRecord


class JobIntake:
    """Adds jobs to the run of a driver, until the pool is closed."""

    def __init__(self, driver: Driver, registry: JobRegistry, handles: JobHandles) -> None:
        self.is_closed = False
        self._driver, self._registry, self._handles = driver, registry, handles
        self._adding = threading.Lock()

    def check_open(self) -> None:
        """Raise an error if no more jobs can be added."""
        if self.is_closed:
            raise PoolClosedError("the pool is closed")
        self._driver.raise_failure()

    def list_earlier_jobs(self) -> list[JobRecord]:
        """Return the jobs of earlier schedulers that were not added again."""
        return self._registry.list_records()

    def add(self, jobs: Sequence[LiveJob]) -> list[Job[Any]]:
        """Add several jobs at once; none starts before all of them are in the journal."""
        with self._adding:
            self.check_open()
            for job in jobs:
                if job.spec.resize == "affinity" and not self._driver.engine.can_resize:
                    job.spec = replace(job.spec, resize="never")
            problems = self._find_problems(jobs)
            for job, error in problems.items():
                if not job.spec.is_submitted:
                    raise InputError(f"job {job.name!r}: {error}")
                if job.answer is not None:
                    job.answer = Answer(job.answer.request, True, error)
            self._registry.register(jobs)
            jobs = [job for job in jobs if job.spec.command is None or job.state != "done"]
            handles = [self._handles.add(job) for job in jobs]
            self._driver.submit(jobs)
            for job, error in problems.items():
                self._driver.cancel(job, error)  # whoever submitted it is not here
        return handles

    def add_submitted(self, jobs: Sequence[LiveJob], can_refuse: bool) -> list[Answer]:
        """Add jobs that another process has submitted, unless the pool is closed.

        Return why some of them are not added, if whoever submitted them can be told. Otherwise,
        those that can never start are added too, and fail.
        """
        refusals: dict[LiveJob, str] = {}
        accepted = list(jobs)
        # Jobs that wait for one that is refused can never start either.
        while can_refuse and (problems := self._find_problems(accepted)):
            refusals |= problems
            accepted = [job for job in accepted if job not in problems]
        with suppress(PoolClosedError):
            if accepted:
                self.add(accepted)
        return [
            Answer(job.answer.request, True, error)
            for job, error in refusals.items()
            if job.answer is not None
        ]

    def _find_problems(self, jobs: Sequence[LiveJob]) -> dict[LiveJob, str]:
        """Return which jobs can never start, and why."""
        engine = self._driver.engine
        impossible = {job: error for job in jobs if (error := explain_impossible(job.spec, engine))}
        return self._registry.find_missing(jobs) | impossible
