"""Which items a stream of results yields next: in their order, or in the order of their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hesrpt.scheduler.completions import FAILED, UNFINISHED
from hesrpt.scheduler.live_job import LiveJob


class ItemCursor(Protocol):
    """A place among the items of a job. Taking items looks at no item twice."""

    def can_move(self) -> bool:
        """Return whether there are items to take, or there will never be any."""

    def take(self, limit: int) -> Sequence[int] | None:
        """Return the next items, at most ``limit``; None if there will never be any.

        Once the job has ended, they include those that have not been done.
        """


class OrderedCursor:
    """Takes an item as soon as it and all before it have ended."""

    def __init__(self, job: LiveJob) -> None:
        self._job, self._next = job, 0

    def can_move(self) -> bool:
        state = self._job.completions.get_state(self._next)
        return self._job.has_ended or state != UNFINISHED

    def take(self, limit: int) -> Sequence[int] | None:
        has_ended = self._job.has_ended  # before looking: then all that has ended is there
        start, stop = self._next, self._next + limit
        stop = max(
            self._job.completions.find_unfinished(start, stop),
            min(stop, _count_items(self._job)) if has_ended else start,
        )
        self._next = stop
        return None if has_ended and start == stop else range(start, stop)


class CompletionCursor:
    """Takes items in the order of their ends. Those that were not done are the last ones."""

    def __init__(self, job: LiveJob) -> None:
        self._job, self._next = job, 0
        self._unfinished = 0  # the first item that may not have been done, once the job has ended

    def can_move(self) -> bool:
        return self._job.has_ended or self._next < len(self._job.completions.order)

    def take(self, limit: int) -> Sequence[int] | None:
        job, completions = self._job, self._job.completions
        has_ended = job.has_ended
        taken = completions.order[self._next : self._next + limit]
        self._next += len(taken)
        if not taken and has_ended:
            return self._take_unfinished(limit) or None
        if taken and min(taken) >= 0:  # none has failed
            return taken
        items = []
        for item in taken:
            if item >= 0:
                items.append(item)
            elif completions.get_state(~item) == FAILED:  # it has not been retried since
                items.append(~item)
        return items

    def _take_unfinished(self, limit: int) -> list[int]:
        completions, count = self._job.completions, _count_items(self._job)
        items: list[int] = []
        while len(items) < limit:
            known = len(completions.states)
            found = completions.states.find(UNFINISHED, self._unfinished)
            item = max(self._unfinished, known) if found < 0 else found
            if item >= count:
                self._unfinished = count
                break
            items.append(item)
            self._unfinished = item + 1
        return items


def _count_items(job: LiveJob) -> int:
    """Return how many items there are, or are known of a job that ended before all were read."""
    return max(job.items or 0, len(job.completions.states))
