"""Which items have no outcome yet, and in which batches they are."""

from __future__ import annotations

from collections.abc import Iterable

from hesrpt.engines.dask.slots import Batch
from hesrpt.engines.engine import Outcome


class ItemLedger:
    """The items without an outcome, the batches that wait, and the items that are being stopped."""

    def __init__(self) -> None:
        self.waiting: list[Batch] = []
        self._batches: dict[tuple[str, int], Batch] = {}  # of each item without an outcome
        self._ending: dict[tuple[str, int], Batch] = {}  # stopped items that may not be gone
        self._stops: dict[Batch, list[int]] = {}  # items to stop, of which no worker knows yet

    @property
    def endings(self) -> int:
        """How many stopped items may not be gone."""
        return len(self._ending)

    def add(self, batch: Batch) -> None:
        """Let a batch wait for a server."""
        self._batches |= {(batch.job, item): batch for item in batch.tasks}
        self.waiting.append(batch)

    def list_pending(self, batch: Batch) -> list[int]:
        """Return the items of a batch that have no outcome yet and were not stopped."""
        return [item for item in batch.tasks if self._batches.get((batch.job, item)) is batch]

    # --- stopping -----------------------------------------------------------------------------

    def stop(self, job: str, item: int) -> None:
        """Expect no outcome of an item."""
        batch = self._batches.pop((job, item), None)
        if batch is None:
            return
        batch.stopped.add(item)
        if batch in self.waiting:
            if not self.list_pending(batch):
                self.waiting.remove(batch)
            return
        self._ending[job, item] = batch
        self._stops.setdefault(batch, []).append(item)

    def take_stops(self) -> dict[Batch, list[int]]:
        """Return the items to stop, of which no worker knows yet: all of a batch together."""
        stops, self._stops = self._stops, {}
        return stops

    def is_stopping(self, job: str) -> bool:
        """Whether stopped items of a job may not be gone."""
        return any(name == job for name, _ in self._ending)

    def is_held_back(self, batch: Batch) -> bool:
        """Whether a stopped attempt of one of its items may not be gone yet."""
        return bool(self._ending) and any((batch.job, item) in self._ending for item in batch.tasks)

    def forget_stopped(self, batch: Batch, items: Iterable[int]) -> None:
        """Note that stopped items are gone."""
        for item in items:
            if self._ending.get((batch.job, item)) is batch:
                del self._ending[batch.job, item]

    # --- outcomes -----------------------------------------------------------------------------

    def take(self, batch: Batch, outcome: Outcome) -> bool:
        """Return whether an outcome is to be reported, and expect no other one.

        A stopped item is reported if it is done nevertheless. If it was started again, that attempt
        is still waiting, and is not needed.
        """
        key = batch.job, outcome.item
        latest = self._batches.get(key)
        if latest is not batch and (not outcome.is_done or self._ending.get(key) is not batch):
            return False
        self.forget_stopped(batch, [outcome.item])
        if latest is not None:
            del self._batches[key]
            if latest is not batch:
                latest.stopped.add(outcome.item)
                if not self.list_pending(latest):
                    self.waiting.remove(latest)
        return True

    def take_items(self, batch: Batch, items: Iterable[int]) -> None:
        """Expect no more outcomes of items of a batch, none of which was stopped."""
        for item in items:
            del self._batches[batch.job, item]

    def take_rest(self, batch: Batch) -> list[int]:
        """Forget a batch of which nothing more will be heard; return its items without outcome."""
        self.forget_stopped(batch, batch.stopped)
        lost = self.list_pending(batch)
        self.take_items(batch, lost)
        return lost
