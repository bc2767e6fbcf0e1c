"""Turns journals of earlier formats into those of the present one.

Each migration is a function that changes the tables of one format into those of the next. They run
in one transaction, so a scheduler that is killed meanwhile leaves the journal as it was. The tables
themselves are in :mod:`~hesrpt.storage.journal_database`.
"""

from __future__ import annotations

import json
import re
import sqlite3
import struct
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any
from zlib import crc32

import numpy as np

from hesrpt.arrays import IntArray
from hesrpt.jobs.fingerprints import FINGERPRINT_BYTES, fingerprint_item
from hesrpt.pickling import dump, load_harmless
from hesrpt.storage.earlier_items import create_keys
from hesrpt.storage.journal_entries import FinishedItem
from hesrpt.storage.results import compute_digest, hash_content

#: The format of journals that this version writes, and the oldest that it can read.
FORMAT, OLDEST_FORMAT = 10, 8


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


# --- 8 to 9: each item has a row of its own, and only results have checksums ----------------------

# The checksum of a chunk's results covers its job, its run, its first position, and its size.
_CHUNK_PLACE = struct.Struct("<qqqq")
_CHECKSUM = struct.Struct("<I")
# The checksum of an item covers its job, position, duration and end, and the length of its key.
_ITEM_NUMBERS = struct.Struct("<qqddQ")
# Results of at most this many bytes have short checksums.
_SHORT_BYTES = 4096
# Packed integers: the smallest, how many differences from it are written in full, and the bytes of
# each other one. In place of one that is written in full is the largest number of that width.
_PACKED = struct.Struct("<qQB")
_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_WRITE_ITEM = """
INSERT OR REPLACE INTO items (job, key, position, seconds, ended, digest, result)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""


def _migrate_from_8(connection: sqlite3.Connection) -> None:
    _renew_digests(connection)
    _drop_checksums(connection)
    _split_chunks(connection)


def _renew_digests(connection: sqlite3.Connection) -> None:
    """Let the digests of results also cover their items, and remove damaged items."""
    connection.create_function("renew", 8, _renew_digest, deterministic=True)
    connection.execute(
        "UPDATE items SET digest = "
        "renew(job, key, position, seconds, ended, digest, checksum, result)"
    )
    connection.execute("DELETE FROM items WHERE digest = X''")


def _renew_digest(
    job: int,
    key: bytes,
    position: int,
    seconds: float,
    ended: float,
    digest: bytes,
    checksum: bytes,
    result: bytes | None,
) -> bytes:
    """Return the new digest of a result; empty if its item is damaged."""
    try:
        numbers = _ITEM_NUMBERS.pack(job, position, seconds, ended, len(key))
        if _CHECKSUM.pack(crc32(numbers + key + digest)) != checksum:
            return b""
        if result is None:  # it is in a file, whose name covers its item
            return digest
        is_short = len(result) <= _SHORT_BYTES
        found = _CHECKSUM.pack(crc32(result)) if is_short else hash_content(result)
        return compute_digest(job, key, result) if found == digest else b""
    except (TypeError, struct.error):  # a value has another type
        return b""


def _drop_checksums(connection: sqlite3.Connection) -> None:
    """Copy all tables without the checksums of their rows.

    SQLite can drop columns itself since version 3.35, but some systems have an earlier one.
    """
    last_numbers = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql LIKE '%checksum%'"
    for name, sql in connection.execute(query).fetchall():
        if name == "chunks":
            continue
        columns = [column for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")]
        columns.remove("checksum")
        connection.execute(f"ALTER TABLE {name} RENAME TO earlier")
        connection.execute(re.sub(r",\s*checksum BLOB NOT NULL", "", sql))
        connection.execute(f"INSERT INTO {name} SELECT {', '.join(columns)} FROM earlier")
        connection.execute("DROP TABLE earlier")
    for table in ("failures", "holdings"):
        connection.execute(f"CREATE INDEX {table}_by_job ON {table} (job)")
    connection.execute("DELETE FROM sqlite_sequence")
    connection.executemany("INSERT INTO sqlite_sequence VALUES (?, ?)", last_numbers)


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
                (*item[:-1], compute_digest(job, item.key, item.result), item.result)
                for item in _read_chunk(job, *chunk)
            )
            connection.executemany(_WRITE_ITEM, rows)
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


# --- 9 to 10: how jobs have ended and why hooks have failed are values, not only texts ------------

_PREDECESSOR = re.compile(r"cancelled: job (.*), for which it waited, (has failed|was cancelled)")

_HOOK_ERRORS = {
    problem: re.compile(rf"{beginning}(?:: (.*))?", re.DOTALL)
    for problem, beginning in {
        "exit_code": r"exit code (\d+)",
        "signal": r"killed by signal (\d+)",
        "timeout": r"it was stopped after (\d+) s",
        "http_status": r"HTTP Error (\d+)",
    }.items()
}


def _migrate_from_9(connection: sqlite3.Connection) -> None:
    connection.create_function("convert_end", 2, _convert_end, deterministic=True)
    connection.execute("ALTER TABLE jobs RENAME COLUMN error TO outcome")
    connection.execute("UPDATE jobs SET outcome = convert_end(ended, outcome)")
    connection.create_function("convert_hook_error", 1, _convert_hook_error, deterministic=True)
    connection.execute("UPDATE hooks SET error = convert_hook_error(error) WHERE error NOT NULL")
    _convert_keys(connection)


def _convert_keys(connection: sqlite3.Connection) -> None:
    """Let idempotency keys name the jobs that they have added, not the requests to add these."""
    connection.execute(
        "CREATE TABLE submission_keys (\n"
        "    key TEXT PRIMARY KEY, digest TEXT NOT NULL, jobs TEXT NOT NULL, time REAL NOT NULL\n"
        ") WITHOUT ROWID"
    )
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'request_keys'"
    if not connection.execute(query).fetchall():
        return
    specs = connection.execute("SELECT number, spec FROM jobs").fetchall()
    jobs = {str(json.loads(spec).get("submission")): str(number) for number, spec in specs}
    query = "SELECT key, digest, numbers, time FROM request_keys"
    for key, digest, requests, time in connection.execute(query).fetchall():
        numbers = " ".join(jobs.get(request, f"-{request}") for request in requests.split())
        row = (key, digest, numbers, time)
        connection.execute("INSERT INTO submission_keys VALUES (?, ?, ?, ?)", row)
    connection.execute("DROP TABLE request_keys")


def _convert_end(ended: float | None, error: str | None) -> str | None:
    """Return how a job has ended as JSON, which only the beginning of its error told."""
    if ended is None:
        return None
    reason, detail = "items_failed", error or ""
    if error is None:
        reason = "done"
    elif found := _PREDECESSOR.fullmatch(error):
        reason = f"predecessor_{found[2].rpartition(' ')[2]}"
        detail = literal_eval(found[1])
    elif error in ("cancelled on request", "cancelled by hesrpt cancel"):
        reason, detail = "requested", ""
    elif error == "cancelled: it is no longer in the jobs file":
        reason, detail = "removed", ""
    elif error.startswith("cancelled"):
        reason, detail = "stopped", ""
    elif error.startswith("cannot read its items"):
        reason = "unreadable_items"
    return json.dumps([reason, detail])


def _convert_hook_error(error: str) -> str:
    """Return why a hook has failed as JSON, which only the beginning of its error told."""
    for problem, pattern in _HOOK_ERRORS.items():
        if found := pattern.fullmatch(error):
            return json.dumps([problem, int(found[1]), found[2] or ""])
    return json.dumps(["other", 0, error])


# By the format that each starts from.
_MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {
    8: _migrate_from_8,
    9: _migrate_from_9,
}
