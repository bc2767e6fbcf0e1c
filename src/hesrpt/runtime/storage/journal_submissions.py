"""The jobs that other processes submit to a run, in the journal until the run has added them."""

from __future__ import annotations

from collections.abc import Sequence

from hesrpt.errors import StateError
from hesrpt.runtime.jobs import JobSpec
from hesrpt.runtime.storage.journal_database import Database
from hesrpt.runtime.storage.journal_entries import Submission
from hesrpt.runtime.storage.journal_rows import is_intact, seal

# Whether a scheduler will look for submissions again, as a value in the journal.
_IS_OPEN = "takes_submissions"


class SubmissionTable:
    """The submissions to a run, and whether its scheduler takes them.

    A scheduler stops taking them in the same transaction in which it finds that there are none.
    So every submission is either seen by the scheduler, or known to have come too late for it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, specs: Sequence[JobSpec]) -> bool:
        """Submit jobs; return whether the latest scheduler took submissions at that time."""
        with self._database.transaction(durable=True) as connection:
            connection.executemany(
                "INSERT INTO submissions (spec, checksum) VALUES (?, ?)",
                [seal((spec.to_json(),)) for spec in specs],
            )
            found = connection.execute("SELECT * FROM meta WHERE name = ?", (_IS_OPEN,)).fetchall()
        return found == [seal((_IS_OPEN, 1))]

    def open(self) -> None:
        """Say that a scheduler takes submissions from now on."""
        self._set_open(True)

    def close(self) -> bool:
        """Say that the scheduler takes no more submissions, unless there are any.

        Return whether there were none.
        """
        return self._set_open(False, if_empty=True)

    def reset(self) -> None:
        """Say that no scheduler takes submissions: the one that did has been interrupted."""
        self._set_open(False)

    def _set_open(self, is_open: bool, *, if_empty: bool = False) -> bool:
        with self._database.transaction() as connection:
            if if_empty and connection.execute("SELECT 1 FROM submissions LIMIT 1").fetchall():
                return False
            row = seal((_IS_OPEN, int(is_open)))
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", row)
        return True

    def read(self) -> list[Submission]:
        """Return the jobs that were submitted and have not been added to the run.

        Remove submissions that are damaged, and raise an error.
        """
        rows = self._database.select(
            "SELECT number, spec, checksum FROM submissions ORDER BY number"
        )
        damaged = [number for number, *row in rows if not is_intact(row)]
        if damaged:
            with self._database.transaction() as connection:
                connection.executemany(
                    "DELETE FROM submissions WHERE number = ?", [(number,) for number in damaged]
                )
            numbers = ", ".join(map(str, damaged))
            raise StateError(
                f"{self._database.path}: damaged and removed: submission {numbers}; submit "
                "its jobs again"
            )
        return [Submission(number, JobSpec.from_json(spec)) for number, spec, _ in rows]
