"""The finished items in the journal, and their results, which are checked when they are read."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from hesrpt.errors import StateError
from hesrpt.storage.item_keys import KeyPlace, create_key_range, parse_key
from hesrpt.storage.journal_database import Database
from hesrpt.storage.journal_entries import Changes, FinishedItem, StoredResult
from hesrpt.storage.journal_jobs import JobTable
from hesrpt.storage.results import (
    MAX_BYTES_IN_DATABASE,
    ResultFiles,
    compute_digest,
    get_result_name,
    hash_content,
)

_WRITE_ITEM = """
INSERT OR REPLACE INTO items (job, key, position, seconds, ended, digest, result)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

#: The positions of all items that a job still has.
ALL_POSITIONS = range(2**63 - 1)

# Larger results are read only when they are needed, in bytes.
_MAX_READ_BYTES = 4096

_LOG = logging.getLogger("hesrpt")

#: The job, key, position, seconds, end, digest and result of an item.
ItemRow: TypeAlias = tuple[int, bytes, int, float, float, bytes, bytes | None]


class ItemTable:
    """The finished items of all jobs."""

    def __init__(self, database: Database, jobs: JobTable, directory: Path) -> None:
        self._database, self._jobs, self.files = database, jobs, ResultFiles(directory)

    # --- writing --------------------------------------------------------------------------------

    def create_rows(self, items: Iterable[FinishedItem]) -> list[ItemRow]:
        """Write large results to files; return the rows of the items."""
        rows: list[ItemRow] = []
        for job, key, position, seconds, ended, result in items:
            if len(result) > MAX_BYTES_IN_DATABASE:
                digest = hash_content(result)
                self.files.write(get_result_name(job, key, digest), result)
                rows.append((job, key, position, seconds, ended, digest, None))
            else:
                digest = compute_digest(job, key, result)
                rows.append((job, key, position, seconds, ended, digest, result))
        return rows

    def write(
        self, connection: sqlite3.Connection, changes: Changes, rows: Sequence[ItemRow]
    ) -> list[str]:
        """Write the changes of items; return the names of the result files to remove."""
        unused = []
        for job in changes.jobs_to_redo:
            unused += _find_files(connection, "job = ?", (job,))
            connection.execute("DELETE FROM items WHERE job = ?", (job,))
        connection.executemany(
            "UPDATE items SET position = ? WHERE job = ? AND key = ?",
            [(position, job, key) for job, key, position in changes.moved_items],
        )
        connection.executemany(_WRITE_ITEM, rows)
        return unused

    def measure_results(self) -> dict[int, int]:
        """Return how many bytes the results of each job take, by the numbers of the jobs."""
        query = "SELECT job, SUM(IFNULL(LENGTH(result), 0)) FROM items GROUP BY job"
        sizes: dict[int, int] = dict(self._database.iterate(query))
        for name, size in self.files.list_sizes():
            number, _, _ = name.partition("-")
            if number.isdecimal():
                sizes[int(number)] = sizes.get(int(number), 0) + size
        return sizes

    def remove_some(self, connection: sqlite3.Connection, job: int, limit: int) -> list[str]:
        """Remove up to ``limit`` items of a job; return the names of the files to remove."""
        keys = [
            key
            for (key,) in connection.execute(
                "SELECT key FROM items WHERE job = ? LIMIT ?", (job, limit)
            )
        ]
        unused: list[str] = []
        for key in keys:
            unused += _find_files(connection, "job = ? AND key = ?", (job, key))
        connection.executemany(
            "DELETE FROM items WHERE job = ? AND key = ?", [(job, key) for key in keys]
        )
        return unused

    def has_items(self, connection: sqlite3.Connection, job: int) -> bool:
        """Return whether there are items of a job."""
        query = "SELECT 1 FROM items WHERE job = ? LIMIT 1"
        return connection.execute(query, (job,)).fetchone() is not None

    def remove_orphans(self) -> None:
        """Remove the items of jobs that were removed."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM items WHERE job NOT IN (SELECT number FROM jobs)")

    def remove_orphaned_files(self) -> None:
        """Remove the result files that belong to no item: their scheduler was interrupted."""
        query = "SELECT job, key, digest FROM items WHERE result IS NULL"
        self.files.keep_only({get_result_name(*row) for row in self._database.iterate(query)})

    # --- reading --------------------------------------------------------------------------------

    def read_positions(self, number: int) -> Iterator[tuple[bytes, int]]:
        """Yield the keys and positions of the finished items of a job.

        Discard those whose result files are missing, so that they are done again.
        """
        without_file: dict[bytes, int] = {}
        query = "SELECT key, position, digest, result IS NULL FROM items WHERE job = ?"
        for key, position, digest, in_file in self._database.iterate(query, number):
            if in_file and not self.files.get_path(get_result_name(number, key, digest)).exists():
                without_file[key] = position
            else:
                yield key, position
        if without_file:
            name = self._jobs.read_record(number).name
            for position in without_file.values():
                message = (
                    "hesrpt: %s: missing file of item %s of job %r; the item will be done again"
                )
                _LOG.warning(message, self._database.path, position, name)
            self._discard(number, list(without_file))

    def read_places(self, number: int) -> Iterator[tuple[int, KeyPlace]]:
        """Yield the positions of the finished items that a job still has.

        With each comes where it was when it was done.
        """
        query = "SELECT key, position FROM items WHERE job = ? AND position >= 0"
        for key, position in self._database.iterate(query, number):
            yield position, parse_key(key)

    def read_timings(
        self, number: int, positions: range = ALL_POSITIONS
    ) -> Iterator[tuple[int, float, float]]:
        """Yield the positions of the finished items of a job, their seconds, and their ends."""
        query = (
            "SELECT position, seconds, ended FROM items "
            "WHERE job = ? AND position >= ? AND position < ? ORDER BY position"
        )
        return iter(self._database.select(query, number, positions.start, positions.stop))

    def read_results(
        self, number: int, run: int, earlier: range, positions: Iterable[int]
    ) -> list[StoredResult]:
        """Return the results of items at some positions, which were done in a run.

        They were at consecutive ``earlier`` positions then. Raise an error if a result is damaged
        or missing, and let the next resume do its item again.
        """
        query = (
            "SELECT position, key, digest, result IS NULL, "
            f"CASE WHEN LENGTH(result) <= {_MAX_READ_BYTES} THEN result END "
            "FROM items WHERE job = ? AND key >= ? AND key < ?"
        )
        keys = create_key_range(run, earlier)
        rows = {row[0]: row for row in self._database.select(query, number, *keys)}
        results = []
        for position, place in zip(positions, earlier, strict=True):
            if (row := rows.get(position)) is None:
                raise self._create_error(number, [], position, "has no result")
            _, key, digest, is_in_file, result = row
            if parse_key(key).position != place:
                raise self._create_error(number, [key], position, "has a damaged entry")
            stored = StoredResult(position, key, digest, result, bool(is_in_file))
            if result is not None:
                self._check_result(number, stored, result)
            results.append(stored)
        return results

    def _check_result(self, number: int, stored: StoredResult, result: Any) -> bytes:
        """Return a result that was read; raise an error if it is damaged."""
        if type(result) is bytes and stored.digest == compute_digest(number, stored.key, result):
            return result
        raise self._create_error(number, [stored.key], stored.position, "has a damaged result")

    def load(self, number: int, stored: StoredResult) -> bytes:
        """Return a result, from its file if it is very large."""
        if stored.pickled is not None:
            return stored.pickled
        if not stored.is_in_file:
            query = "SELECT result FROM items WHERE job = ? AND key = ?"
            for (result,) in self._database.select(query, number, stored.key):
                return self._check_result(number, stored, result)
            raise self._create_error(number, [], stored.position, "has no result")
        file = get_result_name(number, stored.key, stored.digest)
        content = self.files.read(file)
        if content is not None and hash_content(content) == stored.digest:
            return content
        name = self._jobs.read_record(number).name
        self._discard(number, [stored.key])
        raise StateError(
            f"{self.files.get_path(file)}: the result of item {stored.position} of job {name!r} is "
            f"{'missing' if content is None else 'damaged'}; resume the run to do the item again"
        )

    def _create_error(
        self, number: int, keys: Sequence[bytes], position: int, problem: str
    ) -> StateError:
        """Discard damaged entries of a job; return the error that says so."""
        name = self._jobs.read_record(number).name
        self._discard(number, keys)
        return StateError(
            f"{self._database.path}: item {position} of job {name!r} {problem}; resume the run to "
            "do the item again"
        )

    def _discard(self, number: int, keys: Sequence[bytes]) -> None:
        """Remove items with some keys, and let the next resume do them again."""
        unused: list[str] = []
        # If this fails, the damage is what the caller has to know about.
        with suppress(StateError), self._database.transaction(durable=True) as connection:
            for key in keys:
                unused += _find_files(connection, "job = ? AND key = ?", (number, key))
                connection.execute("DELETE FROM items WHERE job = ? AND key = ?", (number, key))
            self._jobs.reopen(connection, number)
        self.files.remove(unused)


def _find_files(
    connection: sqlite3.Connection, condition: str, parameters: Sequence[object]
) -> list[str]:
    query = f"SELECT job, key, digest FROM items WHERE result IS NULL AND {condition}"
    return [get_result_name(*row) for row in connection.execute(query, parameters)]
