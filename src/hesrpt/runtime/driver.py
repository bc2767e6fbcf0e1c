"""The loop that has the clock and the processes: events to the core, its commands to the engine."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

from hesrpt.errors import InputError
from hesrpt.runtime.core import Core
from hesrpt.runtime.engines.engine import Engine, Outcome
from hesrpt.runtime.events import (
    CapacityChanged,
    Command,
    Drop,
    Event,
    Finish,
    ItemFailed,
    ItemFinished,
    ItemLost,
    ItemsExhausted,
    ItemsRead,
    JobArrived,
    JobCancelled,
    Resize,
    Start,
    Stop,
    Tick,
)
from hesrpt.runtime.jobs import JobSpec
from hesrpt.runtime.journal import Done, JobRow, Journal
from hesrpt.runtime.learning import ItemDurations
from hesrpt.runtime.sources import Source
from hesrpt.speedups import PowerLaw

# How long to wait for something to happen before looking at the clock.
_PATIENCE = 0.5
# After so many seconds without a server, that is said.
_SILENCE = 3.0
# Jobs that come at once are best planned at once.
_GATHER = 0.005


_LOG = logging.getLogger("hesrpt")


@dataclass(eq=False)
class LiveJob:
    """A job and what has become of it so far. Read under the driver's condition."""

    name: str
    spec: JobSpec
    source: Source
    description: str = ""
    done_before: frozenset[int] = frozenset()
    number: int = 0
    submission: int | None = None  # where it was left in the journal
    arrived: float = 0.0
    ended: float | None = None
    error: str | None = None
    items: int | None = None
    done: int = 0
    results: dict[int, bytes] = field(default_factory=dict)  # where there is no journal
    references: dict[int, Any] = field(default_factory=dict)  # to results that stay in a cluster
    durations: ItemDurations = field(default_factory=ItemDurations)
    seconds_before: float = 0.0  # that items took which were done before


def measured(job: LiveJob) -> tuple[float, float | None]:
    """Return how much work a job was, in seconds on one server, and the p of its speedup.

    p is None if the job was said to have another speedup than a power law.
    """
    p: float | None = job.durations.p
    if job.spec.speedup is not None:
        p = job.spec.speedup.p if isinstance(job.spec.speedup, PowerLaw) else None
    each = job.durations.item_seconds(1.0 if p is None else p)
    if each is not None:
        return each * max(job.done, 1), p
    if job.seconds_before > 0:
        return job.seconds_before, p
    return job.spec.size or max((job.ended or 0.0) - job.arrived, 1e-9), p


#: What other threads ask of the driver: jobs that come together, or events.
Request: TypeAlias = "list[LiveJob] | _Feed | tuple[LiveJob, Callable[[], int]] | JobCancelled"


class _Feed:
    """Tells the driver what the items of a job are, as they are read."""

    def __init__(self, driver: Driver, job: LiveJob) -> None:
        self.driver, self.job = driver, job
        self.items, self.told = 0, False

    def items_read(self, items: int) -> None:
        self.items = items
        if not self.told:  # otherwise the driver has yet to look
            self.told = True
            self.driver.tell(self)

    def items_exhausted(self, items: Callable[[], int]) -> None:
        self.driver.tell((self.job, items))

    def source_failed(self, error: str) -> None:
        self.driver.tell(JobCancelled(self.driver.now, self.job.name, error))


