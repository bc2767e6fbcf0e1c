"""The journal of a run: jobs, outcomes, servers held and requests, in an SQLite database.

Results in the journal are unpickled, so no other user may write to the state directory.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

from hesrpt._version import __version__
from hesrpt.decisions.learning import LearnedRun
from hesrpt.errors import InputError, StateError
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_end import STOPPED, JobEnd
from hesrpt.jobs.job_spec import HookCall, HookError, JobSpec
from hesrpt.speedups import PowerLaw
from hesrpt.storage.earlier_items import KeyPlace, create_key_range, parse_key
from hesrpt.storage.job_names import describe_names
from hesrpt.storage.journal_database import Database, create_database, take_over, write_value
from hesrpt.storage.journal_entries import (
    Answer,
    Changes,
    FailedAttempt,
    FinishedItem,
    Holding,
    JobEndEntry,
    JobRecord,
    Request,
    StoredResult,
    SubmissionKey,
)
from hesrpt.storage.results import (
    MAX_BYTES_IN_DATABASE,
    ResultFiles,
    compute_digest,
    get_result_name,
    hash_content,
)
from hesrpt.storage.state_directory import (
    DirectoryLock,
    check_state_directory,
    create_state_directory,
    is_locked,
    lock_directory,
)

# --- statements about jobs and finished items -----------------------------------------------------

_JOB_COLUMNS = "number, spec, fingerprint, items, size, p, arrived, ended, outcome"
_SELECT_RECORDS = f"""
SELECT {_JOB_COLUMNS}, IFNULL(finished.count, 0) AS done,
    IFNULL(finished.seconds, 0.0) AS item_seconds, IFNULL(failed.count, 0) AS failures
FROM jobs
LEFT JOIN (
    SELECT job, COUNT(*) AS count, SUM(seconds) AS seconds FROM items WHERE position >= 0
    GROUP BY job
) AS finished ON finished.job = number
LEFT JOIN (SELECT job, COUNT(*) AS count FROM failures GROUP BY job) AS failed
    ON failed.job = number
