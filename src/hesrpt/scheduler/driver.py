"""The run: its thread and clock, what happens in each step, and what other threads see of it.

In a step, outcomes of items, messages of other threads and requests of other processes become
events for the core. The core's commands are carried out, everything is written to the journal, and
only then do other threads see it. Nothing in a step waits for another thread.
"""

from __future__ import annotations

import atexit
import json
import logging
import multiprocessing
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, filterfalse, repeat, starmap
from math import inf
from multiprocessing.util import Finalize
from operator import attrgetter
from typing import NamedTuple, TypeAlias, TypeVar

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    Admit,
    CallHook,
    CapacityChanged,
    Command,
    Continue,
    Drop,
    Event,
    Finish,
    GroupChanged,
    ItemFailed,
    ItemLost,
    ItemsExhausted,
    ItemsFinished,
    ItemsRead,
    ItemsRetried,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobSteered,
    Reopen,
    Resize,
    Start,
    Stop,
    Suspend,
)
from hesrpt.decisions.forecast import Forecaster, RemainingWork, collect_remaining_work
from hesrpt.decisions.learning import KindMemory, LearnedRun
from hesrpt.engines.engine import Engine, FinishedItems, Outcome, choose_gpu_variables, reserve
from hesrpt.engines.item_reports import NO_DETAILS, ErrorDetails
from hesrpt.errors import InputError, StateError
from hesrpt.jobs.failures import ItemFailure, describe_losses
from hesrpt.jobs.item_resources import GPU
from hesrpt.jobs.job_end import REQUESTED, STOPPED, JobEnd, describe_end
from hesrpt.jobs.job_spec import (
    PLAIN_GROUP,
    Group,
    JobSpec,
    explain_useless_retry,
    read_groups,
    sort_by_order,
    write_groups,
)
from hesrpt.jobs.text import add_source_lines, escape_undecodable
from hesrpt.policies import Calibration
from hesrpt.scheduler.call_source import CallbackThread, CallSource
from hesrpt.scheduler.decision_log import DECISIONS, DecisionLog, WaitingWarner
from hesrpt.scheduler.job_registry import JobRegistry, OnChange
from hesrpt.scheduler.live_job import MAX_TIMED_ITEMS, ItemTiming, LiveJob
from hesrpt.scheduler.pruning import Pruner, Retention
from hesrpt.scheduler.python_source import ReadAhead
from hesrpt.scheduler.requests import (
    NOT_ARRIVED,
    BusyError,
    ImpossibleJobError,
    RelatedJobs,
    RemovedError,
    apply_group_request,
    apply_request,
    check_pausable,
)
from hesrpt.scheduler.run_hooks import RunHooks
from hesrpt.scheduler.source import SourceListener
from hesrpt.storage.earlier_items import Matches
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import (
    WHOLE_POOL,
    Answer,
    Changes,
    FailedAttempt,
    FinishedItem,
    Holding,
    JobRecord,
    MovedItem,
    Request,
    RunProgress,
    SubmissionKey,
)
from hesrpt.storage.logs import LogPaths, get_log_paths, mark_attempt

# How long to wait for an outcome or a message before the next tick, in seconds; if other processes
# can make requests, this is also how often to look for these.
_STEP_SECONDS, _POLL_SECONDS = 0.5, 0.25
# How often to look for requests at most while somebody asks for it, in seconds.
_LOOK_SECONDS = 0.2
# How long to wait for further jobs when the first one arrives, to plan them together, in seconds;
# after that, it does not wait again for some time.
_GATHER_SECONDS, _GATHER_PAUSE_SECONDS = 0.005, 0.02
# How long after a write items that are done wait for others, to be written together, in seconds: a
# write takes as long as many of them.
_WRITE_PAUSE_SECONDS = 0.02
# How often to write what is planned and predicted, and what was learned, in seconds.
_PROGRESS_SECONDS, _LEARNING_SECONDS = 1.0, 5.0
# How long to wait for a locked journal when the driver is closed, in seconds.
_CLOSE_SECONDS = 2.0
# How many jobs whose results were freed are remembered, and how many are forgotten at a time.
_REMEMBERED, _FORGOTTEN_AT_ONCE = 10_000, 1_000

_LOG = logging.getLogger("hesrpt")

_has_ended = attrgetter("has_ended")

T = TypeVar("T")

#: What another thread sends to the driver's: a call that returns events for the core.
Message: TypeAlias = Callable[[], Sequence[Event]]


class PoolClosedError(InputError):
    """The pool takes no more jobs."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What a pool is doing at one moment. Jobs that have ended are not in it."""

    time: float  # seconds since the run began
    servers: int  # how many there are
    planned: Mapping[str, int]  # servers that the policy gives each job
    held: Mapping[str, int]  # servers that each job holds


@dataclass(frozen=True, eq=False)
class Watch:
    """Somebody who wants to be woken once, when something about a job makes a condition true."""

    job: LiveJob
    is_ready: Callable[[], bool]
    wake: Callable[[], object]  # must be quick and wait for nothing


@dataclass(frozen=True, eq=False)
class ClientJobs:
    """Jobs that a client of a service submits, all or none, and how it is answered.

    If the client has used its idempotency key before, for a request with the same digest, it gets
    the jobs of that time, and nothing is added.
    """

    specs: Sequence[JobSpec]
    key: str  # empty: none
    digest: str  # of the request
    time: float  # in seconds since 1970: keys outlive the run's clock
    reply: Callable[[Sequence[LiveJob | JobRecord] | InputError], None]  # called in any thread


@dataclass(eq=False)
class _Question:
    """What a client of a service asks of a job or a group, and the answer once it is durable."""

    request: Request
    answer: Answer | None = None

    def is_kept(self) -> bool:
        """Return whether it is answered, or in the journal."""
        return self.answer is not None or self.request.number > 0


class _PendingEnd(NamedTuple):
    """When and how a job has ended, before others see it."""

    job: LiveJob
    time: float
    end: JobEnd


