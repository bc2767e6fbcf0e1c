"""Builds what is shown of jobs, from records of the journal and from jobs of a running scheduler.

All who show jobs get them from here, so that they are the same by state directory and by URL.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hesrpt.display.overview import RunOverview
from hesrpt.jobs.command_template import write_braces_once
from hesrpt.jobs.failures import FailedItem
from hesrpt.jobs.item_resources import describe_shortage
from hesrpt.jobs.job_end import get_job_state
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.job_view import JobView
from hesrpt.storage.journal_entries import JobRecord

if TYPE_CHECKING:
    from hesrpt.scheduler.driver import Driver
    from hesrpt.scheduler.live_job import LiveJob


@dataclass(frozen=True, kw_only=True)
class JobViewer:
    """Builds the views of jobs at one moment of their run."""

    now: float  # seconds since the run began
    is_unfinished: Callable[[str], bool]  # whether the job of a name has not ended
    free: Mapping[str, float] | None = None  # what is free of resources; None: not known

    def view_record(
        self, record: JobRecord, failed_items: Sequence[FailedItem], **scheduled: Any
    ) -> JobView:
        """Return what is shown of a job in the journal.

        ``scheduled`` is what its scheduler says of it: ``servers``, ``planned``, ``predicted_end``
        and ``is_paused``.
        """
        return self._view(
            record,
            done=record.done,
            failed=len(failed_items),
            failed_attempts=record.failures,
            failed_items=tuple(failed_items),
            **scheduled,
        )

    def view_live(
        self, job: LiveJob, predicted_end: float | None, *, lists_failures: bool = False
    ) -> JobView:
        """Return what is shown of a job of a running scheduler."""
        failures = None
        if lists_failures:  # the scheduler may add some meanwhile
            failures = tuple(failure for _, failure in sorted(job.failures.copy().items()))
        earlier = 0 if job.record is None or job.is_redone else job.record.failures
        return self._view(
            job,
            done=job.reported_done,
            failed=len(job.failures),
            failed_attempts=job.failed_attempts + earlier,
            failed_items=failures,
            servers=job.servers,
            planned=job.planned,
            predicted_end=predicted_end,
            is_paused=job.is_paused,
        )

    def view_submitted(self, spec: JobSpec) -> JobView:
        """Return what is shown of a job that the scheduler has not taken yet."""
        waits_for = tuple(filter(self.is_unfinished, spec.after))
        return JobView(
            state="submitted", items=spec.items, waits_for=waits_for, **_get_values(spec)
        )

    def _view(
        self,
        job: JobRecord | LiveJob,
        *,
        done: int,
        failed: int,
        failed_attempts: int,
        failed_items: tuple[FailedItem, ...] | None,
        servers: int = 0,
        planned: int | None = None,
        predicted_end: float | None = None,
        is_paused: bool = False,
    ) -> JobView:
        spec, end, arrived, ended = job.spec, job.end, job.arrived, job.ended
        state = get_job_state(end, servers=servers, is_paused=is_paused)
        progress = 1.0 if state == "done" else done / job.items if job.items else None
        waits_for: tuple[str, ...] = ()
        waits_because = ""
        if end is not None:  # it holds and awaits nothing
            servers, planned, predicted_end = 0, None, None
        else:
            waits_for = tuple(filter(self.is_unfinished, spec.after))
            if state == "waiting" and not waits_for and self.free is not None:
                waits_because = describe_shortage(spec.resources, self.free, "free")
        last = self.now if ended is None else ended
        return JobView(
            number=job.number,
            state=state,
            waits_for=waits_for,
            waits_because=waits_because,
            done=done,
            items=job.items,
            failed=failed,
            servers=servers,
            planned=planned,
            arrived=arrived,
            ended=ended,
            flow_time=None if arrived is None or ended is None else ended - arrived,
            elapsed=None if arrived is None else last - arrived,
            eta=None if predicted_end is None else max(predicted_end - self.now, 0.0),
            progress=None if arrived is None else progress,
            reason=None if end is None else end.reason,
            error=None if end is None else end.error,
            failed_attempts=failed_attempts,
            failed_items=failed_items,
            **_get_values(spec),
        )


def _get_values(spec: JobSpec) -> dict[str, Any]:
    """Return what is shown of a job as it was asked for."""
    return {
        "name": spec.name,
        "group": spec.group,
        "after": spec.after,
        "min_servers": spec.min_servers,
        "max_servers": spec.max_servers,
        "weight": spec.weight,
        "resources": dict(spec.resources),
        "command": write_command(spec),
    }


def write_command(spec: JobSpec) -> str | None:
    """Return the command of a job as ``hesrpt add`` takes it; None if it calls a function."""
    if spec.command is None:
        return None
    command = spec.command.command
    if isinstance(command, str):
        return write_braces_once(command.strip())
    return shlex.join(map(write_braces_once, command))


# --- the jobs of a running scheduler, read without a lock, so that it is always quick ------------


def create_viewer(driver: Driver) -> JobViewer:
    """Return what builds the views of a scheduler's jobs as they are now."""
    jobs = driver.jobs

    def is_unfinished(name: str) -> bool:
        job = jobs.get(name)
        return job is not None and not job.has_ended

    free = {kind: free for kind, (_, free) in driver.core.stock.describe().items()}
    return JobViewer(now=driver.now, is_unfinished=is_unfinished, free=free)


def view_job(driver: Driver, job: LiveJob) -> JobView:
    """Return what is shown of a job, without its failed items."""
    end = driver.recall_ends().get(job.name)
    return create_viewer(driver).view_live(job, end)


def view_run(driver: Driver, *, lists_failures: bool = False) -> RunOverview:
    """Return what is shown of a run."""
    viewer, ends = create_viewer(driver), driver.recall_ends()
    return RunOverview(
        servers=driver.core.servers,
        policy=driver.core.allocator.policy.name,
        jobs=[
            viewer.view_live(job, ends.get(job.name), lists_failures=lists_failures)
            for job in list(driver.jobs.values())
        ],
        note=driver.describe_end(),
    )
