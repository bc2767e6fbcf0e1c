"""The journal of a run: jobs, outcomes, servers held and requests, in an SQLite database.

Results in the journal are unpickled, so no other user may write to the state directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hesrpt._version import __version__
from hesrpt.decisions.kinds import LearnedRun
from hesrpt.errors import InputError
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_end import STOPPED
from hesrpt.storage.item_keys import KeyPlace
from hesrpt.storage.job_names import describe_names
from hesrpt.storage.journal_database import (
    Database,
    create_database,
    take_over,
    write_value,
)
from hesrpt.storage.journal_entries import (
    Answer,
    Changes,
    Holding,
    JobEndEntry,
    JobRecord,
    Request,
    StoredResult,
)
from hesrpt.storage.journal_hooks import HookTable
from hesrpt.storage.journal_items import ALL_POSITIONS, ItemTable
from hesrpt.storage.journal_jobs import JobTable
from hesrpt.storage.journal_requests import RequestTable
from hesrpt.storage.state_directory import (
    DirectoryLock,
    check_state_directory,
    create_state_directory,
    is_locked,
    lock_directory,
)

# How many items of a job to remove in one transaction.
_REMOVAL_BATCH = 500


class Journal:
    """The database of a state directory."""

    def __init__(self, directory: Path, lock: DirectoryLock | None) -> None:
        self.directory, self._lock = directory, lock
        self.last_time = 0.0  # the last recorded time, when the journal was opened to continue it
        self._database = Database(directory)
        self._jobs = JobTable(self._database)
        self._items = ItemTable(self._database, self._jobs, directory)
        self.requests = RequestTable(self._database)
        self.hooks = HookTable(self._database)

    @classmethod
    def create(cls, directory: str | Path, servers: int, policy: str) -> Journal:
        """Create the journal of a new run; the directory must not hold one already."""
        path = Path(directory)
        lock = create_state_directory(path)
        try:
            create_database(path, {"servers": servers, "policy": policy, "version": __version__})
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def resume(cls, directory: str | Path) -> Journal:
        """Open the journal of a run to continue it; no other scheduler may be running on it."""
        path = Path(directory)
        check_state_directory(path)
        lock = lock_directory(path)
        try:
            take_over(path)
            journal = cls(path, lock)
        except BaseException:
            lock.release()
            raise
        try:
            journal._prepare_to_resume()
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def read(cls, directory: str | Path) -> Journal:
        """Open the journal of a run to inspect it, or to make requests."""
        path = Path(directory)
        check_state_directory(path)
        return cls(path, None)

    def close(self) -> None:
        """Close the database and release the lock."""
        self._database.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def stop_waiting(self, seconds: float) -> None:
        """Wait for at most this many more seconds while another process has locked the database."""
        self._database.stop_waiting(seconds)

    def _prepare_to_resume(self) -> None:
        self._database.check()
        self._items.remove_orphans()
        self._items.remove_orphaned_files()
        self.requests.reset()
        records, holdings = self.read_records(), self.read_holdings()
        times = [record.ended or record.arrived for record in records]
        times += [holding.time for holding in holdings]
        self.last_time = max(self.get_value("time", 0.0, parse=float), *times, 0.0)
        held = {job: servers for _, job, servers in holdings}
        calls = [record for record in records if record.spec.is_executor and record.ended is None]
        self.write(
            Changes(
                # All jobs lost their servers when the earlier scheduler stopped.
                holdings=[Holding(self.last_time, job, 0) for job, n in held.items() if n > 0],
                # Nobody waits any more for the calls of an executor.
                jobs=[replace(each, ended=self.last_time, end=STOPPED) for each in calls],
                values={"version": __version__},
            )
        )
        self._reopen_retried_jobs(records)

    def _reopen_retried_jobs(self, records: Sequence[JobRecord]) -> None:
        """Reopen the jobs whose retry was requested while no scheduler ran.

        Requests that were made after others about the same job wait for their turn.
        """
        first: dict[tuple[int | None, int | None], Request] = {}
        for request in self.requests.read():
            if request.spec is None:
                first.setdefault((request.job, request.submission), request)
        retries = [request for request in first.values() if request.kind == "retry"]
        found = [record for record in records if any(each.is_about(record) for each in retries)]
        ended = [record for record in found if record.has_ended and record.state != "done"]
        reopened = [record.reopen() for record in ended]
        answers = [Answer(request.number, False, "runs again") for request in retries]
        self.write(Changes(jobs=reopened, answers=answers))

    # --- writing ------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Write all changes, or none of them if that fails.

        If they include the end of a job, they and all earlier ones are on the disk afterwards.
        """
        if not changes:
            return
        self._check_lock()
        rows = self._items.create_rows(changes.finished_items)
        ends_job = any(record.ended is not None for record in changes.jobs)
        with self._database.transaction(durable=ends_job or changes.is_durable) as connection:
            unused_files = self._items.write(connection, changes, rows)
            self._jobs.write(connection, changes.jobs)
            self._jobs.remove_attempts(connection, changes.jobs_to_redo)
            self._jobs.write_attempts(connection, changes.failed_attempts)
            self.requests.answer(connection, changes.answers)
            self.requests.write_keys(connection, changes.keys)
            self.hooks.write(connection, changes.hooks)
            run_all = connection.executemany
            run_all("INSERT INTO holdings (time, job, servers) VALUES (?, ?, ?)", changes.holdings)
            run_all(
                "INSERT OR REPLACE INTO learned (number, kind, durations) VALUES (?, ?, ?)",
                [(run.number, run.kind, run.to_json()) for run in changes.learned_runs],
            )
            run_all(
                "DELETE FROM learned WHERE number = ?",
                [(number,) for number in changes.forgotten_runs],
            )
            for name, value in changes.values.items():
                write_value(connection, name, value)
        self._items.files.remove(unused_files)
        self._check_lock()  # what is reported as written must be in files that still exist

    def remove_job(self, number: int) -> bool:
        """Remove a job that has ended, or a part of it; return whether it is gone.

        If that is not finished, the next resume finishes it.
        """
        with self._database.transaction() as connection:
            self._jobs.remove(connection, number)
            unused_files = self._items.remove_some(connection, number, _REMOVAL_BATCH)
            write_value(connection, "were_jobs_removed", 1)
            is_gone = not self._items.has_items(connection, number)
        self._items.files.remove(unused_files)
        return is_gone

    def _check_lock(self) -> None:
        if self._lock is not None:
            self._lock.check()

    # --- reading ------------------------------------------------------------------------------

    def get_value(
        self, name: str, default: Any = None, *, parse: Callable[[Any], Any] | None = None
    ) -> Any:
        """Return a value that belongs to the run as a whole, parsed if it was written as a text."""
        for (value,) in self._database.select("SELECT value FROM meta WHERE name = ?", name):
            if parse is None:
                return value
            with self._database.parsing(f"the value of {name!r}"):
                return parse(value)
        return default

    def read_records(self) -> list[JobRecord]:
        """Return all jobs in order of arrival."""
        return self._jobs.read_records()

    def read_ends(self) -> list[JobEndEntry]:
        """Return when jobs have ended, which is quick."""
        return self._jobs.read_ends()

    def measure_results(self) -> dict[int, int]:
        """Return how many bytes the results of each job take, by the numbers of the jobs."""
        return self._items.measure_results()

    def read_last_number(self) -> int:
        """Return the highest number that a job has ever had; 0 before the first job."""
        return self._jobs.read_last_number()

    def read_record(self, number: int) -> JobRecord:
        """Return a job without the numbers of its finished items and failures, which is quick."""
        return self._jobs.read_record(number)

    def get_record(self, job: str) -> JobRecord:
        """Return the record of a job."""
        records = self.read_records()
        for record in records:
            if record.name == job:
                return record
        names = describe_names((record.name for record in records), job)
        raise InputError(f"there is no job {job!r} in {self.directory}; {names}")

    def read_done_items(self, number: int) -> Iterator[tuple[bytes, int]]:
        """Yield the finished items of a job: their keys and positions."""
        return self._items.read_positions(number)

    def read_places(self, number: int) -> Iterator[tuple[int, KeyPlace]]:
        """Yield the positions of the finished items that a job still has, and where they were."""
        return self._items.read_places(number)

    def read_timings(
        self, number: int, positions: range = ALL_POSITIONS
    ) -> Iterator[tuple[int, float, float]]:
        """Yield the positions of the finished items of a job, their seconds, and their ends."""
        return self._items.read_timings(number, positions)

    def read_results(
        self, number: int, run: int, earlier: range, positions: Iterable[int]
    ) -> list[StoredResult]:
        """Return the results of items that were done in a run, at ``earlier`` positions then."""
        return self._items.read_results(number, run, earlier, positions)

    def load(self, number: int, stored: StoredResult) -> bytes:
        """Return a result, from its file if it is large."""
        return self._items.load(number, stored)

    def read_failures(self, record: JobRecord) -> list[ItemFailure]:
        """Return the items of a job that have failed, in the order of the items."""
        return self._jobs.read_failures(record)

    def read_holdings(self) -> list[Holding]:
        """Return how many servers each job held, as a list of changes in order of time."""
        query = "SELECT time, job, servers FROM holdings ORDER BY time, number"
        return [Holding(*row) for row in self._database.iterate(query)]

    def read_learned_runs(self) -> list[LearnedRun]:
        """Return how long items of each kind took in earlier runs, the oldest first."""
        runs = []
        query = "SELECT number, kind, durations FROM learned ORDER BY number"
        for number, kind, durations in self._database.select(query):
            with self._database.parsing(f"what was learned about jobs of kind {kind!r}"):
                runs.append(LearnedRun.from_json(number, kind, durations))
        return runs

    def read_held(self) -> dict[int, int]:
        """Return how many servers each job held last, by the numbers of the jobs."""
        # SQLite takes the other columns from the row with the highest number.
        query = "SELECT MAX(number), job, servers FROM holdings GROUP BY job"
        return {job: servers for _, job, servers in self._database.iterate(query)}

    @property
    def is_running(self) -> bool:
        """Whether a scheduler is running on the directory."""
        return is_locked(self.directory)
