"""Reads a state directory: the state of the run's jobs, their output, and their schedule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from hesrpt.decisions.kinds import LearnedRun
from hesrpt.display.overview import JobOverview, RunOverview
from hesrpt.errors import InputError
from hesrpt.jobs.groups import PLAIN_GROUP, Group, read_groups
from hesrpt.jobs.hooks import HookCall
from hesrpt.jobs.item_resources import describe_shortage
from hesrpt.jobs.job_end import JobState, get_job_state
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.reports.run_history import POLICY_CHANGED, RunHistory
from hesrpt.reports.run_schedule import build_schedule
from hesrpt.schedule import Schedule
from hesrpt.scheduler.live_job import MAX_TIMED_ITEMS, ItemTiming
from hesrpt.storage.job_names import name_submitted
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import NO_PROGRESS, WHOLE_POOL, JobRecord, Request, RunProgress
from hesrpt.storage.logs import find_logs

#: What is said of a run that has nothing to report yet.
NOTHING_ENDED = "no job has ended yet"


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The jobs of a run, the jobs submitted to it, and whether its scheduler is running."""

    is_running: bool
    jobs: Sequence[JobRecord]
    requests: Sequence[Request] = ()  # the scheduler has not obeyed them yet
    held: Mapping[int, int] = field(default_factory=dict)  # servers that jobs hold, by number
    policy: str = ""
    time: float = 0.0  # seconds since the run began, when the scheduler wrote something last
    progress: RunProgress = NO_PROGRESS  # what the scheduler plans and predicts
    settings: Mapping[str, Group] = field(default_factory=dict)  # of groups, by their names
    hooks: Sequence[HookCall] = ()  # that are to be called, or have failed

    @property
    def groups(self) -> dict[str, Group]:
        """The groups of the run, by their names."""
        used = {job.spec.group: PLAIN_GROUP for job in self.jobs if job.spec.group}
        return used | dict(self.settings)

    @cached_property
    def _unfinished(self) -> set[str]:
        return {job.name for job in self.jobs if not job.has_ended}

    def list_unfinished(self, job: JobRecord) -> list[str]:
        """Return the names of the jobs that have to end before a job starts."""
        names = [] if job.has_ended else job.spec.after
        return [name for name in names if name in self._unfinished]

    def explain_wait(self, job: JobRecord) -> str:
        """Return of which resources a job needs more than are free, if it waits for them."""
        is_waiting = self.is_running and self.get_state(job) == "waiting"
        if not is_waiting or self.list_unfinished(job):
            return ""
        free = {kind: free for kind, (_, free) in self.progress.resources.items()}
        return describe_shortage(job.spec.resources, free, "free")

    @property
    def submitted(self) -> list[JobSpec]:
        """The jobs that were submitted and that the scheduler has not taken yet."""
        return [request.spec for request in self.requests if request.spec is not None]

    @property
    def changes(self) -> list[tuple[str, Request]]:
        """The names of jobs, and what was requested to be done about them."""
        by_number = {job.number: job.name for job in self.jobs}
        by_submission = {job.spec.submission: job.name for job in self.jobs}
        by_submission |= {each.number: each.spec.name for each in self.requests if each.spec}
        changes = []
        for request in self.requests:
            if request.group is not None:
                changes.append((f"group {request.group}", request))
                continue
            name = by_number.get(request.job or 0) or by_submission.get(request.submission)
            if request.spec is None and name is not None:
                changes.append((name, request))
        return changes

    def get_state(self, job: JobRecord) -> JobState:
        """Return the state of a job; without a scheduler, none holds servers."""
        is_paused = job.spec.is_paused or self.settings.get(job.spec.group, PLAIN_GROUP).is_paused
        return get_job_state(job.end, servers=self.get_servers(job), is_paused=is_paused)

    def get_servers(self, job: JobRecord) -> int:
        """Return how many servers a job holds."""
        return self.held.get(job.number, 0) if self.is_running and not job.has_ended else 0

    def get_planned(self, job: JobRecord) -> int | None:
        """Return how many servers the policy gives a job; None if it has ended or nobody knows."""
        # What the scheduler wrote a second ago may name jobs that have ended since.
        if not self.is_running or job.has_ended:
            return None
        return 0 if self.list_unfinished(job) else self.progress.planned.get(job.number)

    def get_eta(self, job: JobRecord) -> float | None:
        """Return in how many seconds a job will have ended; None if it has or nobody knows."""
        is_active = self.is_running and not job.has_ended
        end = self.progress.ends.get(job.number) if is_active else None
        return None if end is None else max(end - self.progress.time, 0.0)

    def describe(self) -> RunOverview:
        """Return what is shown of the run, with the jobs that were submitted to it."""
        jobs = [
            JobOverview(
                name=job.name,
                state=self.get_state(job),
                done=job.done,
                items=job.items,
                failures=len(job.failed_items),
                servers=self.get_servers(job),
                planned=self.get_planned(job),
                flow_time=(self.time if job.ended is None else job.ended) - job.arrived,
                eta=self.get_eta(job),
                error=job.error,
                group=job.spec.group,
                waits_for=self.list_unfinished(job),
                waits_because=self.explain_wait(job),
            )
            for job in self.jobs
        ]
        jobs += [
            JobOverview(name=spec.name, state="submitted", items=spec.items, group=spec.group)
            for spec in self.submitted
        ]
        return RunOverview(
            # Before the first job, no progress is written.
            servers=self.held.get(WHOLE_POOL, self.progress.servers),
            policy=self.policy,
            jobs=jobs,
            note="" if self.is_running else "no scheduler is running",
        )

    @property
    def waits_for_script(self) -> bool:
        """Whether a job waits for the Python script that added it, with its function."""
        unfinished = [job.spec for job in self.jobs if not job.has_ended]
        return not self.is_running and any(
            spec.command is None and not spec.is_executor for spec in unfinished
        )


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """The jobs of a run that have ended, and their schedule."""

    policy: str
    servers: int
    first_start: float  # when the first item started, in seconds since the run began
    records: Sequence[JobRecord]
    schedule: Schedule
    history: RunHistory  # of these jobs

    @property
    def metrics(self) -> dict[str, float] | None:
        """The metrics of the jobs that are done; None if none is."""
        done = [record for record in self.records if record.state == "done"]
        if not done:
            return None
        return build_schedule(done, self.history.holdings, self.servers).metrics()


