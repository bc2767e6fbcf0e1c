"""What a run must not forget, in SQLite: every outcome once, who held what, what was submitted.

The state directory holds the database, the lock of the scheduler that runs on it, and the output of
each item. Results in it are unpickled, so it must belong to its reader, and to nobody else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hesrpt.errors import InputError

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE jobs (
    name TEXT PRIMARY KEY, number INTEGER NOT NULL, description TEXT NOT NULL,
    items INTEGER, size REAL, p REAL, weight REAL NOT NULL,
    arrived REAL NOT NULL, ended REAL, error TEXT
) WITHOUT ROWID;
CREATE TABLE items (
    job TEXT NOT NULL, item INTEGER NOT NULL, seconds REAL NOT NULL, ended REAL NOT NULL,
    result BLOB, PRIMARY KEY (job, item)
) WITHOUT ROWID;
CREATE TABLE failures (job TEXT NOT NULL, item INTEGER NOT NULL, time REAL NOT NULL, error TEXT);
CREATE TABLE holdings (time REAL NOT NULL, job TEXT NOT NULL, servers INTEGER NOT NULL);
CREATE TABLE submissions (id INTEGER PRIMARY KEY, text TEXT NOT NULL, place TEXT NOT NULL);
PRAGMA user_version = 1;
"""
_VERSION = 1


class StateError(InputError):
    """The state directory cannot be used."""


class Done(NamedTuple):
    """An item that is done."""

    job: str
    item: int
    seconds: float
    ended: float
    result: bytes


@dataclass(frozen=True)
class JobRow:
    """A job as it is remembered."""

    name: str
    number: int
    description: str
    items: int | None
    size: float | None
    p: float | None
    weight: float
    arrived: float
    ended: float | None
    error: str | None


