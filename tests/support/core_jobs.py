"""Jobs for tests of the scheduler's decisions, and what such tests expect."""

from __future__ import annotations

from hesrpt import PowerLaw
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import Command, Finish, Start
from hesrpt.jobs.job_end import JobEnd
from hesrpt.jobs.job_spec import JobSpec

HALF = PowerLaw(0.5)


def bag(name: str, items: int | None, size: float | None = None, **options: object) -> JobSpec:
    """Return a job with items."""
    return JobSpec(name=name, items=items, size=size, speedup=HALF, **options)  # type: ignore[arg-type]


def starts(job: str, *items: int) -> list[Command]:
    """Return the commands that start items of a job."""
    return [Start(job, item) for item in items]


def count_servers(core: Core) -> dict[str, tuple[int, int]]:
    """Return the planned and the observed servers of each job."""
    return {name: (job.planned, job.observed) for name, job in core.jobs.items()}


def command(name: str, **options: object) -> JobSpec:
    """Return a job that is one command."""
    return JobSpec(name=name, size=100.0, speedup=HALF, **options)  # type: ignore[arg-type]


def fail(job: str, error: str) -> Finish:
    """Return the command that ends a job because of its failed items."""
    return Finish(job, JobEnd("items_failed", error))