class Driver:
    """Runs jobs in a thread of its own until it is closed."""

    def __init__(self, core: Core, engine: Engine, journal: Journal | None = None) -> None:
        self.core, self.engine, self.journal = core, engine, journal
        self.condition = threading.Condition()
        self.jobs: dict[str, LiveJob] = {}
        self.holdings = [] if journal is None else journal.holdings()
        self.failure: BaseException | None = None
        self.epoch = engine.now() if journal is None else float(journal.get("epoch"))
        self.most_servers = core.servers  # that there have been at a time
        self.began: float | None = None  # the first item
        if journal is not None and (known := journal.get("began")) is not None:
            self.began = float(known)
        self.poll: Callable[[], None] = lambda: None  # called now and then, by the thread
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._closing = False
        self._free_at = engine.now()
        self._held: dict[str, int] = {}
        self._done: list[Done] = []
        self._failures: list[tuple[str, int, float, str]] = []
        self._new_holdings: list[tuple[float, str, int]] = []
        self._ended: list[LiveJob] = []
        self._thread = threading.Thread(target=self._run, name="hesrpt-driver", daemon=True)

    # --- called by other threads ----------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def submit(self, jobs: Sequence[LiveJob]) -> None:
        """Add jobs, all at once."""
        with self.condition:
            self.check()
            self.jobs |= {job.name: job for job in jobs}
        self.tell(list(jobs))

    def tell(self, request: Request) -> None:
        """Let the thread know of something."""
        self._requests.put(request)
        self.engine.wake()

    def wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is true; return whether it is."""
        with self.condition:
            self.condition.wait_for(lambda: ready() or self.failure is not None, timeout)
            if not ready():
                self.check()
            return ready()

    def check(self) -> None:
        """Raise an error if the thread has failed."""
        if isinstance(self.failure, InputError):
            raise self.failure
        if self.failure is not None:
            raise RuntimeError(
                f"the scheduler has failed, which is a bug: {self.failure}"
            ) from self.failure

    def results(self, job: LiveJob) -> Iterator[tuple[int, bytes]]:
        """Yield the items of a job with their results, in their order."""
        if self.journal is None:
            yield from sorted(job.results.items())
            return
        reader = Journal.read(self.journal.directory)  # the other connection is the thread's
        try:
            yield from reader.results(job.name)
        finally:
            reader.close()

    def close(self) -> None:
        """End everything that runs, and the thread."""
        self._closing = True
        self.engine.wake()
        if self._thread.is_alive():
            self._thread.join()
        with self.condition:
            for job in self.jobs.values():
                job.source.close()
                if job.ended is None:
                    job.ended, job.error = self.now, "cancelled"
            self.condition.notify_all()

    @property
    def now(self) -> float:
        """The time since the run began."""
        return self.engine.now() - self.epoch

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                self.step()
        except BaseException as error:
            with self.condition:
                self.failure = error
                for job in self.jobs.values():
                    job.source.close(f"the scheduler has failed: {error}")
                self.condition.notify_all()
        finally:
            self.engine.close()

    def step(self) -> None:
        """Wait for something to happen, and deal with it."""
        outcomes = self.engine.wait_for_outcomes(_PATIENCE)
        self.poll()
        if not self._requests.empty() and self.core.observed == 0:
            time.sleep(_GATHER)
        with self.condition:
            events = [self._noted(outcome) for outcome in outcomes]
            events += self._requested()
            events += self._changed_capacity()
            self._handle(*events, Tick(self.now))
            self._say_if_nothing_is_free()
            self.engine.request_servers(sum(job.max_servers for job in self.core.jobs.values()))
            self._note_holdings()
            self._write()
            self._ended.clear()
            self.condition.notify_all()

    def _say_if_nothing_is_free(self) -> None:
        """Tell those who would take it for a hang."""
        now = self.engine.now()
        if self.core.servers > 0 or not self.core.jobs:
            self._free_at = now
        elif now - self._free_at > _SILENCE:
            self._free_at = inf
            _LOG.warning("hesrpt: waiting: the cluster has no server free")

    def _changed_capacity(self) -> list[Event]:
        servers, widest = self.engine.capacity(), self.engine.widest_command()
        if (servers, widest) == (self.core.servers, self.core.max_width):
            return []
        if servers > self.most_servers:
            self.most_servers = servers
            if self.journal is not None:
                self.journal.set("servers", servers)
        return [CapacityChanged(self.now, servers, widest)]

    def _requested(self) -> list[Event]:
        """Return what other threads want, as events."""
        events: list[Event] = []
        while True:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return events
            if isinstance(request, list):
                events += self._arrived(request)
            elif isinstance(request, _Feed):
                request.told = False
                events.append(ItemsRead(self.now, request.job.name, request.items))
            elif isinstance(request, tuple):
                # Counted only now, when what was to be started has been: their number stays.
                job, items = request[0], request[1]()
                job.items = items
                events.append(ItemsExhausted(self.now, job.name, items))
            else:
                events.append(request)

    def _arrived(self, jobs: list[LiveJob]) -> list[Event]:
        """Write down jobs that have arrived, all of them before any is started."""
        now, rows = self.now, []
        for job in jobs:
            job.items = 1 if job.spec.resize is not None else job.spec.items
            job.done = len(job.done_before)
            if job.arrived == 0.0:
                job.arrived = now
                p = job.spec.speedup.p if isinstance(job.spec.speedup, PowerLaw) else None
                rows.append(
                    JobRow(
                        job.name, job.number, job.description, job.spec.items, job.spec.size, p,
                        job.spec.weight, now, None, None,
                    )
                )  # fmt: skip
        if self.journal is not None:
            taken = [job.submission for job in jobs if job.submission is not None]
            self.journal.add_jobs(rows, taken)
        for job in jobs:
            job.source.open(_Feed(self, job), job.done_before)
        return [JobArrived(now, job.spec, job.done_before) for job in jobs]

    def _noted(self, outcome: Outcome) -> Event:
        """Return the event that an outcome is, and remember its result."""
        now, job = self.now, self.jobs[outcome.job]
        if self.began is None:
            self.began = now - outcome.seconds
            if self.journal is not None:
                self.journal.set("began", self.began)
        if outcome.is_lost:
            return ItemLost(now, job.name, outcome.item, outcome.was_started)
        if outcome.error is None:
            result = b"" if job.source.delivers_results else outcome.result
            self._done.append(Done(job.name, outcome.item, outcome.seconds, now, result))
            job.done += 1
            if outcome.reference is not None:
                job.references[outcome.item] = outcome.reference
            elif self.journal is None and not job.source.delivers_results:
                job.results[outcome.item] = result
            job.source.item_finished(outcome)
            return ItemFinished(now, job.name, outcome.item, outcome.seconds)
        error = f"item {outcome.item}: {outcome.error}"
        self._failures.append((job.name, outcome.item, now, error))
        return ItemFailed(now, job.name, outcome.item, error)

    def _handle(self, *events: Event) -> None:
        """Give events to the core, and carry out what it answers."""
        for command in self.core.handle(*events):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Start():
                self._start(command)
            case Stop():
                self.engine.stop(command.job, command.item)
            case Resize():
                self.engine.resize(command.job, command.item, command.servers)
            case Drop():
                self.jobs[command.job].source.item_dropped(command.item, command.error)
            case Finish():
                job = self.jobs[command.job]
                job.error, job.ended = command.error, self.now
                job.source.close()
                self._ended.append(job)

    def _start(self, command: Start) -> None:
        job = self.jobs[command.job]
        tasks = {
            item: job.source.create_task(item, command.servers, self._log(job, item))
            for item in command.items
        }
        self.engine.start(job.name, tasks, command.servers)

    def _log(self, job: LiveJob, item: int) -> Path | None:
        return None if self.journal is None else self.journal.log_of(job.number, item)

    def _note_holdings(self) -> None:
        """Remember who holds how many servers, where that has changed."""
        now = self.now
        held = {name: job.observed for name, job in self.core.jobs.items()}
        for name in held.keys() | self._held.keys():
            if held.get(name, 0) != self._held.get(name, 0):
                self._new_holdings.append((now, name, held.get(name, 0)))
        for name, active in self.core.jobs.items():
            self.jobs[name].durations = active.durations
        self._held = held

    def _write(self) -> None:
        """Write down what has happened, before anybody hears of it."""
        news = self._done or self._failures or self._new_holdings or self._ended
        if self.journal is not None and news:
            self.journal.record(
                self._done,
                self._failures,
                self._new_holdings,
                [
                    (job.ended or self.now, job.error, job.items, *measured(job), job.name)
                    for job in self._ended
                ],
            )
        self.holdings += self._new_holdings
        self._done.clear()
        self._failures.clear()
        self._new_holdings.clear()
