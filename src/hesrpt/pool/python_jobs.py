"""Where jobs enter a pool: those that call Python functions, and those of jobs files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hesrpt.engines.engine import Engine
from hesrpt.errors import InputError
from hesrpt.jobs.fingerprints import fingerprint_function
from hesrpt.jobs.job_end import JobEnd
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.schema import FUNCTION_FIELDS, read_job
from hesrpt.pool.job_handle import Job, JobHandles
from hesrpt.scheduler.call_source import CallSource
from hesrpt.scheduler.calls import Caller
from hesrpt.scheduler.driver import Driver, PoolClosedError
from hesrpt.scheduler.feasibility import explain_impossible
from hesrpt.scheduler.job_registry import JobRegistry
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.python_source import PythonSource, ReadAhead
from hesrpt.storage.journal_entries import Answer, JobRecord
from hesrpt.validation import check_whole_number

# --- every job: what can never start is refused, the others get their names ---------------------


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

    def end_earlier_jobs(self, records: Sequence[JobRecord], end: JobEnd) -> None:
        """Let jobs of earlier schedulers fail that nobody can continue."""
        now = self._driver.now
        self._registry.end([replace(record, ended=now, end=end) for record in records])

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
                self._driver.cancel(
                    job, JobEnd("impossible", error)
                )  # whoever submitted it is not here
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


# --- jobs that call Python functions ------------------------------------------------------------


def create_map_job(
    function: Callable[[Any], Any],
    items: Iterable[Any],
    fields: Mapping[str, object],
    *,
    engine: Engine,
    read_ahead: Callable[[], ReadAhead],
    keep: bool,
    has_journal: bool,
) -> LiveJob:
    """Create a job that calls a function with each item."""
    if not callable(function):
        raise InputError(f"must be callable, got {function!r}", argument="function")
    if not isinstance(items, Iterable):
        raise InputError(f"must be iterable, got {items!r}", argument="items")
    if keep and not engine.can_keep_results:
        raise InputError("keep=True needs a cluster, where the results can stay")
    values = _read_arguments(fields)
    source = PythonSource(
        engine.pack_function(function),
        items,
        pack_argument=engine.pack_argument,
        read_ahead=read_ahead,
        timeout=values.pop("timeout", None),
        keep_results=keep,
        has_journal=has_journal,
    )
    count = len(items) if isinstance(items, Sized) else None
    spec = JobSpec(**values, items=count, is_streamed=True)
    fingerprint = fingerprint_function(function) if has_journal else b""
    return LiveJob(spec=spec, source=source, fingerprint=fingerprint)


def create_executor_job(
    fields: Mapping[str, object],
    *,
    engine: Engine,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    max_tasks_per_child: int | None,
) -> tuple[LiveJob, CallSource]:
    """Create a job whose items are calls, and the source of these."""
    if initializer is not None and not callable(initializer):
        raise InputError(f"must be callable, got {initializer!r}", argument="initializer")
    if not isinstance(initargs, Iterable):
        raise InputError(f"must be a tuple, got {initargs!r}", argument="initargs")
    if max_tasks_per_child is not None:
        name = "max_tasks_per_child"
        max_tasks_per_child = check_whole_number(name, max_tasks_per_child, minimum=1)
        if not engine.can_replace_workers:
            raise InputError("needs the local engine: a cluster keeps its servers", argument=name)
    values = _read_arguments(fields)
    caller = Caller(initializer, tuple(initargs), max_tasks_per_child)
    source = CallSource(engine, caller, values.pop("timeout", None))
    spec = JobSpec(**values, retries=0, is_streamed=True, is_executor=True)
    return LiveJob(spec=spec, source=source, is_new=True), source


def _read_arguments(fields: Mapping[str, object]) -> dict[str, Any]:
    """Return what arguments of ``map`` and ``executor`` mean; None stands for a default."""
    given = {key: value for key, value in fields.items() if value is not None or key == "name"}
    after = given.get("after", ())
    if isinstance(after, Iterable) and not isinstance(after, str):
        given["after"] = [job.name if isinstance(job, Job) else job for job in after]
    elif isinstance(after, Job):
        given["after"] = after.name
    return read_job(given, FUNCTION_FIELDS, lambda _, error: error)
