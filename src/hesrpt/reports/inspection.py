"""Reads a state directory: the state of the run's jobs, their output, and their schedule."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.decisions.learning import LearnedRun
from hesrpt.display.overview import RunOverview
from hesrpt.errors import InputError
from hesrpt.jobs.job_spec import PLAIN_GROUP, Group, HookCall, JobSpec, read_groups
from hesrpt.jobs.job_view import JobView
from hesrpt.policies import PolicyLike
from hesrpt.reports.job_views import JobViewer
from hesrpt.reports.run_schedule import build_schedule
from hesrpt.schedule import Schedule
from hesrpt.scheduler.live_job import MAX_TIMED_ITEMS, ItemTiming
from hesrpt.speedups import Speedup
from hesrpt.storage.job_names import name_submitted
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import (
    NO_PROGRESS,
    WHOLE_POOL,
    Holding,
    JobRecord,
    Request,
    RunProgress,
)
from hesrpt.storage.logs import find_logs

#: What is said of a run that has nothing to report yet.
NOTHING_ENDED = "no job has ended yet"


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The jobs of a run, the jobs submitted to it, and whether its scheduler is running."""

    is_running: bool
    jobs: Sequence[JobRecord]
    requests: Sequence[Request] = ()  # that no scheduler has carried out yet
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
    def views(self) -> list[JobView]:
        """What is shown of the jobs, and then of those that were submitted."""
        unfinished = {job.name for job in self.jobs if not job.has_ended}
        free = {kind: free for kind, (_, free) in self.progress.resources.items()}
        viewer = JobViewer(
            # What the scheduler wrote last; predictions are from then on.
            now=max(self.time, self.progress.time),
            is_unfinished=unfinished.__contains__,
            free=free if self.is_running else None,
        )
        submitted = [viewer.view_submitted(spec) for spec in self.submitted]
        return [*(self._view(viewer, job) for job in self.jobs), *submitted]

    def _view(self, viewer: JobViewer, job: JobRecord) -> JobView:
        """Return what is shown of a job; without a scheduler, none holds servers."""
        numbers: dict[str, Any] = {}
        if self.is_running:
            numbers = {
                "servers": self.held.get(job.number, 0),
                "planned": self.progress.planned.get(job.number, 0),
                "predicted_end": self.progress.ends.get(job.number),
            }
        is_paused = job.spec.is_paused or self.settings.get(job.spec.group, PLAIN_GROUP).is_paused
        return viewer.view_record(job, job.failed_items, is_paused=is_paused, **numbers)

    @property
    def submitted(self) -> list[JobSpec]:
        """The jobs that were submitted and that the scheduler has not taken yet."""
        return [request.spec for request in self.requests if request.spec is not None]

    @property
    def changes(self) -> list[tuple[str, Request]]:
        """The names of jobs, and what was requested to be done about them."""
        by_number = {job.number: job.name for job in self.jobs}
        by_submission = {job.spec.submission: job.name for job in self.jobs if job.spec.submission}
        by_submission |= {each.number: each.spec.name for each in self.requests if each.spec}
        changes = []
        for request in self.requests:
            if request.group is not None:
                changes.append((f"group {request.group}", request))
                continue
            name = by_number.get(request.job or 0) or by_submission.get(request.submission or 0)
            if request.spec is None and name is not None:
                changes.append((name, request))
        return changes

    @property
    def overview(self) -> RunOverview:
        """What is shown of the run."""
        return RunOverview(
            # Before the first job, no progress is written.
            servers=self.held.get(WHOLE_POOL, self.progress.servers),
            policy=self.policy,
            jobs=self.views,
            note="" if self.is_running else "no scheduler is running",
        )

    @property
    def waits_for_script(self) -> bool:
        """Whether a job waits for the Python script that added it, with its function."""
        unfinished = [job.spec for job in self.jobs if not job.has_ended]
        return not self.is_running and any(
            spec.command is None and not spec.is_executor for spec in unfinished
        )


# --- what happened in a run, as far as a report or a replay needs it ------------------------------


