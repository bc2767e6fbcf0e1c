"""The journal of a run: jobs, outcomes, servers held and submissions, in an SQLite database.

Results in the journal are unpickled, so no other user may write to the state directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError, StateError
from hesrpt.runtime.jobs import JobSpec
from hesrpt.runtime.journal_database import Database, create_database
from hesrpt.runtime.journal_entries import (
    Changes,
    Holding,
    ItemResult,
    JobRecord,
    Submission,
)
from hesrpt.runtime.journal_rows import (
    ITEM_COLUMNS,
    JOB_COLUMNS,
    compute_digest,
    create_item_row,
    create_job_row,
    create_record,
    create_submission,
    is_intact,
    move_item_row,
    seal,
)
from hesrpt.runtime.state_directory import (
    check_state_directory,
    create_state_directory,
    is_locked,
    lock_directory,
)

_SELECT_RECORDS = f"""
SELECT IFNULL(done.count, 0), IFNULL(done.seconds, 0.0), IFNULL(failed.count, 0), {JOB_COLUMNS}
FROM jobs
LEFT JOIN (SELECT job, COUNT(*) AS count, SUM(seconds) AS seconds FROM items GROUP BY job) AS done
    ON done.job = number
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
_SELECT_LAST_TIME = """
SELECT MAX(time) FROM (
    SELECT MAX(time) AS time FROM holdings UNION ALL SELECT MAX(ended) FROM items
    UNION ALL SELECT MAX(arrived) FROM jobs UNION ALL SELECT MAX(ended) FROM jobs
    UNION ALL SELECT MAX(time) FROM failures
)
"""


