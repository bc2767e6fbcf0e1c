"""The journal's SQLite database: its tables, its transactions, and waiting for other processes."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from hesrpt._version import __version__
from hesrpt.errors import StateError
from hesrpt.storage.migrations import FORMAT, OLDEST_FORMAT, can_migrate, migrate
from hesrpt.storage.state_directory import get_database_path, open_private, sync_directory

_SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL,
    fingerprint BLOB NOT NULL, items INTEGER, size REAL, p REAL, arrived REAL NOT NULL,
    ended REAL, outcome TEXT
);
CREATE TABLE items (
    job INTEGER NOT NULL, key BLOB NOT NULL, position INTEGER NOT NULL, seconds REAL NOT NULL,
    ended REAL NOT NULL, digest BLOB NOT NULL, result BLOB,
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE failures (
    number INTEGER PRIMARY KEY, job INTEGER NOT NULL, position INTEGER NOT NULL,
    time REAL NOT NULL, round INTEGER NOT NULL, is_last INTEGER NOT NULL,
    attempts INTEGER NOT NULL, value TEXT NOT NULL, error TEXT NOT NULL,
    traceback TEXT NOT NULL, exception BLOB NOT NULL
);
CREATE TABLE holdings (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, job INTEGER NOT NULL,
    servers INTEGER NOT NULL
);
CREATE INDEX failures_by_job ON failures (job);
CREATE INDEX holdings_by_job ON holdings (job);
CREATE TABLE requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, job INTEGER, submission INTEGER,
    spec TEXT, weight REAL, job_group TEXT
);
CREATE TABLE answers (
    request INTEGER PRIMARY KEY, is_refused INTEGER NOT NULL, text TEXT NOT NULL
);
CREATE TABLE submission_keys (
    key TEXT PRIMARY KEY, digest TEXT NOT NULL, jobs TEXT NOT NULL, time REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE hooks (
    number INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL, target TEXT NOT NULL,
    facts TEXT NOT NULL, attempts INTEGER NOT NULL, error TEXT
);
CREATE TABLE learned (
    number INTEGER PRIMARY KEY NOT NULL, kind TEXT NOT NULL, durations TEXT NOT NULL
);
PRAGMA user_version = {FORMAT};
"""

