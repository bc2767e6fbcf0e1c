"""Which items of a job have ended, and in which order.

Streams of results read this while the driver's thread adds to it, without a lock: both only append,
and each looks at one value at a time. A job may have millions of items, so an item takes 9 bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from hesrpt.storage.earlier_items import Matches, Places

#: What is known of an item. Those that are done before were done in an earlier run.
UNFINISHED, DONE, DONE_BEFORE, FAILED = range(4)  # an enumeration would be slow
_WITH_RESULT = bytes((DONE, DONE_BEFORE))


class Completions:
    """The items that have ended: those whose results can be read, and those that have failed."""

    def __init__(self) -> None:
        self.order = array("q")  # items in the order of their ends; ~item if it failed
        self.states = bytearray()  # by item; those beyond its end are unfinished
        self.places = Places()  # of the items that were done in earlier runs

    def add_done(self, items: Sequence[int]) -> None:
        """Add items that are done, once their results can be read."""
        states, last = self.states, max(items)
        if last >= len(states):
            states.extend(bytes(last + 1 - len(states)))
        for item in items:
            if states[item] != DONE:
                states[item] = DONE
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
