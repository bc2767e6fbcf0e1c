"""The items of a job that were read and are not done: their arguments, and what identifies them.

Consecutive items that were read together share a *block*, so that nothing has to be done for each
of them. Others have entries of their own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from hesrpt.runtime.identity.fingerprints import fingerprint_item
from hesrpt.runtime.identity.identities import pack_fingerprints, pack_numbers
from hesrpt.runtime.item_runs import find_runs

# The types of packed arguments that may be large.
_SIZED = frozenset({bytes, str})
_LEFT, _GONE = b"\x01", b"\x00"


class UnfinishedItem(NamedTuple):
    """An argument as the engine needs it, and its fingerprint if there is a journal."""

    packed: Any
    fingerprint: bytes = b""


@dataclass(eq=False)
class Block:
    """Consecutive items. If their arguments are numbers, these identify them."""

    start: int
    packed: Sequence[Any]
    numbers: Sequence[float] | None = None
    fingerprints: Sequence[bytes] = ()  # of other arguments, if there is a journal
    bytes: int = field(init=False)  # that the arguments take up, unless they are numbers
    _is_left: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = sum_bytes(self.packed) if self.numbers is None else 0
        self._is_left = bytearray(_LEFT * len(self.packed))

    @property
    def stop(self) -> int:
        return self.start + len(self.packed)

    @property
    def is_empty(self) -> bool:
        """Whether none of its items is left."""
        return _LEFT not in self._is_left

    def discard(self, start: int, stop: int) -> int:
        """Remove items; return how many there were."""
        part = slice(start - self.start, stop - self.start)
        count = self._is_left[part].count(_LEFT)
        self._is_left[part] = _GONE * (stop - start)
        return count

    def __contains__(self, item: int) -> bool:
        return self.start <= item < self.stop and bool(self._is_left[item - self.start])

    def get(self, item: int) -> UnfinishedItem:
        """Return an item."""
        place = item - self.start
        if self.numbers is not None:
            fingerprint = fingerprint_item(self.numbers[place])
        else:
            fingerprint = self.fingerprints[place] if self.fingerprints else b""
        return UnfinishedItem(self.packed[place], fingerprint)


class UnfinishedItems:
    """The unfinished items of a job. Whoever calls a method holds the lock of its source."""

    def __init__(self) -> None:
        self._single: dict[int, UnfinishedItem] = {}
        self._blocks: list[Block] = []  # in the order of their items
        self._count = 0
        self.bytes = 0  # that all arguments take up which may take up much

    def __len__(self) -> int:
        return self._count

    def add(self, item: int, packed: Any, fingerprint: bytes = b"") -> None:
        """Add an item."""
        self._single[item] = UnfinishedItem(packed, fingerprint)
        self._count += 1
        self.bytes += sum_bytes((packed,))

    def add_block(self, block: Block) -> None:
        """Add consecutive items that come after all others that share blocks."""
        if len(block.packed) == 1:
            self.add(block.start, *block.get(block.start))
            return
        self._blocks.append(block)
        self._count += len(block.packed)
        self.bytes += block.bytes

    def get(self, item: int) -> UnfinishedItem:
        """Return an item."""
        if (single := self._single.get(item)) is not None:
            return single
        for block, _, _ in self._find_blocks(range(item, item + 1)):
            return block.get(item)
        raise KeyError(item)

    def get_arguments(self, items: Sequence[int]) -> Sequence[Any]:
        """Return the arguments of items, as the engine needs them."""
        if isinstance(items, range):
            parts = [block.packed[start:stop] for block, start, stop in self._find_parts(items)]
            if sum(map(len, parts)) == len(items):
                return _join(parts)
        return [self.get(item).packed for item in items]

    def get_fingerprints(self, items: Sequence[int]) -> list[bytes]:
        """Return the fingerprints of items."""
        return [self.get(item).fingerprint for item in items]

    def pack_identities(self, items: range) -> bytes:
        """Return what identifies consecutive items, as bytes for the journal."""
        parts = list(self._find_parts(items))
        numbers = [
            block.numbers[start:stop] for block, start, stop in parts if block.numbers is not None
        ]
        if sum(map(len, numbers)) == len(items):
            return pack_numbers(_join(numbers))
        return pack_fingerprints(self.get_fingerprints(items))

    def pop(self, item: int) -> UnfinishedItem:
        """Remove an item, and return it."""
        found = self.get(item)
        self.discard((item,))
        return found

    def discard(self, items: Sequence[int]) -> None:
        """Remove items."""
        for item in items if self._single else ():
            if (single := self._single.pop(item, None)) is not None:
                self._count -= 1
                self.bytes -= sum_bytes((single.packed,))
        for run in find_runs(items) if self._blocks else ():
            emptied = []
            for block, start, stop in self._find_blocks(run):
                self._count -= block.discard(start, stop)
                if block.is_empty:
                    emptied.append(block)
            for block in emptied:
                self._blocks.remove(block)
                self.bytes -= block.bytes

    def clear(self) -> None:
        """Remove all items."""
        self.__init__()  # type: ignore[misc]

    def _find_blocks(self, items: range) -> Iterator[tuple[Block, int, int]]:
        """Yield the blocks that have some of consecutive items, and which items these are."""
        place = max(bisect_right(self._blocks, items.start, key=attrgetter("start")) - 1, 0)
        for block in self._blocks[place:]:
            if block.start >= items.stop:
                return
            start, stop = max(items.start, block.start), min(items.stop, block.stop)
            if start < stop:
                yield block, start, stop

    def _find_parts(self, items: range) -> Iterator[tuple[Block, int, int]]:
        """Yield the same with places in the blocks instead of items."""
        for block, start, stop in self._find_blocks(items):
            yield block, start - block.start, stop - block.start


def _join(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return the elements of several sequences: a range, if they are parts of one."""
    if len(parts) == 1:
        return parts[0]
    ranges = [part for part in parts if isinstance(part, range)]
    if len(ranges) == len(parts) > 0:
        whole = range(ranges[0].start, ranges[-1].stop, ranges[0].step)
        if len(whole) == sum(map(len, ranges)):
            return whole
    return [element for part in parts for element in part]


def sum_bytes(packed: Sequence[Any]) -> int:
    """Return how much memory arguments take up that may take up much."""
    return sum(map(len, [each for each in packed if type(each) in _SIZED]))
