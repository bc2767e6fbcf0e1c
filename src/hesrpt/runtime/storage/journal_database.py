"""The journal's SQLite database: its tables, its transactions, and waiting for other processes."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from hesrpt.errors import StateError
from hesrpt.runtime.storage.journal_rows import Row
from hesrpt.runtime.storage.state_directory import get_database_path, open_private, sync_directory

_VERSION = 8
# Chunks of items are large, so larger pages than usual are written more quickly.
_PAGE_SIZE = 8192
_SCHEMA = f"""
PRAGMA page_size = {_PAGE_SIZE};
CREATE TABLE meta (name TEXT PRIMARY KEY, value, checksum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL,
    fingerprint BLOB NOT NULL, items INTEGER, size REAL, p REAL, arrived REAL NOT NULL,
    ended REAL, error TEXT, checksum BLOB NOT NULL
);
CREATE TABLE items (
    job INTEGER NOT NULL, key BLOB NOT NULL, position INTEGER NOT NULL, seconds REAL NOT NULL,
    ended REAL NOT NULL, digest BLOB NOT NULL, checksum BLOB NOT NULL, result BLOB,
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE chunks (
    number INTEGER PRIMARY KEY, job INTEGER NOT NULL, run INTEGER NOT NULL,
    start INTEGER NOT NULL, size INTEGER NOT NULL, seconds REAL NOT NULL, ended REAL NOT NULL,
    identities BLOB NOT NULL, durations BLOB NOT NULL, digest BLOB NOT NULL,
    checksum BLOB NOT NULL, code TEXT NOT NULL, sizes BLOB NOT NULL, results BLOB NOT NULL
);
CREATE UNIQUE INDEX chunks_by_start ON chunks (job, run, start);
CREATE TABLE failures (
    number INTEGER PRIMARY KEY, job INTEGER NOT NULL, position INTEGER NOT NULL,
    time REAL NOT NULL, round INTEGER NOT NULL, is_last INTEGER NOT NULL,
    attempts INTEGER NOT NULL, value TEXT NOT NULL, error TEXT NOT NULL,
    traceback TEXT NOT NULL, exception BLOB NOT NULL, checksum BLOB NOT NULL
);
CREATE TABLE holdings (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, job INTEGER NOT NULL,
    servers INTEGER NOT NULL, checksum BLOB NOT NULL
);
CREATE INDEX failures_by_job ON failures (job);
CREATE INDEX holdings_by_job ON holdings (job);
CREATE TABLE requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, job INTEGER, submission INTEGER,
    spec TEXT, weight REAL, job_group TEXT, checksum BLOB NOT NULL
);
CREATE TABLE answers (
    request INTEGER PRIMARY KEY, is_refused INTEGER NOT NULL, text TEXT NOT NULL,
    checksum BLOB NOT NULL
);
CREATE TABLE hooks (
    number INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL, target TEXT NOT NULL,
    facts TEXT NOT NULL, attempts INTEGER NOT NULL, error TEXT, checksum BLOB NOT NULL
);
CREATE TABLE learned (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, durations TEXT NOT NULL,
    checksum BLOB NOT NULL
);
PRAGMA user_version = {_VERSION};
"""

# The most that SQLite writes to its log for a page.
_PAGE_BYTES = _PAGE_SIZE + 24
# How many pages are written to the log before they are moved to the database.
_CHECKPOINT_PAGES = 4000
# How long one attempt to get a lock on the database waits, in seconds.
_ATTEMPT_SECONDS = 0.25
# How long to pause between two attempts, in seconds: some attempts fail at once.
_PAUSE_SECONDS = 0.01
# How often to warn while another process has locked the database, in seconds.
_WARNING_SECONDS = 30.0

_LOG = logging.getLogger("hesrpt")

T = TypeVar("T")


class Database:
    """Connections to the database: one to read and one to write, for several threads."""

    def __init__(self, directory: Path) -> None:
        self.path = get_database_path(directory)
        self._waits_until = inf
        self._synchronous = ""  # how the writer was last told to reach the disk
        self._reading, self._writing = threading.RLock(), threading.Lock()
        with self._raise_state_errors():
            self._reader, self._writer = self._connect(), self._connect()
        try:
            self.select("PRAGMA journal_mode = WAL")
            self._writer.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            (version,) = self.select("PRAGMA user_version")[0]
        except BaseException:
            self.close()
            raise
        if version != _VERSION:
            self.close()
            raise StateError(
                f"{directory}: was written by another version of hesrpt (format {version})"
            )

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path, timeout=_ATTEMPT_SECONDS, isolation_level=None, check_same_thread=False
        )

    def close(self) -> None:
        """Close the connections."""
        with self._reading:
            self._reader.close()
        with self._writing:
            self._writer.close()

    def stop_waiting(self, seconds: float) -> None:
        """Wait for at most this many more seconds while another process has locked the database."""
        self._waits_until = time.monotonic() + seconds

    def check(self) -> None:
        """Raise an error if the structure of the database is damaged."""
        for (problem,) in self.select("PRAGMA quick_check(1)"):
            if problem != "ok":
                raise StateError(
                    f"{self.path}: is damaged beyond repair; start a new run in another "
                    f"directory ({problem})"
                )

    def select(self, query: str, *parameters: object) -> list[Any]:
        """Return the rows that a query selects."""
        return list(self.iterate(query, *parameters))

    def iterate(self, query: str, *parameters: object) -> Iterator[Any]:
        """Yield the rows that a query selects; other threads cannot read until the last one."""
        with self._raise_state_errors(), self._reading:
            yield from self._retry_while_locked(lambda: self._reader.execute(query, parameters))

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Make all changes of a block, or none of them if that fails.

        If ``durable``, they and all earlier ones are on the disk when the block ends. Otherwise, a
        power failure may undo the latest transactions.
        """
        with self._raise_state_errors(), self._writing:
            synchronous = "FULL" if durable else "NORMAL"
            if synchronous != self._synchronous:
                self._writer.execute(f"PRAGMA synchronous = {synchronous}")
                self._synchronous = synchronous
            self._retry_while_locked(lambda: self._writer.execute("BEGIN IMMEDIATE"))
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
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
            time.sleep(_PAUSE_SECONDS)
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
            raise StateError(f"{self.path}: {error}{self._explain(error)}") from None

    def _explain(self, error: sqlite3.Error) -> str:
        """Return the reason for an error of which SQLite says only what failed."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CANTOPEN and not os.access(self.path.parent, os.W_OK):
            return ": the directory cannot be written to"
        if code != sqlite3.SQLITE_IOERR:
            return ""
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        sizes = [path.stat().st_size for path in self.path.parent.glob(f"{self.path.name}*")]
        if limit != resource.RLIM_INFINITY and max(sizes, default=0) > limit - _PAGE_BYTES:
            return f": the limit on the size of files of {limit} bytes is reached (ulimit -f)"
        return f" ({error.sqlite_errorname})"


def create_database(directory: Path, values: list[Row]) -> None:
    """Create the database under another name first, so that it exists completely or not at all."""
    draft = directory / "state.db.new"
    try:
        draft.unlink(missing_ok=True)
        # SQLite gives its other files the same permissions.
        os.close(open_private(draft, os.O_RDWR | os.O_EXCL))
        with contextlib.closing(sqlite3.connect(draft)) as connection, connection:
            connection.executescript(_SCHEMA)
            connection.executemany("INSERT INTO meta VALUES (?, ?, ?)", values)
        draft.replace(get_database_path(directory))
        sync_directory(directory)
    except (sqlite3.Error, OSError) as error:
        raise StateError(f"{get_database_path(directory)}: {error}") from None
