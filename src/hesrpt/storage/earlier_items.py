"""The items of a job that were done in earlier runs, matched with its present items.

An item is identified by its fingerprint, wherever it is among the items of its job. Each result is
matched with one item at most.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from hesrpt.jobs.fingerprints import FINGERPRINT_BYTES
from hesrpt.storage.journal_entries import NO_POSITION
from hesrpt.storage.logs import LogName

# --- keys of finished items -----------------------------------------------------------------------

_RUN_BYTES, _POSITION_BYTES = 4, 8
_PLACE_BYTES = _RUN_BYTES + _POSITION_BYTES
_KEYS = np.dtype([("run", ">u4"), ("number", ">u8"), ("fingerprint", f"S{FINGERPRINT_BYTES}")])


class KeyPlace(NamedTuple):
    """Where an item was when it was done."""

    run: int  # how often its job had been resumed
    position: int  # among the items of its job

    @property
    def log(self) -> LogName:
        """Which log has its output."""
        return LogName(self.position, self.run)


def create_key(fingerprint: bytes, run: int, position: int) -> bytes:
    """Return the key of an item that is done in the job's run of this number at a position."""
    # The journal orders its entries by their keys, and writes those fastest that are in sequence.
    return run.to_bytes(_RUN_BYTES, "big") + position.to_bytes(_POSITION_BYTES, "big") + fingerprint


def create_keys(fingerprints: Iterable[bytes], run: int, positions: Sequence[int]) -> list[bytes]:
    """Return the keys of several items; there may be millions."""
    start = run.to_bytes(_RUN_BYTES, "big")
    places = [position.to_bytes(_POSITION_BYTES, "big") for position in positions]
    return [start + place + each for place, each in zip(places, fingerprints, strict=False)]


def create_key_range(run: int, positions: range) -> tuple[bytes, bytes]:
    """Return the bounds of the keys of items that were done in a run at consecutive positions."""
    return create_key(b"", run, positions.start), create_key(b"", run, positions.stop)


def parse_key(key: bytes) -> KeyPlace:
    """Return where the item of a key was when it was done.

    >>> parse_key(create_key(b"fingerprint", 3, 5))
    KeyPlace(run=3, position=5)
    """
    run, position = key[:_RUN_BYTES], key[_RUN_BYTES:_PLACE_BYTES]
    return KeyPlace(int.from_bytes(run, "big"), int.from_bytes(position, "big"))


class Match(NamedTuple):
    """A result of an earlier run that belongs to an item."""

    key: bytes
    has_moved: bool  # whether its item was at another position
    run: int  # that computed it
    number: int  # the position that its item had in that run


@dataclass(eq=False)
class Places:
    """Where the journal has the results of items that were done in earlier runs.

    Items that are consecutive, and were so when they were done, share an entry of 28 bytes.
    """

    _starts: array[int] = field(default_factory=partial(array, "q"))
    _lengths: array[int] = field(default_factory=partial(array, "q"))
    _runs: array[int] = field(default_factory=partial(array, "I"))
    _numbers: array[int] = field(default_factory=partial(array, "q"))

    def add(self, position: int, run: int, number: int, length: int = 1) -> None:
        """Add consecutive items, whose positions are higher than those added before."""
        if self._starts:
            previous = self._lengths[-1]
            if (
                self._starts[-1] + previous == position
                and self._numbers[-1] + previous == number
                and self._runs[-1] == run
            ):
                self._lengths[-1] += length
                return
        self._lengths.append(length)
        self._runs.append(run)
        self._numbers.append(number)
        self._starts.append(position)  # last: other threads look here first

    def extend(self, other: Places) -> None:
        """Add the items of others, whose positions are higher."""
        columns = (other._starts, other._runs, other._numbers, other._lengths)
        for position, run, number, length in zip(*columns, strict=True):
            self.add(position, run, number, length)

    def find(self, position: int) -> tuple[int, int]:
        """Return the run that has done an item, and the position that the item had then."""
        entry = bisect_right(self._starts, position) - 1
        return self._runs[entry], self._numbers[entry] + position - self._starts[entry]


@dataclass
class Matches:
    """The results of earlier runs that belong to the items of a job."""

    done: list[range] = field(default_factory=list)  # the positions of these items
    moved: list[tuple[bytes, int]] = field(default_factory=list)  # keys and new positions
    places: Places = field(default_factory=Places)

    def add(self, match: Match, position: int) -> None:
        """Add the result of an item whose position is higher than those added before."""
        if match.has_moved:
            self.moved.append((match.key, position))
        self.places.add(position, match.run, match.number)
        if self.done and self.done[-1].stop == position:
            self.done[-1] = range(self.done[-1].start, position + 1)
        else:
            self.done.append(range(position, position + 1))


class EarlierItems:
    """The items that were done in earlier runs, given the keys and positions of their results.

    A job may have millions of items, so the keys are in arrays: this takes 37 bytes for each.
    """

    def __init__(self, done: Iterable[tuple[bytes, int]] = ()) -> None:
        keys, positions = bytearray(), array("q")
        for key, position in done:
            if len(key) == _KEYS.itemsize:
                keys += key
                positions.append(position)
        columns, places = np.frombuffer(keys, _KEYS), np.asarray(positions)
        # Those of equal items are sorted by their positions.
        order = np.lexsort((places, columns["fingerprint"]))
        self._fingerprints = columns["fingerprint"][order]
        self._runs, self._numbers = columns["run"][order], columns["number"][order]
        self._positions = places[order]
        self._is_matched = bytearray(len(positions))
        self._ends: dict[int, int] = {}  # of the unmatched results of equal items, by their start

    def match(self, fingerprint: bytes, position: int) -> Match | None:
        """Return the result of an item; None if it was not done in an earlier run."""
        found = self._find(fingerprint, position)
        if found is None:
            return None
        self._is_matched[found] = True
        run, number = int(self._runs[found]), int(self._numbers[found])
        key = create_key(fingerprint, run, number)
        return Match(key, bool(self._positions[found] != position), run, number)

    def match_all(self, fingerprints: Iterable[bytes]) -> Matches:
        """Return the results of all items of a job."""
        matches = Matches()
        for position, fingerprint in enumerate(fingerprints):
            if (match := self.match(fingerprint, position)) is not None:
                matches.add(match, position)
        matches.moved += [(key, NO_POSITION) for key in self.list_unmatched()]
        return matches

    def list_unmatched(self) -> Iterator[bytes]:
        """Yield the keys of the results whose items have been removed since the last run.

        Call it when all items have been matched.
        """
        is_matched = np.frombuffer(self._is_matched, bool)
        for place in np.flatnonzero(~is_matched & (self._positions != NO_POSITION)).tolist():
            fingerprint = self._fingerprints[place : place + 1].tobytes()
            yield create_key(fingerprint, int(self._runs[place]), int(self._numbers[place]))

    def _find(self, fingerprint: bytes, position: int) -> int | None:
        if not self._is_matched:
            return None
        start, end = (
            int(self._fingerprints.searchsorted(fingerprint, side)) for side in ("left", "right")
        )
        if end - start > 1:
            # Among equal items, prefer the one at the same position.
            same = start + int(self._positions[start:end].searchsorted(position))
            if same < end and self._positions[same] == position and not self._is_matched[same]:
                return same
            last = self._ends.get(start, end)
            while last > start and self._is_matched[last - 1]:
                last -= 1
            self._ends[start] = end = last
        if end == start or self._is_matched[end - 1]:
            return None
        return end - 1
