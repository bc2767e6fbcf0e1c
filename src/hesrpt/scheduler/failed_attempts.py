"""The attempts of items that failed in one step of a run, until they are in the journal."""

from __future__ import annotations

from hesrpt.decisions.events import Drop
from hesrpt.engines.error_details import NO_DETAILS, ErrorDetails
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.text import add_source_lines, escape_undecodable
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.recorder import Recorder
from hesrpt.storage.journal_entries import FailedAttempt


class FailedAttempts:
    """Collects failed attempts, until the core has decided which items to give up."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._failures: dict[tuple[LiveJob, int], ItemFailure] = {}

    def add(
        self, job: LiveJob, item: int, error: str, details: ErrorDetails = NO_DETAILS
    ) -> ItemFailure:
        """Add an attempt, which was counted before."""
        failure = self._failures[job, item] = ItemFailure(
            item=item,
            value=escape_undecodable(details.value or job.source.describe_value(item)),
            attempts=job.attempts[item],
            error=escape_undecodable(error),
            traceback=escape_undecodable(add_source_lines(details.traceback)),
            pickled_exception=details.pickled_exception,
        )
        return failure

    def give_up(self, job: LiveJob, command: Drop) -> None:
        """Note that an item has failed: this was its last attempt."""
        item = command.item
        if not job.spec.is_executor:
            failure = self._failures.get((job, item))
            if failure is None:  # it was lost; the error begins with the number of the item
                failure = self.add(job, item, command.error.partition(": ")[2])
            job.failures[item] = failure
        job.source.drop_item(item, command.error)

    def record(self, time: float) -> None:
        """Record the attempts, and which of them were the last."""
        for (job, item), failure in self._failures.items():
            is_last = job.failures.get(item) is failure
            attempt = FailedAttempt(job.number, time, job.spec.round, is_last, failure)
            self._recorder.add_failed_attempt(attempt)
        self._failures.clear()