ORDER BY number
"""
_SELECT_RECORD = f"SELECT {_JOB_COLUMNS} FROM jobs WHERE number = ?"
_WRITE_JOB = f"""
INSERT INTO jobs (name, {_JOB_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
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
SELECT position AS item, attempts, value, error, traceback, exception AS pickled_exception
FROM failures WHERE job = ? AND round = ? AND is_last = 1 ORDER BY position
"""


_WRITE_ITEM = """
INSERT OR REPLACE INTO items (job, key, position, seconds, ended, digest, result)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

#: The positions of all items that a job still has.
ALL_POSITIONS = range(2**63 - 1)

# Larger results are read only when they are needed, in bytes.
_MAX_READ_BYTES = 4096

_LOG = logging.getLogger("hesrpt")

#: The job, key, position, seconds, end, digest and result of an item.
ItemRow: TypeAlias = tuple[int, bytes, int, float, float, bytes, bytes | None]


def _find_files(
    connection: sqlite3.Connection, condition: str, parameters: Sequence[object]
) -> list[str]:
    query = f"SELECT job, key, digest FROM items WHERE result IS NULL AND {condition}"
    return [get_result_name(*row) for row in connection.execute(query, parameters)]


def _remove_items(connection: sqlite3.Connection, job: int, keys: Iterable[bytes]) -> list[str]:
    """Remove items of a job; return the names of the files to remove."""
    unused: list[str] = []
    for key in keys:
        unused += _find_files(connection, "job = ? AND key = ?", (job, key))
        connection.execute("DELETE FROM items WHERE job = ? AND key = ?", (job, key))
    return unused


def _create_job_row(record: JobRecord) -> tuple[object, ...]:
    return (
        record.name,
        record.number,
        record.spec.to_json(),
        record.fingerprint,
        record.items,
        record.size,
        record.speedup.p if isinstance(record.speedup, PowerLaw) else None,
        record.arrived,
        record.ended,
        None if record.end is None else record.end.to_json(),
    )


def _create_attempt_row(attempt: FailedAttempt) -> tuple[object, ...]:
    *place, failure = attempt
    values = failure.item, failure.attempts, failure.value, failure.error, failure.traceback
    return (*place, *values, failure.pickled_exception)


# --- what other processes ask of a run, until its scheduler has done it ---------------------------

# The name of the value in the journal that says whether a scheduler takes requests.
_IS_OPEN = "takes_requests"
_REQUEST_COLUMNS = "kind, job, submission, spec, weight, job_group"
# How many answers are kept at most until the next start.
_MAX_ANSWERS = 10_000
#: How long idempotency keys are remembered, in seconds.
KEY_SECONDS = 7 * 86_400.0
# How often to remove older ones, in seconds: this scans the whole table.
_PRUNE_SECONDS = 3600.0


class RequestTable:
    """The requests to a run, whether its scheduler takes them, and its answers.

    A scheduler stops taking them in the same transaction in which it finds that there are none.
    So every request is either seen by the scheduler, or known to have come too late for it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pruned_at = -inf  # when old keys were last removed

    # --- other processes ------------------------------------------------------------------------

    def add(self, requests: Sequence[Request]) -> tuple[list[int], bool]:
        """Add requests; return their numbers, and whether the latest scheduler took requests."""
        with self._database.transaction(durable=True) as connection:
            query = f"INSERT INTO requests ({_REQUEST_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
            numbers, first = [], None
            for each in requests:
                submission, spec = each.submission, None
                if each.spec is not None:  # those to add jobs name the first of them
                    submission, spec = first, each.spec.to_json()
                row = (each.kind, each.job, submission, spec, each.weight, each.group)
                numbers.append(connection.execute(query, row).lastrowid or 0)
                if each.spec is not None and first is None:
                    first = numbers[-1]
            query = "SELECT value FROM meta WHERE name = ?"
            found = connection.execute(query, (_IS_OPEN,)).fetchall()
        return numbers, found == [(1,)]

    def read_answers(self, numbers: Collection[int]) -> dict[int, Answer]:
        """Return the answers to requests, by their numbers, as far as there are any."""
        query = "SELECT is_refused, text FROM answers WHERE request = ?"
        return {
            number: Answer(number, bool(is_refused), text)
            for number in numbers
            for is_refused, text in self._database.select(query, number)
        }

    # --- the scheduler --------------------------------------------------------------------------

    def open(self) -> None:
        """Say that a scheduler takes requests from now on."""
        with self._database.transaction() as connection:
            write_value(connection, _IS_OPEN, 1)

    def close(self, deferred: Collection[int] = ()) -> bool:
        """Say that the scheduler takes no more requests, unless there are any.

        Return whether there were none, apart from the ``deferred`` ones.
        """
        with self._database.transaction() as connection:
            found = connection.execute("SELECT number FROM requests").fetchall()
            if any(number not in deferred for (number,) in found):
                return False
            write_value(connection, _IS_OPEN, 0)
        return True

    def reset(self) -> None:
        """Say that no scheduler takes requests, and forget the answers of earlier ones."""
        with self._database.transaction() as connection:
            write_value(connection, _IS_OPEN, 0)
            connection.execute("DELETE FROM answers")

    def read(self) -> list[Request]:
        """Return the requests that the scheduler has not answered."""
        query = f"SELECT number, {_REQUEST_COLUMNS} FROM requests ORDER BY number"
        requests = []
        for values in self._database.select_values(query):
            values["group"] = values.pop("job_group")
            with self._database.parsing(f"request number {values['number']}"):
                if values["spec"] is not None:
                    values["spec"] = JobSpec.from_json(values["spec"])
                requests.append(Request(**values))
        return requests

    def read_key(self, key: str, time: float) -> SubmissionKey | None:
        """Return what a client has added with an idempotency key, unless that was long ago."""
        query = "SELECT digest, jobs, time FROM submission_keys WHERE key = ? AND time >= ?"
        for digest, jobs, used_at in self._database.select(query, key, time - KEY_SECONDS):
            with self._database.parsing(f"idempotency key {key!r}"):
                return SubmissionKey(key, digest, [int(job) for job in jobs.split()], used_at)
        return None

    def write_keys(self, connection: sqlite3.Connection, keys: Sequence[SubmissionKey]) -> None:
        """Remember idempotency keys, and forget old ones now and then."""
        connection.executemany(
            "INSERT OR REPLACE INTO submission_keys (key, digest, jobs, time) VALUES (?, ?, ?, ?)",
            [(key, digest, " ".join(map(str, jobs)), time) for key, digest, jobs, time in keys],
        )
        if keys and keys[-1].time - self._pruned_at >= _PRUNE_SECONDS:
            self._pruned_at = keys[-1].time
            oldest = self._pruned_at - KEY_SECONDS
            connection.execute("DELETE FROM submission_keys WHERE time < ?", (oldest,))

    def answer(self, connection: sqlite3.Connection, answers: Sequence[Answer]) -> None:
        """Remove requests that the scheduler has answered, and keep what it said."""
        answered = [(answer.request,) for answer in answers]
        connection.executemany("DELETE FROM requests WHERE number = ?", answered)
        awaited = [answer for answer in answers if answer.text]
        query = "INSERT OR REPLACE INTO answers (request, is_refused, text) VALUES (?, ?, ?)"
        connection.executemany(query, awaited)
        if awaited:  # nobody waits for old ones any more
            oldest = awaited[-1].request - _MAX_ANSWERS
            connection.execute("DELETE FROM answers WHERE request < ?", (oldest,))


# --- hooks that are to be called, and those that have failed --------------------------------------

_HOOK_COLUMNS = "number, job, target, facts, attempts, error"


class HookTable:
    """The hooks of all jobs, until they have been called."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, connection: sqlite3.Connection, calls: Iterable[HookCall]) -> None:
        """Add hooks, or change what is known of them; remove those that have been called."""
        for call in calls:
            if call.attempts > 0 and call.error is None:
                connection.execute("DELETE FROM hooks WHERE number = ?", (call.number,))
                continue
            facts = json.dumps([dict(call.facts), call.directory, call.state_directory])
            error = None if call.error is None else call.error.to_json()
            connection.execute(
                f"INSERT OR REPLACE INTO hooks ({_HOOK_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                (call.number, call.job, call.target, facts, call.attempts, error),
            )

    def read(self) -> list[HookCall]:
        """Return the hooks that have not been called, and those that have failed."""
        query = f"SELECT {_HOOK_COLUMNS} FROM hooks ORDER BY number"
        calls = []
        for values in self._database.select_values(query):
            with self._database.parsing(f"hook number {values['number']}"):
                known = json.loads(values["facts"])
                values["facts"], values["directory"], values["state_directory"] = known
                if values["error"] is not None:
                    values["error"] = HookError.from_json(values["error"])
                calls.append(HookCall(**values))
        return calls

    def read_last_number(self) -> int:
        """Return the highest number that a hook has ever had; 0 before the first one."""
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'hooks'"
        return max((number for (number,) in self._database.select(query)), default=0)


# --- the journal ----------------------------------------------------------------------------------

# How many items of a job to remove in one transaction.
_REMOVAL_BATCH = 500


class Journal:
    """The database of a state directory."""

    def __init__(self, directory: Path, lock: DirectoryLock | None) -> None:
        self.directory, self._lock = directory, lock
        self.last_time = 0.0  # the last recorded time, when the journal was opened to continue it
        self._database = Database(directory)
        self._files = ResultFiles(directory)
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
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM items WHERE job NOT IN (SELECT number FROM jobs)")
            # Files that belong to no item are there if their scheduler was interrupted.
            names = _find_files(connection, "1", ())
        self._files.keep_only(names)
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

        Only the first request about each job is handled here; later ones wait for their turn.
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
        rows = self._create_rows(changes.finished_items)
        ends_job = any(record.ended is not None for record in changes.jobs)
        with self._database.transaction(durable=ends_job or changes.is_durable) as connection:
            unused_files = []
            for job in changes.jobs_to_redo:
                unused_files += _find_files(connection, "job = ?", (job,))
                connection.execute("DELETE FROM items WHERE job = ?", (job,))
                connection.execute("DELETE FROM failures WHERE job = ?", (job,))
            run_all = connection.executemany
            run_all(
                "UPDATE items SET position = ? WHERE job = ? AND key = ?",
                [(position, job, key) for job, key, position in changes.moved_items],
            )
            run_all(_WRITE_ITEM, rows)
            run_all(_WRITE_JOB, map(_create_job_row, changes.jobs))
            run_all(_WRITE_ATTEMPT, map(_create_attempt_row, changes.failed_attempts))
            self.requests.answer(connection, changes.answers)
            self.requests.write_keys(connection, changes.keys)
            self.hooks.write(connection, changes.hooks)
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
        self._files.remove(unused_files)
        self._check_lock()  # what is reported as written must be in files that still exist

    def remove_job(self, number: int) -> bool:
        """Remove a job that has ended, or a part of it; return whether it is gone.

        If that is not finished, the next resume finishes it.
        """
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM jobs WHERE number = ?", (number,))
            for table in ("failures", "holdings", "hooks"):
                connection.execute(f"DELETE FROM {table} WHERE job = ?", (number,))
            query = "SELECT key FROM items WHERE job = ? LIMIT ?"
            keys = [key for (key,) in connection.execute(query, (number, _REMOVAL_BATCH))]
            unused_files = _remove_items(connection, number, keys)
            write_value(connection, "were_jobs_removed", 1)
        self._files.remove(unused_files)
        return len(keys) < _REMOVAL_BATCH

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

    def get_record(self, job: str) -> JobRecord:
        """Return the record of a job."""
        records = self.read_records()
        for record in records:
            if record.name == job:
                return record
        names = describe_names((record.name for record in records), job)
        raise InputError(f"there is no job {job!r} in {self.directory}; {names}")

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

    # --- jobs, and the failed attempts of their items ---------------------------------------------

    def read_last_number(self) -> int:
        """Return the highest number that a job has ever had; 0 before the first job."""
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'jobs' UNION SELECT number FROM jobs"
        return max((number for (number,) in self._database.iterate(query)), default=0)

    def read_records(self) -> list[JobRecord]:
        """Return all jobs in order of arrival."""
        return [self._create_record(row) for row in self._database.select_values(_SELECT_RECORDS)]

    def read_record(self, number: int) -> JobRecord:
        """Return a job without the numbers of its finished items and failures."""
        for row in self._database.select_values(_SELECT_RECORD, number):
            return self._create_record(row)
        raise StateError(f"{self._database.path}: job number {number} was removed")

    def _create_record(self, values: dict[str, Any]) -> JobRecord:
        spec, outcome, p = values.pop("spec"), values.pop("outcome"), values.pop("p")
        with self._database.parsing(f"job number {values['number']}"):
            return JobRecord(
                **values,
                spec=JobSpec.from_json(spec),
                end=None if outcome is None else JobEnd.from_json(outcome),
                speedup=None if p is None else PowerLaw(p),
            )

    def read_ends(self) -> list[JobEndEntry]:
        """Return when jobs have ended, without reading anything else."""
        rows = self._database.select("SELECT number, name, ended, spec FROM jobs ORDER BY number")
        return [
            JobEndEntry(number, name, ended, json.loads(spec)["after"] if ended is None else ())
            for number, name, ended, spec in rows
        ]

    def read_failures(self, record: JobRecord) -> list[ItemFailure]:
        """Return the items of a job that have failed, in the order of the items."""
        place = record.number, record.spec.round
        return [
            ItemFailure(**values)
            for values in self._database.select_values(_SELECT_FAILURES, *place)
        ]

    # --- finished items, and their results, which are checked when they are read ------------------

    def _create_rows(self, items: Iterable[FinishedItem]) -> list[ItemRow]:
        """Write large results to files; return the rows of the items."""
        rows: list[ItemRow] = []
        for job, key, position, seconds, ended, result in items:
            if len(result) > MAX_BYTES_IN_DATABASE:
                digest = hash_content(result)
                self._files.write(get_result_name(job, key, digest), result)
                rows.append((job, key, position, seconds, ended, digest, None))
            else:
                digest = compute_digest(job, key, result)
                rows.append((job, key, position, seconds, ended, digest, result))
        return rows

    def measure_results(self) -> dict[int, int]:
        """Return how many bytes the results of each job take, by the numbers of the jobs."""
        query = "SELECT job, SUM(IFNULL(LENGTH(result), 0)) FROM items GROUP BY job"
        sizes: dict[int, int] = dict(self._database.iterate(query))
        for name, size in self._files.list_sizes():
            number, _, _ = name.partition("-")
            if number.isdecimal():
                sizes[int(number)] = sizes.get(int(number), 0) + size
        return sizes

    def read_done_items(self, number: int) -> Iterator[tuple[bytes, int]]:
        """Yield the keys and positions of the finished items of a job.

        Discard those whose result files are missing, so that they are done again.
        """
        without_file: dict[bytes, int] = {}
        query = "SELECT key, position, digest, result IS NULL FROM items WHERE job = ?"
        for key, position, digest, in_file in self._database.iterate(query, number):
            if in_file and not self._files.has(get_result_name(number, key, digest)):
                without_file[key] = position
            else:
                yield key, position
        if without_file:
            name = self.read_record(number).name
            for position in without_file.values():
                message = (
                    "hesrpt: %s: missing file of item %s of job %r; the item will be done again"
                )
                _LOG.warning(message, self._database.path, position, name)
            self._discard(number, list(without_file))

    def read_places(self, number: int) -> Iterator[tuple[int, KeyPlace]]:
        """Yield the positions of the finished items that a job still has.

        With each comes where it was when it was done.
        """
        query = "SELECT key, position FROM items WHERE job = ? AND position >= 0"
        for key, position in self._database.iterate(query, number):
            yield position, parse_key(key)

    def read_timings(
        self, number: int, positions: range = ALL_POSITIONS
    ) -> Iterator[tuple[int, float, float]]:
        """Yield the positions of the finished items of a job, their seconds, and their ends."""
        query = (
            "SELECT position, seconds, ended FROM items "
            "WHERE job = ? AND position >= ? AND position < ? ORDER BY position"
        )
        return iter(self._database.select(query, number, positions.start, positions.stop))

    def read_results(
        self, number: int, run: int, earlier: range, positions: Iterable[int]
    ) -> list[StoredResult]:
        """Return the results of items at some positions, which were done in a run.

        They were at consecutive ``earlier`` positions then. Raise an error if a result is damaged
        or missing, and let the next resume do its item again.
        """
        query = (
            "SELECT position, key, digest, result IS NULL, "
            f"CASE WHEN LENGTH(result) <= {_MAX_READ_BYTES} THEN result END "
            "FROM items WHERE job = ? AND key >= ? AND key < ?"
        )
        keys = create_key_range(run, earlier)
        rows = {row[0]: row for row in self._database.select(query, number, *keys)}
        results = []
        for position, place in zip(positions, earlier, strict=True):
            if (row := rows.get(position)) is None:
                raise self._create_error(number, [], position, "has no result")
            _, key, digest, is_in_file, result = row
            if parse_key(key).position != place:
                raise self._create_error(number, [key], position, "has a damaged entry")
            stored = StoredResult(position, key, digest, result, bool(is_in_file))
            if result is not None:
                self._check_result(number, stored, result)
            results.append(stored)
        return results

    def _check_result(self, number: int, stored: StoredResult, result: Any) -> bytes:
        """Return a result that was read; raise an error if it is damaged."""
        if type(result) is bytes and stored.digest == compute_digest(number, stored.key, result):
            return result
        raise self._create_error(number, [stored.key], stored.position, "has a damaged result")

    def load(self, number: int, stored: StoredResult) -> bytes:
        """Return a result, from its file if it is very large."""
        if stored.pickled is not None:
            return stored.pickled
        if not stored.is_in_file:
            query = "SELECT result FROM items WHERE job = ? AND key = ?"
            for (result,) in self._database.select(query, number, stored.key):
                return self._check_result(number, stored, result)
            raise self._create_error(number, [], stored.position, "has no result")
        file = get_result_name(number, stored.key, stored.digest)
        content = self._files.read(file)
        if content is not None and hash_content(content) == stored.digest:
            return content
        name = self.read_record(number).name
        self._discard(number, [stored.key])
        problem = "missing" if content is None else "damaged"
        raise StateError(
            f"{self._files.directory / file}: the result of item {stored.position} of job {name!r} "
            f"is {problem}; resume the run to do the item again"
        )

    def _create_error(
        self, number: int, keys: Sequence[bytes], position: int, problem: str
    ) -> StateError:
        """Discard damaged entries of a job; return the error that says so."""
        name = self.read_record(number).name
        self._discard(number, keys)
        return StateError(
            f"{self._database.path}: item {position} of job {name!r} {problem}; resume the run to "
            "do the item again"
        )

    def _discard(self, number: int, keys: Sequence[bytes]) -> None:
        """Remove items with some keys, and let the next resume do them again."""
        unused: list[str] = []
        # If this fails, the damage is what the caller has to know about.
        with suppress(StateError), self._database.transaction(durable=True) as connection:
            unused = _remove_items(connection, number, keys)
            reopened = self.read_record(number).reopen()
            connection.execute(_WRITE_JOB, _create_job_row(reopened))
        self._files.remove(unused)
