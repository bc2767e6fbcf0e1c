"""The messages that other threads send to the driver."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hesrpt.jobs.job_end import JobEnd
from hesrpt.jobs.text import escape_undecodable
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.earlier_items import Match, Matches
from hesrpt.storage.journal_entries import NO_POSITION


@dataclass(frozen=True)
class JobsSubmitted:
    """Jobs were submitted together."""

    jobs: tuple[LiveJob, ...]


@dataclass(frozen=True)
class JobStopped:
    """A job is to end: it was cancelled, cannot start, or its source has failed."""

    job: LiveJob
    end: JobEnd


@dataclass(frozen=True)
class JobSteered:
    """A job was paused or resumed, or has another weight, as its spec says now."""

    job: LiveJob


@dataclass(frozen=True)
class GroupSteered:
    """A group was paused or resumed, or has another weight."""

    group: str


@dataclass(frozen=True)
class JobRetried:
    """The failed items of a job are to run again."""

    job: LiveJob


@dataclass(frozen=True)
class SourceAdvanced:
    """The source of a job has read items."""

    progress: SourceProgress


@dataclass(frozen=True)
class SourceExhausted:
    """The source of a job has no more items."""

    job: LiveJob
    count_items: Callable[[], int]


Message: TypeAlias = (
    JobsSubmitted
    | JobStopped
    | JobSteered
    | GroupSteered
    | JobRetried
    | SourceAdvanced
    | SourceExhausted
)


class MessageQueue:
    """The messages that the driver has not taken yet."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def put(self, message: Message) -> None:
        """Add a message."""
        self._messages.put(message)

    def is_empty(self) -> bool:
        """Return whether there are no messages."""
        return self._messages.empty()

    def take_all(self) -> list[Message]:
        """Return all messages, in the order in which they were sent."""
        messages: list[Message] = []
        while True:
            try:
                messages.append(self._messages.get_nowait())
            except queue.Empty:
                return messages


class ReadItems(NamedTuple):
    """What the source of a job has read."""

    items: int  # how many items so far, not counting those done before
    matches: Matches  # the items that were done before, read since the last time


class SourceProgress:
    """Turns what the source of a job reports into messages."""

    def __init__(self, job: LiveJob, send: Callable[[Message], None]) -> None:
        self.job, self._send = job, send
        self._lock = threading.Lock()
        self._items, self._matches = 0, Matches()
        self._is_pending = False  # whether a message is in the queue

    def take(self) -> ReadItems:
        """Return what was read since the last call; called by the driver."""
        with self._lock:
            matches, self._matches = self._matches, Matches()
            self._is_pending = False
            return ReadItems(self._items, matches)

    def report_items(self, items: int) -> None:
        with self._lock:
            self._items = items
        self._announce()

    def report_match(self, match: Match, item: int) -> None:
        with self._lock:
            self._matches.add(match, item)
        self._announce()

    def report_removed(self, keys: Iterable[bytes]) -> None:
        with self._lock:
            self._matches.moved += [(key, NO_POSITION) for key in keys]
        self._announce()

    def report_end(self, count_items: Callable[[], int]) -> None:
        self._send(SourceExhausted(self.job, count_items))

    def report_failure(self, error: str, cause: BaseException | None = None) -> None:
        error = escape_undecodable(error)
        self.job.source_failure = (error, cause)
        self._send(JobStopped(self.job, JobEnd("unreadable_items", error)))

    def _announce(self) -> None:
        if not self._is_pending:
            self._is_pending = True
            self._send(SourceAdvanced(self))
