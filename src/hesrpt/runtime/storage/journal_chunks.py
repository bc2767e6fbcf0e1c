"""Finished items of the journal that are kept together, and their results.

Items of a job that were done one after another, and ended together with small results, are a
*chunk*: one row, whatever their number. The items of a chunk are where they were when they were
done. If one of them is elsewhere when a run is resumed, or no longer there, the chunk is split:
each of its items becomes a row of its own (see :mod:`~hesrpt.runtime.storage.journal_items`).
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from hesrpt.runtime.decisions.learning import sum_durations
from hesrpt.runtime.engines.packed_results import INTEGERS, PICKLED, PackedResults
from hesrpt.runtime.identity.identities import unpack_fingerprints
from hesrpt.runtime.identity.item_keys import create_keys
from hesrpt.runtime.storage.journal_database import Database
from hesrpt.runtime.storage.journal_entries import FinishedChunk, FinishedItem
from hesrpt.runtime.storage.journal_rows import Row
from hesrpt.runtime.storage.packed_integers import (
    count_integers,
    pack_integers,
    unpack_integers,
)

_COLUMNS = "job, run, start, size, seconds, ended, identities, durations, digest, checksum"
_RESULT_COLUMNS = "code, sizes, results"
# Of a chunk: its job, run, first position and number of items, their total duration and their end,
# and the length of what identifies them.
_NUMBERS = struct.Struct("<qqqqddQ")
_CHECKSUM = struct.Struct("<I")
# The job of a chunk, its run, its first position, and its number of items.
_PLACE = struct.Struct("<qqqq")
# Durations are whole nanoseconds: clocks are no finer.
_NANOSECONDS = 1e9


class ChunkPlace(NamedTuple):
    """Which chunk of a job it is."""

    run: int
    start: int


class StoredChunk(NamedTuple):
    """A chunk without its results."""

    job: int
    run: int
    start: int
    size: int  # how many items it has
    seconds: float
    ended: float
    identities: bytes
    durations: bytes
    digest: bytes
    checksum: bytes

    @property
    def items(self) -> range:
        """The positions of its items."""
        return range(self.start, self.start + self.size)

    @property
    def is_intact(self) -> bool:
        """Whether it is as it was written."""
        try:
            return bool(_compute_checksum(*self[:-1]) == self.checksum) and (
                count_integers(self.durations) == self.size
            )
        except (struct.error, TypeError):  # a value has another type
            return False

    @property
    def timings(self) -> Iterator[tuple[int, float, float]]:
        """The position of each item, its seconds, and its end."""
        durations = (unpack_integers(self.durations) / _NANOSECONDS).tolist()
        for position, seconds in zip(self.items, durations, strict=True):
            yield position, seconds, self.ended

    def create_keys(self) -> list[bytes]:
        """Return the keys of its items."""
        return create_keys(unpack_fingerprints(self.identities), self.run, self.items)


class ChunkTable:
    """The chunks of all jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, connection: sqlite3.Connection, chunks: Iterable[FinishedChunk]) -> None:
        """Add chunks."""
        connection.executemany(
            f"INSERT OR REPLACE INTO chunks ({_COLUMNS}, {_RESULT_COLUMNS}) "
            "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
            map(_create_row, chunks),
        )

    def read(self, job: int, positions: range | None = None) -> Iterator[StoredChunk]:
        """Yield the chunks of a job that have items at some positions, without their results."""
        query = f"SELECT {_COLUMNS} FROM chunks WHERE job = ?"
        if positions is None:
            rows = self._database.iterate(f"{query} ORDER BY run, start", job)
        else:
            bounds = (positions.stop, positions.start)
            query = f"{query} AND start < ? AND start + size > ? ORDER BY run, start"
            rows = self._database.iterate(query, job, *bounds)
        return (StoredChunk(*row) for row in rows)

    def read_results(
        self, job: int, run: int, positions: range
    ) -> Iterator[tuple[range, PackedResults | None]]:
        """Yield the items of chunks of a run, and their results.

        These are the chunks that have items at some positions. The results are None if they are
        damaged.
        """
        query = (
            f"SELECT start, size, digest, {_RESULT_COLUMNS} FROM chunks "
            "WHERE job = ? AND run = ? AND start < ? AND start >= "
            "(SELECT IFNULL(MAX(start), 0) FROM chunks WHERE job = ? AND run = ? AND start <= ?) "
            "ORDER BY start"
        )
        place = (job, run)
        bounds = (*place, positions.stop, *place, positions.start)
        for start, size, digest, *columns in self._database.select(query, *bounds):
            if start + size > positions.start:
                results = _unpack((job, run, start, size), digest, *columns)
                yield range(start, start + size), results

    def find(self, connection: sqlite3.Connection, job: int, run: int, position: int) -> int | None:
        """Return the first position of the chunk that has an item; None if none has it."""
        query = (
            "SELECT start, size FROM chunks WHERE job = ? AND run = ? AND start <= ? "
            "ORDER BY start DESC LIMIT 1"
        )
        for start, size in connection.execute(query, (job, run, position)):
            return int(start) if position < start + size else None
        return None

    def split(
        self, connection: sqlite3.Connection, job: int, run: int, start: int
    ) -> list[tuple[FinishedItem, bool]]:
        """Remove a chunk; return its items, and whether the result of each is intact."""
        query = (
            f"SELECT {_COLUMNS}, {_RESULT_COLUMNS} FROM chunks "
            "WHERE job = ? AND run = ? AND start = ?"
        )
        *row, code, sizes, content = connection.execute(query, (job, run, start)).fetchone()
        chunk = StoredChunk(*row)
        self.remove(connection, job, run, start)
        if not chunk.is_intact:
            return []
        results: Sequence[bytes] | None = _unpack(chunk[:4], chunk.digest, code, sizes, content)
        pickled = [b""] * chunk.size if results is None else results
        return [
            (FinishedItem(job, key, position, seconds, ended, result), results is not None)
            for key, (position, seconds, ended), result in zip(
                chunk.create_keys(), chunk.timings, pickled, strict=True
            )
        ]

    def remove(self, connection: sqlite3.Connection, job: int, run: int, start: int) -> None:
        """Remove a chunk."""
        connection.execute(
            "DELETE FROM chunks WHERE job = ? AND run = ? AND start = ?", (job, run, start)
        )


