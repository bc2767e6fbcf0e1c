"""The journal of a run: an SQLite database of jobs, outcomes, servers held and submissions.

Results in the journal are unpickled, so no other user may write to the state directory.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError, StateError
from hesrpt.runtime.jobs import JobSpec
from hesrpt.runtime.journal_entries import (
    Changes,
    Holding,
    ItemResult,
    JobRecord,
    Submission,
)
from hesrpt.runtime.state_directory import (
    check_state_directory,
    create_state_directory,
    get_database_path,
    is_locked,
    lock_directory,
)
from hesrpt.speedups import PowerLaw, Speedup

_VERSION = 2
_SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE jobs (
    name TEXT PRIMARY KEY, number INTEGER NOT NULL, spec TEXT NOT NULL,
    items INTEGER, size REAL, p REAL, arrived REAL NOT NULL, ended REAL, error TEXT
) WITHOUT ROWID;
CREATE TABLE items (
    job TEXT NOT NULL, item INTEGER NOT NULL, seconds REAL NOT NULL, ended REAL NOT NULL,
    result BLOB, PRIMARY KEY (job, item)
) WITHOUT ROWID;
CREATE TABLE failures (job TEXT NOT NULL, item INTEGER NOT NULL, time REAL NOT NULL, error TEXT);
CREATE TABLE holdings (time REAL NOT NULL, job TEXT NOT NULL, servers INTEGER NOT NULL);
CREATE TABLE submissions (number INTEGER PRIMARY KEY, spec TEXT NOT NULL);
PRAGMA user_version = {_VERSION};
"""
_SELECT_RECORDS = """
SELECT spec, number, arrived, ended, error, items, size, p,
    IFNULL(done.count, 0) AS done, IFNULL(done.seconds, 0.0) AS item_seconds,
    IFNULL(failed.count, 0) AS failures
FROM jobs
LEFT JOIN (SELECT job, COUNT(*) AS count, SUM(seconds) AS seconds FROM items GROUP BY job) AS done
    ON done.job = name
LEFT JOIN (SELECT job, COUNT(*) AS count FROM failures GROUP BY job) AS failed
    ON failed.job = name
ORDER BY number
"""