# The most that SQLite writes to its log for a page. Earlier formats had pages of this size.
_PAGE_BYTES = 8192 + 24
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
        self._format = self._read_format()
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        path = self.path
        if self._format != FORMAT:
            self._copy = tempfile.TemporaryDirectory(prefix="hesrpt-")
            path = Path(self._copy.name) / self.path.name
            with self._raise_state_errors():
                _copy(self.path, path)
                with contextlib.closing(_connect(path)) as connection:
                    migrate(connection, self._format)
        with self._raise_state_errors():
            self._reader, self._writer = _connect(path), _connect(path)
        try:
            self.select("PRAGMA journal_mode = WAL")
            self._writer.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        except BaseException:
            self.close()
            raise

    def _read_format(self) -> int:
        """Return the format of the database; raise an error if it cannot be read."""
        with self._raise_state_errors(), contextlib.closing(_connect(self.path)) as connection:
            query = "PRAGMA user_version"
            rows = self._retry_while_locked(lambda: connection.execute(query).fetchall())
            found = int(rows[0][0])
            if found == FORMAT or can_migrate(found):
                return found
            writer = "an earlier version of hesrpt"
            if found > FORMAT:
                writer = "a later version of hesrpt"
                with contextlib.suppress(sqlite3.Error):
                    query = "SELECT value FROM meta WHERE name = 'version'"
                    for (version,) in connection.execute(query):
                        writer += f", {version}"
        raise StateError(
            f"{self.path.parent}: was written by {writer} (format {found}), and this one, "
            f"{__version__}, reads only formats {OLDEST_FORMAT} to {FORMAT}"
        )

    def close(self) -> None:
        """Close the connections."""
        with self._reading:
            self._reader.close()
        with self._writing:
            self._writer.close()
        if self._copy is not None:
            self._copy.cleanup()

    def stop_waiting(self, seconds: float) -> None:
        """Wait for at most this many more seconds while another process has locked the database."""
        self._waits_until = time.monotonic() + seconds

    def check(self) -> None:
        """Raise an error if SQLite finds damage, also between the tables and their indexes."""
        for (problem,) in self.select("PRAGMA integrity_check(1)"):
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

    def select_values(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        """Return the rows that a query selects, each as values by the names of the columns."""
        with self._raise_state_errors(), self._reading:
            rows = self._retry_while_locked(lambda: self._reader.execute(query, parameters))
            names = [name for name, *_ in rows.description]
            return [dict(zip(names, row, strict=True)) for row in rows]

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Make all changes of a block, or none of them if that fails.

        If ``durable``, they and all earlier ones are on the disk when the block ends. Otherwise, a
        power failure may undo the latest transactions.
        """
        if self._copy is not None:
            raise StateError(
                f"{self.path.parent}: was written by an earlier version of hesrpt (format "
                f"{self._format}), and cannot be changed until a scheduler has been started on it"
            )
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
    def parsing(self, subject: str) -> Iterator[None]:
        """Turn whatever a block raises because a row makes no sense into a StateError."""
        try:
            yield
        except Exception as error:
            raise StateError(f"{self.path}: {subject} is damaged: {error!r}") from error

    @contextlib.contextmanager
    def _raise_state_errors(self) -> Iterator[None]:
        """Turn errors of the database into StateErrors that name its file."""
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"{self.path}: {error}{self._explain(error)}") from None
        except UnicodeDecodeError as error:  # SQLite quotes what is damaged
            raise StateError(f"{self.path}: {error.object!r}") from None

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


def take_over(directory: Path) -> None:
    """Turn the database of an earlier format into one of the present format, if it is one.

    A copy of it is left beside it. The caller has locked the directory.
    """
    path = get_database_path(directory)
    with contextlib.closing(_connect(path)) as connection:
        try:
            (found,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error:
            return  # opening it says why it cannot be read
        if not can_migrate(found):
            return
        copy, draft = (path.with_name(f"{path.name}.format-{found}{end}") for end in ("", ".new"))
        try:
            _copy(path, draft)
            draft.replace(copy)
            sync_directory(directory)
            connection.execute("PRAGMA synchronous = FULL")
            migrate(connection, found)
        except (sqlite3.Error, OSError) as error:
            raise StateError(f"{path}: cannot be taken over: {error}") from None
    _LOG.warning(
        "hesrpt: %s: was written by an earlier version; a copy of it is in %s", path, copy.name
    )


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=_ATTEMPT_SECONDS, isolation_level=None, check_same_thread=False
    )


def _copy(path: Path, copy: Path) -> None:
    """Copy a database to a new file that only its owner can read."""
    copy.unlink(missing_ok=True)
    os.close(open_private(copy, os.O_RDWR | os.O_EXCL))
    with (
        contextlib.closing(_connect(path)) as source,
        contextlib.closing(_connect(copy)) as target,
    ):
        source.backup(target)


def write_value(connection: sqlite3.Connection, name: str, value: float | str) -> None:
    """Write a value that belongs to the run as a whole."""
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))


def create_database(directory: Path, values: Mapping[str, float | str]) -> None:
    """Create the database under another name first, so that it exists completely or not at all."""
    draft = directory / "state.db.new"
    try:
        draft.unlink(missing_ok=True)
        # SQLite gives its other files the same permissions.
        os.close(open_private(draft, os.O_RDWR | os.O_EXCL))
        with contextlib.closing(sqlite3.connect(draft)) as connection, connection:
            connection.executescript(_SCHEMA)
            for name, value in values.items():
                write_value(connection, name, value)
        draft.replace(get_database_path(directory))
        sync_directory(directory)
    except (sqlite3.Error, OSError) as error:
        raise StateError(f"{get_database_path(directory)}: {error}") from None