@dataclass(frozen=True, kw_only=True)
class RunHistory:
    """The jobs of a run, and what they did. Times are those of the run's clock.

    The clock stands still while no scheduler runs, so pauses between two runs count nowhere.
    """

    policy: PolicyLike
    servers: int
    first_start: float  # when the first item started
    records: Sequence[JobRecord]  # in order of arrival
    holdings: Sequence[Holding]  # in order of time
    timings: Mapping[int, Sequence[ItemTiming]] = field(default_factory=dict)  # by job number
    resources: Mapping[str, float] = field(default_factory=dict)  # besides servers
    groups: Mapping[str, Group] = field(default_factory=dict)  # by their names
    obstacle: str | None = None  # why the run cannot be replayed, if that is known

    def get_capacities(self) -> list[tuple[float, int]]:
        """Return how many servers there were, and since when."""
        changes = [(each.time, each.servers) for each in self.holdings if each.job == WHOLE_POOL]
        # A scheduler that stops has no servers until the next one starts, at the same time.
        return sorted(dict(changes).items()) or [(0.0, self.servers)]

    def trace_servers(self, number: int) -> ServersHeld:
        """Return the servers that a job held over time, from the first start of an item on.

        Of a job that ended in the step in which it started, the journal has none.
        """
        changes = [(each.time, each.servers) for each in self.holdings if each.job == number]
        changes = changes or [(self.first_start, 0)]
        times = np.array([max(time, self.first_start) for time, _ in changes])
        return ServersHeld(times, np.array([servers for _, servers in changes], dtype=np.int64))


@dataclass(frozen=True)
class ServersHeld:
    """The servers that a job held: ``servers[i]`` from ``times[i]`` on, of at least one time."""

    times: FloatArray
    servers: np.ndarray[tuple[int], np.dtype[np.int64]]

    def count_server_seconds(self) -> float:
        """Return the seconds during which servers were held, summed over servers."""
        return float(self.integrate(self.servers.astype(np.float64))[-1])

    def integrate(self, rates: FloatArray) -> FloatArray:
        """Return the integral up to each time of rates that hold from each time on."""
        lengths = np.diff(self.times)
        return np.concatenate(([0.0], np.cumsum(rates[:-1] * lengths)))

    def measure_work(self, speedup: Speedup, timings: Sequence[ItemTiming]) -> FloatArray:
        """Return how many seconds each item would have taken alone."""
        width = np.maximum(self.servers, 1).astype(np.float64)
        rates: FloatArray = np.asarray(speedup(width), dtype=np.float64) / width
        ends = np.array([timing.ended for timing in timings])
        seconds = np.array([timing.seconds for timing in timings])
        work: FloatArray = self._advance(rates, ends) - self._advance(rates, ends - seconds)
        return work

    def measure_widths(self, timings: Sequence[ItemTiming]) -> FloatArray:
        """Return the mean number of servers that the job held while each item ran."""
        held = np.maximum(self.servers, 1).astype(np.float64)
        ends = np.array([timing.ended for timing in timings])
        starts = ends - np.array([max(timing.seconds, 1e-9) for timing in timings])
        mean = (self._advance(held, ends) - self._advance(held, starts)) / (ends - starts)
        widths: FloatArray = np.maximum(mean, 1.0)
        return widths

    def _advance(self, rates: FloatArray, times: FloatArray) -> FloatArray:
        """Return the integral of rates up to given times; before and after all, they are 1."""
        inside = np.interp(times, self.times, self.integrate(rates))
        before = np.minimum(times - self.times[0], 0.0)
        after = np.maximum(times - self.times[-1], 0.0)
        total: FloatArray = inside + before + after
        return total


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """The jobs of a run that have ended, and their schedule."""

    history: RunHistory
    schedule: Schedule

    @property
    def views(self) -> list[JobView]:
        """What is shown of these jobs."""
        viewer = JobViewer(now=0.0, is_unfinished=lambda name: False)
        return [viewer.view_record(record, record.failed_items) for record in self.history.records]

    @property
    def metrics(self) -> dict[str, float] | None:
        """The metrics of the jobs that are done; None if none is."""
        history = self.history
        done = [record for record in history.records if record.state == "done"]
        if not done:
            return None
        return build_schedule(done, history.holdings, history.servers).metrics()


class NothingEndedError(InputError):
    """No job of a run has ended, so there is nothing to report."""


def read_job_names(directory: Path) -> set[str]:
    """Return the names of all jobs of a run, and of those that were submitted to it."""
    return {view.name for view in read_status(directory).views}


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
        active = [record.name for record in records if not record.has_ended]
        obstacle = f"job {active[0]!r} has not ended" if active else None
        obstacle = find_policy_change(journal) or obstacle
        if journal.get_value("were_jobs_removed", 0):
            obstacle = "old jobs were removed"
        history = read_history(journal, ended, obstacle)
    return RunReport(
        history=history, schedule=build_schedule(ended, history.holdings, history.servers)
    )


