"""A batch in the local engine: items of one job that a worker runs one after another."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count

from hesrpt.engines.engine import PythonTasks

_numbers = count(1)


class Batch:
    """Items that wait for a worker, or that a worker has.

    A worker answers for the items in their order. Each of its answers names the batch by its
    number, and the place of the first item that it answers for.
    """

    servers = 1

    def __init__(self, job: str, tasks: PythonTasks) -> None:
        self.job, self.tasks = job, tasks
        self.number = next(_numbers)
        self.token = b""  # that its worker takes before it starts an item
        self.is_single = len(tasks) == 1  # whether the worker was given one item
        self.answered = 0  # how many of its items have been answered for
        self.stopped: set[int] = set()  # items that are reported only if they are done

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def holds_resources(self) -> bool:
        """Whether its items hold resources besides a server."""
        return self.tasks.holds_resources

    @property
    def variables(self) -> Mapping[str, str]:
        """What its worker must have in its environment."""
        return self.tasks.variables

    @property
    def unanswered(self) -> Sequence[int]:
        """The items that have not been answered for."""
        return self.tasks.numbers[self.answered :]

    @property
    def has_ended(self) -> bool:
        """Whether all items have been answered for."""
        return self.answered == len(self.tasks)

    @property
    def is_stopping(self) -> bool:
        """Whether items were stopped that have not been answered for."""
        return bool(self.stopped) and not self.stopped.isdisjoint(self.unanswered)

    def stop(self, items: Collection[int]) -> bool:
        """Stop items that have not been answered for; return whether there are any."""
        found = set(items).intersection(self.unanswered)
        self.stopped |= found
        return bool(found)

    def answer(self, place: int, count: int) -> Sequence[int] | None:
        """Return the items of an answer; None if it is not the answer that comes next."""
        if place != self.answered or place + count > len(self):
            return None
        self.answered += count
        return self.tasks.numbers[place : self.answered]

    def cut(self, count: int) -> Batch | None:
        """Remove the last items, which have not started; return those that were not stopped."""
        if count == 0:
            return None
        size = len(self) - count
        tasks, self.tasks = self.tasks.slice(size, len(self)), self.tasks.slice(0, size)
        return Batch(self.job, tasks).remove(self.stopped)

    def remove(self, items: Collection[int]) -> Batch | None:
        """Return the batch without some items, given that no worker has it; None if it is empty."""
        removed = set(items).intersection(self.tasks.numbers) if items else items
        if not removed:
            return self
        if len(removed) == len(self):
            return None
        return Batch(self.job, self.tasks.without(removed))