class Driver:
    """Runs jobs in its own thread until it is closed."""

    def __init__(
        self,
        core: Core,
        engine: Engine,
        journal: Journal | None = None,
        memory: KindMemory | None = None,
        on_change: OnChange = "error",
        retention: Retention | None = None,
    ) -> None:
        self.core, self.engine, self.journal = core, engine, journal
        self.condition = threading.Condition()  # guards the core and all jobs
        self.jobs: dict[str, LiveJob] = {}
        self.callbacks = CallbackThread("hesrpt-callbacks", "a callback of a job")
        self.failure: BaseException | None = None
        self.was_forked = False  # whether the thread runs in the parent of this process
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._work, name="hesrpt-driver", daemon=True)
        self._is_closing = self._is_draining = self._has_stopped_jobs = False
        self.starts_items = True  # False: running items end, and no others start
        # The run's clock counts the seconds during which a scheduler runs.
        self._started = engine.now() - (0.0 if journal is None else journal.last_time)

        # What other threads have sent. An arrival is taken after the messages about its job.
        self.registry = JobRegistry(journal, on_change, self.jobs)
        self._adding = threading.Lock()
        self._messages: deque[Message] = deque()
        self._arrivals: deque[LiveJob] = deque()
        self._client_jobs: list[ClientJobs] = []
        self._questions: list[_Question] = []
        self._watches: dict[LiveJob, set[Watch]] = {}
        self.followers: set[Callable[[LiveJob], object]] = set()  # are told which jobs have ended

        # When to do what.
        # How long to wait after a write before outcomes are written again, and shown. Items start
        # without waiting for that. If the scheduler is killed, those not written run again.
        self.write_seconds = 0.0
        self._written_at = self._gathered_until = -inf
        self._next_poll = self._next_progress = self._learned_at = 0.0
        self._looked_at = -_LOOK_SECONDS  # when it last looked for requests
        self._look_at: float | None = None  # when to look because somebody asks for it
        self._wakes_at = inf  # when the next step begins if nothing happens
        self._pruner: Pruner | None = None  # removes old jobs from the journal
        if journal is not None and retention is not None:
            self._pruner = Pruner(journal, retention, self._release_jobs)
        self.warner = WaitingWarner()

        # What the core has decided, and has yet to happen.
        self._hooks = RunHooks(journal, self.jobs, lambda call: self._changes.hooks.append(call))
        self._hooks_to_call: dict[LiveJob, list[CallHook]] = {}  # of jobs that are about to end
        self._finishing: dict[LiveJob, Finish] = {}  # whose stopped items are not gone yet
        # The attempts that failed in this step, until the core has decided which items to give up.
        self._failed_attempts: dict[tuple[LiveJob, int], ItemFailure] = {}

        # Requests of other processes, and of clients, whose numbers are negative at first.
        self._takes_requests = False
        self._deferred: set[int] = set()  # requests about jobs that the run does not have yet
        self._has_looked = self._has_job_requests = False
        self._asked: dict[int, _Question] = {}
        self._last_question = 0
        self._answered: list[tuple[_Question, Answer]] = []  # not written yet
        # Requests to cancel jobs: None once they are answered, which the journal learns later.
        self._cancels: dict[int, LiveJob | None] = {}

        # What has happened since the last write, and what others see after it.
        self._changes = Changes()
        self._is_urgent = self._has_unwritten = False
        self._ends: list[_PendingEnd] = []
        self._matched: list[tuple[LiveJob, Matches]] = []  # items done in earlier runs
        self._outcomes: list[Outcome | FinishedItems] = []

        # The history of the run as a whole.
        self.holdings: list[Holding] = [] if journal is None else journal.read_holdings()
        self.peak_servers = core.servers  # the highest number of servers so far
        self.first_start: float | None = None  # when the first item started
        self._held: dict[int, int] = {}  # servers, by the numbers of the jobs that hold some
        self._forget_above = _REMEMBERED + _FORGOTTEN_AT_ONCE  # how many jobs there may be
        self._memory = memory or KindMemory()
        for learned in self._memory.runs:
            p = learned.durations.p if learned.given_p is None else learned.given_p
            size = None if learned.is_bag else learned.durations.measure_item_seconds(p)
            if size is not None:
                core.estimator.record_command(size)
        self._learned: dict[int, LearnedRun] = {}  # of active jobs, by their numbers
        self._teaching: dict[LiveJob, None] = {}  # items were done since the last time
        self.groups: dict[str, Group] = {}
        if journal is not None:
            self.first_start = journal.get_value("first_start", parse=float)
            known = journal.get_value("calibration", parse=_read_calibration)
            if known is not None:
                core.allocator.resume_calibration(known)
            self.groups = journal.get_value("groups", {}, parse=read_groups)
            core.apply(*(GroupChanged(self.now, *named) for named in self.groups.items()))
        self._calibration = core.allocator.calibration  # the one in the journal
        self._record_servers(core.servers)

    def start(self) -> None:
        """Start the thread. It ends with its lease, or with the interpreter."""
        if self.journal is not None:
            self.journal.requests.open()
            self._takes_requests = True
        _running.add(self)
        try:
            self._thread.start()
        except RuntimeError:  # the system allows no more threads
            _running.discard(self)
            raise
        # Register again: what is registered last runs first. Ray, for one, must shut down after us.
        atexit.unregister(_end_all)
        atexit.register(_end_all)
        if multiprocessing.parent_process() is not None:
            # Processes of multiprocessing end without calling what atexit knows.
            Finalize(None, _end_all, exitpriority=0)

    # --- adding jobs ----------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise an error if no more jobs can be added."""
        self.raise_failure()
        if self._is_closing or self._is_draining:
            raise PoolClosedError("the pool is closed")

    def add(self, jobs: Sequence[LiveJob]) -> list[LiveJob]:
        """Add several jobs at once; none starts before all of them are in the journal.

        Return them without the commands that are done already.
        """
        with self._adding:
            self.check_open()
            problems = self.registry.refuse_impossible(jobs, self.engine)
            for job, error in problems.items():
                if job.answer is not None:
                    job.answer = Answer(job.answer.request, True, error)
            self.registry.register(jobs)
            added: list[LiveJob] = []
            with self.condition:
                self.check_open()  # else nobody would end them
                for job in jobs:
                    if job.spec.command is None or job.state != "done":
                        added.append(job)
                        self._enter(job)
            for job in added:
                if not job.has_ended:
                    self._arrivals.append(job)
            self.engine.wake()
            for job, error in problems.items():
                self.cancel(job, JobEnd("impossible", error))  # whoever submitted it is not here
        return added

    def add_for_client(self, jobs: ClientJobs) -> None:
        """Add the jobs of a client soon, and answer once they are durable.

        Clients that come at the same moment share a transaction.
        """
        with self.condition:
            self._client_jobs.append(jobs)
        self._look_for_requests()

    def withdraw(self, jobs: ClientJobs) -> bool:
        """Let a client give up; return False if its jobs were taken already."""
        with self.condition:
            if jobs not in self._client_jobs:
                return False
            self._client_jobs.remove(jobs)
            return True

    def end_earlier_jobs(self, records: Sequence[JobRecord], end: JobEnd) -> None:
        """Let jobs of earlier schedulers fail that nobody can continue."""
        self.registry.end([replace(record, ended=self.now, end=end) for record in records])

    def _enter(self, job: LiveJob) -> None:
        """Let a job be part of the run."""
        self.jobs[job.name] = job
        if job.has_ended:  # in an earlier run
            self._tell_followers(job)

    # --- steering jobs and groups ---------------------------------------------------------------

    def cancel(self, job: LiveJob, end: JobEnd = STOPPED) -> None:
        """End a job before its items have ended, unless it has."""
        if not job.has_ended:
            self.send(lambda: [JobCancelled(self.now, job.name, end)])

    def steer(self, job: LiveJob, change: Callable[[LiveJob], None]) -> None:
        """Pause or resume a job, or change its weight, unless it has ended."""
        self.check_process()
        with self.condition:
            self.raise_failure()
            if not job.has_ended:
                change(job)
        self.send(partial(self._steer, job))

    def list_groups(self) -> dict[str, Group]:
        """Return the groups of jobs, and those with settings."""
        with self.condition:
            used = {job.spec.group: job.group for job in self.jobs.values() if job.spec.group}
            return used | self.groups

    def change_group(self, name: str, change: Callable[[Group], Group]) -> None:
        """Pause or resume a group of jobs, or change its weight."""
        self.check_process()
        with self.condition:
            self.raise_failure()
            self._set_group(name, change(self.groups.get(name, PLAIN_GROUP)))
        self.send(partial(self._steer_group, name))

    def retry(self, job: LiveJob) -> None:
        """Let the failed items of a job run again; the job has not ended when this returns."""
        self.check_process()
        with self.condition:
            self.check_open()
            job.check_retriable()
            job.is_to_be_retried = True
            job.completions.remove_failed(job.failures)  # streams that start now wait for them
            job.reopen()
        self.send(partial(self._retry_if_asked, job))

    def ask(self, requests: Sequence[Request], timeout: float) -> list[Answer | None]:
        """Do what a client asks for; return the answers once they are durable.

        Wait for at most ``timeout`` seconds. Requests whose answer is None then are in the journal,
        and will be done. Raises a BusyError if the thread has not taken all of them by then.
        """
        questions = [_Question(request) for request in requests]
        with self.condition:
            self._questions += questions
        self._look_for_requests()
        if not self.wait(lambda: all(each.answer for each in questions), timeout):
            with self.condition:
                left = [each for each in self._questions if each in questions]
                self._questions = [each for each in self._questions if each not in left]
            # A step that has taken them ends soon, and writes those to the journal that take long.
            if left or not self.wait(lambda: all(map(_Question.is_kept, questions)), timeout):
                raise BusyError("the scheduler is busy; try again in a moment")
        return [each.answer for each in questions]

    def stop_taking_requests(self) -> bool:
        """Take no more requests; return False if there is one that has not been answered."""
        if not self._takes_requests or not self._thread.is_alive():
            return True
        assert self.journal is not None
        try:
            self._takes_requests = not self.journal.requests.close(self._deferred)
        except StateError:
            with self.condition:  # the thread may have failed, and closed the journal
                if not self.condition.wait_for(lambda: self.failure is not None, 1.0):
                    raise
            return True
        return not self._takes_requests

    def send(self, message: Message) -> None:
        """Send a message to the thread."""
        self.check_process()
        self._messages.append(message)
        self.engine.wake()

    def _look_for_requests(self) -> None:
        """Let the thread look for requests soon, because there are some.

        That is at once, unless it has just looked: so it takes those that come quickly together.
        """
        with self.condition:
            if self._look_at is not None:
                return
            self._look_at = self._looked_at + _LOOK_SECONDS
            is_sooner = self._look_at < self._wakes_at
        if is_sooner:
            self.engine.wake()

    # --- waiting, and looking at the run --------------------------------------------------------

    def wait(self, is_ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``is_ready()``, for at most ``timeout`` seconds; return whether it is."""
        with self.condition:
            self.condition.wait_for(lambda: is_ready() or self.failure is not None, timeout)
            if not is_ready():
                self.raise_failure()
            return is_ready()

    def wait_for_jobs(
        self, list_jobs: Callable[[], Iterable[LiveJob]], timeout: float | None = None
    ) -> bool:
        """Wait until all jobs have ended that are listed now, and then; return whether they have.

        They are waited for one after another: with many jobs, looking at all of them each time
        that one ends would take long.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self.condition:
                active = list(filterfalse(_has_ended, list_jobs()))
            if not active:
                return True
            for job in active:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                if not self.wait(partial(_has_ended, job), left):
                    return False

    def watch(self, watch: Watch) -> bool:
        """Let the thread wake somebody when a condition holds, or when the thread fails.

        Returns False if it holds now, or the thread has failed.
        """
        with self.condition:
            if watch.is_ready() or self.failure is not None:
                return False
            self._watches.setdefault(watch.job, set()).add(watch)
            return True

    def unwatch(self, watch: Watch) -> None:
        """Remove a watch, unless it has been woken already."""
        with self.condition:
            if (others := self._watches.get(watch.job)) is not None:
                others.discard(watch)
                if not others:
                    del self._watches[watch.job]

    def take_snapshot(self) -> Snapshot:
        """Return how many servers each job has now."""
        self.check_process()
        with self.condition:
            jobs, waiting = self.core.jobs, dict.fromkeys(self.core.predecessors.waiting, 0)
            return Snapshot(
                time=self.now,
                servers=self.core.servers,
                planned=waiting | {name: job.planned for name, job in jobs.items()},
                held=waiting | {name: job.observed for name, job in jobs.items()},
            )

    def recall_ends(self) -> Mapping[str, float]:
        """Return when jobs will end, as predicted a moment ago; this takes no time."""
        is_over = self.was_forked or not self._thread.is_alive()
        return self.forecaster.ends if is_over else self.forecaster.recall()

    @cached_property
    def forecaster(self) -> Forecaster:
        """Predicts when jobs will end."""
        return Forecaster(self.core, self._collect_remaining_work)

    def _collect_remaining_work(self) -> RemainingWork:
        with self.condition:
            return collect_remaining_work(self.core, self.now)

    def get_read_ahead(self) -> ReadAhead:
        """Return how many items to read before servers are free for them."""
        minimum = 2 * self.core.servers + 2
        most = self.engine.max_batch if self.engine.batch_seconds else 1
        return ReadAhead(minimum, minimum * most)

    @property
    def now(self) -> float:
        """Seconds since the run began, not counting the time between two schedulers."""
        return self.engine.now() - self._started

    # --- the end, and failures ------------------------------------------------------------------

    def drain(self) -> None:
        """Let the thread end once all calls submitted to executors have ended; stop other jobs.

        This does not wait: the garbage collector may call it, in any thread.
        """
        if not self.was_forked:
            self._is_draining = True
            self.engine.wake()

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

    def describe_end(self) -> str:
        """Return what has become of the scheduler; an empty text while it is running."""
        if self.was_forked:
            return f"of process {self._process}"
        if self.failure is not None:
            return f"failed ({self.failure})"
        return "closed" if self._is_closing or not self._thread.is_alive() else ""

    # --- the thread: everything below is called in it -------------------------------------------

    def _work(self) -> None:
        try:
            with ExitStack() as at_end:
                if self.journal is not None:
                    at_end.callback(self.journal.close)
                at_end.callback(self._close_hooks)
                try:
                    while not self._has_to_end():
                        self._step()
                finally:
                    outcomes = self.engine.close()
                self._record_last(outcomes)
            self._end_jobs()
        except BaseException as error:
            with self.condition:
                self.failure = error
                for job in self.jobs.values():
                    job.source.close(f"the scheduler has failed: {error}")
                self._wake_all()
        finally:
            self.callbacks.put(None)
            _running.discard(self)

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
            events = map(self._handle_outcome, outcomes, repeat(self.now))
            self._carry_out(self.core.apply(*events))
            self._finish_jobs(self.now)
            self._outcomes += outcomes
        with suppress(StateError):  # these items run again if the run is resumed
            self._write()

    def _close_hooks(self) -> None:
        """Call hooks for the last time, and record what became of them."""
        self._hooks.close()
        with suppress(StateError):  # the next scheduler calls them again
            self._flush()

    def _end_jobs(self) -> None:
        """Cancel the jobs that have not ended."""
        with self.condition:
            for job in self.jobs.values():
                job.source.close()
                if not job.has_ended:
                    job.ended, job.end, job.servers = self.now, STOPPED, 0
                    self._tell_followers(job)
            self._wake_all()

    def _tell_followers(self, job: LiveJob) -> None:
        for tell in list(self.followers):
            tell(job)

    def _wake_all(self) -> None:
        """Wake whoever waits for anything; the caller holds the condition."""
        watches = list(chain.from_iterable(self._watches.values()))
        self._watches.clear()
        for watch in watches:
            watch.wake()
        self.condition.notify_all()

    # --- a step ---------------------------------------------------------------------------------

    def _step(self) -> None:
        """Wait for something to happen, and react to it."""
        outcomes = self.engine.wait_for_outcomes(self._find_timeout())
        has_messages = bool(self._messages or self._arrivals)
        now = self.engine.now()
        if not outcomes and not has_messages and now >= self._find_writing_time():
            self._write()  # nothing has happened since the last step
            return
        if has_messages and self.core.tally.observed == 0 and now > self._gathered_until:
            # Jobs that are submitted one after another arrive together. What their sources report
            # at once is not worth waiting for.
            self._gathered_until = now + _GATHER_PAUSE_SECONDS
            time.sleep(_GATHER_SECONDS)
        messages = _take_all(self._messages)
        arrived = self._record_arrivals()
        questions, requests = list[Request](), list[Request]()
        if self._takes_requests and self._is_time_to_look(bool(arrived)):
            arrived += self._add_client_jobs()
            requests = self._read_requests()
            if added := self._record_arrivals():  # by requests of other processes
                arrived += added
                requests = self._read_requests() if self._has_job_requests else requests
            questions = self._take_questions()  # which are answered before the next write
        with self.condition:
            # Requests in the journal are older: a client may take back what it asked for before.
            self._react(outcomes, arrived, messages, [*requests, *questions])
        if self.journal is not None:
            self._record_progress()
        self._has_unwritten = self._has_unwritten or bool(outcomes or messages or arrived)
        # Whoever has made a request waits for the answer.
        is_due = bool(requests or questions) or not self._has_unwritten
        if is_due or self.engine.now() >= self._find_writing_time():
            self._write()
        if self._pruner is not None:
            self._pruner.step(self.now)

    def _find_timeout(self) -> float:
        """Return how long to wait for an outcome or a message, in seconds."""
        now = self.engine.now()
        wakes_at = now + (_POLL_SECONDS if self._takes_requests else _STEP_SECONDS)
        wakes_at = min(wakes_at, self._find_writing_time())
        with self.condition:
            self._wakes_at = wakes_at if self._look_at is None else min(wakes_at, self._look_at)
        return max(self._wakes_at - now, 0.0)

    def _find_writing_time(self) -> float:
        """Return when to write what has happened since the last write; never if nothing has."""
        if not self._has_unwritten:
            return inf
        if self.journal is None:
            return -inf  # others see it at once
        # Short items may be written with those that follow, unless somebody waits for one of them.
        has_only_items = self._changes.are_only_finished_items and not self._is_urgent
        can_wait = has_only_items and not self._ends and not self._matched
        return self._written_at + max(_WRITE_PAUSE_SECONDS * can_wait, self.write_seconds)

    def _react(
        self,
        outcomes: Sequence[Outcome | FinishedItems],
        arrived: Sequence[LiveJob],
        messages: Sequence[Message],
        requests: Sequence[Request],
    ) -> None:
        """React to what has happened, and record it; then answer requests."""
        log = DecisionLog(self.core) if DECISIONS.isEnabledFor(logging.INFO) else None
        if self._hooks.called:
            self._hooks.record()
        now = self.now
        events = list(map(self._handle_outcome, outcomes, repeat(now)))
        for job in arrived:
            if job.matches.done:
                self._matched.append((job, job.matches))
            events += self._open(job)
        for message in messages:
            events += message()
        servers, max_width = self.engine.capacity(), self.engine.widest_command()
        if (servers, max_width) != (self.core.servers, self.core.max_width):
            self._record_servers(servers)
            events.append(CapacityChanged(self.now, servers, max_width))
        commands = self._carry_out(self.core.apply(*events))
        self._finish_jobs(self.now)
        if requests:  # the core knows by now which jobs have ended
            for request, asked in self._find_jobs(requests):
                changes = (
                    self._apply_group_request(request)
                    if asked is None
                    else self._apply_request(request, asked)
                )
                events += changes
                commands += self._carry_out(self.core.apply(*changes))
        if self._cancels:
            self._answer_cancels()
        if self.starts_items:
            commands += self._carry_out(self.core.decide(self.now))
        if log is not None:
            log.write(events, commands, self.jobs, self.now)
        if self._failed_attempts:
            self._record_failed_attempts(self.now)
        self.warner.warn(self.core, self.engine.now())
        if self.engine.can_grow:
            self.engine.request_servers(self.core.count_usable_servers())
        self._record_held()
        if self.now - self._learned_at >= _LEARNING_SECONDS:
            self._learned_at = self.now
            self._record_learned()
        self._outcomes += outcomes

    # --- arrivals -------------------------------------------------------------------------------

    def _record_arrivals(self) -> list[LiveJob]:
        """Write the jobs that arrive to the journal, before any of them starts."""
        jobs = _take_all(self._arrivals)
        if jobs:
            with self.condition:
                self._record_jobs(jobs, self._changes)
            self._write()
        return jobs

    def _record_jobs(self, jobs: Iterable[LiveJob], changes: Changes) -> None:
        """Record jobs that arrive, or go on after they have ended in an earlier run."""
        self._record_learned()
        if len(self.jobs) > self._forget_above:
            self._forget_old_jobs()
        for job in jobs:
            if job.arrived is None:
                job.arrived = self.now
            job.spec = replace(job.spec, prior=self._memory.get_prior(job.spec))
            job.group = self.groups.get(job.spec.group, PLAIN_GROUP)
            if self.journal is None:
                continue
            changes.jobs.append(job.to_record())
            if job.is_redone:
                changes.jobs_to_redo.append(job.number)
            if job.answer is not None:
                changes.answers.append(job.answer)
            changes.moved_items += starmap(partial(MovedItem, job.number), job.matches.moved)

    def _add_client_jobs(self) -> list[LiveJob]:
        """Add the jobs that clients have submitted, in one transaction, and answer the clients."""
        with self.condition:
            waiting, self._client_jobs = self._client_jobs, []
        if not waiting:
            return []
        assert self.journal is not None
        new: dict[ClientJobs, list[LiveJob]] = {}
        keys = set[str]()
        for client in waiting:
            if client.key in keys:
                self.add_for_client(client)  # next time, the journal knows what the other got
                continue
            known = None
            try:
                if client.key:
                    known = self.journal.requests.read_key(client.key, client.time)
            except StateError as error:
                client.reply(error)
                continue
            if known is not None:
                client.reply(self._recall(client, known))
            else:
                keys |= {client.key} - {""}
                new[client] = [LiveJob.from_command(spec, submission=0) for spec in client.specs]
        if not new:
            return []
        with self._adding:
            for client, batch in [*new.items()]:
                if (refusal := self._explain_refusal(batch)) is not None:
                    others = "; no job was added" if len(client.specs) > 1 else ""
                    client.reply(ImpossibleJobError(refusal + others))
                    del new[client]
            if not (jobs := [job for batch in new.values() for job in batch]):
                return []
            for batch in new.values():  # apart: clients may use the same names
                self.registry.register(batch)
            changes = Changes(is_durable=True)
            with self.condition:
                self._record_jobs(jobs, changes)
            changes.values["time"] = self.now  # not before they have arrived
            for client, batch in new.items():
                if client.key:
                    numbers = [job.number for job in batch]
                    key = SubmissionKey(client.key, client.digest, numbers, client.time)
                    changes.keys.append(key)
            try:
                self.journal.write(changes)
            except StateError as error:  # the disk is full, for instance: nothing was written
                self.registry.withdraw(jobs)
                for client in new:
                    client.reply(error)
                return []
            with self.condition:
                for job in jobs:
                    self._enter(job)
        for client, batch in new.items():
            client.reply(batch)
        return jobs

    def _recall(
        self, client: ClientJobs, known: SubmissionKey
    ) -> Sequence[LiveJob | JobRecord] | InputError:
        """Return the jobs that a client has added with the same key before."""
        if known.digest != client.digest:
            return InputError(f"Idempotency-Key {client.key!r} was used for another request")
        known_jobs: list[LiveJob | JobRecord] = [*self.registry.list_records()]
        with self.condition:
            known_jobs += self.jobs.values()
        found = {job.number: job for job in known_jobs}
        # Keys of format 9 may name requests, as negative numbers.
        found |= {-job.spec.submission: job for job in known_jobs if job.spec.submission}
        jobs = [found[number] for number in known.jobs if number in found]
        if len(jobs) == len(client.specs):
            return jobs
        return RemovedError(
            f"nothing was added: Idempotency-Key {client.key!r} was used before, and what it "
            "added was removed since"
        )

    def _explain_refusal(self, batch: Sequence[LiveJob]) -> str | None:
        """Return why jobs that were submitted together are refused: one of them can never start."""
        problems = self.registry.find_problems(batch, self.engine)
        wrong = next((job for job in batch if job in problems), None)
        return None if wrong is None else f"job {wrong.name!r}: {problems[wrong]}"

    def _open(self, job: LiveJob) -> list[Event]:
        """Start reading the items of a job that has arrived, unless it may have to wait for others.

        Return the arrival as an event, after the ends of others in earlier runs.
        """
        if not job.spec.after:
            self._open_source(job)
        arrival = JobArrived(self.now, job.spec, tuple(job.matches.done))
        if not job.earlier_ends:
            return [arrival]
        ends = job.earlier_ends.items()
        return [*(JobEnded(self.now, name, end.state) for name, end in ends), arrival]

    # --- what sources of items report -----------------------------------------------------------

    def _open_source(self, job: LiveJob) -> None:
        def advance() -> list[Event]:
            news = listener.take()
            done = tuple(news.matches.done)
            if done:
                job.done += sum(map(len, done))
                self._matched.append((job, news.matches))
            moved = starmap(partial(MovedItem, job.number), news.matches.moved)
            self._changes.moved_items += moved
            events: list[Event] = [ItemsRead(self.now, job.name, news.items, done)]
            if news.count_items is not None:
                # In this thread, which starts the items: the count is final.
                job.items = news.count_items()
                events.append(ItemsExhausted(self.now, job.name, job.items))
            if news.failure is not None:
                error, job.source_error = news.failure
                end = JobEnd("unreadable_items", escape_undecodable(error))
                events.append(JobCancelled(self.now, job.name, end))
            return events

        listener = SourceListener(on_news=partial(self.send, advance))
        job.source.open(listener)

    # --- outcomes of items ----------------------------------------------------------------------

    def _handle_outcome(self, outcome: Outcome | FinishedItems, now: float) -> Event:
        """Record an outcome; return it as an event."""
        if isinstance(outcome, FinishedItems):
            return self._finish_items(outcome, now)
        job, item = self.jobs[outcome.job], outcome.item
        self._record_start(now - outcome.seconds)
        if outcome.is_lost:
            if outcome.was_started:
                job.count_attempt(item)
            return ItemLost(now, job.name, item, outcome.was_started)
        if outcome.error is not None:
            job.failed_seconds += outcome.seconds
            job.failed_attempts += 1
            job.count_attempt(item)
            failure = self._add_failed_attempt(job, item, outcome.error, outcome.details)
            return ItemFailed(now, job.name, item, failure.describe())
        finished = FinishedItems(job.name, (item,), (outcome.seconds,), (outcome.result,))
        if outcome.reference is not None:
            job.references[item] = outcome.reference
        return self._finish_items(finished, now)

    def _finish_items(self, finished: FinishedItems, now: float) -> Event:
        """Record items that are done; return that as an event."""
        job, (_, items, seconds, results) = self.jobs[finished.job], finished
        self._record_start(now - seconds[0])
        if self.journal is not None:
            job.unwritten += len(items)
            contents = repeat(b"") if job.source.delivers_results else results
            keys = job.source.get_keys(items)
            columns = (repeat(job.number), keys, items, seconds, repeat(now), contents)
            rows = zip(*columns, strict=False)
            self._changes.finished_items += map(FinishedItem._make, rows)
            # Somebody may wait for a single item; others follow soon.
            self._is_urgent = self._is_urgent or len(items) == 1
        else:
            if len(job.timings) <= MAX_TIMED_ITEMS and not job.spec.is_executor:
                job.timings += map(ItemTiming, items, seconds, repeat(now))
            if not job.source.delivers_results and items[0] not in job.references:
                job.results.update(zip(items, results, strict=True))
        job.done += len(items)
        job.done_now += len(items)
        job.source.finish_items(items, results)
        self._teaching[job] = None
        return ItemsFinished(now, job.name, items, seconds)

    def _add_failed_attempt(
        self, job: LiveJob, item: int, error: str, details: ErrorDetails = NO_DETAILS
    ) -> ItemFailure:
        """Add an attempt, which was counted before."""
        failure = self._failed_attempts[job, item] = ItemFailure(
            item=item,
            value=escape_undecodable(details.value or job.source.describe_value(item)),
            attempts=job.attempts[item],
            error=escape_undecodable(error),
            traceback=escape_undecodable(add_source_lines(details.traceback)),
            pickled_exception=details.pickled_exception,
        )
        return failure

    def _give_up(self, job: LiveJob, command: Drop) -> None:
        """Note that an item has failed: this was its last attempt."""
        item = command.item
        if not job.spec.is_executor:
            failure = self._failed_attempts.get((job, item))
            if failure is None:
                failure = self._add_failed_attempt(job, item, describe_losses(command.losses))
            job.failures[item] = failure
        job.source.drop_item(item, command.error)

    def _record_failed_attempts(self, time: float) -> None:
        """Record the attempts, and which of them were the last."""
        for (job, item), failure in self._failed_attempts.items():
            is_last = job.failures.get(item) is failure
            attempt = FailedAttempt(job.number, time, job.spec.round, is_last, failure)
            self._changes.failed_attempts.append(attempt)
        self._failed_attempts.clear()

    # --- commands of the core -------------------------------------------------------------------

    def _carry_out(self, commands: list[Command]) -> list[Command]:
        """Carry out commands, and return them."""
        for command in commands:
            job, now = self.jobs[command.job], self.now
            match command:
                case Start():
                    self._start(job, command)
                case Stop():
                    self.engine.stop_items(job.name, command.items)
                case Resize():
                    self.engine.resize(job.name, command.item, command.servers)
                case Suspend():
                    self.engine.suspend(job.name, command.item)
                case Continue():
                    self.engine.resume(job.name, command.item, command.servers)
                case Admit():
                    self._open_source(job)
                case Drop():
                    self._give_up(job, command)
                case Reopen():
                    self._reopen(job, now)
                case CallHook():
                    self._hooks_to_call.setdefault(job, []).append(command)
                    if job not in self._finishing:
                        self._call_hooks(job, now)
                case Finish():
                    self._finishing[job] = command
                    self._finish_jobs(now)
        return commands

    def _start(self, job: LiveJob, command: Start) -> None:
        logs = None
        if self.journal is not None:
            logs = self._get_log_paths(self.journal, job, command.items)
        tasks = job.source.create_tasks(command.items, command.servers, logs)
        if totals := self.core.stock.totals:  # it gets its own GPUs, and no others
            gpus = choose_gpu_variables(command.gpus, os.environ) if GPU in totals else {}
            tasks = reserve(tasks, gpus, holds_resources=bool(job.spec.resources))
        job.durations = self.core.jobs[job.name].durations
        self.engine.start(job.name, tasks, command.servers)

    def _get_log_paths(self, journal: Journal, job: LiveJob, items: Sequence[int]) -> LogPaths:
        """Return the paths of the logs of items, in which earlier attempts are marked as such."""
        logs = get_log_paths(journal.directory, job.number, job.spec.resumed)
        for item in items if job.attempts or not job.spec.is_bag else ():
            if (attempts := job.attempts.get(item)) is not None or not job.spec.is_bag:
                mark_attempt(logs.get(item), item, None if attempts is None else attempts + 1)
        return logs

    def _finish_jobs(self, now: float) -> None:
        """End the jobs whose end was decided, and of which nothing runs any more.

        Until then, stopped items may turn out to be done.
        """
        for job in list(self._finishing):
            if not self.engine.is_stopping(job.name):
                self._finish(job, self._finishing.pop(job).end, now)
                if job in self._hooks_to_call:
                    self._call_hooks(job, now)

    def _finish(self, job: LiveJob, end: JobEnd, now: float) -> None:
        """End a job. It is released, unless it may go on."""
        ended = job.choose_end(now, end)
        self._ends.append(_PendingEnd(job, ended, end))
        if job.spec.is_paused and not job.is_to_be_retried:
            job.set_paused(False)  # if it goes on later, nobody wants it to wait
        self._record_learned([job])
        if not self.core.can_retry(job.name):
            self._stop_learning(job)
            job.source.close()
        if self.journal is not None:
            self._changes.jobs.append(replace(job, ended=ended, end=end).to_record())

    def _call_hooks(self, job: LiveJob, now: float) -> None:
        """Do what is to be done because a job has ended, unless it had ended like this before."""
        for command in self._hooks_to_call.pop(job):
            if job.choose_end(now, command.end) == now:
                self._hooks.prepare(job, command, now)

    def _reopen(self, job: LiveJob, now: float) -> None:
        """Continue a job that has failed items, or has ended."""
        self._record_failed_attempts(now)  # before the next round begins
        job.source.retry_items()
        job.completions.remove_failed(job.failures)
        job.failures.clear()
        job.reopen()
        self._finishing.pop(job, None)
        self._hooks_to_call.pop(job, None)
        self._ends = [end for end in self._ends if end.job is not job]
        job.spec = replace(job.spec, retried=job.spec.retried + 1)
        self._changes.jobs.append(job.to_record())

    # --- changes that users ask for -------------------------------------------------------------

    def _steer(self, job: LiveJob) -> list[Event]:
        """Record that a job was paused or resumed, or has another weight; return that as events."""
        if job.has_ended:
            return []
        self._changes.jobs.append(job.to_record())
        return [JobSteered(self.now, job.name, job.spec.is_paused, job.spec.weight)]

    def _set_group(self, name: str, group: Group) -> None:
        """Change what holds for the jobs of a group; raise an error if one cannot be paused."""
        jobs = [job for job in self.jobs.values() if job.spec.group == name]
        for job in jobs if group.is_paused else ():
            if not job.is_paused and not job.has_ended:
                check_pausable(job, self.engine)
        if group.differs_from(self.groups.get(name, PLAIN_GROUP)):
            group = replace(group, changed=self.now)
        self.groups[name] = group
        for job in jobs:
            job.group = group

    def _steer_group(self, name: str) -> list[Event]:
        """Record what holds for the jobs of a group; return it as events."""
        self._changes.values["groups"] = write_groups(self.groups)
        return [GroupChanged(self.now, name, self.groups[name])]

    def _retry_if_asked(self, job: LiveJob) -> list[Event]:
        if not job.is_to_be_retried:  # it was asked for twice
            return []
        job.is_to_be_retried = False
        return self._retry(job)

    def _retry(self, job: LiveJob) -> list[Event]:
        """Return the events that let failed items run again, or a job that was cancelled go on."""
        is_ending = job.source.is_closed or job in self._finishing
        if self.core.can_retry(job.name) or is_ending:
            steered = JobSteered(self.now, job.name, job.spec.is_paused)
            return [ItemsRetried(self.now, job.name), steered]
        revived = [job, *self._list_earlier_successors(job)]  # they ended in an earlier run
        for each in revived:
            each.reopen()
            each.failures.clear()
            each.spec = replace(each.spec, was_reopened=True)
        self._record_jobs(revived, self._changes)
        return [event for each in revived for event in self._open(each)]

    def _list_earlier_successors(self, job: LiveJob) -> list[LiveJob]:
        """Return the jobs that were cancelled in an earlier run because of a job, or of these."""
        cancelled = [
            each
            for each in self.jobs.values()
            if each.end is not None
            and each.end.was_caused_by_predecessor
            and not self.core.can_retry(each.name)
        ]
        names, found = {job.name}, list[LiveJob]()
        order = sort_by_order({each.name: each.spec.after for each in cancelled})
        for each in (self.jobs[name] for name in order):
            if not names.isdisjoint(each.spec.after) and not each.source.is_closed:
                names.add(each.name)
                found.append(each)
        return found

    # --- requests of other processes, and of clients --------------------------------------------
    #
    # A request of another process stays in the journal until it is answered, in one transaction
    # with what was done about it. So it is done exactly once, even if the scheduler is killed.

    def _is_time_to_look(self, has_arrivals: bool) -> bool:
        """Return whether to look for requests, which may have waited for a job that arrives."""
        now = self.engine.now()
        look_at = self._next_poll if self._look_at is None else self._look_at
        if now < look_at and not (has_arrivals and self._has_job_requests):
            return False
        with self.condition:
            self._look_at, self._looked_at = None, now
        self._next_poll = now + _POLL_SECONDS
        return True

    def _read_requests(self) -> list[Request]:
        """Return the changes that other processes ask for, and add the jobs that they submit."""
        assert self.journal is not None
        # Those who submit jobs now wait for an answer, unlike those who did before the start.
        can_refuse, self._has_looked = self._has_looked, True
        requests, changes = self.journal.requests.read(), list[Request]()
        submitted: dict[int, list[LiveJob]] = {}
        for request in requests:
            if request.spec is None:
                changes.append(request)
            else:
                job = LiveJob.from_command(request.spec, submission=request.number)
                submitted.setdefault(request.submission or request.number, []).append(job)
        self._has_job_requests = bool(changes)
        if submitted:
            self._add_submitted(submitted, can_refuse)
        return changes

    def _add_submitted(self, batches: Mapping[int, Sequence[LiveJob]], can_refuse: bool) -> None:
        """Add jobs that other processes have submitted, unless the pool is closed.

        If one can never start, those that were submitted together with it are refused too. If
        whoever submitted them cannot be told any more, it fails instead.
        """
        answers: list[Answer] = []
        for batch in batches.values():  # one after another: a later one may wait for an earlier one
            text = self._explain_refusal(batch) if can_refuse else None
            if text is not None:
                refused = [job.answer.request for job in batch if job.answer is not None]
                answers += [Answer(number, True, text) for number in refused]
                continue
            with suppress(PoolClosedError):
                self.add(batch)  # it is in the journal before requests are read again
        if answers:
            assert self.journal is not None
            self.journal.write(Changes(answers=answers))

    def _take_questions(self) -> list[Request]:
        """Return what clients ask for."""
        with self.condition:
            questions, self._questions = self._questions, []
        for question in questions:
            self._last_question -= 1
            question.request = replace(question.request, number=self._last_question)
            self._asked[self._last_question] = question
        return [question.request for question in questions]

    def _find_jobs(self, requests: Sequence[Request]) -> list[tuple[Request, LiveJob | None]]:
        """Return requests with the jobs that they are about; None: a group."""
        found: list[tuple[Request, LiveJob | None]] = []
        by_number: dict[int | None, LiveJob] = {}
        by_submission: dict[int | None, LiveJob] = {}
        for job in self.jobs.values():
            by_number[job.number] = job
            by_submission[job.spec.submission or None] = job
        by_submission.pop(None, None)
        for request in requests:
            about = by_number.get(request.job) or by_submission.get(request.submission)
            if about is not None or request.group is not None:
                found.append((request, about))
            elif request.number not in self._deferred:
                self._defer(request)
        return found

    def _defer(self, request: Request) -> None:
        """Keep a request about a job that is not in this run, unless it is too late for it."""
        assert self.journal is not None
        records = self.journal.read_records()
        record = next((record for record in records if request.is_about(record)), None)
        if record is not None and record.has_ended and request.kind != "retry":
            self._answer(request, describe_end(record.state), is_refused=True)
        elif request.number < 0 or (record is None and request.job is not None):  # it was there
            text = "was removed" if request.submission is None else NOT_ARRIVED
            self._answer(request, text, is_refused=True)
        else:
            self._deferred.add(request.number)  # its script or jobs file may add it

    def _answer(self, request: Request, text: str, *, is_refused: bool = False) -> None:
        """Answer a request, in one transaction with what was done about it."""
        answer = Answer(request.number, is_refused, text)
        if (question := self._asked.pop(request.number, None)) is not None:
            self._answered.append((question, answer))
            self._changes.is_durable = self._changes.is_durable or not is_refused
        if request.number > 0:
            self._changes.answers.append(answer)

    def _apply_request(self, request: Request, job: LiveJob) -> list[Event]:
        """Do what was asked for, and record the answer; return it as events.

        A request about a job that is about to arrive or to be retried waits in the journal.
        """
        if request.number in self._cancels:
            return []
        state = job.state
        if not job.has_ended and not self.core.has_job(job.name):
            end = self._find_end(job)
            if end is None or job.is_to_be_retried:
                return []
            state = end.state
        try:
            related = self._find_related_jobs(job) if request.kind == "retry" else RelatedJobs()
            text = apply_request(job, request, state, self.engine, related)
        except InputError as refusal:
            self._answer(request, refusal.problem, is_refused=True)
            return []
        if request.kind == "cancel":
            self._cancels[request.number] = job
            return [JobCancelled(self.now, job.name, REQUESTED)]
        self._answer(request, text)
        if request.kind == "retry" and job.can_retry(state):
            return self._retry(job)
        if request.kind == "retry":
            self._changes.jobs.append(replace(job, ended=None, end=None).to_record().reopen())
        return self._steer(job)

    def _answer_cancels(self) -> None:
        """Answer requests to cancel jobs that have ended, in one transaction with their ends.

        Until then they stay in the journal, so that a crash cannot lose a confirmed one.
        """
        for number, job in self._cancels.items():
            if job is not None and job not in self._finishing:
                self._answer(Request(kind="cancel", number=number), "cancelled")
                self._cancels[number] = None

    def _find_end(self, job: LiveJob) -> JobEnd | None:
        """Return how a job has ended if others do not see that yet."""
        return next((pending.end for pending in self._ends if pending.job is job), None)

    def _find_related_jobs(self, job: LiveJob) -> RelatedJobs:
        """Return the jobs that matter if a job is to run again."""
        others = [self.jobs[name] for name in job.spec.after if name in self.jobs]
        obstacle = None
        for other in others if job.spec.after_failure == "cancel" else ():
            end = self._find_end(other)
            state = other.state if end is None else end.state
            if state in ("failed", "cancelled"):
                obstacle = explain_useless_retry(other.name, state)
        unfinished = [other.name for other in others if self.core.has_job(other.name)]
        successors = self.core.predecessors.list_cancelled_by(job.name)
        if not self.core.can_retry(job.name):
            successors = [other.name for other in self._list_earlier_successors(job)]
        return RelatedJobs(unfinished, obstacle, successors)

    def _apply_group_request(self, request: Request) -> list[Event]:
        """Do what was asked for about a group, and record the answer; return it as events."""
        assert request.group is not None
        name = request.group
        group, text = apply_group_request(self.groups.get(name, PLAIN_GROUP), request)
        try:
            self._set_group(name, group)
        except InputError as refusal:
            self._answer(request, str(refusal), is_refused=True)
            return []
        self._answer(request, text)
        return self._steer_group(name)

    def _keep_unanswered(self) -> None:
        """Write what clients ask for and that takes a while, such as cancelling, to the journal."""
        kept = {number: asked for number, asked in self._asked.items() if number < 0}
        if not kept or self.journal is None:
            return
        numbers, _ = self.journal.requests.add([asked.request for asked in kept.values()])
        for (earlier, asked), number in zip(kept.items(), numbers, strict=True):
            asked.request = replace(asked.request, number=number)
            self._asked[number] = self._asked.pop(earlier)
            if earlier in self._cancels:
                self._cancels[number] = self._cancels.pop(earlier)

    # --- the journal: what is recorded, and when it is written ----------------------------------

    def _record_servers(self, servers: int) -> None:
        """Record how many servers there are now."""
        self._add_holding(Holding(self.now, WHOLE_POOL, servers))
        if servers > self.peak_servers:
            self.peak_servers = self._changes.values["servers"] = servers

    def _record_held(self) -> None:
        """Record how many servers jobs hold now."""
        for job in self.core.tally.changed:
            live, held = self.jobs[job.name], job.observed
            if self.core.jobs.get(job.name) is job:  # an end is published later
                live.servers, live.planned = held, job.planned
            if held != self._held.get(live.number, 0):
                self._add_holding(Holding(self.now, live.number, held))
            self._held[live.number] = held
            if held == 0:
                del self._held[live.number]
        self.core.tally.changed.clear()

    def _add_holding(self, holding: Holding) -> None:
        self.holdings.append(holding)
        self._changes.holdings.append(holding)

    def _record_start(self, time: float) -> None:
        """Record when an item started: the first to end need not be the first that started."""
        if self.first_start is None or time < self.first_start:
            self.first_start = self._changes.values["first_start"] = time

    def _record_learned(self, jobs: Iterable[LiveJob] | None = None) -> None:
        """Record what was learned from jobs; by default, from those with new finished items."""
        if jobs is None:
            jobs, self._teaching = self._teaching, {}
        runs = []
        for job in jobs:
            if job.durations.items > 0:
                if job.number not in self._learned:
                    self._learned[job.number] = self._memory.begin_run(job.spec, job.durations)
                runs.append(self._learned[job.number])
        self._changes.learned_runs += runs
        self._changes.forgotten_runs += self._memory.forget() if runs else ()

    def _stop_learning(self, job: LiveJob) -> None:
        """Let go of a job that teaches nothing more in this run."""
        self._learned.pop(job.number, None)
        self._teaching.pop(job, None)

    def _record_progress(self) -> None:
        """Record what is planned and predicted once a second, for other processes.

        The caller does not hold the condition, which a forecast needs.
        """
        active = self.core.jobs
        if not active or self.now < self._next_progress:
            return
        self._next_progress = self.now + _PROGRESS_SECONDS
        ends = self.forecaster.recall(0.0).items()
        progress = RunProgress(
            time=self.now,
            servers=self.core.servers,
            planned={
                self.jobs[job.name].number: job.planned for job in self.core.line.list_first()
            },
            ends={self.jobs[name].number: end for name, end in ends if name in active},
            resources=self.core.stock.describe(),
        )
        self._changes.values["progress"] = progress.to_json()

    def _flush(self) -> bool:
        """Write what was recorded up to now, which may take long; return whether that is anything.

        The end of a job is durable then.
        """
        learned = self.core.allocator.calibration
        if self.journal is not None and learned is not None and learned is not self._calibration:
            self._calibration = learned
            self._changes.values["calibration"] = json.dumps(learned.without_jobs().as_json())
        changes, self._changes, self._is_urgent = self._changes, Changes(), False
        if self.journal is None or not changes:
            return False
        changes.values["time"] = self.now
        self.journal.write(changes)
        return True

    def _write(self) -> None:
        """Write to the journal what has happened, and then show it to other threads."""
        if self._asked:
            self._keep_unanswered()
        was_anything_written = self._flush()  # other threads can go on meanwhile
        with self.condition:
            self._publish()
        self._has_unwritten = False
        if was_anything_written:
            self._written_at = self.engine.now()

    # --- publication: what other threads see ----------------------------------------------------

    def _publish(self) -> None:
        """Let other threads see outcomes, ends and answers, now that the journal has them."""
        if self._hooks.prepared:
            self._hooks.call()
        if self._cancels:
            unanswered = [each for each in self._cancels.items() if each[1] is not None]
            self._cancels = dict(unanswered)
        changed = set[LiveJob]()
        for outcome in self._outcomes:
            job = self.jobs[outcome.job]
            changed.add(job)
            job.unwritten = 0
            if job.source.delivers_results:
                continue
            if isinstance(outcome, FinishedItems):
                job.completions.add_done(outcome.items)
            elif outcome.is_done:
                job.completions.add_done((outcome.item,))
            elif outcome.item in job.failures:
                job.completions.add_failed(outcome.item)
        for job, matches in self._matched:
            changed.add(job)
            job.completions.add_matches(matches)
        ends, self._ends = self._ends, []
        for pending in ends:
            job = pending.job
            if job.is_to_be_retried:
                self._ends.append(pending)
                continue
            changed.add(job)
            job.ended, job.end, job.servers = pending.time, pending.end, 0
            self._tell_followers(job)
        for question, answer in self._answered:
            question.answer = answer
        self._outcomes, self._matched, self._answered = [], [], []
        for job in changed:
            for watch in list(self._watches.get(job, ())):
                if watch.is_ready():
                    self.unwatch(watch)
                    watch.wake()
        self.condition.notify_all()

    # --- forgetting jobs ------------------------------------------------------------------------

    def _forget_old_jobs(self) -> None:
        """Forget the oldest of many jobs that can neither be read nor go on."""
        released = [job for job in self.jobs.values() if job.is_released]
        old = released[: max(len(released) - _REMEMBERED, 0)]
        for job in old:
            del self.jobs[job.name]
            self.core.forget(job.name)
            self._stop_learning(job)
        self._forget_holdings({job.number for job in old})
        self._forget_above = len(self.jobs) + _FORGOTTEN_AT_ONCE

    def _release_jobs(self, numbers: Sequence[int]) -> list[int]:
        """Forget jobs that are removed from the journal; return the numbers of those forgotten.

        Jobs stay that go on, or for which others wait.
        """
        assert self.journal is not None
        names = {end.number: end.name for end in self.journal.read_ends()}
        released = []
        with self.condition:
            live = {job.number: job for job in self.jobs.values()}
            wanted = {name for job in live.values() if not job.has_ended for name in job.spec.after}
            for number in numbers:
                job, name = live.get(number), names.get(number)
                if name is None or name in wanted:
                    continue
                if job is not None and (not job.has_ended or job.is_to_be_retried):
                    continue
                if not self.registry.forget(number, name):
                    continue
                if job is not None:
                    job.source.close()
                    self._stop_learning(job)
                    del self.jobs[name]
                self.core.forget(name)
                released.append(number)
            self._forget_holdings(set(released))
        return released

    def _forget_holdings(self, numbers: Collection[int]) -> None:
        """Forget in memory which servers some jobs held."""
        self.holdings = [each for each in self.holdings if each.job not in numbers]


def _take_all(queue: deque[T]) -> list[T]:
    """Return what is in a queue, to which other threads may add."""
    return [queue.popleft() for _ in range(len(queue))]


def _read_calibration(text: str) -> Calibration:
    return Calibration.from_json(json.loads(text))


# --- when schedulers end: once nobody refers to their pool, and at interpreter exit -------------
#
# A forked process inherits schedulers without their threads. It lets go of them.

_running: set[Driver] = set()


class Lease:
    """Keeps a scheduler running. Its pool, executors and handles of jobs hold it.

    Once the last of them has gone, nobody can get the results of jobs, so these are stopped. The
    futures of submitted calls may still be in use, so the calls end first.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        weakref.finalize(self, driver.drain).atexit = False


def _end_all() -> None:
    """At interpreter exit, let submitted calls end as ``concurrent.futures`` does; stop jobs."""
    drivers = _running.copy()
    try:
        if _was_interrupted():
            raise KeyboardInterrupt
        for driver in drivers:
            _warn_of_stopped_jobs(driver)
            driver.drain()
        for driver in drivers:
            driver.join()
    except KeyboardInterrupt:
        for driver in drivers:
            driver.close()
    for driver in drivers:
        driver.callbacks.join()
        for job in list(driver.jobs.values()):
            if isinstance(job.source, CallSource):
                job.source.resolver.join()


def _was_interrupted() -> bool:
    """Return whether Ctrl-C has ended the script."""
    is_interactive = hasattr(sys, "ps1")  # then it has only ended one of many statements
    return not is_interactive and isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)


def _warn_of_stopped_jobs(driver: Driver) -> None:
    """Warn of jobs that the end of the script stops, unless an error has ended it."""
    if hasattr(sys, "last_value"):
        return
    for job in list(driver.jobs.values()):
        if not job.has_ended and not isinstance(job.source, CallSource):
            _LOG.warning(
                "hesrpt: the script has ended before job %r, which was stopped after %d items; "
                "call pool.wait() to let it end",
                job.name,
                job.done,
            )


def _abandon_all() -> None:
    """In a forked process, let go of the parent's schedulers."""
    for driver in _running:
        driver.close_after_fork()
    _running.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, where pools are refused
    os.register_at_fork(after_in_child=_abandon_all)
