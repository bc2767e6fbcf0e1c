"""How long jobs that have ended are kept, and which of them are to be removed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from hesrpt.validation import check_positive, check_whole_number


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
