"""The messages that other threads send to the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hesrpt.runtime.live_job import LiveJob


@dataclass(frozen=True)
class JobsSubmitted:
    """Jobs were submitted together."""

    jobs: tuple[LiveJob, ...]


@dataclass(frozen=True)
class JobStopped:
    """A job was cancelled, or its source has failed."""

    job: LiveJob
    error: str


@dataclass(frozen=True)
class SourceAdvanced:
    """The source of a job has read items."""

    progress: SourceProgress


@dataclass(frozen=True)
class SourceExhausted:
    """The source of a job has no more items."""

    job: LiveJob
    count_items: Callable[[], int]


Message: TypeAlias = JobsSubmitted | JobStopped | SourceAdvanced | SourceExhausted


class SourceProgress:
    """Turns what the source of a job reports into messages."""

    def __init__(self, job: LiveJob, send: Callable[[Message], None]) -> None:
        self.job, self._send = job, send
        self.items = 0
        self.is_pending = False  # whether a message that will deliver ``items`` is in the queue

    def report_items(self, items: int) -> None:
        self.items = items
        if not self.is_pending:
            self.is_pending = True
            self._send(SourceAdvanced(self))

    def report_end(self, count_items: Callable[[], int]) -> None:
        self._send(SourceExhausted(self.job, count_items))

    def report_failure(self, error: str) -> None:
        self._send(JobStopped(self.job, error))
