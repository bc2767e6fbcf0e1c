"""What other processes ask of a run, in the journal until its scheduler has done it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from hesrpt.errors import StateError
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.storage.journal_database import Database
from hesrpt.storage.journal_entries import Answer, Request
from hesrpt.storage.journal_rows import Row, is_intact, seal

# Whether a scheduler will look for requests again, as a value in the journal.
_IS_OPEN = "takes_requests"
_COLUMNS = "kind, job, submission, spec, weight, job_group, checksum"
# How many answers are kept at most until the next start.
_MAX_ANSWERS = 10_000
#: How long a key is remembered that keeps a request from being added twice, in seconds.
KEY_SECONDS = 7 * 86_400.0
# How often to remove older ones, in seconds: all have to be looked at.
_PRUNE_SECONDS = 3600.0
# Created when first used: most runs have no such keys.
_CREATE_KEYS = """
CREATE TABLE IF NOT EXISTS request_keys (
    key TEXT PRIMARY KEY, digest TEXT NOT NULL, numbers TEXT NOT NULL, time REAL NOT NULL,
    checksum BLOB NOT NULL
) WITHOUT ROWID
"""


class KeyedRequests(NamedTuple):
    """What a client asks for, with a key by which it can ask again; the key may be empty."""

    requests: Sequence[Request]
    key: str
    digest: str  # of what is asked for


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
            found = connection.execute("SELECT * FROM meta WHERE name = ?", (_IS_OPEN,)).fetchall()
        return numbers, found == [seal((_IS_OPEN, 1))]

    def add_once(self, submissions: Sequence[KeyedRequests], time: float) -> list[list[int] | None]:
        """Add requests of several clients at once; return the numbers of each client's requests.

        If a client's key was used before, these are the numbers of the earlier requests, and
        nothing is added; None if the key was used for something else. Keys are remembered in the
        same transaction, with a digest of what was asked for.
        """
        prunes = time - self._pruned_at >= _PRUNE_SECONDS
        with self._database.transaction(durable=True) as connection:
            if prunes:
                connection.execute(_CREATE_KEYS)
                connection.execute("DELETE FROM request_keys WHERE time < ?", (time - KEY_SECONDS,))
            numbers = [_insert_once(connection, each, time) for each in submissions]
        if prunes:
            self._pruned_at = time
        return numbers

    def has_unanswered(self, numbers: Collection[int]) -> bool:
        """Return whether the scheduler has not answered all of these requests yet."""
        query = "SELECT 1 FROM requests WHERE number = ?"
        return any(self._database.select(query, number) for number in numbers)

    def read_answers(self, numbers: Collection[int]) -> dict[int, Answer]:
        """Return the answers to requests, by their numbers, as far as there are any."""
        query = "SELECT request, is_refused, text, checksum FROM answers WHERE request = ?"
        rows = [row for number in numbers for row in self._database.select(query, number)]
        answers = [Answer(row[0], bool(row[1]), row[2]) for row in rows if is_intact(row)]
        return {answer.request: answer for answer in answers}

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
            row = seal((_IS_OPEN, int(is_open)))
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", row)
        return True

    def read(self) -> list[Request]:
        """Return the requests that the scheduler has not answered.

        Remove requests that are damaged, and raise an error.
        """
        query = f"SELECT number, {_COLUMNS} FROM requests ORDER BY number"
        rows = self._database.select(query)
        damaged = [number for number, *row in rows if not is_intact(row)]
        if damaged:
            with self._database.transaction() as connection:
                _delete(connection, damaged)
            numbers = ", ".join(map(str, damaged))
            raise StateError(
                f"{self._database.path}: damaged and removed: request {numbers}; make it again"
            )
        return [_create_request(row) for row in rows]

    def answer(self, connection: sqlite3.Connection, answers: Sequence[Answer]) -> None:
        """Remove requests that the scheduler has answered, and keep what it said."""
        _delete(connection, [answer.request for answer in answers])
        rows = [seal((number, int(refused), text)) for number, refused, text in answers if text]
        connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)
        if rows:  # nobody waits for old ones any more
            oldest = rows[-1][0] - _MAX_ANSWERS
            connection.execute("DELETE FROM answers WHERE request < ?", (oldest,))


def _insert(connection: sqlite3.Connection, requests: Sequence[Request]) -> list[int]:
    """Insert requests; return their numbers. Those to add jobs name the first of them."""
    query = f"INSERT INTO requests ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
    numbers, first = [], None
    for request in requests:
        if request.spec is not None:
            request = replace(request, submission=first)
        numbers.append(connection.execute(query, _create_row(request)).lastrowid or 0)
        if request.spec is not None and first is None:
            first = numbers[-1]
    return numbers


def _insert_once(
    connection: sqlite3.Connection, submission: KeyedRequests, time: float
) -> list[int] | None:
    """Insert the requests of a client, unless that was done; see :meth:`RequestTable.add_once`."""
    requests, key, digest = submission
    if not key:
        return _insert(connection, requests)
    query = "SELECT * FROM request_keys WHERE key = ?"
    for row in connection.execute(query, (key,)).fetchall():
        if is_intact(row):
            return [int(number) for number in row[2].split()] if row[1] == digest else None
    numbers = _insert(connection, requests)
    row = seal((key, digest, " ".join(map(str, numbers)), float(time)))
    connection.execute("INSERT OR REPLACE INTO request_keys VALUES (?, ?, ?, ?, ?)", row)
    return numbers


def _delete(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    connection.executemany("DELETE FROM requests WHERE number = ?", [(each,) for each in numbers])


def _create_row(request: Request) -> Row:
    spec = None if request.spec is None else request.spec.to_json()
    weight = None if request.weight is None else float(request.weight)
    return seal((request.kind, request.job, request.submission, spec, weight, request.group))


def _create_request(row: Sequence[Any]) -> Request:
    number, kind, job, submission, spec, weight, group, _ = row
    return Request(
        number=number,
        kind=kind,
        job=job,
        submission=submission,
        spec=None if spec is None else JobSpec.from_json(spec),
        weight=weight,
        group=group,
    )
