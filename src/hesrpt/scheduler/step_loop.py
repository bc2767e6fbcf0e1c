"""What the scheduler's thread does again and again: wait for something to happen, and react to it.

How it reacts is in :mod:`~hesrpt.scheduler.live_run`. This module says when to look for requests,
when to write to the journal, and when to show other threads what has happened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Protocol

from hesrpt.decisions.forecast import Forecaster
from hesrpt.engines.engine import Engine
from hesrpt.scheduler.inbox import POLL_SECONDS, Inbox
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.live_run import LiveRun
from hesrpt.scheduler.messages import JobsSubmitted, Message, MessageQueue
from hesrpt.scheduler.pruning import Pruner
from hesrpt.scheduler.steering import RequestReceived
from hesrpt.scheduler.watches import Watches

# How long to wait for an outcome or a message before the next tick, in seconds.
_STEP_SECONDS = 0.5
# How long to wait for further jobs when the first one arrives, to plan them together, in seconds.
_GATHER_SECONDS = 0.005
# After that, it does not wait again for this long, in seconds.
_GATHER_PAUSE_SECONDS = 0.02
# How often to look for requests at most while somebody asks for it, in seconds.
_LOOK_SECONDS = 0.2
# How long after a write items that are done wait for others, to be written together, in seconds: a
# write takes as long as many of them.
_WRITE_PAUSE_SECONDS = 0.02


class SubmittedJobs(Protocol):
    """Jobs that other threads submit, and whose arrival they wait for."""

    def write(self) -> None:
        """Write them to the journal, as requests."""

    def answer(self) -> None:
        """Tell those who wait which jobs have arrived."""


class StepLoop:
    """Waits and reacts. All methods are called in the scheduler's thread, except where they say so.

    What has happened is shown to other threads once the journal has it.
    """

    def __init__(
        self,
        run: LiveRun,
        messages: MessageQueue,
        forecaster: Forecaster,
        condition: threading.Condition,
    ) -> None:
        self._run, self._messages, self._forecaster = run, messages, forecaster
        self.condition = condition  # guards the run
        self.watches = Watches()
        self.inbox: Inbox | None = None
        self.submitted: list[SubmittedJobs] = []
        self.pruner: Pruner | None = None
        self.write_seconds = 0.0  # how long to wait after a write before the next one
        self._written_at = -inf
        self._has_unwritten = False  # whether anything has happened since the last write
        self._next_poll = 0.0
        self._gathered_at = -inf  # when it last waited for jobs to arrive together
        self._looked_at = -_LOOK_SECONDS  # when it last looked for requests
        self._look_at: float | None = None  # when to look because somebody asks for it
        self._wakes_at = inf  # when the next step begins if nothing happens

    @property
    def _engine(self) -> Engine:
        return self._run.engine

    def look_for_requests(self) -> None:
        """Look for requests soon, because there are some; any thread may call this.

        That is at once, unless it has just looked: so it takes those that come quickly together.
        """
        with self.condition:
            if self._look_at is not None:
                return
            self._look_at = self._looked_at + _LOOK_SECONDS
            is_sooner = self._look_at < self._wakes_at
        if is_sooner:
            self._engine.wake()

    def step(self) -> None:
        """Wait for something to happen, and react to it."""
        outcomes = self._engine.wait_for_outcomes(self._find_timeout())
        if not outcomes and self._messages.is_empty() and self._has_to_write():
            self._write()  # nothing has happened since the last step
            return
        if not self._messages.is_empty() and self._run.core.observed == 0:
            self._gather_messages()
        messages = self._messages.take_all()
        has_arrivals = self._record_arrivals(messages)
        requests = self._take_requests(has_arrivals)
        if not self._messages.is_empty():  # the requests have added jobs
            arrived = self._messages.take_all()
            messages += arrived
            if self._record_arrivals(arrived):
                requests = self._take_requests(has_arrivals=True) or requests
        for submitted in self.submitted:
            submitted.answer()
        with self.condition:
            self._run.react(outcomes, messages, requests)
        self._run.record_progress(partial(self._forecaster.recall, 0.0))
        self._has_unwritten = self._has_unwritten or bool(outcomes or messages)
        # Whoever has made a request waits for the answer.
        if requests or not self._has_unwritten or self._has_to_write():
            self._write()
        if self.pruner is not None:
            self.pruner.step(self._run.now)

    def _find_writing_time(self) -> float:
        """Return when to write what has happened since the last write."""
        pause = _WRITE_PAUSE_SECONDS if self._run.can_wait else 0.0
        return self._written_at + max(pause, self.write_seconds)

    def _has_to_write(self) -> bool:
        return self._has_unwritten and self._engine.now() >= self._find_writing_time()

    def _find_timeout(self) -> float:
        """Return how long to wait for an outcome or a message, in seconds."""
        now = self._engine.now()
        wakes_at = now + (_STEP_SECONDS if self.inbox is None else POLL_SECONDS)
        if self._has_unwritten:
            wakes_at = min(wakes_at, self._find_writing_time())
        with self.condition:
            self._wakes_at = wakes_at if self._look_at is None else min(wakes_at, self._look_at)
        return max(self._wakes_at - now, 0.0)

    def _write(self) -> None:
        """Write to the journal what has happened, and then show it to other threads."""
        was_anything_written = self._run.flush()  # other threads can go on meanwhile
        with self.condition:
            self.publish()
        self._has_unwritten = False
        if was_anything_written:
            self._written_at = self._engine.now()

    def publish(self) -> None:
        """Show other threads what the journal has now; the caller holds the condition."""
        self.watches.wake_ready(self._run.publish())
        self.condition.notify_all()

    def _gather_messages(self) -> None:
        """Let jobs that are submitted one after another arrive together.

        What their sources report at once is not worth waiting for.
        """
        now = self._engine.now()
        if now - self._gathered_at > _GATHER_PAUSE_SECONDS:
            self._gathered_at = now
            time.sleep(_GATHER_SECONDS)

    def _record_arrivals(self, messages: Sequence[Message]) -> bool:
        """Write the jobs that arrive to the journal, before any of them starts.

        Return whether there are any.
        """
        submissions = [each for each in messages if isinstance(each, JobsSubmitted)]
        jobs = [job for submission in submissions for job in submission.jobs]
        if not jobs:
            return False
        with self.condition:
            self._run.add_jobs(jobs)
        self._write()
        return True

    def _take_requests(self, has_arrivals: bool) -> list[RequestReceived]:
        """Return what other processes have asked for, if it is time to look.

        Requests may have waited for a job that arrives.
        """
        if self.inbox is None:
            return []
        now = self._engine.now()
        look_at = self._next_poll if self._look_at is None else self._look_at
        if now < look_at and not (has_arrivals and self.inbox.has_job_requests):
            return []
        with self.condition:
            self._look_at, self._looked_at = None, now
        self._next_poll = now + POLL_SECONDS
        for submitted in self.submitted:
            submitted.write()
        return self.inbox.take(self._list_jobs)

    def _list_jobs(self) -> list[LiveJob]:
        with self.condition:
            return list(self._run.jobs.values())

    def wake_all(self) -> None:
        """Wake whoever waits for anything; the caller holds the condition."""
        self.watches.wake_all()
        self.condition.notify_all()
