"""The finished items in the journal and their results, which are checked when they are read."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hesrpt.errors import StateError
from hesrpt.runtime.storage.journal_database import Database
from hesrpt.runtime.storage.journal_entries import Changes, FinishedItem, ItemResult
from hesrpt.runtime.storage.journal_jobs import JobTable
from hesrpt.runtime.storage.journal_rows import (
    ITEM_COLUMNS,
    Row,
    compute_digest,
    create_item_row,
    is_intact,
    move_item_row,
)
from hesrpt.runtime.storage.result_files import MAX_BYTES_IN_DATABASE, ResultFiles, get_result_name

_SELECT_ITEM = f"SELECT {ITEM_COLUMNS} FROM items WHERE job = ? AND key = ?"

# How many results to read from the database at once; each has at most MAX_BYTES_IN_DATABASE.
_CHUNK_ITEMS = 32

_LOG = logging.getLogger("hesrpt")


class ItemTable:
    """The finished items of all jobs."""

    def __init__(self, database: Database, jobs: JobTable, directory: Path) -> None:
        self._database, self._jobs, self.files = database, jobs, ResultFiles(directory)

    # --- writing --------------------------------------------------------------------------------

    def create_rows(self, items: Iterable[FinishedItem]) -> list[Row]:
        """Write large results to files; return the rows of the items."""
        rows = []
        for item in items:
            digest = compute_digest(item.result)
            row = create_item_row(item, digest)
            if len(item.result) > MAX_BYTES_IN_DATABASE:
                self.files.write(get_result_name(item.job, item.key, digest), item.result)
                rows.append((*row, None))
            else:
                rows.append((*row, item.result))
        return rows

    def write(
        self, connection: sqlite3.Connection, changes: Changes, rows: Sequence[Row]
    ) -> list[str]:
        """Write the changes of items; return the names of the result files to remove."""
        unused = []
        for job in changes.jobs_to_redo:
            unused += _find_files(connection, "job = ?", (job,))
            connection.execute("DELETE FROM items WHERE job = ?", (job,))
        for job, key, position in changes.moved_items:
            for row in connection.execute(_SELECT_ITEM, (job, key)).fetchall():
                if is_intact(row):
                    *_, checksum = move_item_row(row, position)
                    connection.execute(
                        "UPDATE items SET position = ?, checksum = ? WHERE job = ? AND key = ?",
                        (position, checksum, job, key),
                    )
        connection.executemany(
            f"INSERT OR REPLACE INTO items ({ITEM_COLUMNS}, result) VALUES (?,?,?,?,?,?,?,?)", rows
        )
        return unused

    def remove_orphaned_files(self) -> None:
        """Remove the result files that belong to no item: their scheduler was interrupted."""
        query = "SELECT job, key, digest FROM items WHERE result IS NULL"
        self.files.keep_only({get_result_name(*row) for row in self._database.iterate(query)})

    # --- reading --------------------------------------------------------------------------------

    def read_positions(self, number: int) -> Iterator[tuple[bytes, int]]:
        """Yield the keys and positions of the finished items of a job.

        Discard damaged entries, so that their items are done again.
        """
        damaged = []
        query = f"SELECT result IS NULL, {ITEM_COLUMNS} FROM items WHERE job = ?"
        for in_file, *row in self._database.iterate(query, number):
            job, key, position, _, _, digest, _ = row
            if not is_intact(row):
                damaged.append((key, f"damaged entry of item {position}"))
            elif in_file and not self.files.get_path(get_result_name(job, key, digest)).exists():
                damaged.append((key, f"missing file of item {position}"))
            else:
                yield key, position
        if damaged:
            name = self._jobs.read_record(number).name
            for _, problem in damaged:
                message = "hesrpt: %s: %s of job %r; the item will be done again"
                _LOG.warning(message, self._database.path, problem, name)
            self._discard(number, [key for key, _ in damaged])

    def read_keys(self, number: int) -> Iterator[tuple[bytes, int]]:
        """Yield the keys and positions of the finished items that a job still has."""
        query = "SELECT key, position FROM items WHERE job = ? AND position >= 0"
        return self._database.iterate(query, number)

    def read_results(self, number: int) -> Iterator[ItemResult]:
        """Yield the results of a job in the order of its items.

        Raise an error if one is damaged or missing, and let the next resume do its item again.
        """
        record = self._jobs.read_record(number)
        name = record.name
        keys: dict[int, bytes] = {}
        for key, position in list(self.read_keys(number)):
            if position in keys:
                self._discard(number, [key, keys[position]])
                raise self._create_error(name, position, "has two results")
            keys[position] = key
        items = range(len(keys) if record.items is None else record.items)
        for start in items[::_CHUNK_ITEMS]:
            chunk = items[start : start + _CHUNK_ITEMS]
            found = self._read_rows(number, [keys[item] for item in chunk if item in keys])
            for position in chunk:
                if position not in keys:
                    self._discard(number, [])
                    raise self._create_error(name, position, "has no result")
                row = found.pop(keys[position], None)
                if row is None or not is_intact(row[:-1]) or row[2] != position:
                    self._discard(number, [keys[position]])
                    raise self._create_error(name, position, "has a damaged entry")
                yield ItemResult(position, self._get_result(row, name))

    def _read_rows(self, number: int, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """Return rows with their results."""
        places = ", ".join("?" * len(keys))
        query = f"SELECT {ITEM_COLUMNS}, result FROM items WHERE job = ? AND key IN ({places})"
        return {row[1]: row for row in self._database.iterate(query, number, *keys)}

    def _get_result(self, row: Row, name: str) -> bytes:
        number, key, position, _, _, digest, _, result = row
        if isinstance(result, bytes) and compute_digest(result) == digest:
            return result
        if result is not None:
            self._discard(number, [key])
            raise self._create_error(name, position, "has a damaged result")
        file = get_result_name(number, key, digest)
        content = self.files.read(file)
        if content is not None and compute_digest(content) == digest:
            return content
        self._discard(number, [key])
        raise StateError(
            f"{self.files.get_path(file)}: the result of item {position} of job {name!r} is "
            f"{'missing' if content is None else 'damaged'}; resume the run to do the item again"
        )

    def _create_error(self, name: str, position: int, problem: str) -> StateError:
        return StateError(
            f"{self._database.path}: item {position} of job {name!r} {problem}; resume the run to "
            "do the item again"
        )

    def _discard(self, number: int, keys: Sequence[bytes]) -> None:
        """Remove items from a job, and let the next resume do them again."""
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
