"""Records what has become of items, and turns it into events for the core."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

from hesrpt.decisions.events import Event, ItemFailed, ItemFinished, ItemLost, ItemsFinished
from hesrpt.engines.engine import FinishedItems, Outcome
from hesrpt.scheduler.failed_attempts import FailedAttempts
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.recorder import Recorder
from hesrpt.scheduler.run_history import MAX_TIMED_ITEMS, ItemTiming
from hesrpt.scheduler.run_memory import RunMemory
from hesrpt.storage.journal_entries import FinishedItem


class OutcomeHandler:
    """Handles the outcomes of items."""

    def __init__(
        self,
        jobs: Mapping[str, LiveJob],
        recorder: Recorder,
        attempts: FailedAttempts,
        memory: RunMemory,
    ) -> None:
        self._jobs, self._recorder = jobs, recorder
        self._attempts, self._memory = attempts, memory

    def handle(self, outcome: Outcome | FinishedItems, now: float) -> Event:
        """Record an outcome; return it as an event."""
        if isinstance(outcome, FinishedItems):
            return self._finish_items(outcome, now)
        job, item = self._jobs[outcome.job], outcome.item
        self._recorder.record_start(now - outcome.seconds)
        if outcome.is_lost:
            if outcome.was_started:
                job.count_attempt(item)
            return ItemLost(now, job.name, item, outcome.was_started)
        if outcome.error is not None:
            job.failed_seconds += outcome.seconds
            job.failed_attempts += 1
            job.count_attempt(item)
            failure = self._attempts.add(job, item, outcome.error, outcome.details)
            return ItemFailed(now, job.name, item, failure.describe())
        finished = FinishedItems(job.name, (item,), (outcome.seconds,), (outcome.result,))
        if outcome.reference is not None:
            job.references[item] = outcome.reference
        self._finish_items(finished, now)
        return ItemFinished(now, job.name, item, outcome.seconds)

    def _finish_items(self, finished: FinishedItems, now: float) -> Event:
        """Record items that are done; return that as an event."""
        job, (_, items, seconds, results) = self._jobs[finished.job], finished
        self._recorder.record_start(now - seconds[0])
        if self._recorder.journal is not None:
            job.unwritten += len(items)
            self._add_items(job, finished, now)
        else:
            if len(job.timings) <= MAX_TIMED_ITEMS and not job.spec.is_executor:
                job.timings += map(ItemTiming, items, seconds, repeat(now))
            if not job.source.delivers_results and items[0] not in job.references:
                job.results.update(zip(items, results, strict=True))
        job.done += len(items)
        job.done_now += len(items)
        job.source.finish_items(items, results)
        self._memory.add_changed(job)
        return ItemsFinished(now, job.name, items, seconds)

    def _add_items(self, job: LiveJob, finished: FinishedItems, now: float) -> None:
        """Record items in the journal."""
        _, items, seconds, results = finished
        contents = repeat(b"") if job.source.delivers_results else results
        keys = job.source.get_keys(items)
        columns = (repeat(job.number), keys, items, seconds, repeat(now), contents)
        self._recorder.add_finished_items([*map(FinishedItem._make, zip(*columns, strict=False))])
