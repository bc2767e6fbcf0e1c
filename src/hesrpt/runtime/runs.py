"""Running a jobs file: from the command line, with a state directory or without."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hesrpt.errors import InputError
from hesrpt.runtime.history import Ended, instead, schedule_of
from hesrpt.runtime.jobs_file import JobRequest
from hesrpt.runtime.journal import Journal
from hesrpt.runtime.pool import Pool, Request
from hesrpt.schedule import Schedule
from hesrpt.speedups import PowerLaw

# How often to look for submitted jobs, in seconds.
_LOOK = 0.5
#: Called again and again while jobs run.
Watch = Callable[[Pool], None]


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop."""


@dataclass(frozen=True)
class Where:
    """What runs the jobs."""

    engine: str = "local"
    address: str | None = None
    resources: Mapping[str, float] | None = None


def run_jobs(
    requests: Sequence[JobRequest],
    servers: int | None,
    policy: str,
    state: Path | None = None,
    resume: bool = False,
    where: Where = Where(),  # noqa: B008 (it cannot change)
    watch: Watch = lambda pool: None,
) -> Pool:
    """Run jobs until all have ended, also those submitted meanwhile; return the closed pool."""
    pool = Pool(
        servers, policy, state=state, resume=resume,
        engine=where.engine, address=where.address, resources=where.resources,
    )  # fmt: skip
    try:
        with _stoppable():
            if pool.journal is not None:
                requests = _with_remembered(pool.journal, requests)
                waiting = _submitted(pool.journal.directory)
                if not requests and not waiting and not pool.journal.jobs():
                    raise InputError(f"{state}: no jobs were written down; give a jobs file")
            pool.add_all([_request(request) for request in requests])
            inbox = _Inbox(pool)
            pool._driver.poll = inbox.look
            while not inbox.closed:
                # First whether any are waiting: those taken over since then are waited for.
                while _waiting(pool) or not pool.wait(timeout=_LOOK / 2):
                    watch(pool)
                    time.sleep(_LOOK / 10)
                inbox.close_if(lambda: pool.wait(timeout=0))
            watch(pool)
    finally:
        pool.close()
    if pool.journal is not None and _submitted(pool.journal.directory):
        # It came after the last look, and before the directory was free.
        return run_jobs((), servers, policy, state, True, where, watch)
    return pool


def remembered_policy(directory: Path) -> str:
    """Return the policy of a run that is to be resumed."""
    journal = Journal.read(directory)
    try:
        return str(journal.get("policy"))
    finally:
        journal.close()


def _waiting(pool: Pool) -> bool:
    return pool.journal is not None and _submitted(pool.journal.directory)


def _submitted(directory: Path) -> bool:
    """Return whether jobs were submitted that no scheduler has taken over."""
    reader = Journal.read(directory)
    try:
        return bool(reader.take_submissions())
    finally:
        reader.close()


def _request(job: JobRequest, submission: int | None = None) -> Request:
    return Request(job.name, job.spec, job.source, job.as_text(), submission)


def _with_remembered(journal: Journal, requests: Sequence[JobRequest]) -> list[JobRequest]:
    """Return the jobs of an earlier run that are not done, and those that it did not have."""
    rows = journal.jobs()
    remembered = [
        JobRequest.from_text(row.description)
        for row in rows
        if row.ended is None and row.description
    ]
    names = {row.name for row in rows}
    return [*remembered, *(request for request in requests if request.name not in names)]


class _Inbox:
    """Takes over the jobs that others submit to the state directory."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.looked = pool, 0.0
        self.taken: set[int] = set()
        self.closed = False
        self.lock = threading.Lock()

    def look(self) -> None:
        """Take over what is waiting; called by the driver, now and then."""
        journal = self.pool.journal
        if journal is None or time.monotonic() - self.looked < _LOOK:
            return
        self.looked = time.monotonic()
        with self.lock:
            if self.closed:
                return
            new = [one for one in journal.take_submissions() if one[0] not in self.taken]
            self.taken |= {number for number, _, _ in new}
            if new:
                self.pool.add_all(
                    [_request(JobRequest.from_text(text), number) for number, text, _ in new]
                )

    def close_if(self, done: Callable[[], bool]) -> None:
        """Take over no more, if all that was is done: the run is about to end, and would end it."""
        with self.lock:
            self.closed = done()


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

    @property
    def flow_time(self) -> float | None:
        """How long it took, if it has ended."""
        return None if self.ended is None else self.ended - self.arrived


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
    found = [(which, path) for which, path in found if item is None or which == item]
    if not found:
        whose = "" if item is None else f" item {item} of"
        raise InputError(f"{directory}:{whose} job {job!r} has printed nothing")
    for which, path in found:
        yield which, path.read_text(encoding="utf-8", errors="replace")


def recorded(directory: Path) -> tuple[Schedule, list[Ended], int, float]:
    """Return the schedule of a state directory, the jobs that have ended, and the servers.

    And when the first item began.
    """
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
        began = float(journal.get("began", 0.0))
        return schedule_of(ended, journal.holdings(), servers), ended, servers, began
    finally:
        journal.close()


def alternatives(ended: Sequence[Ended], servers: int, began: float) -> dict[str, float]:
    """Return the mean flow time that plain policies would have given on the same work."""
    return {
        policy: float(instead(ended, servers, policy, began).mean()) for policy in ("fifo", "equi")
    }
