"""Running a jobs file: from the command line, with a state directory or without."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hesrpt.errors import InputError
from hesrpt.runtime.jobsfile import JobRequest
from hesrpt.runtime.journal import Journal
from hesrpt.runtime.pool import Job, Pool
from hesrpt.runtime.record import Ended, instead, schedule_of
from hesrpt.schedule import Schedule
from hesrpt.speedup import PowerLaw

# How often to look for submitted jobs, in seconds.
_LOOK = 0.5
#: Called again and again while jobs run.
Watch = Callable[[Pool], None]


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop."""


def run_jobs(
    requests: Sequence[JobRequest],
    servers: int | None,
    policy: str,
    state: Path | None = None,
    resume: bool = False,
    watch: Watch = lambda pool: None,
) -> Pool:
    """Run jobs until all have ended, also those submitted meanwhile; return the closed pool."""
    pool = Pool(servers, policy, state=state, resume=resume)
    try:
        with _stoppable():
            if pool.journal is not None:
                pool._driver.poll = _Inbox(pool).look
                requests = [*_remembered(pool.journal), *requests]
            for request in requests:
                _add(pool, request)
            while not pool.wait(timeout=_LOOK / 2) or _submitted(pool):
                watch(pool)
            watch(pool)
    finally:
        pool.close()
    return pool


def _submitted(pool: Pool) -> bool:
    """Return whether jobs were submitted that the pool does not have yet."""
    if pool.journal is None:
        return False
    reader = Journal.read(pool.journal.directory)
    try:
        return bool(reader.take_submissions())
    finally:
        reader.close()


def _add(pool: Pool, request: JobRequest, new: bool = False) -> Job:
    return pool.add(request.name, request.spec, request.source, request.as_text(), new)


def _remembered(journal: Journal) -> list[JobRequest]:
    """Return the jobs of an earlier run that have not ended."""
    return [
        JobRequest.from_text(row.description)
        for row in journal.jobs()
        if row.ended is None and row.description
    ]


class _Inbox:
    """Takes over the jobs that others submit to the state directory."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.looked = pool, 0.0

    def look(self) -> None:
        journal = self.pool.journal
        if journal is None or time.monotonic() - self.looked < _LOOK:
            return
        self.looked = time.monotonic()
        for number, text, _ in journal.take_submissions():
            _add(self.pool, JobRequest.from_text(text), new=True)
            journal.accepted(number)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM end the run as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def submit(directory: Path, requests: Sequence[JobRequest], place: str) -> bool:
    """Leave jobs for the scheduler of a state directory; return whether one is running."""
    journal = Journal.read(directory)
    try:
        for request in requests:
            journal.submit(request.as_text(), place)
        return journal.running
    finally:
        journal.close()


@dataclass(frozen=True)
class JobStatus:
    """How a job of a state directory stands."""

    name: str
    state: str
    done: int
    items: int | None
    failures: int
    arrived: float
    ended: float | None
    error: str | None


def status(directory: Path) -> tuple[bool, list[JobStatus]]:
    """Return whether a scheduler runs on a state directory, and how its jobs stand."""
    journal = Journal.read(directory)
    try:
        running, counts = journal.running, journal.done_counts()
        found = []
        for row in journal.jobs():
            state = "running" if running else "waiting"
            if row.ended is not None:
                state = "done" if row.error is None else "failed"
                state = "cancelled" if row.error == "cancelled" else state
            found.append(
                JobStatus(
                    row.name, state, counts.get(row.name, (0, 0.0))[0], row.items,
                    len(journal.failures(row.name)), row.arrived, row.ended, row.error,
                )
            )  # fmt: skip
        return running, found
    finally:
        journal.close()


def logs(directory: Path, job: str, item: int | None) -> Iterator[tuple[int, str]]:
    """Yield what the items of a job have printed."""
    journal = Journal.read(directory)
    try:
        number = journal.number_of(job)
    finally:
        journal.close()
    place = directory / "logs"
    found = sorted((int(path.stem.split("-")[1]), path) for path in place.glob(f"{number}-*.log"))
    for which, path in found:
        if item is None or which == item:
            yield which, path.read_text(encoding="utf-8", errors="replace")


def recorded(directory: Path) -> tuple[Schedule, list[Ended], int]:
    """Return the schedule of a state directory, the jobs that have ended, and the servers."""
    journal = Journal.read(directory)
    try:
        servers = int(journal.get("servers"))
        counts = journal.done_counts()
        ended = [
            Ended(
                row.name, row.arrived, row.ended, max(counts.get(row.name, (1, 0.0))[0], 1),
                max(row.size or 0.0, 1e-9), PowerLaw(row.p or 0.99), row.weight,
                not row.description or JobRequest.from_text(row.description).items is not None,
            )
            for row in journal.jobs()
            if row.ended is not None
        ]  # fmt: skip
        if not ended:
            raise InputError(f"{directory}: no job has ended yet")
        return schedule_of(ended, journal.holdings(), servers), ended, servers
    finally:
        journal.close()


def alternatives(ended: Sequence[Ended], servers: int) -> dict[str, float]:
    """Return the mean flow time that plain policies would have given on the same work."""
    return {policy: instead(ended, servers, policy).mean_flow_time for policy in ("fifo", "equi")}