class Journal:
    """The database of a state directory."""

    def __init__(self, directory: Path, lock: int | None) -> None:
        self.directory, self._lock = directory, lock
        self.last_time = 0.0  # the last recorded time, when the journal was opened to continue it
        self._database = Database(directory)

    @classmethod
    def create(cls, directory: str | Path, servers: int, policy: str) -> Journal:
        """Create the journal of a new run; the directory must not hold one already."""
        path = Path(directory)
        lock = create_state_directory(path)
        try:
            create_database(path, [seal(("servers", servers)), seal(("policy", policy))])
            return cls(path, lock)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def resume(cls, directory: str | Path) -> Journal:
        """Open the journal of a run to continue it; no other scheduler may be running on it."""
        journal = cls.read(directory)
        try:
            journal._lock = lock_directory(journal.directory)
            journal._prepare_to_resume()
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def read(cls, directory: str | Path) -> Journal:
        """Open the journal of a run to inspect it, or to submit jobs to it."""
        path = Path(directory)
        check_state_directory(path)
        return cls(path, None)

    def close(self) -> None:
        """Close the database and release the lock."""
        self._database.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def stop_waiting(self, seconds: float) -> None:
        """From now on, wait at most so long while another process has locked the database."""
        self._database.stop_waiting(seconds)

    def _prepare_to_resume(self) -> None:
        (last,) = self._database.select(_SELECT_LAST_TIME)[0]
        self.last_time = last or 0.0
        held = {job: servers for _, job, servers in self.read_holdings()}
        failed = [record for record in self.read_records() if record.error is not None]
        self.write(
            Changes(
                # All jobs lost their servers when the earlier scheduler stopped.
                holdings=[Holding(self.last_time, job, 0) for job, n in held.items() if n > 0],
                # Jobs that failed are tried again.
                jobs=[replace(record, ended=None, error=None) for record in failed],
            )
        )

    # --- writing ------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Write all changes, or none of them if that fails.

        If they include the end of a job, they and all earlier ones are on the disk afterwards.
        """
        if not changes:
            return
        ends_job = any(record.ended is not None for record in changes.jobs)
        with self._database.transaction(durable=ends_job) as connection:
            run, run_all = connection.execute, connection.executemany
            for number in changes.jobs_to_redo:
                run("DELETE FROM items WHERE job = ?", (number,))
                run("DELETE FROM failures WHERE job = ?", (number,))
            run_all(_WRITE_JOB, map(create_job_row, changes.jobs))
            run_all(
                "DELETE FROM submissions WHERE number = ?",
                [(number,) for number in changes.added_submissions],
            )
            run_all("DELETE FROM items WHERE job = ? AND key = ?", changes.removed_items)
            for job, key, position in changes.moved_items:
                query = f"SELECT {ITEM_COLUMNS} FROM items WHERE job = ? AND key = ?"
                for row in run(query, (job, key)).fetchall():
                    *_, checksum = move_item_row(row, position)
                    run(
                        "UPDATE items SET position = ?, checksum = ? WHERE job = ? AND key = ?",
                        (position, checksum, job, key),
                    )
            run_all(
                f"INSERT OR REPLACE INTO items ({ITEM_COLUMNS}, result) VALUES (?,?,?,?,?,?,?,?)",
                (
                    (*create_item_row(item, compute_digest(item.result)), item.result)
                    for item in changes.finished_items
                ),
            )
            run_all("INSERT INTO failures VALUES (?, ?, ?, ?)", changes.failed_attempts)
            run_all("INSERT INTO holdings VALUES (?, ?, ?)", changes.holdings)
            run_all(
                "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", map(seal, changes.values.items())
            )

    def submit(self, specs: Sequence[JobSpec]) -> None:
        """Leave jobs for the scheduler of this run to pick up."""
        with self._database.transaction(durable=True) as connection:
            connection.executemany(
                "INSERT INTO submissions (spec, checksum) VALUES (?, ?)",
                [seal((spec.to_json(),)) for spec in specs],
            )

    # --- reading ------------------------------------------------------------------------------

    def get_value(self, name: str, default: Any = None) -> Any:
        """Return a value that belongs to the run as a whole."""
        for row in self._database.select("SELECT * FROM meta WHERE name = ?", name):
            self._check(row, f"the value of {name!r}")
            return row[1]
        return default

    def read_records(self) -> list[JobRecord]:
        """Return all jobs in order of arrival."""
        records = []
        for done, seconds, failures, *row in self._database.select(_SELECT_RECORDS):
            self._check(row, f"the entry of job {row[1]!r}, number {row[0]},")
            records.append(create_record(tuple(row), done, seconds, failures))
        return records

    def get_record(self, job: str) -> JobRecord:
        """Return the record of a job."""
        records = self.read_records()
        for record in records:
            if record.name == job:
                return record
        names = ", ".join(record.name for record in records)
        raise InputError(f"there is no job {job!r} in {self.directory}; jobs are: {names}")

    def read_done_items(self, number: int) -> dict[bytes, int]:
        """Return the finished items of a job: their keys and positions."""
        return dict(self._database.select("SELECT key, position FROM items WHERE job = ?", number))

    def read_results(self, number: int) -> Iterator[ItemResult]:
        """Yield the results of a job in the order of its items."""
        select = self._database.select
        keys = select("SELECT key FROM items WHERE job = ? ORDER BY position", number)
        for (key,) in keys:
            query = f"SELECT {ITEM_COLUMNS}, result FROM items WHERE job = ? AND key = ?"
            for *row, result in select(query, number, key):
                subject = f"item {row[2]} of job number {number}"
                self._check(row, f"the entry of {subject}")
                if compute_digest(result) != row[5]:
                    raise StateError(f"{self._database.path}: the result of {subject} is damaged")
                yield ItemResult(row[2], result)

    def read_holdings(self) -> list[Holding]:
        """Return how many servers each job held, as a list of changes in order of time."""
        query = "SELECT time, job, servers FROM holdings ORDER BY time, rowid"
        return [Holding(*row) for row in self._database.select(query)]

    def read_submissions(self) -> list[Submission]:
        """Return the jobs that were submitted and have not been added to the run."""
        rows = self._database.select("SELECT number, spec, checksum FROM submissions")
        for row in rows:
            self._check(row[1:], f"submission {row[0]}")
        return [create_submission(row) for row in rows]

    def _check(self, row: Sequence[Any], subject: str) -> None:
        if not is_intact(row):
            raise StateError(f"{self._database.path}: {subject} is damaged")

    @property
    def is_running(self) -> bool:
        """Whether a scheduler is running on the directory."""
        return is_locked(self.directory)
