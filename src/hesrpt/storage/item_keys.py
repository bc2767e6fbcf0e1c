"""The keys of finished items in the journal.

An item is identified by its fingerprint, wherever it is among the items of its job. Equal items may
repeat, so a result in the journal has a *key*: how often the job had been resumed when the item was
done, the position that the item had then, and its fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hesrpt.storage.logs import LogName

_RUN_BYTES, _POSITION_BYTES = 4, 8
_PLACE_BYTES = _RUN_BYTES + _POSITION_BYTES


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
