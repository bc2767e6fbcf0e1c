"""A job as the driver sees it: the source of its items, and its progress so far."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from hesrpt.decisions.learning import ItemDurations
from hesrpt.errors import InputError, JobError
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.fingerprints import fingerprint_command
from hesrpt.jobs.job_end import REQUESTED, JobEnd, JobState, get_job_state
from hesrpt.jobs.job_spec import PLAIN_GROUP, Group, JobSpec
from hesrpt.pickling import Pickled
from hesrpt.scheduler.source import CommandSource, Source
from hesrpt.speedups import PowerLaw
from hesrpt.storage.earlier_items import EarlierItems, Matches, Places
from hesrpt.storage.journal_entries import Answer, JobRecord

# --- which items of a job have ended, and in which order ------------------------------------------

#: What is known of an item. Those that are done before were done in an earlier run.
UNFINISHED, DONE, DONE_BEFORE, FAILED = range(4)  # an enumeration would be slow
_WITH_RESULT = bytes((DONE, DONE_BEFORE))


@dataclass(eq=False)
class Completions:
    """The items that have ended: those whose results can be read, and those that have failed.

    Streams of results read this while the driver's thread adds to it, without a lock: both only
    append, and each looks at one value at a time. A job may have millions of items, so an item
    takes 9 bytes.
    """

    #: Items in the order of their ends; ~item if it failed.
    order: array[int] = field(default_factory=partial(array, "q"))
    #: By item; those beyond its end are unfinished.
    states: bytearray = field(default_factory=bytearray)
    #: Of the items that were done in earlier runs.
    places: Places = field(default_factory=Places)

    def add_done(self, items: Sequence[int]) -> None:
        """Add items that are done, once their results can be read."""
        for item in items:
            if self._set_state(item, DONE):
                self.order.append(item)

    def add_failed(self, item: int) -> None:
        """Add an item that has failed for good."""
        if self._set_state(item, FAILED):
            self.order.append(~item)

    def remove_failed(self, items: Iterable[int]) -> None:
        """Remove items that have failed and are tried again."""
        for item in items:
            self._set_state(item, UNFINISHED)

    def add_matches(self, matches: Matches) -> None:
        """Add items that were done in earlier runs, once the journal has their positions."""
        self.places.extend(matches.places)
        for items in matches.done:
            for item in items:
                self._set_state(item, DONE_BEFORE)
            self.order.extend(items)

    def get_state(self, item: int) -> int:
        """Return what is known of an item, as one of the constants above."""
        return self.states[item] if item < len(self.states) else UNFINISHED

    def list_undone(self, items: Sequence[int]) -> list[int]:
        """Return those of some items that have no result."""
        known, states = len(self.states), self.states
        return [item for item in items if item >= known or states[item] not in _WITH_RESULT]

    def find_unfinished(self, start: int, stop: int) -> int:
        """Return the first item of a range that has not ended; ``stop`` if all have."""
        found = self.states.find(UNFINISHED, start, stop)
        return min(max(len(self.states), start), stop) if found < 0 else found

    def _set_state(self, item: int, state: int) -> bool:
        """Set the state of an item; return whether that changes it."""
        states = self.states
        if item >= len(states):
            states.extend(bytes(item + 1 - len(states)))
        elif states[item] == state:
            return False
        states[item] = state
        return True


# --- the job ------------------------------------------------------------------------------------

#: Of a job with more items than this, only their total duration is used.
MAX_TIMED_ITEMS = 5000


class ItemTiming(NamedTuple):
    """How long an item took, and when it ended."""

    position: int
    seconds: float
    ended: float


@dataclass(eq=False, kw_only=True)
class LiveJob:
    """A job of a pool. The driver's thread changes it while holding the driver's condition."""

    spec: JobSpec
    source: Source
    answer: Answer | None = None  # to the request that it came from, once it is recorded
    is_new: bool = False  # whether it is distinct from a job of the same name in the journal
    number: int = 0  # in order of arrival; 0 until it is known
    fingerprint: bytes = b""  # of its function or command
    record: JobRecord | None = None  # of an earlier run that it continues
    stays_ended: bool = False  # whether only a retry lets it go on if it failed in an earlier run
    is_redone: bool = False  # whether the results of earlier runs do not count
    arrived: float | None = None  # a resumed job keeps its first arrival
    ended: float | None = None  # when
    end: JobEnd | None = None  # how
    group: Group = PLAIN_GROUP  # what holds for its group
    servers: int = 0  # how many it holds; 0 once it has ended
    planned: int = 0  # how many the policy gives it
    items: int | None = None  # None: not known yet
    done: int = 0  # how many items are done
    done_now: int = 0  # how many of them were done in the present run
    failures: dict[int, ItemFailure] = field(default_factory=dict)  # items that have failed
    attempts: dict[int, int] = field(default_factory=dict)  # of items that failed or were lost
    hook_errors: dict[str, str] = field(default_factory=dict)  # of hooks that failed, by target
    is_yielded: bool = False  # whether the pool has yielded it since it ended
    is_to_be_retried: bool = False  # whether the driver is about to retry the failed items
    source_error: BaseException | None = None  # what the iterable of its items raised
    failed_attempts: int = 0  # in the present run
    failed_seconds: float = 0.0  # their duration
    unwritten: int = 0  # how many of them are not in the journal yet, if there is one
    #: How the jobs in ``after`` have ended that ended before it was added.
    earlier_ends: dict[str, JobEnd] = field(default_factory=dict)
    matches: Matches = field(default_factory=Matches)  # items known at first to be done already
    results: dict[int, Pickled] = field(default_factory=dict)  # pickled, if there is no journal
    references: dict[int, Any] = field(default_factory=dict)  # to results left in a cluster
    are_results_freed: bool = False
    completions: Completions = field(default_factory=Completions)  # what users may see of items
    durations: ItemDurations = field(default_factory=ItemDurations)
    timings: list[ItemTiming] = field(default_factory=list)  # of not too many items, likewise

    @classmethod
    def from_command(cls, spec: JobSpec, submission: int | None = None) -> LiveJob:
        """Create the job of a command template."""
        assert spec.command is not None
        return cls(
            spec=replace(spec, submission=submission),
            source=CommandSource(
                spec.command,
                pin_cores=spec.resize == "affinity",
                max_servers=spec.max_servers,
            ),
            items=spec.items,
            fingerprint=fingerprint_command(spec.command),
            answer=Answer(submission, False, "") if submission else None,
            is_new=submission is not None,
        )

    @classmethod
    def from_record(cls, record: JobRecord) -> LiveJob:
        """Create a job that continues the command of an earlier run as it was."""
        job = cls.from_command(record.spec)
        job.spec, job.number = record.spec, record.number
        return job

    @property
    def name(self) -> str:
        """The job's name, unique in its pool."""
        return self.spec.name

    @property
    def reported_done(self) -> int:
        """How many items users are told are done: never more than a crash would leave."""
        return self.done - self.unwritten

    @property
    def progress(self) -> float | None:
        """The fraction of the items that are done; None if the number of items is unknown."""
        if self.items is None:
            return None
        return self.reported_done / self.items if self.items else 1.0

    @property
    def has_ended(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.ended is not None

    @property
    def state(self) -> JobState:
        """What users are told of where the job is."""
        return get_job_state(self.end, servers=self.servers, is_paused=self.is_paused)

    @property
    def error(self) -> str | None:
        """Why it failed or was cancelled."""
        return None if self.end is None else self.end.error

    @property
    def is_paused(self) -> bool:
        """Whether it starts nothing until it, or its group, is resumed."""
        return self.spec.is_paused or self.group.is_paused

    def resume(self, record: JobRecord, earlier: EarlierItems | None) -> None:
        """Continue from the record of an earlier run; without its items, do them all again."""
        self.record, self.number, self.arrived = record, record.number, record.arrived
        self.is_redone = earlier is None
        self.spec = replace(
            self.spec,
            resumed=record.spec.resumed + 1,
            retried=record.spec.retried,
            is_paused=record.spec.is_paused and record.ended is None,
            was_paused=record.spec.was_paused,
            was_reopened=record.spec.was_reopened,
        )
        if record.spec.given_weight == self.spec.weight:
            self.set_weight(record.spec.weight)
        self.matches = self.source.resume(earlier or EarlierItems(), self.spec.resumed)
        self.done = sum(map(len, self.matches.done))
        is_unchanged = (
            record.state == "done"
            and record.fingerprint == self.fingerprint  # else the journal must learn of the change
            and not self.matches.moved
            and self.done == self.spec.items == record.items
        )
        stays_ended = self.stays_ended and record.state in ("failed", "cancelled")
        if is_unchanged or stays_ended or record.end == REQUESTED:
            self.ended, self.end, self.items = record.ended, record.end, record.items
        if record.has_ended and not self.has_ended:
            self.spec = replace(self.spec, was_reopened=True)
        if self.has_ended:
            self.completions.add_matches(self.matches)

    def set_paused(self, is_paused: bool) -> None:
        """Pause the job, or let it go on."""
        self.spec = replace(
            self.spec, is_paused=is_paused, was_paused=self.spec.was_paused or is_paused
        )

    def set_weight(self, weight: float) -> None:
        """Give the job another weight, which holds until another one is asked for."""
        given = self.spec.weight if self.spec.given_weight is None else self.spec.given_weight
        self.spec = replace(self.spec, weight=weight, given_weight=given)

    def choose_end(self, now: float, end: JobEnd) -> float:
        """Return when the job has ended: earlier, if nothing was left to do."""
        record = self.record
        if record is None or record.ended is None or record.state != "done":
            return now
        is_new = self.done_now or self.is_redone or end.state != "done"
        return now if is_new else record.ended

    def free_results(self) -> None:
        """Forget the results in memory and, if the job has ended, the items to be retried."""
        self.results, self.references, self.are_results_freed = {}, {}, True
        if self.has_ended and self.spec.command is None:
            self.source.close()

    @property
    def is_released(self) -> bool:
        """Whether nobody can get its results or let it go on: it has ended, and they were freed."""
        is_python = self.spec.command is None
        return is_python and self.has_ended and self.are_results_freed and self.source.is_closed

    def can_retry(self, state: JobState) -> bool:
        """Return whether it can go on: it has failed items or is cancelled, and has its source."""
        return (bool(self.failures) or state == "cancelled") and not self.source.is_closed

    def count_attempt(self, item: int) -> None:
        """Count an attempt of an item that failed or was lost."""
        self.attempts[item] = self.attempts.get(item, 0) + 1

    def check_retriable(self) -> None:
        """Raise an error if there is nothing that can run again."""
        if self.is_to_be_retried or self.can_retry(self.state):
            return
        problem = "it has no failed items"
        if self.state == "cancelled":
            problem = "it was cancelled"
        elif self.failures:
            problem = "its items are no longer in memory"
        raise InputError(f"job {self.name!r} cannot be retried: {problem}")

    def reopen(self) -> None:
        """Let the job go on after its end."""
        self.ended, self.end, self.is_yielded = None, None, False

    def create_error(self) -> JobError:
        """Return what to raise if the job failed or was cancelled, with its cause."""
        is_cancelled = self.state == "cancelled"
        what = "was" if is_cancelled else "failed:"  # the error says "cancelled"
        error = JobError(f"job {self.name!r} {what} {self.error}")
        if self.end is not None and self.end.reason == "unreadable_items":
            error.__cause__ = self.source_error
        elif self.failures and not is_cancelled:
            exception = self.failures[min(self.failures)].exception
            error.__cause__ = None if isinstance(exception, JobError) else exception
        return error

    def to_record(self) -> JobRecord:
        """Return the journal's record; if the job has ended, with its measured size and speedup."""
        size, speedup = self.spec.size, self.spec.speedup
        if self.ended is not None:
            size = self._measure_size()
            speedup = speedup or PowerLaw(self.durations.p)
            if self.record is not None and self.done_now == 0:
                speedup = self.record.speedup or speedup
        return JobRecord(
            spec=self.spec,
            number=self.number,
            fingerprint=self.fingerprint,
            arrived=self.arrived or 0.0,
            ended=self.ended,
            end=self.end,
            items=self.items,
            done=self.done,
            failed_items=list(map(self.failures.__getitem__, sorted(self.failures))),
            failures=self.failed_attempts,
            size=size,
            speedup=speedup,
        )

    def _measure_size(self) -> float:
        """Return the measured size of an ended job, in seconds on one server; 0 if nothing ran."""
        p = self.durations.p
        if self.spec.speedup is not None:
            p = self.spec.speedup.p if isinstance(self.spec.speedup, PowerLaw) else 1.0
        item_seconds = self.durations.measure_item_seconds(p)
        if item_seconds is not None:
            return item_seconds * max(self.done, 1)
        if self.record is not None and self.record.item_seconds > 0:
            return self.record.item_seconds
        return self.failed_seconds
