"""Which items of a job have ended, and in which order.

Streams of results read this while the driver's thread adds to it, without a lock: both only append,
and each looks at one value at a time. A job may have millions of items, so an item takes 9 bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import IntEnum

from hesrpt.runtime.identity.earlier_items import Matches, Places


class ItemState(IntEnum):
    """What is known of an item."""

    UNFINISHED = 0
    DONE = 1
    DONE_BEFORE = 2  # in an earlier run
    FAILED = 3


class Completions:
    """The items that have ended: those whose results can be read, and those that have failed."""

    def __init__(self) -> None:
        self.order = array("q")  # items in the order of their ends; ~item if it failed
        self.states = bytearray()  # by item; those beyond its end are unfinished
        self.places = Places()  # of the items that were done in earlier runs

    def add_done(self, item: int) -> None:
        """Add an item that is done, once its result can be read."""
        if self._set_state(item, ItemState.DONE):
            self.order.append(item)

    def add_failed(self, item: int) -> None:
        """Add an item that has failed for good."""
        if self._set_state(item, ItemState.FAILED):
            self.order.append(~item)

    def remove_failed(self, items: Iterable[int]) -> None:
        """Remove items that have failed and are tried again."""
        for item in items:
            self._set_state(item, ItemState.UNFINISHED)

    def add_matches(self, matches: Matches) -> None:
        """Add items that were done in earlier runs, once the journal has their positions."""
        self.places.extend(matches.places)
        for items in matches.done:
            for item in items:
                self._set_state(item, ItemState.DONE_BEFORE)
            self.order.extend(items)

    def get_state(self, item: int) -> int:
        """Return what is known of an item, as a value of :class:`ItemState`."""
        return self.states[item] if item < len(self.states) else ItemState.UNFINISHED

    def find_unfinished(self, start: int, stop: int) -> int:
        """Return the first item of a range that has not ended; ``stop`` if all have."""
        found = self.states.find(ItemState.UNFINISHED, start, stop)
        return min(max(len(self.states), start), stop) if found < 0 else found

    def _set_state(self, item: int, state: ItemState) -> bool:
        """Set the state of an item; return whether that changes it."""
        states = self.states
        missing = item + 1 - len(states)
        if missing > 0:
            states.extend(bytes(missing))
        changes = states[item] != state
        states[item] = state
        return changes
