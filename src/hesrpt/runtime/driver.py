"""The scheduler's loop: passes events to the core, and carries out the commands it returns."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import NamedTuple

from hesrpt.errors import InputError
from hesrpt.runtime.call_source import CallSource
from hesrpt.runtime.core import MAX_BATCH, Core
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
from hesrpt.runtime.live_job import LiveJob
from hesrpt.runtime.messages import (
    JobsSubmitted,
    JobStopped,
    Message,
    SourceAdvanced,
    SourceExhausted,
    SourceProgress,
)
from hesrpt.runtime.recorder import Recorder
from hesrpt.runtime.sources import ReadAhead
from hesrpt.runtime.storage.journal import Journal
from hesrpt.runtime.storage.journal_entries import FailedAttempt, FinishedItem, ItemResult
from hesrpt.runtime.storage.logs import LogName, get_log_path
from hesrpt.runtime.text import escape_undecodable

# How long to wait for an outcome or a message before the next tick, in seconds.
_STEP_SECONDS = 0.5
# How long jobs may wait without any server before a warning, in seconds.
_WARNING_SECONDS = 3.0
# How long to wait for further jobs when the first one arrives, to plan them together, in seconds.
_GATHER_SECONDS = 0.005

# How long to wait for a locked journal when the driver is closed, in seconds.
_CLOSE_SECONDS = 2.0

_LOG = logging.getLogger("hesrpt")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What a pool is doing at one moment. Jobs that have ended are not in it."""

    time: float  # seconds since the run began
    servers: int  # how many there are
    planned: Mapping[str, int]  # servers that the policy gives each job
    held: Mapping[str, int]  # servers that each job holds


class JobEnd(NamedTuple):
    """When and how a job has ended."""

    job: LiveJob
    time: float
    error: str | None


