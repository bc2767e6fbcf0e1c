"""The failed attempts of items in the journal, and the items that have failed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from hesrpt.errors import StateError
from hesrpt.jobs.failures import ItemFailure
from hesrpt.storage.journal_database import Database
from hesrpt.storage.journal_entries import FailedAttempt, JobRecord
from hesrpt.storage.journal_rows import (
    FAILURE_COLUMNS,
    create_failure,
    create_failure_row,
    is_intact,
)


class FailureTable:
    """The failed attempts of all jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, connection: sqlite3.Connection, attempts: Iterable[FailedAttempt]) -> None:
        """Add failed attempts."""
        places = ", ".join("?" * len(FAILURE_COLUMNS.split(",")))
        connection.executemany(
            f"INSERT INTO failures ({FAILURE_COLUMNS}) VALUES ({places})",
            map(create_failure_row, attempts),
        )

    def read(self, record: JobRecord) -> list[ItemFailure]:
        """Return the items of a job that have failed, in the order of the items."""
        query = (
            f"SELECT {FAILURE_COLUMNS} FROM failures WHERE job = ? AND round = ? AND is_last = 1 "
            "ORDER BY position"
        )
        failures = []
        for row in self._database.iterate(query, record.number, record.spec.round):
            if not is_intact(row):
                raise StateError(
                    f"{self._database.path}: the failure of item {row[1]} of job {record.name!r} "
                    "is damaged"
                )
            failures.append(create_failure(row))
        return failures
