"""What other threads may see of jobs: outcomes and ends, once the journal has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hesrpt.engines.engine import FinishedItems, Outcome
from hesrpt.jobs.job_end import JobEnd
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.earlier_items import Matches


class PendingEnd(NamedTuple):
    """When and how a job has ended, before others see it."""

    job: LiveJob
    time: float
    end: JobEnd


class Publication:
    """Holds back what happened to jobs until the journal has it."""

    def __init__(self) -> None:
        self._ends: list[PendingEnd] = []
        self._matched: list[tuple[LiveJob, Matches]] = []  # items done in earlier runs
        self._outcomes: list[Outcome | FinishedItems] = []

    def add_outcomes(self, outcomes: Iterable[Outcome | FinishedItems]) -> None:
        """Hold back outcomes of items."""
        self._outcomes += outcomes

    @property
    def has_only_outcomes(self) -> bool:
        """Whether nothing else is held back."""
        return not self._ends and not self._matched

    def add_end(self, end: PendingEnd) -> None:
        """Hold back the end of a job."""
        self._ends.append(end)

    def find_end(self, job: LiveJob) -> PendingEnd | None:
        """Return the end of a job that is held back, if there is one."""
        return next((end for end in self._ends if end.job is job), None)

    def remove_end(self, job: LiveJob) -> None:
        """Forget the end of a job that goes on."""
        self._ends = [end for end in self._ends if end.job is not job]

    def add_matches(self, job: LiveJob, matches: Matches) -> None:
        """Hold back items that were done in an earlier run."""
        self._matched.append((job, matches))

    def publish(self, jobs: Mapping[str, LiveJob]) -> set[LiveJob]:
        """Let other threads see all that was held back.

        Returns the jobs that have changed.
        """
        changed = set()
        outcomes, self._outcomes = self._outcomes, []
        for outcome in outcomes:
            job = jobs[outcome.job]
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
        self._matched.clear()
        ends = [end for end in self._ends if not end.job.is_to_be_retried]
        for end in ends:
            changed.add(end.job)
            end.job.ended, end.job.end, end.job.servers = end.time, end.end, 0
        self._ends = [end for end in self._ends if end.job.is_to_be_retried]
        return changed