class Journal:
    """The database of a state directory."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.directory, self._connection, self._lock = directory, connection, lock

    @classmethod
    def create(cls, directory: str | Path, servers: int, policy: str) -> Journal:
        """Create the journal of a new run; the directory must not hold one already."""
        path = Path(directory)
        lock = create_state_directory(path)
        try:
            _create_database(path, {"epoch": time.time(), "servers": servers, "policy": policy})
            return cls(path, _connect(path), lock)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def resume(cls, directory: str | Path) -> Journal:
        """Open the journal of a run to continue it; no other scheduler may be running on it."""
        journal = cls.read(directory)
        try:
            journal._lock = lock_directory(journal.directory)
        except BaseException:
            journal.close()
            raise
        with journal._transaction() as connection:
            # All jobs lost their servers when the earlier scheduler stopped, after its last entry.
            (last,) = connection.execute(
                "SELECT MAX(time) FROM (SELECT MAX(time) AS time FROM holdings UNION ALL "
                "SELECT MAX(ended) FROM items)"
            ).fetchone()
            held = {job: servers for _, job, servers in journal.read_holdings()}
            connection.executemany(
                "INSERT INTO holdings VALUES (?, ?, 0)",
                [(last, job) for job, servers in held.items() if servers > 0],
            )
            # Jobs that failed are tried again.
            connection.execute("UPDATE jobs SET ended = NULL, error = NULL WHERE error IS NOT NULL")
        return journal

    @classmethod
    def read(cls, directory: str | Path) -> Journal:
        """Open the journal of a run to inspect it, or to submit jobs to it."""
        path = Path(directory)
        check_state_directory(path)
        journal = cls(path, _connect(path), None)
        (version,) = journal._select("PRAGMA user_version")[0]
        if version != _VERSION:
            journal.close()
            raise StateError(f"{path}: was written by another version of hesrpt (format {version})")
        return journal

    def close(self) -> None:
        """Close the database and release the lock."""
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _raise_state_errors(self.directory), self._connection:
            yield self._connection

    def _select(self, query: str, *parameters: object) -> list[Any]:
        with _raise_state_errors(self.directory):
            return self._connection.execute(query, parameters).fetchall()

    # --- writing ------------------------------------------------------------------------------

    def set_value(self, name: str, value: float | str) -> None:
        """Store a value that belongs to the run as a whole."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def add_jobs(self, records: Sequence[JobRecord], submissions: Sequence[int] = ()) -> None:
        """Add jobs that have arrived, and delete the submissions that they came from."""
        rows = [
            {
                "name": record.name,
                "number": record.number,
                "spec": record.spec.to_json(),
                "items": record.items,
                "size": record.size,
                "p": _get_power(record.speedup),
                "arrived": record.arrived,
            }
            for record in records
        ]
        with self._transaction() as connection:
            connection.executemany(
                "INSERT INTO jobs (name, number, spec, items, size, p, arrived) "
                "VALUES (:name, :number, :spec, :items, :size, :p, :arrived)",
                rows,
            )
            connection.executemany(
                "DELETE FROM submissions WHERE number = ?", [(number,) for number in submissions]
            )

    def write(self, changes: Changes) -> None:
        """Write all changes, or none of them if that fails."""
        ended = [
            {
                "name": record.name,
                "items": record.items,
                "size": record.size,
                "p": _get_power(record.speedup),
                "ended": record.ended,
                "error": record.error,
            }
            for record in changes.ended_jobs
        ]
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?, ?)", changes.finished_items
            )
            connection.executemany(
                "INSERT INTO failures VALUES (?, ?, ?, ?)", changes.failed_attempts
            )
            connection.executemany("INSERT INTO holdings VALUES (?, ?, ?)", changes.holdings)
            connection.executemany(
                "UPDATE jobs SET ended = :ended, error = :error, items = :items, size = :size, "
                "p = :p WHERE name = :name",
                ended,
            )

    def submit(self, specs: Sequence[JobSpec]) -> None:
        """Leave jobs for the scheduler of this run to pick up."""
        with self._transaction() as connection:
            connection.executemany(
                "INSERT INTO submissions (spec) VALUES (?)", [(spec.to_json(),) for spec in specs]
            )

    # --- reading ------------------------------------------------------------------------------

    def get_value(self, name: str, default: Any = None) -> Any:
        """Return a value that belongs to the run as a whole."""
        found = self._select("SELECT value FROM meta WHERE name = ?", name)
        return found[0][0] if found else default

    def read_records(self) -> list[JobRecord]:
        """Return all jobs in order of arrival."""
        return [
            JobRecord(
                spec=JobSpec.from_json(spec),
                number=number,
                arrived=arrived,
                ended=ended,
                error=error,
                items=items,
                done=done,
                failures=failures,
                item_seconds=item_seconds,
                size=size,
                speedup=None if p is None else PowerLaw(p),
            )
            for (
                spec,
                number,
                arrived,
                ended,
                error,
                items,
                size,
                p,
                done,
                item_seconds,
                failures,
            ) in self._select(_SELECT_RECORDS)
        ]

    def get_record(self, job: str) -> JobRecord:
        """Return the record of a job."""
        records = self.read_records()
        for record in records:
            if record.name == job:
                return record
        names = ", ".join(record.name for record in records)
        raise InputError(f"there is no job {job!r} in {self.directory}; jobs are: {names}")

    def read_done_items(self, job: str) -> list[int]:
        """Return the items of a job that are done."""
        return [item for (item,) in self._select("SELECT item FROM items WHERE job = ?", job)]

    def read_results(self, job: str) -> Iterator[ItemResult]:
        """Yield the results of a job in the order of its items."""
        query = "SELECT item, result FROM items WHERE job = ? ORDER BY item"
        with _raise_state_errors(self.directory):
            yield from map(ItemResult._make, self._connection.execute(query, (job,)))

    def read_holdings(self) -> list[Holding]:
        """Return how many servers each job held, as a list of changes in order of time."""
        query = "SELECT time, job, servers FROM holdings ORDER BY time, rowid"
        return [Holding(*row) for row in self._select(query)]

    def read_submissions(self) -> list[Submission]:
        """Return the jobs that were submitted and have not been added to the run."""
        found = self._select("SELECT number, spec FROM submissions ORDER BY number")
        return [Submission(number, JobSpec.from_json(spec)) for number, spec in found]

    @property
    def is_running(self) -> bool:
        """Whether a scheduler is running on the directory."""
        return is_locked(self.directory)


def _get_power(speedup: Speedup | None) -> float | None:
    return speedup.p if isinstance(speedup, PowerLaw) else None


@contextlib.contextmanager
def _raise_state_errors(directory: Path) -> Iterator[None]:
    """Turn errors of the database into StateErrors that name its file."""
    try:
        yield
    except sqlite3.Error as error:
        raise StateError(f"{get_database_path(directory)}: {error}") from None


def _create_database(directory: Path, values: Mapping[str, float | str]) -> None:
    """Create the database under another name first, so that it exists completely or not at all."""
    draft = directory / "state.db.new"
    try:
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft)) as connection, connection:
            connection.executescript(_SCHEMA)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
        draft.replace(get_database_path(directory))
    except (sqlite3.Error, OSError) as error:
        raise StateError(f"{get_database_path(directory)}: {error}") from None


def _connect(directory: Path) -> sqlite3.Connection:
    with _raise_state_errors(directory):
        connection = sqlite3.connect(
            get_database_path(directory), timeout=30, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    return connection
