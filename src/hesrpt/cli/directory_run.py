"""A run in a state directory. Its journal is read, and requests are left in it."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hesrpt._version import __version__
from hesrpt.cli.failed_items import failures_as_json
from hesrpt.cli.log_printers import ItemOutput, JobOutput
from hesrpt.cli.run_tables import describe_continuation, get_resume_command
from hesrpt.cli.run_view import AddedJobs, EndedJob, PendingChange, RunView, list_failed_hooks
from hesrpt.display.escaping import escape
from hesrpt.errors import InputError
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.reports.inspection import (
    ItemLog,
    RunStatus,
    list_logs,
    read_job_names,
    read_status,
)
from hesrpt.reports.job_values import create_job_values
from hesrpt.reports.log_following import LogFollower
from hesrpt.scheduler.requests import (
    RequestResult,
    find_names,
    request_change,
    submit_jobs,
)
from hesrpt.storage.job_names import describe_names
from hesrpt.storage.journal_entries import JobRecord, RequestKind

# How often to look whether jobs have ended, in seconds.
_POLL_SECONDS = 0.25
# How often to look for new output, in seconds; and how many times as long as that took, at least.
_FOLLOW_SECONDS, _FOLLOW_FACTOR = 0.2, 5.0
_BLOCK_BYTES = 1 << 16


class DirectoryRun:
    """A run that is found by its state directory."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.place = directory, str(directory)

    def read_status(self) -> RunStatus:
        """Return the state of all jobs."""
        return read_status(self.directory)

    def read(self) -> RunView:
        """Return what is shown of the run."""
        status = self.read_status()
        hooks = list_failed_hooks(status.hooks)
        content = {
            "hesrpt": __version__,
            "running": status.is_running,
            "submitted": [spec.name for spec in status.submitted],
            "requests": [
                {"request": each.number, "kind": each.kind, "job": name, "weight": each.weight}
                for name, each in status.changes
            ],
            "groups": {
                name: {"weight": group.weight, "paused": group.is_paused}
                for name, group in status.groups.items()
            },
            "resources": {
                kind: {"total": total, "free": free}
                for kind, (total, free) in status.progress.resources.items()
            },
            "failed_hooks": [vars(hook) for hook in hooks],
            "jobs": [_describe(status, job) for job in status.jobs],
        }

        def find_failures(names: Collection[str]) -> list[JobRecord]:
            return [job for job in status.jobs if job.name in names]

        return RunView(
            overview=status.describe(),
            content=content,
            find_failures=find_failures,
            failed_hooks=hooks,
            changes=[PendingChange(name, each.describe()) for name, each in status.changes],
            continuation=describe_continuation(status, self.directory),
        )

    def list_names(self) -> list[str]:
        """Return the names of all jobs, also of those that were only submitted."""
        status = self.read_status()
        names = [job.name for job in status.jobs] + [spec.name for spec in status.submitted]
        return list(dict.fromkeys(names))

    def list_groups(self) -> list[str]:
        """Return the names of the groups of jobs."""
        return list(self.read_status().groups)

    def change(
        self, kind: RequestKind, names: Sequence[str], weight: float | None, group: str | None
    ) -> list[RequestResult]:
        """Ask for a change of jobs, of a group, or of all jobs that it applies to."""
        return request_change(self.directory, kind, names, weight=weight, group=group)

    def explain_missing_answers(self) -> str:
        """Return why requests were not answered, and what to do about it."""
        status = self.read_status()
        if status.is_running:
            return ""
        return f"no scheduler is running{describe_continuation(status, self.directory)}"

    def add(self, jobs: Sequence[dict[str, Any]]) -> AddedJobs:
        """Add jobs, given as values like those of a jobs file."""
        from hesrpt.service.job_requests import read_jobs

        return self._submit(read_jobs({"jobs": list(jobs)}, read_job_names(self.directory)))

    def submit(self, path: Path) -> AddedJobs:
        """Add the jobs in a file."""
        from hesrpt.jobs.jobs_file import read_jobs_file

        file = read_jobs_file(path, read_job_names(self.directory))
        return self._submit(file.jobs, file.group_weights)

    def _submit(
        self, specs: Sequence[JobSpec], group_weights: Mapping[str, float] | None = None
    ) -> AddedJobs:
        submission = submit_jobs(self.directory, specs, group_weights)
        subject = "it starts" if len(specs) == 1 else "they start"
        note = f"; {subject} with: {get_resume_command(self.directory)}"
        names = find_names(self.directory, submission)
        return AddedJobs(names, "" if submission.starts_now else note)

    def open_logs(self, job: str, item: int | None, *, follow: bool) -> JobOutput:
        """Return what the items of a job have printed, and with ``follow`` what they will print."""
        if follow:
            follower = LogFollower(self.directory, job, item)
            return JobOutput(item is None and follower.items != 1, _follow(follower))
        logs = list_logs(self.directory, job, item)
        parts = (part for log in logs for part in _read_blocks(log))
        return JobOutput(item is None and len(logs) > 1, parts)

    def wait(self, names: Sequence[str], timeout: float | None) -> Iterator[EndedJob]:
        """Wait for jobs, or for all that have not ended; yield them as they end.

        Raises a TimeoutError.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        ended: set[str] = set()
        has_warned = False
        wanted: Sequence[str] | None = names or None
        while True:
            status = self.read_status()
            records = {job.name: job for job in status.jobs}
            submitted = [spec.name for spec in status.submitted]
            if wanted is None:
                active = [job.name for job in status.jobs if not job.has_ended]
                wanted = [*active, *submitted]
            for name in wanted:
                record = records.get(name)
                if record is None and name not in submitted:
                    known = describe_names([*records, *submitted], name)
                    raise InputError(f"there is no job {name!r} in {self.directory}; {known}")
                if record is not None and record.has_ended and name not in ended:
                    ended.add(name)
                    yield EndedJob(name, record.state, record.error)
            if ended >= set(wanted):
                return
            if not status.is_running and not has_warned:
                has_warned = True
                hint = describe_continuation(status, self.directory)
                print(escape(f"hesrpt: no scheduler is running{hint}"), file=sys.stderr)
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(_POLL_SECONDS)


def _describe(status: RunStatus, job: JobRecord) -> dict[str, Any]:
    return create_job_values(
        job.spec,
        state=status.get_state(job),
        number=job.number,
        done=job.done,
        items=job.items,
        failed=len(job.failed_items),
        servers=status.get_servers(job),
        planned=status.get_planned(job),
        arrived=job.arrived,
        ended=job.ended,
        eta=status.get_eta(job),
        waits_for=status.list_unfinished(job),
        waits_because=status.explain_wait(job),
        error=job.error,
    ) | {"failed_attempts": job.failures, "failed_items": failures_as_json(job.failed_items)}


def _read_blocks(log: ItemLog) -> Iterator[ItemOutput]:
    try:
        with open(log.path, "rb") as file:
            for block in iter(lambda: file.read(_BLOCK_BYTES), b""):
                yield ItemOutput(log.item, log.title, block)
    except FileNotFoundError:
        return  # an empty log is removed when its item ends
    except PermissionError as error:
        raise InputError(f"{log.path}: cannot be read: {error.strerror}") from None


def _follow(follower: LogFollower) -> Iterator[ItemOutput]:
    """Yield what items have printed and will print, until the job or its scheduler has ended."""
    goes_on = True
    while goes_on:
        started = time.monotonic()
        outputs, goes_on = follower.read()
        for log, content in outputs:
            yield ItemOutput(log.item, log.title, content)
        if goes_on:
            time.sleep(max(_FOLLOW_SECONDS, _FOLLOW_FACTOR * (time.monotonic() - started)))
