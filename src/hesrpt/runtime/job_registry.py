"""Gives the jobs of a pool unique names and numbers, and resumes those in the journal."""

from __future__ import annotations

from dataclasses import replace

from hesrpt.runtime.journal import Journal
from hesrpt.runtime.live_job import LiveJob


class JobRegistry:
    """The names and numbers that the jobs of a run have taken."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._records = {} if journal is None else {job.name: job for job in journal.read_records()}
        self._last_number = 0 if journal is None else journal.read_last_number()
        self._names: set[str] = set()

    def register(self, job: LiveJob) -> None:
        """Give a job a unique name and a number, or resume it if it is in the journal."""
        job.spec = replace(job.spec, name=self._choose_name(job))
        self._names.add(job.name)
        record = self._records.get(job.name)
        if record is not None and self._journal is not None:
            done = self._journal.read_done_items(record.number)
            job.resume(record, frozenset(done.values()))
        else:
            self._last_number += 1
            job.number = self._last_number

    def _choose_name(self, job: LiveJob) -> str:
        name, count = job.name, 1
        while name in self._names or (job.is_new and name in self._records):
            count += 1
            name = f"{job.name} ({count})"
        return name
