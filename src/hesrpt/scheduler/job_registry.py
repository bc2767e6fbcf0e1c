"""Gives the jobs of a pool unique names and numbers, and resumes those in the journal.

A job continues the one that was added to an earlier run under the same name. If several were, it
continues the one with the same function or command, or else the first of them. Jobs of an executor
and jobs that another process has submitted are always new.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from hesrpt.engines.engine import Engine
from hesrpt.errors import InputError
from hesrpt.jobs.item_resources import describe_amount, describe_number
from hesrpt.jobs.job_end import JobEnd
from hesrpt.jobs.job_spec import JobSpec, describe_cycle, find_cycle
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.earlier_items import EarlierItems
from hesrpt.storage.job_names import choose_free_name
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Changes, JobRecord
from hesrpt.units import format_count

#: What to do with the results of a job whose function or command has changed since.
OnChange: TypeAlias = Literal["error", "redo", "keep"]


class ChangedJobsError(InputError):
    """Jobs have results of another function or command than the present one."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        subject = ", ".join(map(repr, names))
        problem = (
            f"job {subject}: its function has changed"
            if len(names) == 1
            else f"jobs {subject}: their functions have changed"
        )
        super().__init__(
            f'{problem} since results were recorded; Pool(…, on_change="redo") does all items '
            'again, and on_change="keep" keeps the results of items that are done'
        )


