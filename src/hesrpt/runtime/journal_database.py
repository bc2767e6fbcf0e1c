"""The journal's SQLite database: its tables, its transactions, and waiting for other processes."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from hesrpt.errors import StateError
from hesrpt.runtime.journal_rows import Row
from hesrpt.runtime.state_directory import get_database_path

_VERSION = 3
_SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value, checksum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL,
    fingerprint BLOB NOT NULL, items INTEGER, size REAL, p REAL, arrived REAL NOT NULL,
    ended REAL, error TEXT, checksum BLOB NOT NULL
);
CREATE TABLE items (
    job INTEGER NOT NULL, key BLOB NOT NULL, position INTEGER NOT NULL, seconds REAL NOT NULL,
    ended REAL NOT NULL, digest BLOB NOT NULL, checksum BLOB NOT NULL, result BLOB,
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE failures (
    job INTEGER NOT NULL, position INTEGER NOT NULL, time REAL NOT NULL, error TEXT
);
CREATE TABLE holdings (time REAL NOT NULL, job INTEGER NOT NULL, servers INTEGER NOT NULL);
CREATE TABLE submissions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, spec TEXT NOT NULL, checksum BLOB NOT NULL
);
PRAGMA user_version = {_VERSION};
"""

# How long one attempt to get a lock on the database waits, in seconds.
_ATTEMPT_SECONDS = 0.25
# How often to warn while another process has locked the database, in seconds.
_WARNING_SECONDS = 30.0

_LOG = logging.getLogger("hesrpt")

T = TypeVar("T")


class Database:
    """A connection to the database. Several threads may use it."""

    def __init__(self, directory: Path) -> None:
        self.path = get_database_path(directory)
        self._mutex = threading.Lock()
        self._waits_until = inf
        with self._raise_state_errors():
            self._connection = sqlite3.connect(
                self.path,
                timeout=_ATTEMPT_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            self.select("PRAGMA journal_mode = WAL")
            self.select("PRAGMA synchronous = NORMAL")
            (version,) = self.select("PRAGMA user_version")[0]
        except BaseException:
            self.close()
            raise
        if version != _VERSION:
            self.close()
            raise StateError(
                f"{directory}: was written by another version of hesrpt (format {version})"
            )

    def close(self) -> None:
        """Close the connection."""
        with self._mutex:
            self._connection.close()

    def stop_waiting(self, seconds: float) -> None:
        """From now on, wait at most so long while another process has locked the database."""
        self._waits_until = time.monotonic() + seconds

    def select(self, query: str, *parameters: object) -> list[Any]:
        """Return the rows that a query selects."""

        def run() -> list[Any]:
            with self._mutex:
                return self._connection.execute(query, parameters).fetchall()

        with self._raise_state_errors():
            return self._retry_while_locked(run)

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Make all changes of a block, or none of them if that fails.

        If ``durable``, they and all earlier ones are on the disk when the block ends. Otherwise, a
        power failure may undo the latest transactions.
        """
        with self._raise_state_errors():
            self._retry_while_locked(lambda: self._begin(durable))
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._mutex.release()

    def _begin(self, durable: bool) -> None:
        """Begin a transaction that other threads wait for."""
        self._mutex.acquire()
        try:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._mutex.release()
            raise

    def _retry_while_locked(self, action: Callable[[], T]) -> T:
        started = time.monotonic()
        warned_at = started
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (
                    sqlite3.SQLITE_BUSY,
                    sqlite3.SQLITE_LOCKED,
                ):
                    raise
            now = time.monotonic()
            if now > self._waits_until:
                raise StateError(f"{self.path}: another process has locked it")
            if now - warned_at >= _WARNING_SECONDS:
                warned_at = now
                _LOG.warning(
                    "hesrpt: %s: another process has locked it for %.0f s; waiting for it",
                    self.path,
                    now - started,
                )

    @contextlib.contextmanager
    def _raise_state_errors(self) -> Iterator[None]:
        """Turn errors of the database into StateErrors that name its file."""
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"{self.path}: {error}") from None


def create_database(directory: Path, values: list[Row]) -> None:
    """Create the database under another name first, so that it exists completely or not at all."""
    draft = directory / "state.db.new"
    try:
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft)) as connection, connection:
            connection.executescript(_SCHEMA)
            connection.executemany("INSERT INTO meta VALUES (?, ?, ?)", values)
        draft.replace(get_database_path(directory))
    except (sqlite3.Error, OSError) as error:
        raise StateError(f"{get_database_path(directory)}: {error}") from None
