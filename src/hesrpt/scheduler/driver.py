"""The scheduler's thread, what other threads ask of it, and how it ends.

What it does again and again is in :mod:`~hesrpt.scheduler.step_loop`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from hesrpt.decisions.core import Core
from hesrpt.decisions.forecast import Forecaster, RemainingWork, estimate_remaining_work
from hesrpt.decisions.learning import KindMemory
from hesrpt.engines.engine import Engine, FinishedItems, Outcome
from hesrpt.errors import InputError, StateError
from hesrpt.jobs.job_end import STOPPED, JobEnd
from hesrpt.jobs.job_spec import PLAIN_GROUP, Group
from hesrpt.scheduler.call_source import CallSource
from hesrpt.scheduler.callback_thread import CallbackThread
from hesrpt.scheduler.inbox import AddJobs, Inbox
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.live_run import LiveRun, Snapshot
from hesrpt.scheduler.messages import (
    GroupSteered,
    JobRetried,
    JobsSubmitted,
    JobSteered,
    JobStopped,
    Message,
    MessageQueue,
)
from hesrpt.scheduler.pruning import Pruner, Retention
from hesrpt.scheduler.python_source import ReadAhead
from hesrpt.scheduler.step_loop import StepLoop, SubmittedJobs
from hesrpt.scheduler.watches import Watch
from hesrpt.storage.journal import Journal

# How long to wait for a locked journal when the driver is closed, in seconds.
_CLOSE_SECONDS = 2.0


class PoolClosedError(InputError):
    """The pool takes no more jobs."""


class Driver:
    """Runs jobs in its own thread until it is closed."""

    def __init__(
        self,
        core: Core,
        engine: Engine,
        journal: Journal | None = None,
        memory: KindMemory | None = None,
    ) -> None:
        self.core, self.engine, self.journal = core, engine, journal
        self.condition = threading.Condition()  # guards the run: the core, recorder, all jobs
        self._run = LiveRun(core, engine, journal, self.send, memory or KindMemory())
        self.jobs, self.recorder = self._run.jobs, self._run.recorder
        self.forecaster = Forecaster(core, self._estimate_remaining_work)
        self.failure: BaseException | None = None
        self._messages = MessageQueue()
        self._loop = StepLoop(self._run, self._messages, self.forecaster, self.condition)
        self.watches = self._loop.watches
        self.callbacks = CallbackThread("hesrpt-callbacks", "a callback of a job")
        self._is_closing = self._is_draining = False
        self._added = 0  # how many jobs have been added
        self._process = os.getpid()
        self.was_forked = False  # whether the thread runs in the parent of this process
        self._has_stopped_jobs = False  # while draining
        self._thread = threading.Thread(target=self._work, name="hesrpt-driver", daemon=True)

    # --- called by other threads ----------------------------------------------------------------

    def open_inbox(self, add_jobs: weakref.WeakMethod[AddJobs]) -> None:
        """Take requests of other processes, if there is a journal; called before the start."""
        if self.journal is not None:
            self._loop.inbox = Inbox(self.journal, add_jobs)

    def keep_only(self, retention: Retention, forget: Callable[[int, str], bool]) -> None:
        """Remove old jobs from the journal; called before the start.

        ``forget`` lets the pool forget a job, and returns whether it may be removed.
        """
        assert self.journal is not None

        def release(numbers: list[int]) -> list[int]:
            with self.condition:
                return self._run.release_jobs(numbers, forget)

        self._loop.pruner = Pruner(self.journal, retention, release)

    def close_inbox(self) -> bool:
        """Take no more requests; return False if there is one that has not been answered."""
        inbox = self._loop.inbox
        if inbox is None or not self._thread.is_alive():
            return True
        try:
            return inbox.close()
        except StateError:
            with self.condition:  # the thread may have failed, and closed the journal
                if not self.condition.wait_for(lambda: self.failure is not None, 1.0):
                    raise
            return True

    def look_for_requests(self) -> None:
        """Let the thread look for requests soon, because there are some."""
        self._loop.look_for_requests()

    def take_submissions(self, submitted: SubmittedJobs) -> None:
        """Write jobs that other threads submit to the journal before looking for requests."""
        self._loop.submitted.append(submitted)

    def write_less_often(self, seconds: float) -> None:
        """Write outcomes to the journal, and show them, only this many seconds after a write.

        Items start without waiting for that. If the scheduler is killed, items whose outcomes are
        not written yet run again.
        """
        self._loop.write_seconds = seconds

    def expect_pauses(self) -> None:
        """Do not warn if all jobs are paused: somebody looks after them."""
        self._run.warner.warns_of_pauses = False

    def start_nothing_more(self) -> None:
        """Let running items end, but start no others; nothing of this is recorded."""
        with self.condition:
            self._run.starts_items = False

    def start(self, on_end: Callable[[Driver], None]) -> None:
        """Start the thread, which calls ``on_end`` when it has ended."""
        self._on_end = on_end
        self._thread.start()

    def submit(self, jobs: Sequence[LiveJob]) -> None:
        """Add jobs; none starts before all of them are in the journal."""
        with self.condition:
            self.raise_failure()
            if self._is_closing or self._is_draining:
                raise PoolClosedError("the pool is closed")
            for job in jobs:
                job.items = job.spec.items if job.items is None else job.items
                self.jobs[job.name] = job
                self._added += 1
        self.send(JobsSubmitted(tuple(job for job in jobs if not job.has_ended)))

    def cancel(self, job: LiveJob, end: JobEnd = STOPPED) -> None:
        """End a job before its items have ended, unless it has."""
        if not job.has_ended:
            self.send(JobStopped(job, end))

    def steer(self, job: LiveJob, change: Callable[[LiveJob], None]) -> None:
        """Pause or resume a job, or change its weight, unless it has ended."""
        self.check_process()
        with self.condition:
            self.raise_failure()
            if not job.has_ended:
                change(job)
        self.send(JobSteered(job))

    def list_groups(self) -> dict[str, Group]:
        """Return the groups of jobs, and those with settings."""
        with self.condition:
            used = {job.spec.group: job.group for job in self.jobs.values() if job.spec.group}
            return used | self._run.groups

    def change_group(self, name: str, change: Callable[[Group], Group]) -> None:
        """Pause or resume a group of jobs, or change its weight."""
        self.check_process()
        with self.condition:
            self.raise_failure()
            group = change(self._run.groups.get(name, PLAIN_GROUP))
            self._run.check_group_change(name, group)
            self._run.change_group(name, group)
        self.send(GroupSteered(name))

    def retry(self, job: LiveJob) -> None:
        """Let the failed items of a job run again; the job has not ended when this returns."""
        self.check_process()
        with self.condition:
            self.raise_failure()
            if self._is_closing or self._is_draining:
                raise InputError("the pool is closed")
            job.check_retriable()
            self._run.retries += 1
            job.is_to_be_retried = True
            job.completions.remove_failed(job.failures)  # streams that start now wait for them
            job.reopen()
        self.send(JobRetried(job))

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

    def watch(self, watch: Watch) -> bool:
        """Let the thread wake somebody when a condition holds, or when the thread fails.

        Returns False if it holds now, or the thread has failed.
        """
        with self.condition:
            if watch.is_ready() or self.failure is not None:
                return False
            self.watches.add(watch)
            return True

    def unwatch(self, watch: Watch) -> None:
        """Remove a watch, unless it has been woken already."""
        with self.condition:
            self.watches.remove(watch)

    def count_jobs(self) -> tuple[int, int]:
        """Return how many jobs have ever been added, and how often ended ones were retried."""
        return self._added, self._run.retries

    def get_read_ahead(self) -> ReadAhead:
        """Return how many items to read before servers are free for them."""
        minimum = 2 * self.core.servers + 2
        most = self.engine.max_batch if self.engine.batch_seconds else 1
        return ReadAhead(minimum, minimum * most)

    def take_snapshot(self) -> Snapshot:
        """Return how many servers each job has now."""
        self.check_process()
        with self.condition:
            return self._run.take_snapshot()

    def recall_ends(self) -> Mapping[str, float]:
        """Return when jobs will end, as predicted a moment ago; this takes no time."""
        is_over = self.was_forked or not self._thread.is_alive()
        return self.forecaster.ends if is_over else self.forecaster.recall()

    def describe_end(self) -> str:
        """Return what has become of the scheduler; an empty text while it is running."""
        if self.was_forked:
            return f"of process {self._process}"
        if self.failure is not None:
            return f"failed ({self.failure})"
        return "closed" if self._is_closing or not self._thread.is_alive() else ""

    def _estimate_remaining_work(self) -> RemainingWork:
        with self.condition:
            return estimate_remaining_work(self.core, self.now)

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
        self.callbacks.join()

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
        return self._run.now

    # --- the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with ExitStack() as at_end:
                if self.journal is not None:
                    at_end.callback(self.journal.close)
                at_end.callback(self._run.close_hooks)
                try:
                    while not self._has_to_end():
                        self._loop.step()
                finally:
                    outcomes = self.engine.close()
                self._record_last(outcomes)
            self._end_jobs()
        except BaseException as error:
            with self.condition:
                self.failure = error
                for job in self.jobs.values():
                    job.source.close(f"the scheduler has failed: {error}")
                self._loop.wake_all()
        finally:
            self.callbacks.stop()
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
                    if job.spec.is_paused:
                        self.steer(job, lambda job: job.set_paused(False))
                else:
                    self.cancel(job)
        return not any(isinstance(job.source, CallSource) for job in active)

    def _record_last(self, outcomes: Sequence[Outcome | FinishedItems]) -> None:
        """Record what was done when the engine was closed, unless that is no longer possible."""
        with self.condition:
            self._run.record_last(outcomes)
        with suppress(StateError):  # these items run again if the run is resumed
            self._run.flush()
            with self.condition:
                self._loop.publish()

    def _end_jobs(self) -> None:
        """Cancel the jobs that have not ended."""
        with self.condition:
            self._run.cancel_all()
            self._loop.wake_all()