class NothingEndedError(InputError):
    """No job of a run has ended, so there is nothing to report."""


class UnknownItemError(InputError):
    """A job has no item of this number."""


class ItemLog(NamedTuple):
    """The output of an item."""

    item: int
    title: str  # the number of the item; for a command also the item
    path: Path


def read_job_names(directory: Path) -> set[str]:
    """Return the names of all jobs of a run, and of those that were submitted to it."""
    with closing(Journal.read(directory)) as journal:
        requests = journal.requests.read()
        records = journal.read_records()
    submitted = [each.spec.name for each in name_submitted(requests, records) if each.spec]
    return {*submitted, *(record.name for record in records)}


def read_policy(directory: Path) -> str:
    """Return the name of a run's policy."""
    with closing(Journal.read(directory)) as journal:
        return str(journal.get_value("policy"))


def read_status(directory: Path) -> RunStatus:
    """Return the state of all jobs of a run."""
    with closing(Journal.read(directory)) as journal:
        # In this order: a submission may become a job between the two reads.
        requests = journal.requests.read()
        records = _read_records(journal)
        return RunStatus(
            is_running=journal.is_running,
            policy=str(journal.get_value("policy")),
            time=journal.get_value("time", 0.0, parse=float),
            progress=journal.get_value("progress", NO_PROGRESS, parse=RunProgress.from_json),
            held=journal.read_held(),
            settings=journal.get_value("groups", {}, parse=read_groups),
            jobs=records,
            requests=name_submitted(requests, records),
            hooks=journal.hooks.read(),
        )


def _read_records(journal: Journal) -> list[JobRecord]:
    """Return all jobs, with their failed items."""
    return [
        replace(record, failed_items=journal.read_failures(record)) if record.failures else record
        for record in journal.read_records()
    ]


def read_report(directory: Path) -> RunReport:
    """Return the jobs of a run that have ended, and their schedule."""
    with closing(Journal.read(directory)) as journal:
        records = _read_records(journal)
        ended = [record for record in records if record.has_ended]
        if not ended:
            raise NothingEndedError(f"{directory}: {NOTHING_ENDED}")
        servers, holdings = int(journal.get_value("servers")), journal.read_holdings()
        active = [record.name for record in records if not record.has_ended]
        obstacle = f"job {active[0]!r} has not ended" if active else None
        if journal.get_value("policy_changed", 0):
            obstacle = POLICY_CHANGED
        if journal.get_value("were_jobs_removed", 0):
            obstacle = "old jobs were removed"
        history = RunHistory(
            policy=str(journal.get_value("policy")),
            servers=servers,
            first_start=journal.get_value("first_start", 0.0, parse=float),
            records=ended,
            holdings=holdings,
            timings={
                record.number: [ItemTiming(*row) for row in journal.read_timings(record.number)]
                for record in ended
                if record.done <= MAX_TIMED_ITEMS and obstacle is None
            },
            resources=journal.get_value("resources", {}, parse=json.loads),
            groups=journal.get_value("groups", {}, parse=read_groups),
            obstacle=obstacle,
        )
        return RunReport(
            policy=str(journal.get_value("policy")),
            servers=servers,
            first_start=history.first_start,
            records=ended,
            schedule=build_schedule(ended, holdings, servers),
            history=history,
        )


def read_learned_runs(directory: Path) -> list[LearnedRun]:
    """Return how long items of each kind took in the runs in a state directory."""
    with closing(Journal.read(directory)) as journal:
        return journal.read_learned_runs()


def list_logs(directory: Path, job: str, item: int | None = None) -> list[ItemLog]:
    """Return the output of the items of a job that have printed something.

    Raises an UnknownItemError if there is no such item.
    """
    with closing(Journal.read(directory)) as journal:
        record = journal.get_record(job)
        done = dict(journal.read_places(record.number))
    found = find_logs(directory, record.number)
    # The output of a finished item is from the run that finished it, of others from the last run.
    last = {name.item: path for name, path in found.items() if name.run == record.spec.resumed}
    logs = [(position, path) for position, path in last.items() if position not in done]
    for position, place in done.items():
        if place.log in found:
            logs.append((position, found[place.log]))
    logs = sorted(log for log in logs if item is None or log[0] == item)
    is_checked = not logs and item is not None and record.items is not None
    if is_checked and item not in range(record.items or 0):
        items = f"items are 0 to {record.items - 1}" if record.items else "it has no items"
        raise UnknownItemError(f"there is no item {item} in job {job!r}; {items}")
    return [ItemLog(number, record.spec.describe_item(number), path) for number, path in logs]
