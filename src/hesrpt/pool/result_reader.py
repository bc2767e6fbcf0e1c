"""Reads the results of items: from memory, from the journal, or from a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pickle import UnpicklingError
from typing import Any

import cloudpickle

from hesrpt.engines.local.shared_files import Pickled
from hesrpt.errors import InputError
from hesrpt.scheduler.completions import DONE_BEFORE
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import StoredResult

# Results of up to so many bytes in all are unpickled together.
_SMALL_BYTES = 2**22


class ResultReader:
    """Reads results of items that are done."""

    def __init__(self, job: LiveJob, driver: Driver) -> None:
        self._journal: Journal | None = None
        self._read: dict[int, Pickled] = {}  # results that were read from it
        self._large: dict[int, StoredResult] = {}  # large ones, which have still to be read
        self._job, self._driver = job, driver
        if job.source.delivers_results:
            raise InputError(f"job {job.name!r}: its results are in the futures of its executor")
        if job.are_results_freed and driver.journal is None:
            raise InputError(
                f"job {job.name!r}: its results were freed, because they had been read or yielded "
                "and nobody held the job"
            )

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the journal; the next read opens it again."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    @property
    def has_journal(self) -> bool:
        """Whether :meth:`prepare` reads from a disk."""
        return self._driver.journal is not None

    def prepare(self, items: Sequence[int]) -> None:
        """Read the results of items together, unless they are in memory or large.

        If there are none, the journal is closed: more may come much later.
        """
        if self._driver.journal is None:
            return
        if not items:
            self.close()
            return
        if self._journal is None:  # the other connection is the thread's
            self._journal = Journal.read(self._driver.journal.directory)
        self._read, self._large = {}, {}
        for run, numbers, positions in _group(map(self._locate, items)):
            for stored in self._journal.read_results(self._job.number, run, numbers, positions):
                if stored.pickled is None:
                    self._large[stored.position] = stored
                else:
                    self._read[stored.position] = stored.pickled

    def _locate(self, item: int) -> tuple[int, int, int]:
        """Return the run that has done an item, its position then, and its position now."""
        if self._job.completions.get_state(item) == DONE_BEFORE:
            return (*self._job.completions.places.find(item), item)
        return self._job.spec.resumed, item, item

    def is_prepared(self, item: int) -> bool:
        """Return whether :meth:`read` need not wait for a disk or a cluster."""
        if self._driver.journal is None:
            return item not in self._job.references
        return item not in self._large

    def read_small(self, items: Sequence[int]) -> list[Any] | None:
        """Return the results of items that are small and at hand; None if one is not.

        Also None if one cannot be unpickled, which :meth:`read` tells when its turn comes.
        """
        if self._job.references:
            return None
        store = self._job.results if self._driver.journal is None else self._read
        try:
            pickled = [store[item] for item in items]
            if sum(map(len, pickled)) > _SMALL_BYTES:
                return None
            return [cloudpickle.loads(each) for each in pickled]
        except Exception:
            return None

    def read(self, item: int) -> Any:
        """Return the result of an item; those in the journal must have been prepared."""
        if item in self._job.references:
            return self._driver.engine.fetch(self._job.references[item])
        if self._driver.journal is None:
            pickled = self._job.results[item]
        else:
            assert self._journal is not None
            large = self._large.get(item)
            if large is None:
                pickled = self._read[item]
            else:
                pickled = self._journal.load(self._job.number, large)
        try:
            return cloudpickle.loads(pickled)
        except Exception as error:  # unpickling runs the user's code
            raise UnpicklingError(
                f"job {self._job.name!r}: the result of item {item} cannot be unpickled: "
                f"{type(error).__name__}: {error}"
            ) from error


def _group(items: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, range, list[int]]]:
    """Group items that are next to each other in the journal, given their places there.

    It has them in the order of the runs that have done them, and of their positions then.
    """
    ordered = sorted(items)
    # All items of a group have the same difference between the position then and the index here.
    for (run, offset), group in groupby(
        enumerate(ordered), key=lambda each: (each[1][0], each[1][1] - each[0])
    ):
        members = list(group)
        start = members[0][0] + offset
        yield run, range(start, start + len(members)), [item for _, (_, _, item) in members]