def _create_row(chunk: FinishedChunk) -> Row:
    results = chunk.results
    sizes, content = _encode(results)
    place = (chunk.job, chunk.run, chunk.start, len(chunk.seconds))
    values = (
        *place,
        sum_durations(chunk.seconds).total + 0.0,
        chunk.ended + 0.0,
        chunk.identities,
        pack_integers(np.rint(np.asarray(chunk.seconds) * _NANOSECONDS).astype(np.int64)),
        _compute_digest(place, results.code, sizes, content),
    )
    return (*values, _compute_checksum(*values), results.code, sizes, content)


def _encode(results: PackedResults) -> tuple[bytes, bytes]:
    """Return the sizes of results if they are pickled, and their content, in few bytes."""
    if results.code == PICKLED:
        return pack_integers(np.frombuffer(results.sizes, np.int64)), results.content
    if results.code == INTEGERS:
        return b"", pack_integers(np.frombuffer(results.content, np.int64))
    return b"", results.content


def _decode(code: str, sizes: bytes, content: bytes) -> PackedResults:
    """Return results that were encoded."""
    if code == PICKLED:
        return PackedResults(code, content, unpack_integers(sizes).tolist())
    if code == INTEGERS:
        return PackedResults(code, unpack_integers(content).tobytes())
    return PackedResults(code, content)


def _unpack(
    place: Sequence[int], digest: Any, code: Any, sizes: Any, content: Any
) -> PackedResults | None:
    """Return the results of the chunk at a place; None if they are damaged."""
    try:
        if _compute_digest(place, code, sizes, content) != digest:
            return None
    except (TypeError, AttributeError, struct.error):  # a value has another type
        return None
    return _decode(code, sizes, content)


def _compute_digest(place: Sequence[int], code: str, sizes: bytes, content: bytes) -> bytes:
    packed = _PLACE.pack(*place) + code.encode()
    return _CHECKSUM.pack(crc32(content, crc32(sizes, crc32(packed))))


def _compute_checksum(
    job: int,
    run: int,
    start: int,
    size: int,
    seconds: float,
    ended: float,
    identities: bytes,
    durations: bytes,
    digest: bytes,
) -> bytes:
    packed = _NUMBERS.pack(job, run, start, size, seconds, ended, len(identities))
    return _CHECKSUM.pack(crc32(digest, crc32(durations, crc32(identities, crc32(packed)))))
