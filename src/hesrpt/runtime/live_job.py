"""A job as the driver sees it: the source of its items, and its progress so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hesrpt.runtime.jobs import JobSpec
from hesrpt.runtime.journal_entries import JobRecord
from hesrpt.runtime.learning import ItemDurations
from hesrpt.runtime.sources import CommandSource, Source
from hesrpt.speedups import PowerLaw


@dataclass(eq=False, kw_only=True)
class LiveJob:
    """A job of a pool. The driver's thread changes it while holding the driver's condition."""

    spec: JobSpec
    source: Source
    submission: int | None = None  # the number of the journal's submission that it came from
    is_new: bool = False  # whether it is distinct from a job of the same name in the journal
    number: int = 0  # in order of arrival
    is_recorded: bool = False  # whether it is in the journal, if there is one
    arrived: float | None = None  # a resumed job keeps its first arrival
    ended: float | None = None
    error: str | None = None
    items: int | None = None  # None: not known yet
    done: int = 0  # how many items are done
    done_before: frozenset[int] = frozenset()  # items done in an earlier run
    seconds_before: float = 0.0  # the total duration of those items
    results: dict[int, bytes] = field(default_factory=dict)  # if there is no journal
    references: dict[int, Any] = field(default_factory=dict)  # to results left in a cluster
    are_results_freed: bool = False
    durations: ItemDurations = field(default_factory=ItemDurations)

    @classmethod
    def from_command(cls, spec: JobSpec, submission: int | None = None) -> LiveJob:
        """Create the job of a command template."""
        assert spec.command is not None
        source = CommandSource(spec.command, pin_cores=spec.resize == "affinity")
        return cls(spec=spec, source=source, submission=submission, is_new=submission is not None)

    @property
    def name(self) -> str:
        """The job's name, unique in its pool."""
        return self.spec.name

    def get_key(self, item: int) -> bytes:
        """Return what identifies an item of this job in the journal."""
        return item.to_bytes(8, "big")

    @property
    def has_ended(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.ended is not None

    def resume(self, record: JobRecord, done_items: frozenset[int]) -> None:
        """Continue from the record of an earlier run."""
        self.number, self.arrived = record.number, record.arrived
        self.done_before, self.done = done_items, len(done_items)
        self.seconds_before = record.item_seconds
        items = self.spec.items
        if record.ended is not None and items is not None and items <= self.done:
            self.ended, self.items = record.ended, items  # nothing remains to be done

    def free_results(self) -> None:
        """Forget the results in memory."""
        self.results, self.references, self.are_results_freed = {}, {}, True

    def to_record(self) -> JobRecord:
        """Return the journal's record; if the job has ended, with its measured size and speedup."""
        size, speedup = self.spec.size, self.spec.speedup
        if self.ended is not None:
            size = self._measure_size()
            speedup = speedup or PowerLaw(self.durations.p)
        return JobRecord(
            spec=self.spec,
            number=self.number,
            arrived=self.arrived or 0.0,
            ended=self.ended,
            error=self.error,
            items=self.items,
            done=self.done,
            size=size,
            speedup=speedup,
        )

    def _measure_size(self) -> float:
        """Return the measured size of an ended job, in seconds on one server."""
        p = self.durations.p
        if self.spec.speedup is not None:
            p = self.spec.speedup.p if isinstance(self.spec.speedup, PowerLaw) else 1.0
        item_seconds = self.durations.estimate_item_seconds(p)
        if item_seconds is not None:
            return item_seconds * max(self.done, 1)
        if self.seconds_before > 0:
            return self.seconds_before
        return self.spec.size or max((self.ended or 0.0) - (self.arrived or 0.0), 1e-9)