class Driver:
    """Runs jobs in its own thread until it is closed."""

    def __init__(self, core: Core, engine: Engine, journal: Journal | None = None) -> None:
        self.core, self.engine, self.journal = core, engine, journal
        self.recorder = Recorder(journal, core.servers)
        self.condition = threading.Condition()  # guards the core, the recorder and all live jobs
        self.jobs: dict[str, LiveJob] = {}
        self.failure: BaseException | None = None
        # The run's clock counts the seconds during which a scheduler runs.
        self._started = engine.now() - (0.0 if journal is None else journal.last_time)
        self._ends: list[JobEnd] = []  # not yet in the journal
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._is_closing = self._is_draining = False
        self._process = os.getpid()
        self.was_forked = False  # whether the thread runs in the parent of this process
        self._has_stopped_jobs = False  # while draining
        self._had_servers_at = engine.now()
        self._thread = threading.Thread(target=self._run, name="hesrpt-driver", daemon=True)

    # --- called by other threads ----------------------------------------------------------------

    def start(self, on_end: Callable[[Driver], None]) -> None:
        """Start the thread, which calls ``on_end`` when it has ended."""
        self._on_end = on_end
        self._thread.start()

    def submit(self, jobs: Sequence[LiveJob]) -> None:
        """Add jobs; none starts before all of them are in the journal."""
        with self.condition:
            self.raise_failure()
            if self._is_closing or self._is_draining:
                raise InputError("the pool is closed")
            self.jobs |= {job.name: job for job in jobs}
        self.send(JobsSubmitted(tuple(job for job in jobs if not job.has_ended)))

    def cancel(self, job: LiveJob, error: str = "cancelled") -> None:
        """End a job with an error."""
        self.send(JobStopped(job, error))

    def send(self, message: Message) -> None:
        """Send a message to the thread."""
        self.check_process()
        self._messages.put(message)
        self.engine.wake()

    def wait(self, is_ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``is_ready()``, for at most ``timeout`` seconds; return whether it is."""
        with self.condition:
            self.condition.wait_for(lambda: is_ready() or self.failure is not None, timeout)
            if not is_ready():
                self.raise_failure()
            return is_ready()

    def raise_failure(self) -> None:
        """Raise the error with which the thread failed, if it has."""
        if isinstance(self.failure, InputError):
            raise self.failure
        if self.failure is not None:
            raise RuntimeError(
                f"the scheduler has failed, which is a bug: {self.failure}"
            ) from self.failure

    def check_process(self) -> None:
        """Raise an error in a process that was forked from the one in which the thread runs."""
        if self.was_forked:
            self.raise_failure()

    def read_results(self, job: LiveJob) -> Iterator[ItemResult]:
        """Yield the results of a job in the order of its items."""
        if self.journal is None:
            if job.are_results_freed:
                raise InputError(
                    f"job {job.name!r}: its results were freed, because they had been read or "
                    "yielded and nobody held the job"
                )
            yield from map(ItemResult._make, sorted(job.results.items()))
            return
        reader = Journal.read(self.journal.directory)  # the other connection is the thread's
        try:
            yield from reader.read_results(job.number)
        finally:
            reader.close()

    def get_read_ahead(self) -> ReadAhead:
        """Return how many items to read before servers are free for them."""
        minimum = 2 * self.core.servers + 2
        return ReadAhead(minimum, minimum * (MAX_BATCH if self.engine.batch_seconds else 1))

    def take_snapshot(self) -> Snapshot:
        """Return how many servers each job has now."""
        self.check_process()
        with self.condition:
            jobs = self.core.jobs
            return Snapshot(
                time=self.now,
                servers=self.core.servers,
                planned={name: job.planned for name, job in jobs.items()},
                held={name: job.observed for name, job in jobs.items()},
            )

    def close(self) -> None:
        """Stop all running items and the thread."""
        if self.was_forked:
            return
        self._is_closing = True
        if self.journal is not None:
            self.journal.stop_waiting(_CLOSE_SECONDS)
        self.engine.wake()
        self.join()
        self._end_jobs()

    def drain(self) -> None:
        """Let the thread end once all calls submitted to executors have ended; stop other jobs.

        This does not wait: the garbage collector may call it, in any thread.
        """
        if not self.was_forked:
            self._is_draining = True
            self.engine.wake()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread.is_alive():
            self._thread.join()

    def close_after_fork(self) -> None:
        """Let go of what belongs to the parent, in a process that was forked from it.

        Its threads do not exist here, so a lock that one of them held will never be released.
        """
        self.was_forked = True
        self.condition = threading.Condition()
        self.failure = InputError(
            f"the pool belongs to process {self._process}, from which this process was forked; "
            "create another Pool here"
        )
        self.engine.close_after_fork()

    @property
    def now(self) -> float:
        """Seconds since the run began, not counting the time between two schedulers."""
        return self.engine.now() - self._started

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with ExitStack() as at_end:
                if self.journal is not None:
                    at_end.callback(self.journal.close)
                at_end.callback(self.engine.close)
                while not self._has_to_end():
                    self._step()
            self._end_jobs()
        except BaseException as error:
            with self.condition:
                self.failure = error
                for job in self.jobs.values():
                    job.source.close(f"the scheduler has failed: {error}")
                self.condition.notify_all()
        finally:
            self._on_end(self)

    def _has_to_end(self) -> bool:
        if self._is_closing or not self._is_draining:
            return self._is_closing
        with self.condition:
            active = [job for job in self.jobs.values() if not job.has_ended]
        if not self._has_stopped_jobs:
            self._has_stopped_jobs = True
            for job in active:
                if isinstance(job.source, CallSource):
                    job.source.shutdown()
                else:
                    self.cancel(job)
        return not any(isinstance(job.source, CallSource) for job in active)

    def _end_jobs(self) -> None:
        """Cancel the jobs that have not ended."""
        with self.condition:
            for job in self.jobs.values():
                job.source.close()
                if not job.has_ended:
                    job.ended, job.error = self.now, "cancelled"
            self.condition.notify_all()

    def _step(self) -> None:
        """Wait for something to happen, and react to it."""
        outcomes = self.engine.wait_for_outcomes(_STEP_SECONDS)
        if not self._messages.empty() and self.core.observed == 0:
            time.sleep(_GATHER_SECONDS)
        messages = self._receive_messages()
        self._record_arrivals(messages)
        with self.condition:
            events: list[Event] = [self._handle_outcome(outcome) for outcome in outcomes]
            for message in messages:
                events += self._handle_message(message)
            events += self._check_capacity()
            for command in self.core.handle(*events, Tick(self.now)):
                self._carry_out(command)
            self._warn_without_servers()
            active = self.core.jobs
            self.engine.request_servers(sum(job.max_servers_later for job in active.values()))
            held = {self.jobs[name].number: job.observed for name, job in active.items()}
            self.recorder.record_held(self.now, held)
        # Other threads must be able to go on while the journal is written, which may take long.
        self.recorder.flush(self.now)
        with self.condition:
            for outcome in outcomes:
                self.jobs[outcome.job].unwritten = 0
            for end in self._ends:
                end.job.ended, end.job.error = end.time, end.error
            self._ends.clear()
            self.condition.notify_all()

    def _handle_outcome(self, outcome: Outcome) -> Event:
        """Record an outcome; return it as an event."""
        now, job, item = self.now, self.jobs[outcome.job], outcome.item
        self.recorder.record_start(now - outcome.seconds)
        if outcome.is_lost:
            return ItemLost(now, job.name, item, outcome.was_started)
        if outcome.error is not None:
            error = escape_undecodable(f"item {item}: {outcome.error}")
            self.recorder.add_failed_attempt(FailedAttempt(job.number, item, now, error))
            return ItemFailed(now, job.name, item, error)
        result = b"" if job.source.delivers_results else outcome.result
        if self.journal is not None:
            job.unwritten += 1
            key = job.source.get_key(item)
            self.recorder.add_finished_item(
                FinishedItem(job.number, key, item, outcome.seconds, now, result)
            )
        job.done += 1
        job.done_now += 1
        if outcome.reference is not None:
            job.references[item] = outcome.reference
        elif self.journal is None and not job.source.delivers_results:
            job.results[item] = result
        job.source.finish_item(outcome)
        return ItemFinished(now, job.name, item, outcome.seconds)

    def _receive_messages(self) -> list[Message]:
        """Return what other threads have sent."""
        messages: list[Message] = []
        while True:
            try:
                messages.append(self._messages.get_nowait())
            except queue.Empty:
                return messages

    def _record_arrivals(self, messages: Sequence[Message]) -> None:
        """Write the jobs that arrive to the journal, before any of them starts."""
        jobs = [
            job
            for message in messages
            if isinstance(message, JobsSubmitted)
            for job in message.jobs
        ]
        with self.condition:
            for job in jobs:
                if job.arrived is None:
                    job.arrived = self.now
                job.items = job.spec.items
                self.recorder.add_job(
                    job.to_record(), submission=job.submission, is_redone=job.is_redone
                )
                self.recorder.move_items(job.number, job.matches.moved)
        if jobs:
            self.recorder.flush(self.now)
            for job in jobs:
                job.is_recorded = True

    def _handle_message(self, message: Message) -> list[Event]:
        """Return a message as events."""
        match message:
            case JobsSubmitted():
                for job in message.jobs:
                    job.source.open(SourceProgress(job, self.send))
                return [
                    JobArrived(self.now, job.spec, tuple(job.matches.done)) for job in message.jobs
                ]
            case SourceAdvanced():
                job, (items, matches) = message.progress.job, message.progress.take()
                job.done += sum(map(len, matches.done))
                self.recorder.move_items(job.number, matches.moved)
                return [ItemsRead(self.now, job.name, items, tuple(matches.done))]
            case SourceExhausted():
                # Count in this thread: it starts the items, so the count is final.
                job, items = message.job, message.count_items()
                job.items = items
                return [ItemsExhausted(self.now, job.name, items)]
            case JobStopped():
                error = escape_undecodable(message.error)
                return [JobCancelled(self.now, message.job.name, error)]

    def _check_capacity(self) -> list[Event]:
        servers, max_width = self.engine.capacity(), self.engine.widest_command()
        if (servers, max_width) == (self.core.servers, self.core.max_width):
            return []
        self.recorder.record_servers(servers)
        return [CapacityChanged(self.now, servers, max_width)]

    def _warn_without_servers(self) -> None:
        """Warn once if there are jobs but no servers, since that looks like a hang."""
        now = self.engine.now()
        if self.core.servers > 0 or not self.core.jobs:
            self._had_servers_at = now
        elif now - self._had_servers_at > _WARNING_SECONDS:
            self._had_servers_at = inf  # no further warning until servers have come and gone
            _LOG.warning("hesrpt: jobs are waiting, because the cluster has no free servers")

    def _carry_out(self, command: Command) -> None:
        job = self.jobs[command.job]
        match command:
            case Start():
                tasks = {
                    item: job.source.create_task(
                        item, command.servers, self._get_log_path(job, item)
                    )
                    for item in command.items
                }
                job.durations = self.core.jobs[job.name].durations
                self.engine.start(job.name, tasks, command.servers)
            case Stop():
                self.engine.stop(job.name, command.item)
            case Resize():
                self.engine.resize(job.name, command.item, command.servers)
            case Drop():
                job.source.drop_item(command.item, command.error)
            case Finish():
                end = JobEnd(job, job.choose_end(self.now, command.error), command.error)
                if command.error is not None:
                    job.free_results()  # nobody can get them
                self._ends.append(end)
                job.source.close()
                self.recorder.add_ended_job(
                    replace(job, ended=end.time, error=end.error).to_record()
                )

    def _get_log_path(self, job: LiveJob, item: int) -> Path | None:
        if self.journal is None:
            return None
        return get_log_path(self.journal.directory, job.number, LogName(item, job.spec.resumed))
