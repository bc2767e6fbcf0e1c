"""What other processes ask of a run, in the journal until its scheduler has done it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import inf

from hesrpt.jobs.job_spec import JobSpec
from hesrpt.storage.journal_database import Database, write_value
from hesrpt.storage.journal_entries import Answer, Request, SubmissionKey

# The name of the value in the journal that says whether a scheduler takes requests.
_IS_OPEN = "takes_requests"
_COLUMNS = "kind, job, submission, spec, weight, job_group"
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
            numbers = _insert(connection, requests)
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
        self._set_open(True)

    def close(self, deferred: Collection[int] = ()) -> bool:
        """Say that the scheduler takes no more requests, unless there are any.

        Return whether there were none, apart from the ``deferred`` ones.
        """
        return self._set_open(False, unless_others_than=deferred)

    def reset(self) -> None:
        """Say that no scheduler takes requests, and forget the answers of earlier ones."""
        self._set_open(False)
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM answers")

    def _set_open(
        self, is_open: bool, *, unless_others_than: Collection[int] | None = None
    ) -> bool:
        with self._database.transaction() as connection:
            if unless_others_than is not None:
                found = connection.execute("SELECT number FROM requests").fetchall()
                if any(number not in unless_others_than for (number,) in found):
                    return False
            write_value(connection, _IS_OPEN, int(is_open))
        return True

    def read(self) -> list[Request]:
        """Return the requests that the scheduler has not answered."""
        rows = self._database.select(f"SELECT number, {_COLUMNS} FROM requests ORDER BY number")
        requests = []
        for number, kind, job, submission, spec, weight, group in rows:
            with self._database.parsing(f"request number {number}"):
                request = Request(
                    number=number,
                    kind=kind,
                    job=job,
                    submission=submission,
                    spec=None if spec is None else JobSpec.from_json(spec),
                    weight=weight,
                    group=group,
                )
            requests.append(request)
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
        _delete(connection, [answer.request for answer in answers])
        awaited = [answer for answer in answers if answer.text]
        query = "INSERT OR REPLACE INTO answers (request, is_refused, text) VALUES (?, ?, ?)"
        connection.executemany(query, awaited)
        if awaited:  # nobody waits for old ones any more
            oldest = awaited[-1].request - _MAX_ANSWERS
            connection.execute("DELETE FROM answers WHERE request < ?", (oldest,))


def _insert(connection: sqlite3.Connection, requests: Sequence[Request]) -> list[int]:
    """Insert requests; return their numbers. Those to add jobs name the first of them."""
    query = f"INSERT INTO requests ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
    numbers, first = [], None
    for request in requests:
        if request.spec is not None:
            request = replace(request, submission=first)
        spec = None if request.spec is None else request.spec.to_json()
        row = (request.kind, request.job, request.submission, spec, request.weight, request.group)
        numbers.append(connection.execute(query, row).lastrowid or 0)
        if request.spec is not None and first is None:
            first = numbers[-1]
    return numbers


def _delete(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    connection.executemany("DELETE FROM requests WHERE number = ?", [(each,) for each in numbers])
