"""Turns journals of earlier formats into those of the present one.

Each migration is a function that changes the tables of one format into those of the next. They run
in one transaction, so a scheduler that is killed meanwhile leaves the journal as it was. The tables
themselves are in :mod:`~hesrpt.storage.journal_database`.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any
from zlib import crc32

import numpy as np

from hesrpt.arrays import IntArray
from hesrpt.jobs.fingerprints import FINGERPRINT_BYTES, fingerprint_item
from hesrpt.pickling import dump, load_harmless
from hesrpt.storage.item_keys import create_keys
from hesrpt.storage.journal_entries import FinishedItem
from hesrpt.storage.journal_rows import compute_digest, create_item_row

#: The format of journals that this version writes, and the oldest that it can read.
FORMAT, OLDEST_FORMAT = 9, 8


def migrate(connection: sqlite3.Connection, earlier: int) -> None:
    """Turn a journal of an earlier format into one of the present format, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in range(earlier, FORMAT):
            _MIGRATIONS[number](connection)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def can_migrate(other: int) -> bool:
    """Return whether a journal of another format can be turned into one of the present format."""
    return OLDEST_FORMAT <= other < FORMAT


# --- 8 to 9: each item has a row of its own -------------------------------------------------------

# The checksum of a chunk's results covers its job, its run, its first position, and its size.
_CHUNK_PLACE = struct.Struct("<qqqq")
_CHECKSUM = struct.Struct("<I")
# Packed integers: the smallest, how many differences from it are written in full, and the bytes of
# each other one. In place of one that is written in full is the largest number of that width.
_PACKED = struct.Struct("<qQB")
_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _split_chunks(connection: sqlite3.Connection) -> None:
    """Turn chunks, which are items that ended together, into rows of items.

    A damaged chunk is left out, so that its items are done again.
    """
    jobs = [job for (job,) in connection.execute("SELECT DISTINCT job FROM chunks")]
    for job in jobs:
        query = (
            "SELECT run, start, size, ended, identities, durations, digest, code, sizes, results "
            "FROM chunks WHERE job = ?"
        )
        for chunk in connection.execute(query, (job,)).fetchall():
            rows = (
                (*create_item_row(item, compute_digest(item.result)), item.result)
                for item in _read_chunk(job, *chunk)
            )
            connection.executemany("INSERT OR REPLACE INTO items VALUES (?,?,?,?,?,?,?,?)", rows)
    connection.execute("DROP TABLE chunks")


def _read_chunk(
    job: int,
    run: int,
    start: int,
    size: int,
    ended: float,
    identities: bytes,
    durations: bytes,
    digest: bytes,
    code: str,
    sizes: bytes,
    content: bytes,
) -> Iterator[FinishedItem]:
    """Yield the items of a chunk; none if it is damaged."""
    try:
        place = _CHUNK_PLACE.pack(job, run, start, size) + code.encode()
        if _CHECKSUM.pack(crc32(content, crc32(sizes, crc32(place)))) != digest:
            return
        positions = range(start, start + size)
        keys = create_keys(_unpack_fingerprints(identities), run, positions)
        seconds = (_unpack_integers(durations) / 1e9).tolist()
        results = _unpack_results(code, sizes, content)
        items = list(zip(keys, positions, seconds, results, strict=True))
    except (AttributeError, KeyError, TypeError, ValueError, struct.error):
        return
    for key, position, duration, result in items:
        yield FinishedItem(job, key, position, duration, ended, result)


def _unpack_results(code: str, sizes: bytes, content: bytes) -> Sequence[bytes]:
    """Return the pickled results of a chunk: of integers, floats, or other values."""
    numbers: Sequence[Any]
    match code:
        case "q":
            numbers = _unpack_integers(content).tolist()
        case "d":
            numbers = np.frombuffer(content, np.float64).tolist()
        case _:
            ends = accumulate(_unpack_integers(sizes).tolist(), initial=0)
            return [content[start:stop] for start, stop in pairwise(ends)]
    return list(map(dump, numbers))


def _unpack_fingerprints(identities: bytes) -> list[bytes]:
    """Return the fingerprints of items, which were written down, or are those of numbers."""
    kind, content = identities[:1], identities[1:]
    if kind == b"n":
        return list(map(fingerprint_item, load_harmless(content)))
    size = FINGERPRINT_BYTES
    return [content[start : start + size] for start in range(0, len(content), size)]


def _unpack_integers(packed: bytes) -> IntArray:
    smallest, count, width = _PACKED.unpack_from(packed)
    content = np.frombuffer(packed, _TYPES[width], offset=_PACKED.size + 8 * count)
    differences = content.astype(np.uint64)
    if count:
        full = np.frombuffer(packed, np.uint64, count, _PACKED.size)
        differences[content == 256**width - 1] = full
    return (differences + np.uint64(smallest % 2**64)).view(np.int64)


# By the format that each starts from.
_MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {8: _split_chunks}
