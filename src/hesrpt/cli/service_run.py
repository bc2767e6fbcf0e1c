"""A run of a service, which is asked over HTTP."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hesrpt._version import __version__
from hesrpt.cli.log_printers import ItemOutput, JobOutput
from hesrpt.cli.run_view import AddedJobs, EndedJob, FailedHook, RunView
from hesrpt.display.overview import JobOverview, RunOverview
from hesrpt.errors import InputError
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_order import sort_by_order
from hesrpt.scheduler.requests import RequestResult
from hesrpt.service.client import Client, ItemText, JobInfo
from hesrpt.service.http_connection import ServiceError, UnreachableError
from hesrpt.storage.journal_entries import RequestKind

# The states of the jobs that a request about all jobs applies to.
_ACTIVE, _RETRIABLE = "running,waiting,paused", "failed,cancelled"


@dataclass(frozen=True, kw_only=True)
class _FailedJob:
    """A job that has failed, has failed items or was cancelled."""

    name: str
    state: str
    has_ended: bool
    error: str | None
    failed_items: Sequence[ItemFailure]


class ServiceRun:
    """A run that is found by the URL of its service."""

    def __init__(self, url: str, token: str | None) -> None:
        self.client = Client(url, token)
        self.place = self.client.url

    def read(self) -> RunView:
        """Return what is shown of the run."""
        jobs, servers = self.client.jobs(), self.client.servers()
        overview = RunOverview(
            servers=int(servers["servers"]),
            policy=str(servers["policy"]),
            jobs=[_describe(job, float(servers["time"])) for job in jobs],
        )
        hooks = [FailedHook(**each) for each in servers.get("failed_hooks", ())]
        content = {
            "hesrpt": __version__,
            "running": True,
            "submitted": [job.name for job in jobs if job.state == "submitted"],
            "requests": [],
            "groups": {
                each["name"]: {"weight": each["weight"], "paused": each["paused"]}
                for each in self.client.groups()
            },
            "resources": servers["resources"],
            "failed_hooks": [vars(hook) for hook in hooks],
            "jobs": [dict(vars(job)) for job in jobs],
        }

        def find_failures(names: Collection[str]) -> list[_FailedJob]:
            found = [job for job in jobs if job.name in names and (job.failed or job.error)]
            return [self._find_failure(job) for job in found]

        return RunView(
            overview=overview, content=content, find_failures=find_failures, failed_hooks=hooks
        )

    def _find_failure(self, job: JobInfo) -> _FailedJob:
        """Return why a job has failed; lists of jobs have only the beginning of it."""
        error, failures = job.error, []
        if job.failed:
            details = self.client.details(job.name)
            error = details["error"]
            failures = [ItemFailure(**each) for each in details["failures"]]
        return _FailedJob(
            name=job.name,
            state=job.state,
            has_ended=job.has_ended,
            error=error,
            failed_items=failures,
        )

    def list_names(self) -> list[str]:
        """Return the names of all jobs."""
        return [job.name for job in self.client.jobs()]

    def list_groups(self) -> list[str]:
        """Return the names of the groups of jobs."""
        return [group["name"] for group in self.client.groups()]

    def change(
        self, kind: RequestKind, names: Sequence[str], weight: float | None, group: str | None
    ) -> list[RequestResult]:
        """Ask for a change of jobs, of a group, or of all jobs that it applies to."""
        if group is not None and group not in (groups := self.list_groups()):
            listed = ", ".join(groups) or "none"
            raise InputError(f"there is no group {group!r} in {self.place}; groups are: {listed}")
        if group is not None and kind in ("pause", "resume", "weight"):
            is_paused = None if kind == "weight" else kind == "pause"
            text = self.client.change_group(group, paused=is_paused, weight=weight)
            return [RequestResult(job=f"group {group}", text=text)]
        if names:  # an unknown one is refused before anything is changed
            jobs = [self.client.info(name) for name in dict.fromkeys(names)]
        else:
            state = _RETRIABLE if kind == "retry" else _ACTIVE
            jobs = self.client.jobs(state=state, group=group)
        if kind == "retry":
            by_name = {job.name: job for job in jobs}
            order = sort_by_order({job.name: job.after for job in jobs})
            jobs = [by_name[name] for name in order]
        results: list[RequestResult] = []
        for job in jobs:
            changed = {result.job for result in results if not result.is_refused}
            result = self._change(kind, job.name, weight)
            if kind == "retry" and result.is_refused and not changed.isdisjoint(job.after):
                # It was retried with the jobs that it waits for, which were quicker than this.
                others = ", ".join(name for name in job.after if name in changed)
                text = f"waited for {others} again, and is {self.client.info(job.name).state}"
                result = RequestResult(job=job.name, text=text)
            results.append(result)
        return results

    def _change(self, kind: RequestKind, name: str, weight: float | None) -> RequestResult:
        try:
            if kind == "weight":
                assert weight is not None
                return RequestResult(job=name, text=self.client.weight(name, weight))
            return RequestResult(job=name, text=str(getattr(self.client, kind)(name)))
        except ServiceError as error:
            if isinstance(error, UnreachableError) or error.status != 409:
                raise
            reason = error.problem.partition(f"job {name!r} ")[2] or error.problem
            return RequestResult(job=name, text=reason, is_refused=True)

    def explain_missing_answers(self) -> str:
        """Return why requests were not answered: a service answers all."""
        return ""

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

    def wait(self, names: Sequence[str], timeout: float | None) -> Iterator[EndedJob]:
        """Wait for jobs, or for all that have not ended; yield them when they have.

        Raises a TimeoutError.
        """
        wanted = names or [job.name for job in self.client.jobs() if not job.has_ended]
        for job in self.client.wait(*wanted, timeout=timeout) if wanted else ():
            yield EndedJob(job.name, job.state, job.error)


def _describe(job: JobInfo, now: float) -> JobOverview:
    flow_time = None
    if job.arrived is not None:
        flow_time = (now if job.ended is None else job.ended) - job.arrived
    return JobOverview(
        name=job.name,
        state=job.state,
        done=job.done,
        items=job.items,
        failures=job.failed,
        servers=job.servers,
        planned=job.planned,
        flow_time=flow_time,
        eta=job.eta,
        error=job.error,
        group=job.group,
        waits_for=job.waits_for,
        waits_because=job.waits_because,
    )
