"""The jobs in the journal, and the failed attempts of their items."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from hesrpt.errors import StateError
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_end import JobEnd
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.speedups import PowerLaw, Speedup
from hesrpt.storage.journal_database import Database
from hesrpt.storage.journal_entries import FailedAttempt, JobEndEntry, JobRecord

_COLUMNS = "number, spec, fingerprint, items, size, p, arrived, ended, outcome"
_SELECT_RECORDS = f"""
SELECT {_COLUMNS}, IFNULL(done.count, 0), IFNULL(done.seconds, 0.0), IFNULL(failed.count, 0)
FROM jobs
LEFT JOIN (
    SELECT job, COUNT(*) AS count, SUM(seconds) AS seconds FROM items WHERE position >= 0
    GROUP BY job
) AS done ON done.job = number
LEFT JOIN (SELECT job, COUNT(*) AS count FROM failures GROUP BY job) AS failed
    ON failed.job = number
ORDER BY number
"""
_SELECT_RECORD = f"SELECT {_COLUMNS}, 0, 0.0, 0 FROM jobs WHERE number = ?"
_WRITE_JOB = f"""
INSERT INTO jobs (name, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET
    name = excluded.name, spec = excluded.spec, fingerprint = excluded.fingerprint,
    items = excluded.items, size = excluded.size, p = excluded.p, arrived = excluded.arrived,
    ended = excluded.ended, outcome = excluded.outcome
"""
_WRITE_ATTEMPT = """
INSERT INTO failures
    (job, time, round, is_last, position, attempts, value, error, traceback, exception)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SELECT_FAILURES = """
SELECT position, attempts, value, error, traceback, exception FROM failures
WHERE job = ? AND round = ? AND is_last = 1 ORDER BY position
"""


class JobTable:
    """All jobs of a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, connection: sqlite3.Connection, records: Iterable[JobRecord]) -> None:
        """Add jobs, or change their records."""
        rows = (
            (
                record.name,
                record.number,
                record.spec.to_json(),
                record.fingerprint,
                record.items,
                record.size,
                _get_power(record.speedup),
                record.arrived,
                record.ended,
                None if record.end is None else record.end.to_json(),
            )
            for record in records
        )
        connection.executemany(_WRITE_JOB, rows)

    def read_last_number(self) -> int:
        """Return the highest number that a job has ever had; 0 before the first job."""
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'jobs' UNION SELECT number FROM jobs"
        return max((number for (number,) in self._database.iterate(query)), default=0)

    def read_records(self) -> list[JobRecord]:
        """Return all jobs in order of arrival."""
        return [self._create_record(row) for row in self._database.select(_SELECT_RECORDS)]

    def read_record(self, number: int) -> JobRecord:
        """Return a job without the numbers of its finished items and failures."""
        for row in self._database.select(_SELECT_RECORD, number):
            return self._create_record(row)
        raise StateError(f"{self._database.path}: job number {number} was removed")

    def _create_record(self, row: Sequence[Any]) -> JobRecord:
        number, spec, fingerprint, items, size, p, arrived, ended, outcome, *counts = row
        done, item_seconds, failures = counts
        with self._database.parsing(f"job number {number}"):
            return JobRecord(
                spec=JobSpec.from_json(spec),
                number=number,
                fingerprint=fingerprint,
                arrived=arrived,
                ended=ended,
                end=None if outcome is None else JobEnd.from_json(outcome),
                items=items,
                done=done,
                failures=failures,
                item_seconds=item_seconds,
                size=size,
                speedup=None if p is None else PowerLaw(p),
            )

    def read_ends(self) -> list[JobEndEntry]:
        """Return when jobs have ended, without reading anything else."""
        rows = self._database.select("SELECT number, name, ended, spec FROM jobs ORDER BY number")
        return [
            JobEndEntry(number, name, ended, json.loads(spec)["after"] if ended is None else ())
            for number, name, ended, spec in rows
        ]

    def remove(self, connection: sqlite3.Connection, number: int) -> None:
        """Remove a job with all that belongs to it, but not its items."""
        connection.execute("DELETE FROM jobs WHERE number = ?", (number,))
        for table in ("failures", "holdings", "hooks"):
            connection.execute(f"DELETE FROM {table} WHERE job = ?", (number,))

    def reopen(self, connection: sqlite3.Connection, number: int) -> None:
        """Let the next resume continue a job that has ended."""
        self.write(connection, [self.read_record(number).reopen()])

    # --- failed attempts ------------------------------------------------------------------------

    def write_attempts(
        self, connection: sqlite3.Connection, attempts: Iterable[FailedAttempt]
    ) -> None:
        """Add failed attempts of items."""
        rows = (
            (
                *(job, time, round_, is_last),
                failure.item,
                failure.attempts,
                failure.value,
                failure.error,
                failure.traceback,
                failure.pickled_exception,
            )
            for job, time, round_, is_last, failure in attempts
        )
        connection.executemany(_WRITE_ATTEMPT, rows)

    def remove_attempts(self, connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
        """Remove the failed attempts of jobs."""
        rows = [(number,) for number in numbers]
        connection.executemany("DELETE FROM failures WHERE job = ?", rows)

    def read_failures(self, record: JobRecord) -> list[ItemFailure]:
        """Return the items of a job that have failed, in the order of the items."""
        rows = self._database.iterate(_SELECT_FAILURES, record.number, record.spec.round)
        return [
            ItemFailure(
                item=position,
                attempts=attempts,
                value=value,
                error=error,
                traceback=traceback,
                pickled_exception=exception,
            )
            for position, attempts, value, error, traceback, exception in rows
        ]


def _get_power(speedup: Speedup | None) -> float | None:
    return speedup.p if isinstance(speedup, PowerLaw) else None