def find_policy_change(journal: Journal) -> str | None:
    """Return why a run cannot be replayed, if it was resumed with another policy."""
    is_changed = journal.get_value("policy_changed", 0)
    return "the run was resumed with another policy" if is_changed else None


def read_history(
    journal: Journal, records: Sequence[JobRecord], obstacle: str | None
) -> RunHistory:
    """Return what happened to jobs; ``obstacle`` is why they cannot be replayed, if they cannot."""
    return RunHistory(
        policy=str(journal.get_value("policy")),
        servers=int(journal.get_value("servers")),
        first_start=journal.get_value("first_start", 0.0, parse=float),
        records=records,
        holdings=journal.read_holdings(),
        timings={
            record.number: [ItemTiming(*row) for row in journal.read_timings(record.number)]
            for record in records
            if record.done <= MAX_TIMED_ITEMS and obstacle is None
        },
        resources=journal.get_value("resources", {}, parse=json.loads),
        groups=journal.get_value("groups", {}, parse=read_groups),
        obstacle=obstacle,
    )


def read_learned_runs(directory: Path) -> list[LearnedRun]:
    """Return how long items of each kind took in the runs in a state directory."""
    with closing(Journal.read(directory)) as journal:
        return journal.read_learned_runs()


# --- what items have printed ----------------------------------------------------------------------

#: The most output of a job that is read at once, in bytes.
MAX_TAIL = 10_000_000
_BLOCK_BYTES = 1 << 16


class UnknownItemError(InputError):
    """A job has no item of this number."""


class ItemLog(NamedTuple):
    """The output of an item."""

    item: int
    title: str  # the number of the item; for a command also the item
    path: Path


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


class ItemOutput(NamedTuple):
    """Something that an item has printed."""

    item: int
    title: str  # the number of the item; for a command also the item
    content: bytes


def read_log_ends(logs: Sequence[ItemLog], tail: int) -> list[ItemOutput]:
    """Return the last ``tail`` bytes of several logs."""
    outputs: list[ItemOutput] = []
    left = tail
    for log in reversed(logs):
        if left <= 0:
            break
        content = b""
        with suppress(FileNotFoundError), open(log.path, "rb") as file:  # it was empty, and removed
            file.seek(max(os.fstat(file.fileno()).st_size - left, 0))
            content = file.read(left)
        outputs.append(ItemOutput(log.item, log.title, content))
        left -= len(content)
    return outputs[::-1]


class LogFollower:
    """Reads what the items of a job print, from the beginning of their logs on.

    Without a journal, it opens that of the directory for each look.
    """

    def __init__(
        self, directory: Path, job: str, item: int | None = None, journal: Journal | None = None
    ) -> None:
        self.directory, self.job, self.item = directory, job, item
        self._journal = journal
        self._positions: dict[Path, int] = {}  # how much of each log has been read
        with self._open_journal() as opened:
            record = opened.get_record(job)
        self._number, self.items = record.number, record.items
        self._logs: dict[Path, ItemLog] = {}
        with suppress(UnknownItemError):  # the item was not read yet
            self._logs = {log.path: log for log in list_logs(directory, job, item)}

    def _open_journal(self) -> AbstractContextManager[Journal]:
        if self._journal is not None:
            return nullcontext(self._journal)
        return closing(Journal.read(self.directory))

    def read(self) -> tuple[list[ItemOutput], bool]:
        """Return what was printed since the last call, and whether there may be more."""
        with self._open_journal() as journal:
            record = journal.read_record(self._number)
            is_running = journal.is_running
        # What was printed before the job ended is in the files now.
        for name, path in sorted(find_logs(self.directory, self._number).items()):
            is_current = name.run == record.spec.resumed
            if path not in self._logs and is_current and self.item in (None, name.item):
                title = record.spec.describe_item(name.item)
                self._logs[path] = ItemLog(name.item, title, path)
        outputs = [
            ItemOutput(log.item, log.title, block)
            for log in self._logs.values()
            for block in self._read_new(log.path)
        ]
        return outputs, is_running and not record.has_ended

    def _read_new(self, path: Path) -> Iterator[bytes]:
        position = self._positions.get(path, 0)
        with suppress(OSError), open(path, "rb") as file:  # it may have been removed
            size = os.fstat(file.fileno()).st_size
            if size < position:  # it was cut, because it had become too large
                yield b"\nhesrpt: output was dropped here, because the log was too large\n"
                position = size
            file.seek(position)
            while block := file.read(_BLOCK_BYTES):
                position += len(block)
                yield block
        self._positions[path] = position