class Journal:
    """The database of a state directory."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.directory, self.connection, self._lock = directory, connection, lock

    @classmethod
    def create(cls, directory: str | Path, servers: int, policy: str) -> Journal:
        """Return the journal of a new run; the directory must not hold one already."""
        place = Path(directory)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"{place}: cannot be made: {error.strerror}") from None
        _check_private(place)
        lock = _locked(place)
        try:
            if _database(place).exists():
                raise StateError(
                    f"{place}: holds the state of a run; continue it with --resume (resume=True), "
                    "or choose another directory"
                )
            (place / "logs").mkdir(exist_ok=True)
            _make_database(place, {"epoch": time.time(), "servers": servers, "policy": policy})
            return cls(place, _connected(place), lock)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def resume(cls, directory: str | Path) -> Journal:
        """Return the journal of a run that goes on; no other scheduler may be running on it."""
        journal = cls.read(directory)
        journal._lock = _locked(journal.directory)
        with journal._guarded(), journal.connection:
            # Nobody has held a server since the last thing that was written down.
            (last,) = journal.connection.execute(
                "SELECT MAX(time) FROM (SELECT MAX(time) AS time FROM holdings UNION ALL "
                "SELECT MAX(ended) FROM items)"
            ).fetchone()
            held = {job: servers for _, job, servers in journal.holdings()}
            journal.connection.executemany(
                "INSERT INTO holdings VALUES (?, ?, 0)",
                [(last, job) for job, servers in held.items() if servers > 0],
            )
            # What failed is tried again.
            journal.connection.execute(
                "UPDATE jobs SET ended = NULL, error = NULL WHERE error IS NOT NULL"
            )
        return journal

    @classmethod
    def read(cls, directory: str | Path) -> Journal:
        """Return the journal of a run, to look at, or to submit jobs to."""
        place = Path(directory)
        if not place.is_dir():
            raise StateError(f"{place}: is no state directory: it does not exist")
        if not _database(place).exists():
            raise StateError(f"{place}: is no state directory: no {_database(place).name} in it")
        _check_private(place)
        journal = cls(place, _connected(place), None)
        with journal._guarded():
            version = journal.connection.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION:
            raise StateError(f"{place}: was written by another version ({version}) of hesrpt")
        return journal

    def close(self) -> None:
        """Close the database, and let go of the directory."""
        self.connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"{_database(self.directory)}: {error}") from None

    # --- writing ------------------------------------------------------------------------------

    def set(self, name: str, value: float | str) -> None:
        """Remember a value."""
        with self._guarded(), self.connection:
            self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def add_jobs(self, rows: Sequence[JobRow], submissions: Sequence[int] = ()) -> None:
        """Remember jobs that have arrived, and that they are no longer waiting as submissions."""
        with self._guarded(), self.connection:
            self.connection.executemany(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        row.name, row.number, row.description, row.items, row.size, row.p,
                        row.weight, row.arrived, row.ended, row.error,
                    )
                    for row in rows
                ],
            )  # fmt: skip
            self.connection.executemany(
                "DELETE FROM submissions WHERE id = ?", [(number,) for number in submissions]
            )

    def record(
        self,
        done: Sequence[Done],
        failures: Sequence[tuple[str, int, float, str]],
        holdings: Sequence[tuple[float, str, int]],
        ended: Sequence[tuple[float, str | None, int | None, float, float | None, str]],
    ) -> None:
        """Write what has happened since the last time: all of it, or nothing."""
        with self._guarded(), self.connection:
            self.connection.executemany("INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?, ?)", done)
            self.connection.executemany("INSERT INTO failures VALUES (?, ?, ?, ?)", failures)
            self.connection.executemany("INSERT INTO holdings VALUES (?, ?, ?)", holdings)
            self.connection.executemany(
                "UPDATE jobs SET ended = ?, error = ?, items = ?, size = ?, p = ? WHERE name = ?",
                ended,
            )

    def submit(self, text: str, place: str) -> None:
        """Leave jobs for the scheduler that runs on this directory."""
        with self._guarded(), self.connection:
            self.connection.execute(
                "INSERT INTO submissions (text, place) VALUES (?, ?)", (text, place)
            )

    def take_submissions(self) -> list[tuple[int, str, str]]:
        """Return what was left; it stays until its jobs are added."""
        with self._guarded():
            return self.connection.execute(
                "SELECT id, text, place FROM submissions ORDER BY id"
            ).fetchall()

    # --- reading ------------------------------------------------------------------------------

    def get(self, name: str, otherwise: Any = None) -> Any:
        """Return a value that was remembered."""
        with self._guarded():
            row = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,))
            found = row.fetchone()
        return otherwise if found is None else found[0]

    def jobs(self) -> list[JobRow]:
        """Return all jobs, as they arrived."""
        with self._guarded():
            rows = self.connection.execute("SELECT * FROM jobs ORDER BY number").fetchall()
        return [JobRow(*row) for row in rows]

    def done_items(self, job: str) -> list[int]:
        """Return which items of a job are done."""
        with self._guarded():
            found = self.connection.execute("SELECT item FROM items WHERE job = ?", (job,))
            return [item for (item,) in found]

    def done_counts(self) -> dict[str, tuple[int, float]]:
        """Return how many items of each job are done, and how long they took in sum."""
        with self._guarded():
            found = self.connection.execute(
                "SELECT job, COUNT(*), SUM(seconds) FROM items GROUP BY job"
            )
            return {job: (count, seconds) for job, count, seconds in found}

    def results(self, job: str) -> Iterator[tuple[int, bytes]]:
        """Yield the results of a job, by item."""
        with self._guarded():
            yield from self.connection.execute(
                "SELECT item, result FROM items WHERE job = ? ORDER BY item", (job,)
            )

    def failures(self, job: str) -> list[tuple[int, float, str]]:
        """Return what went wrong with the items of a job."""
        with self._guarded():
            return self.connection.execute(
                "SELECT item, time, error FROM failures WHERE job = ? ORDER BY time", (job,)
            ).fetchall()

    def holdings(self) -> list[tuple[float, str, int]]:
        """Return who held how many servers from when on."""
        with self._guarded():
            return self.connection.execute(
                "SELECT time, job, servers FROM holdings ORDER BY time, rowid"
            ).fetchall()

    def log_of(self, number: int, item: int) -> Path:
        """Return where the output of an item of a job, by its number, goes."""
        return self.directory / "logs" / f"{number}-{item}.log"

    def number_of(self, job: str) -> int:
        """Return the number of a job."""
        with self._guarded():
            found = self.connection.execute("SELECT number FROM jobs WHERE name = ?", (job,))
            row = found.fetchone()
        if row is None:
            known = ", ".join(row.name for row in self.jobs())
            raise InputError(f"there is no job {job!r} in {self.directory}; jobs are: {known}")
        return int(row[0])

    @property
    def running(self) -> bool:
        """Whether a scheduler runs on the directory."""
        handle = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False


def _database(place: Path) -> Path:
    return place / "state.db"


def _make_database(place: Path, values: Mapping[str, float | str]) -> None:
    """Make the database of a run: all of it or, if we are killed meanwhile, none."""
    draft = place / "state.db.new"
    try:
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft)) as connection, connection:
            connection.executescript(_SCHEMA)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
        draft.replace(_database(place))
    except (sqlite3.Error, OSError) as error:
        raise StateError(f"{_database(place)}: {error}") from None


def _connected(place: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(_database(place), timeout=30, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        raise StateError(f"{_database(place)}: {error}") from None
    return connection


def _check_private(place: Path) -> None:
    try:
        found = place.stat()
    except OSError as error:
        raise StateError(f"{place}: cannot be read: {error.strerror}") from None
    if found.st_uid != os.getuid():
        raise StateError(f"{place}: belongs to somebody else; results in it are not to be trusted")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise StateError(f"{place}: others may read or write it; chmod 700 {place}")


def _locked(place: Path) -> int:
    try:
        handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(f"{place}: cannot be written to: {error.strerror}") from None
    until = time.monotonic() + 1.0  # somebody may only be looking whether it is free
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if time.monotonic() > until:
                os.close(handle)
                raise StateError(f"{place}: another scheduler is running on it") from None
            time.sleep(0.02)
