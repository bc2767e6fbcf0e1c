"""A run as commands see it, wherever it is: in a state directory, or behind a service's URL."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from hesrpt.display.console import escape
from hesrpt.display.overview import RunOverview
from hesrpt.errors import InputError
from hesrpt.jobs.job_spec import FailedHook, JobSpec, list_failed_hooks
from hesrpt.jobs.job_view import JobView
from hesrpt.jobs.jobs_file import read_jobs_file
from hesrpt.reports.inspection import (
    ItemLog,
    ItemOutput,
    LogFollower,
    RunStatus,
    list_logs,
    read_job_names,
    read_status,
)
from hesrpt.scheduler.requests import RequestResult, find_names, request_change, submit_jobs
from hesrpt.service.client import Client, ItemText
from hesrpt.service.job_requests import read_jobs
from hesrpt.storage.job_names import describe_names
from hesrpt.storage.journal_entries import Request, RequestKind

#: How to continue jobs that call Python functions.
SCRIPT_HINT = "Python jobs continue when their script is run with Pool(…, resume=True)"

# How often to look whether jobs have ended, in seconds.
_POLL_SECONDS = 0.25
# Look for new output this often, in seconds, and pause this many times as long as a look takes.
_FOLLOW_SECONDS, _FOLLOW_FACTOR = 0.2, 5.0
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class RunView:
    """The jobs of a run at one moment."""

    overview: RunOverview
    failed_hooks: Sequence[FailedHook]
    groups: Mapping[str, Any]
    resources: Mapping[str, Any]
    changes: Sequence[tuple[str, Request]] = ()  # requested for jobs, but not made yet
    continuation: str = ""  # how to continue if no scheduler is running

    @property
    def names(self) -> list[str]:
        """The names of all jobs, also of those that were only submitted."""
        return [job.name for job in self.overview.jobs]

    @property
    def obstacle(self) -> str:
        """Why nothing goes on, and what to do about it; empty while a scheduler is running."""
        return f"{self.overview.note}{self.continuation}" if self.overview.note else ""

    def select(self, names: Collection[str]) -> RunView:
        """Return the same with the jobs of these names only; without names, all of it."""
        if not names:
            return self
        for name in names:
            if name not in self.names:
                raise InputError(f"there is no job {name!r}; {describe_names(self.names, name)}")
        jobs = [job for job in self.overview.jobs if job.name in names]
        return replace(
            self,
            overview=replace(self.overview, jobs=jobs),
            failed_hooks=[hook for hook in self.failed_hooks if hook.job in names],
            changes=[change for change in self.changes if change[0] in names],
        )

    def to_json_value(self) -> dict[str, Any]:
        """Return the run as JSON values."""
        jobs = self.overview.jobs
        return {
            "running": not self.overview.note,
            "submitted": [job.name for job in jobs if job.state == "submitted"],
            "requests": [
                {"request": each.number, "kind": each.kind, "job": name, "weight": each.weight}
                for name, each in self.changes
            ],
            "groups": self.groups,
            "resources": self.resources,
            "failed_hooks": [vars(hook) for hook in self.failed_hooks],
            "jobs": [job.to_json_value() for job in jobs],
        }


class AddedJobs(NamedTuple):
    """Jobs that were added to a run."""

    names: Sequence[str]
    note: str = ""  # when they start, if not now


class JobOutput(NamedTuple):
    """What the items of a job have printed, or will print."""

    has_several: bool  # whether it may come from more than one item
    parts: Iterator[ItemOutput]


class DirectoryRun:
    """A run that is found by its state directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, *, failures: bool = True) -> RunView:
        """Return what is shown of the run; a directory always tells the failed items of jobs."""
        status = read_status(self.directory)
        return RunView(
            overview=status.overview,
            failed_hooks=list_failed_hooks(status.hooks, is_owner=True),
            groups={
                name: {"weight": group.weight, "paused": group.is_paused}
                for name, group in status.groups.items()
            },
            resources={
                kind: {"total": total, "free": free}
                for kind, (total, free) in status.progress.resources.items()
            },
            changes=status.changes,
            continuation=_describe_continuation(status, self.directory),
        )

    def change(
        self, kind: RequestKind, names: Sequence[str], weight: float | None, group: str | None
    ) -> list[RequestResult]:
        """Ask for a change of jobs, of a group, or of all jobs that it applies to."""
        return request_change(self.directory, kind, names, weight=weight, group=group)

    def add(self, jobs: Sequence[dict[str, Any]]) -> AddedJobs:
        """Add jobs, given as values like those of a jobs file."""
        return self._submit(read_jobs({"jobs": list(jobs)}, read_job_names(self.directory)))

    def submit(self, path: Path) -> AddedJobs:
        """Add the jobs in a file."""
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

    def wait(self, names: Sequence[str], timeout: float | None) -> Iterator[JobView]:
        """Wait for jobs, or for all that have not ended; yield them as they end.

        Raises a TimeoutError.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        ended: set[str] = set()
        has_warned = False
        wanted: Sequence[str] | None = names or None
        while True:
            view = self.read()
            jobs = {job.name: job for job in view.overview.jobs}
            if wanted is None:
                wanted = [name for name, job in jobs.items() if not job.has_ended]
            for name in wanted:
                if name not in jobs:
                    known = describe_names(jobs, name)
                    raise InputError(f"there is no job {name!r} in {self.directory}; {known}")
                if jobs[name].has_ended and name not in ended:
                    ended.add(name)
                    yield jobs[name]
            if ended >= set(wanted):
                return
            if view.obstacle and not has_warned:
                has_warned = True
                print(escape(f"hesrpt: {view.obstacle}"), file=sys.stderr)
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(_POLL_SECONDS)


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
        yield from outputs
        if goes_on:
            time.sleep(max(_FOLLOW_SECONDS, _FOLLOW_FACTOR * (time.monotonic() - started)))


def _describe_continuation(status: RunStatus, directory: Path) -> str:
    """Return how to continue a run that no scheduler runs, to be appended to a sentence."""
    requested = {name for name, _ in status.changes}
    left = [job for job in status.jobs if not job.has_ended or job.name in requested]
    hint = ""
    if status.submitted or any(job.spec.command for job in left):
        hint += f"; continue with: {get_resume_command(directory)}"
    elif any(job.spec.command and job.state == "failed" for job in status.jobs):
        hint += f"; run failed items again with: {get_resume_command(directory)}"
    if status.waits_for_script:
        hint += f"; {SCRIPT_HINT}"
    return hint


def get_resume_command(directory: Path) -> str:
    """Return the command that resumes the run in a state directory."""
    command = "serve" if (directory / "token").exists() else "run"
    return f"hesrpt {command} --state {shlex.quote(str(directory))}"


class ServiceRun:
    """A run that is found by the URL of its service."""

    def __init__(self, url: str, token: str | None) -> None:
        self.client = Client(url, token)

    def read(self, *, failures: bool = True) -> RunView:
        """Return what is shown of the run, if need be with the failed items of jobs."""
        jobs, servers = self.client.jobs(failures=failures), self.client.servers()
        return RunView(
            overview=RunOverview(
                servers=int(servers["servers"]), policy=str(servers["policy"]), jobs=jobs
            ),
            failed_hooks=[FailedHook(**each) for each in servers["failed_hooks"]],
            groups={
                each["name"]: {"weight": each["weight"], "paused": each["paused"]}
                for each in self.client.groups()
            },
            resources=servers["resources"],
        )

    def change(
        self, kind: RequestKind, names: Sequence[str], weight: float | None, group: str | None
    ) -> list[RequestResult]:
        """Ask for a change of jobs, of a group, or of all jobs that it applies to."""
        results = self.client.change(kind, names or None, group=group, weight=weight)
        return [
            RequestResult(job=each["job"], text=each["text"], is_refused=each["refused"])
            for each in results
        ]

    def add(self, jobs: Sequence[dict[str, Any]]) -> AddedJobs:
        """Add jobs, given as values like those of a jobs file."""
        return AddedJobs([job.name for job in self.client.submit(jobs)])

    def submit(self, path: Path) -> AddedJobs:
        """Add the jobs in a file."""
        return AddedJobs([job.name for job in self.client.submit(path)])

    def open_logs(self, job: str, item: int | None, *, follow: bool) -> JobOutput:
        """Return what the items of a job have printed, and with ``follow`` what they will print."""
        if follow:
            has_several = item is None and self.client.info(job).items != 1
            found: Iterable[ItemText] = self.client.follow_logs(job, item)
        else:
            found = self.client.read_logs(job, item)
            has_several = item is None and len(found) > 1
        parts = (ItemOutput(part.item, part.title, part.text.encode()) for part in found)
        return JobOutput(has_several, parts)

    def wait(self, names: Sequence[str], timeout: float | None) -> Iterator[JobView]:
        """Wait for jobs, or for all that have not ended; yield them when they have.

        Raises a TimeoutError.
        """
        wanted = names or [job.name for job in self.client.jobs() if not job.has_ended]
        yield from self.client.wait(*wanted, timeout=timeout) if wanted else ()
