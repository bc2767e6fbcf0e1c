"""The jobs in the journal, which are checked when they are read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from hesrpt.errors import StateError
from hesrpt.storage.journal_database import Database
from hesrpt.storage.journal_entries import JobEndEntry, JobRecord
from hesrpt.storage.journal_rows import (
    JOB_COLUMNS,
    create_job_row,
    create_record,
    is_intact,
)

_SELECT_RECORDS = f"""
SELECT IFNULL(done.count, 0), IFNULL(done.seconds, 0.0), IFNULL(failed.count, 0), {JOB_COLUMNS}
FROM jobs
LEFT JOIN (
    SELECT job, COUNT(*) AS count, SUM(seconds) AS seconds FROM items WHERE position >= 0
    GROUP BY job
) AS done ON done.job = number
LEFT JOIN (SELECT job, COUNT(*) AS count FROM failures GROUP BY job) AS failed
    ON failed.job = number
ORDER BY number
"""
_WRITE_JOB = f"""
INSERT INTO jobs ({JOB_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET
    name = excluded.name, spec = excluded.spec, fingerprint = excluded.fingerprint,
    items = excluded.items, size = excluded.size, p = excluded.p, arrived = excluded.arrived,
    ended = excluded.ended, error = excluded.error, checksum = excluded.checksum
"""


class JobTable:
    """All jobs of a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, connection: sqlite3.Connection, records: Iterable[JobRecord]) -> None:
        """Add jobs, or change their records."""
        connection.executemany(_WRITE_JOB, map(create_job_row, records))

    def read_last_number(self) -> int:
        """Return the highest number that a job has ever had; 0 before the first job."""
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'jobs' UNION SELECT number FROM jobs"
        return max((number for (number,) in self._database.iterate(query)), default=0)

    def read_records(self) -> list[JobRecord]:
        """Return all jobs in order of arrival."""
        records = []
        for done, seconds, failures, *row in self._database.iterate(_SELECT_RECORDS):
            if not is_intact(row):
                raise StateError(f"{self._database.path}: {_describe(row[0], row[1])} is damaged")
            records.append(create_record(tuple(row), done, seconds, failures))
        return records

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

    def read_record(self, number: int) -> JobRecord:
        """Return a job without the numbers of its finished items and failures."""
        query = f"SELECT {JOB_COLUMNS} FROM jobs WHERE number = ?"
        for row in self._database.select(query, number):
            if is_intact(row):
                return create_record(row, 0, 0.0, 0)
            raise StateError(f"{self._database.path}: the entry of job number {number} is damaged")
        raise StateError(f"{self._database.path}: job number {number} was removed")

    def reopen(self, connection: sqlite3.Connection, number: int) -> None:
        """Let the next resume continue a job that has ended."""
        self.write(connection, [self.read_record(number).reopen()])

    def discard_damaged(self) -> None:
        """If the entries of jobs are damaged, remove them with all that belongs to the jobs.

        Raise an error then: the jobs cannot be resumed, but they can be added to the run again.
        """
        rows = self._database.select(f"SELECT {JOB_COLUMNS} FROM jobs")
        damaged = [row for row in rows if not is_intact(row)]
        if not damaged:
            return
        with self._database.transaction(durable=True) as connection:
            for number, *_ in damaged:
                connection.execute("DELETE FROM jobs WHERE number = ?", (number,))
                for table in ("items", "failures", "holdings"):
                    connection.execute(f"DELETE FROM {table} WHERE job = ?", (number,))
        subjects = ", ".join(_describe(number, name) for number, name, *_ in damaged)
        raise StateError(
            f"{self._database.path}: damaged and removed: {subjects}; the other jobs can be "
            "resumed now, and those that were removed can be added again"
        )


def _describe(number: int, name: object) -> str:
    return f"the entry of job {name!r} (number {number})"
