"""Items of one job that a worker claims together, to run them one after another."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

from hesrpt.runtime.engines.engine import PythonTasks

# A batch is divided into at most so many groups. A batch is short, so a group is very short: what
# is in a group cannot be taken back once its first item has started.
_GROUPS = 10


class ItemGroup:
    """Items in ascending order, until a worker has replied to all of them."""

    __slots__ = ("_first", "_items", "_stopped", "batch", "job", "tasks")

    def __init__(self, job: str, tasks: PythonTasks, batch: object) -> None:
        self.job, self.tasks = job, tasks
        self.batch = batch  # which groups of one batch have in common
        self._items: Sequence[int] = tasks.numbers
        self._first = 0  # those before have ended
        self._stopped: set[int] = set()  # reported only if they are done nevertheless

    def __len__(self) -> int:
        return len(self._items) - self._first

    @property
    def timeout(self) -> float | None:
        return self.tasks.timeout

    @property
    def next_item(self) -> int:
        """The first item that has not ended."""
        return self._items[self._first]

    def __contains__(self, item: int) -> bool:
        """Return whether an item has not ended, and was not stopped."""
        place = bisect_left(self._items, item, self._first)
        is_here = place < len(self._items) and self._items[place] == item
        return is_here and item not in self._stopped

    @property
    def items(self) -> Sequence[int]:
        """The items that have not ended, stopped ones included."""
        return self._items[self._first :]

    @property
    def has_wanted_items(self) -> bool:
        """Whether there are items that have not ended, and were not stopped."""
        return len(self) > len(self._stopped)

    def stop(self, items: Sequence[int]) -> bool:
        """Do not report some items of the group, unless they turn out to be done.

        Returns whether it has any of them.
        """
        left = self.items
        if not left:
            return False
        if isinstance(items, range) and isinstance(left, range):
            found: Collection[int] = range(max(items[0], left[0]), min(items[-1], left[-1]) + 1)
        else:
            found = set(items).intersection(left)
        count = len(self._stopped)
        self._stopped.update(found)
        return len(self._stopped) > count

    def is_stopped(self, item: int) -> bool:
        return item in self._stopped

    @property
    def has_stopped_items(self) -> bool:
        return bool(self._stopped)

    def remove_stopped_items(self) -> ItemGroup:
        """Return what is left of a group that no worker has."""
        if not self._stopped:
            return self
        return ItemGroup(self.job, self.tasks.without(self._stopped), self.batch)

    def is_followed_by(self, items: Sequence[int], other: ItemGroup) -> bool:
        """Return whether another group goes on where items of this one end, in the same batch."""
        return (
            other.batch is self.batch
            and isinstance(items, range)
            and isinstance(other.items, range)
            and other.next_item == items.stop
            and not self._stopped
            and not other._stopped
        )

    def take(self, count: int) -> Sequence[int]:
        """Remove items that have ended, and return them."""
        taken = self._items[self._first : self._first + count]
        self._first += count
        return taken


def divide(job: str, tasks: PythonTasks) -> Iterator[ItemGroup]:
    """Divide a batch into groups."""
    size = -(-len(tasks) // _GROUPS)
    for start in range(0, len(tasks), size):
        yield ItemGroup(job, tasks.slice(start, start + size), tasks)
