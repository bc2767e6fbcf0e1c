"""The hooks in the journal: those that are to be called, and those that have failed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from hesrpt.jobs.job_spec import HookCall, HookError
from hesrpt.storage.journal_database import Database

_COLUMNS = "number, job, target, facts, attempts, error"


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
                f"INSERT OR REPLACE INTO hooks ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                (call.number, call.job, call.target, facts, call.attempts, error),
            )

    def read(self) -> list[HookCall]:
        """Return the hooks that have not been called, and those that have failed."""
        rows = self._database.select(f"SELECT {_COLUMNS} FROM hooks ORDER BY number")
        calls = []
        for number, job, target, known, attempts, error in rows:
            with self._database.parsing(f"hook number {number}"):
                facts, directory, state_directory = json.loads(known)
                failure = None if error is None else HookError.from_json(error)
            calls.append(
                HookCall(
                    number=number,
                    job=job,
                    target=target,
                    facts=facts,
                    directory=directory,
                    state_directory=state_directory,
                    attempts=attempts,
                    error=failure,
                )
            )
        return calls

    def read_last_number(self) -> int:
        """Return the highest number that a hook has ever had; 0 before the first one."""
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'hooks'"
        return max((number for (number,) in self._database.select(query)), default=0)
