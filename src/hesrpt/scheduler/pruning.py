"""How long jobs are kept, and the removal of old ones: rarely and in small steps.

What there is, and what is to be removed, is found out in a thread of its own. The scheduler's
thread removes a little of it in each step. The entry of a job goes first: if the scheduler is
killed then, what belonged to the job is removed when the next one starts, or looks for old jobs.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hesrpt.errors import StateError
from hesrpt.storage.journal import Journal
from hesrpt.storage.logs import list_all_logs
from hesrpt.validation import check_positive, check_whole_number

# How long after the start to look for old jobs for the first time, and how often then, in seconds.
_FIRST_SECONDS, _PAUSE_SECONDS = 5.0, 300.0
# For how long a job is left alone when it has ended, in seconds: it may be retried at once.
_SETTLED_SECONDS = 10.0
# How long one step may take, in seconds.
_STEP_SECONDS = 0.005

_LOG = logging.getLogger("hesrpt")


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long to keep jobs that have ended, with their results and their output.

    The oldest are removed first. A job that has not ended is never removed, nor one that such a job
    waits for.

    Parameters
    ----------
    max_age
        Seconds after which a job is removed. Time during which no scheduler ran does not count.
    max_bytes
        The most that the results and the output of all jobs may take.
    max_jobs
        How many jobs that have ended are kept.
    """

    max_age: float | None = None
    max_bytes: float | None = None
    max_jobs: int | None = None

    def __post_init__(self) -> None:
        if self.max_age is not None:
            check_positive("max_age", self.max_age)
        if self.max_bytes is not None:
            check_positive("max_bytes", self.max_bytes)
        if self.max_jobs is not None:
            check_whole_number("max_jobs", self.max_jobs, minimum=0)


@dataclass(frozen=True, kw_only=True)
class StoredJob:
    """A job in a state directory."""

    number: int
    ended: float | None  # None: it has not
    size: int = 0  # of its results and its output, in bytes


def choose_jobs_to_remove(
    jobs: Iterable[StoredJob], retention: Retention, now: float, protected: Collection[int] = ()
) -> list[int]:
    """Return the numbers of the jobs to remove, the oldest first.

    >>> jobs = [StoredJob(number=n, ended=float(n), size=10) for n in (1, 2, 3)]
    >>> choose_jobs_to_remove(jobs, Retention(max_bytes=25), now=9.0)
    [1]
    >>> choose_jobs_to_remove(jobs, Retention(max_age=7), now=9.0, protected=[1])
    []
    """
    listed = list(jobs)
    ended = sorted((job.ended, job.number, job.size) for job in listed if job.ended is not None)
    ended = [job for job in ended if job[1] not in protected]
    count, size = len(ended), sum(job.size for job in listed)
    chosen = []
    for end, number, its_size in ended:
        is_surplus = (
            (retention.max_age is not None and now - end > retention.max_age)
            or (retention.max_bytes is not None and size > retention.max_bytes)
            or (retention.max_jobs is not None and count > retention.max_jobs)
        )
        if is_surplus:
            chosen.append(number)
            count, size = count - 1, size - its_size
    return chosen


class Survey(NamedTuple):
    """What is to be removed from a state directory."""

    jobs: list[int]  # their numbers
    logs: dict[int, list[Path]]  # of these jobs, and of jobs that are not in the journal any more


def survey_directory(directory: Path, retention: Retention, now: float) -> Survey:
    """Find out what is to be removed."""
    with closing(Journal.read(directory)) as journal:
        # First the logs: those of jobs that come later are not taken for those of removed ones.
        logs = list_all_logs(directory)
        records, sizes = journal.read_ends(), journal.measure_results()
        pending = {call.job for call in journal.hooks.read() if call.is_pending}
    wanted = {name for end in records if end.ended is None for name in end.after}
    jobs = []
    for end in records:
        size = sizes.get(end.number, 0) + sum(map(_measure_file, logs.get(end.number, ())))
        is_settled = end.ended is not None and now - end.ended >= _SETTLED_SECONDS
        jobs.append(
            StoredJob(number=end.number, ended=end.ended if is_settled else None, size=size)
        )
    protected = pending | {end.number for end in records if end.name in wanted}
    chosen = choose_jobs_to_remove(jobs, retention, now, protected)
    known = {end.number for end in records}
    gone = {number: paths for number, paths in logs.items() if number not in known}
    return Survey(chosen, gone | {number: logs[number] for number in chosen if number in logs})


def _measure_file(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # it was removed meanwhile
        return 0


class Pruner:
    """Removes the jobs that a retention does not keep.

    ``release`` lets the scheduler forget some jobs, given by their numbers, and returns those that
    may be removed: not those that have been retried or are waited for meanwhile.
    """

    def __init__(
        self, journal: Journal, retention: Retention, release: Callable[[list[int]], list[int]]
    ) -> None:
        self._journal, self._retention, self._release = journal, retention, release
        self._next_survey = time.monotonic() + _FIRST_SECONDS
        self._thread: threading.Thread | None = None
        self._found: Survey | None = None
        self._jobs: deque[int] = deque()  # to be removed
        self._logs: dict[int, list[Path]] = {}
        self._files: deque[Path] = deque()

    def step(self, now: float) -> None:
        """Remove a little, or start to look for old jobs if it is time for that."""
        found, self._found = self._found, None
        if found is not None:
            released = set(self._release(found.jobs))
            self._jobs.extend(number for number in found.jobs if number in released)
            kept = set(found.jobs) - released
            self._logs = {job: paths for job, paths in found.logs.items() if job not in kept}
            for job in self._logs.keys() - released:
                self._files.extend(self._logs[job])
        deadline = time.monotonic() + _STEP_SECONDS
        while (self._jobs or self._files) and time.monotonic() < deadline:
            if self._files:
                self._files.popleft().unlink(missing_ok=True)
            elif self._journal.remove_job(self._jobs[0]):
                self._files.extend(self._logs.get(self._jobs.popleft(), ()))
        is_busy = self._thread is not None and self._thread.is_alive()
        if not is_busy and not self._jobs and time.monotonic() >= self._next_survey:
            self._next_survey = time.monotonic() + _PAUSE_SECONDS
            self._thread = threading.Thread(
                target=self._survey, args=(now,), name="hesrpt-retention", daemon=True
            )
            self._thread.start()

    def _survey(self, now: float) -> None:
        try:
            self._found = survey_directory(self._journal.directory, self._retention, now)
        except (StateError, OSError) as error:
            _LOG.warning("hesrpt: old jobs are not removed: %s", error)
