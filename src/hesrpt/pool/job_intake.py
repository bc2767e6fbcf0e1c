"""Where jobs enter a pool: what can never start is refused, and the others get their names."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hesrpt.errors import InputError
from hesrpt.pool.job_handle import Job
from hesrpt.pool.job_handles import JobHandles
from hesrpt.scheduler.driver import Driver, PoolClosedError
from hesrpt.scheduler.feasibility import explain_impossible
from hesrpt.scheduler.job_registry import JobRegistry
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.journal_entries import Answer, JobRecord


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

    def end_earlier_jobs(self, records: Sequence[JobRecord], error: str) -> None:
        """Let jobs of earlier schedulers fail that nobody can continue."""
        now = self._driver.now
        self._registry.end([replace(record, ended=now, error=error) for record in records])

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

    def add_submitted(self, batches: Sequence[Sequence[LiveJob]], can_refuse: bool) -> list[Answer]:
        """Add jobs that other processes have submitted, unless the pool is closed.

        If one can never start, those that were submitted together with it are not added either.
        Return why, if whoever submitted them can be told. Otherwise, all are added, and those that
        can never start fail.
        """
        refusals: list[Answer] = []
        accepted = list(batches)
        # Jobs that wait for one that is refused can never start either.
        while can_refuse and (problems := self._find_problems(_join(accepted))):
            for batch in accepted:
                if wrong := [job for job in batch if job in problems]:
                    text = f"job {wrong[0].name!r}: {problems[wrong[0]]}"
                    answers = [job.answer for job in batch if job.answer is not None]
                    refusals += [Answer(answer.request, True, text) for answer in answers]
            accepted = [batch for batch in accepted if problems.keys().isdisjoint(batch)]
        with suppress(PoolClosedError):
            if accepted:
                self.add(_join(accepted))
        return refusals

    def _find_problems(self, jobs: Sequence[LiveJob]) -> dict[LiveJob, str]:
        """Return which jobs can never start, and why."""
        engine = self._driver.engine
        impossible = {job: error for job in jobs if (error := explain_impossible(job.spec, engine))}
        return self._registry.find_missing(jobs) | impossible


def _join(batches: Sequence[Sequence[LiveJob]]) -> list[LiveJob]:
    return [job for batch in batches for job in batch]