class JobRegistry:
    """The names and numbers that the jobs of a run have taken."""

    def __init__(
        self,
        journal: Journal | None,
        on_change: OnChange = "error",
        jobs: Mapping[str, LiveJob] | None = None,
    ) -> None:
        """``jobs`` has those in the run; without a journal, the names of others can be reused."""
        self._journal, self._on_change = journal, on_change
        self._jobs = {} if jobs is None else jobs
        self._records: dict[int, JobRecord] = {}  # not yet continued
        # These records by the names asked for, all of them and those with a fingerprint.
        self._by_name: dict[tuple[str, bool], deque[JobRecord]] = {}
        self._by_function: dict[tuple[str, bool, bytes], deque[JobRecord]] = {}
        self._earlier: dict[str, JobEnd | None] = {}  # how jobs in the journal have ended, by name
        # The newest job that was asked for under each name: its number and its name.
        self._newest: dict[str, tuple[int, str]] = {}
        for record in () if journal is None else journal.read_records():
            self._records[record.number] = record
            self._earlier[record.name] = record.end
            self._newest[record.given_name] = record.number, record.name
            if not record.spec.is_submitted and not record.spec.is_executor:
                key = record.given_name, record.spec.command is not None
                self._by_name.setdefault(key, deque()).append(record)
                self._by_function.setdefault((*key, record.fingerprint), deque()).append(record)
        self._names = set(self._earlier)  # which are in the journal
        self._new_names: set[str] = set()  # of jobs that are being registered
        self._counts: dict[str, int] = {}  # of several jobs with the same name
        self._lock = threading.Lock()  # jobs are registered and forgotten by different threads
        self._last_number = 0 if journal is None else journal.read_last_number()

    def list_records(self) -> list[JobRecord]:
        """Return the jobs in the journal that have not been continued."""
        return list(self._records.values())

    def end(self, records: Sequence[JobRecord]) -> None:
        """Note how jobs in the journal have ended that nobody can continue."""
        assert self._journal is not None
        with self._lock:
            self._journal.write(Changes(jobs=list(records)))
            self._records |= {record.number: record for record in records}
            self._earlier |= {record.name: record.end for record in records}

    def refuse_impossible(
        self, jobs: Sequence[LiveJob], engine: Engine | None
    ) -> dict[LiveJob, str]:
        """Raise an error if a job can never start, unless another process has submitted it.

        Return those that others have submitted, and why they cannot start.
        """
        problems = self.find_problems(jobs, engine)
        for job, problem in problems.items():
            if not job.spec.is_submitted:
                raise InputError(f"job {job.name!r}: {problem}")
        return problems

    def find_problems(self, jobs: Sequence[LiveJob], engine: Engine | None) -> dict[LiveJob, str]:
        """Return which jobs can never start, and why; without an engine, as far as it is known."""
        problems: dict[LiveJob, str] = {}
        waiting: list[LiveJob] = []  # for others
        for job in jobs:
            if job.spec.after:
                waiting.append(job)
            if engine is None:
                continue
            if job.spec.resize == "affinity" and not engine.can_resize:
                job.spec = replace(job.spec, resize="never")
            if (problem := explain_impossible(job.spec, engine)) is not None:
                problems[job] = problem
        return self._find_missing(waiting, jobs) | problems if waiting else problems

    def _find_missing(
        self, waiting: Iterable[LiveJob], jobs: Iterable[LiveJob]
    ) -> dict[LiveJob, str]:
        """Return which of the jobs that wait for others can never start, and why."""
        problems: dict[LiveJob, str] = {}
        by_name = {job.name: job for job in jobs}
        for job in waiting:
            for asked in job.spec.after:
                name = self._find_newest(asked, job)
                if asked in by_name or name in self._jobs:
                    continue
                if name not in self._earlier:
                    problems[job] = f"it waits for {name!r}, but there is no such job"
                elif self._earlier[name] is None:
                    problems[job] = f"it waits for {name!r}, which no one has added to this run"
        if cycle := find_cycle({job.name: job.spec.after for job in waiting}):
            problems |= {by_name[name]: describe_cycle(cycle) for name in cycle}
        return problems

    def register(self, jobs: Sequence[LiveJob]) -> None:
        """Give jobs unique names and numbers; resume those that are in the journal.

        Jobs that are registered together may wait for each other, by the names that were asked for.
        Otherwise, such a name means the newest job that was asked for under it.
        If an error is raised, nothing has changed.
        """
        with self._lock:
            together = {job.name: job for job in jobs}
            predecessors: dict[LiveJob, list[str]] = {}
            found: dict[LiveJob, JobRecord] = {}
            taken: set[int] = set()
            refused = []
            for job in jobs:
                if after := job.spec.after:
                    predecessors[job] = [
                        name if name in together else self._find_newest(name, job) for name in after
                    ]
                if (record := self._find_record(job, taken)) is not None:
                    found[job] = record
                    taken.add(record.number)
                    if record.fingerprint != job.fingerprint and record.done > 0:
                        refused.append(record.name)
            if refused and self._on_change == "error":
                raise ChangedJobsError(refused)
            for job in jobs:
                if (record := found.get(job)) is not None:
                    has_changed = record.fingerprint != job.fingerprint
                    self._resume(job, record, is_redone=has_changed and self._on_change != "keep")
                else:
                    self._add(job)
            if self._journal is not None:
                self._names |= self._new_names
            self._new_names.clear()
            for job, names in predecessors.items():
                self._note_predecessors(job, names, together)
            for job in jobs:
                asked = job.spec.given_name or job.name
                self._newest[asked] = max(self._newest.get(asked, (0, "")), (job.number, job.name))

    def forget(self, number: int, name: str) -> bool:
        """Forget a job that is removed from the journal, unless it was continued in this run.

        Its name can be used again.
        """
        with self._lock:
            is_free = name in self._jobs or self._records.pop(number, None) is not None
            if is_free:
                self._free_name(number, name)
            return is_free

    def withdraw(self, jobs: Iterable[LiveJob]) -> None:
        """Forget jobs that were registered and could not be written to the journal."""
        with self._lock:
            for job in jobs:
                self._free_name(job.number, job.name)

    def _free_name(self, number: int, name: str) -> None:
        self._names.discard(name)
        self._earlier.pop(name, None)
        for asked in [each for each, kept in self._newest.items() if kept[0] == number]:
            jobs: list[LiveJob | JobRecord] = [*self._records.values(), *self._jobs.values()]
            others = [
                (job.number, job.name)
                for job in jobs
                if (job.spec.given_name or job.name) == asked and job.number != number
            ]
            if others:
                self._newest[asked] = max(others)
            else:
                del self._newest[asked]

    def _find_newest(self, name: str, job: LiveJob) -> str:
        """Return the name of the newest job that was asked for under a name.

        A job that is in the journal waits for the same jobs as before. A script that continues a
        run may have added only an older one again so far.
        """
        if job.number:
            return name
        _, newest = self._newest.get(name, (0, name))
        is_older_meant = not job.spec.is_submitted and newest not in self._jobs
        return name if is_older_meant and name in self._jobs else newest

    def _note_predecessors(
        self, job: LiveJob, names: Sequence[str], together: Mapping[str, LiveJob]
    ) -> None:
        """Note the names of the jobs that a job waits for, and how those have ended that have."""
        after = []
        for name in names:
            other = together.get(name) or self._jobs.get(name)
            after.append(name if other is None else other.name)
            end = self._earlier.get(name) if other is None else other.end
            if end is not None:
                job.earlier_ends[after[-1]] = end
        job.spec = replace(job.spec, after=tuple(after))

    def _find_record(self, job: LiveJob, taken: Collection[int]) -> JobRecord | None:
        """Return the record of the job that a job continues; not one that is taken."""
        if job.number:
            return self._records[job.number]
        if job.is_new or not self._records:
            return None
        is_command = job.spec.command is not None
        same = self._by_function.get((job.name, is_command, job.fingerprint), deque())
        others = self._by_name.get((job.name, is_command), deque())
        return self._find_free(same, taken) or self._find_free(others, taken)

    def _find_free(self, records: deque[JobRecord], taken: Collection[int]) -> JobRecord | None:
        """Return the first record that no job has continued."""
        while records and records[0].number not in self._records:
            records.popleft()
        free = (
            record
            for record in records
            if record.number in self._records and record.number not in taken
        )
        return next(free, None)

    def _resume(self, job: LiveJob, record: JobRecord, is_redone: bool) -> None:
        assert self._journal is not None
        job.spec = replace(job.spec, name=record.name, given_name=record.spec.given_name)
        done = None
        if not is_redone:
            done = EarlierItems(self._journal.read_done_items(record.number))
        job.resume(record, done)
        del self._records[record.number]

    def _add(self, job: LiveJob) -> None:
        asked = job.name
        if self._is_taken(asked):
            count = self._counts.get(asked, 1)
            name, self._counts[asked] = choose_free_name(asked, self._is_taken, count)
            job.spec = replace(job.spec, name=name, given_name=asked)
        self._new_names.add(job.name)
        self._last_number += 1
        job.number = self._last_number

    def _is_taken(self, name: str) -> bool:
        return name in self._names or name in self._jobs or name in self._new_names


# --- jobs that need more than an engine can have ------------------------------------------------


def explain_impossible(spec: JobSpec, engine: Engine) -> str | None:
    """Return why a job can never start on an engine, or None."""
    if spec.min_servers:
        fewest = f"it needs at least {format_count(spec.min_servers, 'server')}"
        if spec.min_servers > (most := engine.max_capacity()):
            return f"{fewest}, but there are only {most:g}"
        if not spec.is_bag and spec.min_servers > (most := engine.max_command_width()):
            return f"{fewest}, but a command can have only {most:g} here"
    totals = engine.resource_totals()
    for kind, amount in spec.resources.items():
        if kind not in totals:
            return (
                f"each item needs {describe_amount(kind, amount)}, but how much there is was not "
                f"said: use resources={{{kind!r}: …}}, or --resources {kind}=…"
            )
        if amount > totals[kind]:
            total = describe_number(kind, totals[kind])
            return f"each item needs {describe_amount(kind, amount)}, but there is only {total}"
    return None
