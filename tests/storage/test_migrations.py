"""State directories of earlier formats: read as they are, and taken over by the next scheduler.

``formats/`` has a small journal of each earlier format, as the statements that create it.
"""

from __future__ import annotations

import math
import operator
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.inline_engine import InlineEngine
from support.shell import call

from hesrpt import StateError
from hesrpt.jobs.job_end import DONE, REMOVED, REQUESTED, STOPPED, JobEnd
from hesrpt.jobs.job_spec import HookError
from hesrpt.pool.pool import Pool
from hesrpt.reports.inspection import read_report, read_status
from hesrpt.storage import migrations
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import SubmissionKey

#: The jobs in these journals that are done: their names, functions and items.
JOBS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "integers": (operator.neg, list(range(300))),
    "roots": (math.sqrt, list(range(200))),
    "texts": (repr, [1, "two", 3.0, (4,), None] * 20),
    "large": (operator.neg, [2**70, -(2**70), *range(50)]),
}


@pytest.fixture(params=range(migrations.OLDEST_FORMAT, migrations.FORMAT))
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A state directory of an earlier format."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    statements = Path(__file__).parent / "formats" / f"format-{request.param}.sql"
    with closing(sqlite3.connect(state / "state.db")) as connection:
        connection.executescript(statements.read_text())
    return state


def read_format(state: Path) -> int:
    with closing(sqlite3.connect(state / "state.db")) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check_resumed(state: Path, redone: int = 0) -> None:
    """Check that a scheduler takes over what was done, and does only damaged items again."""
    engine = InlineEngine()
    with Pool(state=state, resume=True, engine=engine) as pool:
        for name, (function, items) in JOBS.items():
            results = pool.map(function, items, name=name).results()
            assert results == [function(item) for item in items]
            assert list(map(type, results)) == [type(function(item)) for item in items]
    assert engine.calls == redone
    assert read_format(state) == migrations.FORMAT


def test_scheduler_takes_over_what_was_done(state: Path) -> None:
    earlier = read_format(state)
    check_resumed(state)
    copy = state / f"state.db.format-{earlier}"
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (earlier,)
    check_resumed(state)  # and nothing is to be taken over any more


def test_status_and_report_read_it_without_changing_it(state: Path) -> None:
    before = (state / "state.db").read_bytes()
    jobs = {job.name: (job.state, job.done) for job in read_status(state).jobs}
    assert jobs == {name: ("done", len(items)) for name, (_, items) in JOBS.items()} | {
        "failed": ("failed", 2)
    }
    assert sum(map(len, read_report(state).history.timings.values())) == sum(
        done for _, done in jobs.values()
    )
    assert (state / "state.db").read_bytes() == before
    assert {path.name for path in state.iterdir()} == {"state.db"}


def test_commands_read_it_without_changing_it(state: Path) -> None:
    before = (state / "state.db").read_bytes()
    for command in (["status"], ["status", "--json"], ["report"], ["report", "--json"]):
        done = call(*command, str(state), cwd=state.parent)
        assert (done.returncode, done.stderr) == (0, "")
        assert "integers" in done.stdout
    done = call("logs", "--state", str(state), "integers", cwd=state.parent)
    assert (done.returncode, done.stderr) == (0, "hesrpt: job 'integers' has printed nothing\n")
    assert (state / "state.db").read_bytes() == before
    assert {path.name for path in state.iterdir()} == {"state.db"}


@pytest.mark.parametrize(
    "error",
    [
        HookError("exit_code", 7, "no space\nleft"),
        HookError("signal", 9),
        HookError("timeout", 60),
        HookError("http_status", 500, "Internal Server Error"),
        HookError("other", 0, "<urlopen error [Errno 111] Connection refused>"),
    ],
)
def test_errors_of_hooks_become_values(state: Path, error: HookError) -> None:
    with closing(sqlite3.connect(state / "state.db")) as connection, connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(hooks)")]
        values = dict.fromkeys(columns, "") | {"number": 1, "job": 1, "attempts": 4}
        values |= {"target": "true", "facts": '[{"job": "a"}, null, null]', "error": error.text}
        marks = ", ".join("?" * len(columns))
        connection.execute(f"INSERT INTO hooks VALUES ({marks})", [*values.values()])
    with closing(Journal.read(state)) as journal:
        assert [call.error for call in journal.hooks.read()] == [error]


def test_requests_are_refused_until_it_was_taken_over(state: Path) -> None:
    with closing(Journal.read(state)) as journal, pytest.raises(StateError, match="earlier versi"):
        journal.remove_job(1)


KILLED = """
import os, sys
from hesrpt.storage import migrations
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import SubmissionKey
last = migrations.FORMAT - 1
step = migrations._MIGRATIONS[last]
def migrate_and_die(connection):
    step(connection)
    os._exit(9)
migrations._MIGRATIONS = {**migrations._MIGRATIONS, last: migrate_and_die}
Journal.resume(sys.argv[1])
"""


def test_killed_migration_loses_nothing(state: Path) -> None:
    earlier = read_format(state)
    done = subprocess.run([sys.executable, "-c", KILLED, str(state)], check=False, timeout=100)
    assert done.returncode == 9
    assert read_format(state) == earlier
    check_resumed(state)


def test_items_of_a_damaged_chunk_are_done_again(state: Path) -> None:
    if read_format(state) != 8:
        pytest.skip("only format 8 has chunks")
    with closing(sqlite3.connect(state / "state.db")) as connection, connection:
        connection.execute("UPDATE chunks SET results = X'00' WHERE job = 1 AND start = 1")
        ((damaged,),) = connection.execute("SELECT size FROM chunks WHERE job = 1 AND start = 1")
    check_resumed(state, redone=damaged)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE items SET result = X'80054B012E' WHERE job = 1 AND position = 0",
        "UPDATE items SET seconds = 9 WHERE job = 2 AND position = 0",
        "UPDATE items SET job = 4 WHERE job = 2 AND position = 173",
    ],
)
def test_damaged_item_is_done_again(state: Path, statement: str) -> None:
    if read_format(state) != 8:
        pytest.skip("only format 8 has a checksum of each item")
    with closing(sqlite3.connect(state / "state.db")) as connection, connection:
        assert connection.execute(statement).rowcount == 1
    check_resumed(state, redone=1)


def test_tables_of_a_new_run_are_the_same(state: Path, tmp_path: Path) -> None:
    with closing(Journal.create(tmp_path / "new", 1, "equi")):
        pass
    with closing(Journal.resume(state)):
        pass
    assert read_columns(state) == read_columns(tmp_path / "new")


def read_columns(state: Path) -> dict[str, list[str]]:
    """Return the columns of all tables and indexes."""
    with closing(sqlite3.connect(state / "state.db")) as connection:
        names = connection.execute("SELECT type, name FROM sqlite_master ORDER BY name").fetchall()
        return {
            name: [
                row[2 if kind == "index" else 1]
                for row in connection.execute(f"PRAGMA {kind}_info({name})")
            ]
            for kind, name in names
        }


def test_numbers_of_removed_jobs_are_not_used_again(state: Path) -> None:
    with closing(sqlite3.connect(state / "state.db")) as connection, connection:
        connection.execute("UPDATE sqlite_sequence SET seq = 40 WHERE name = 'jobs'")
        connection.execute("INSERT INTO sqlite_sequence VALUES ('hooks', 7)")
    with closing(Journal.resume(state)) as journal:
        assert journal.read_last_number() == 40
        assert journal.hooks.read_last_number() == 7


@pytest.mark.parametrize("version", [None, "7.3"])
def test_later_format_is_refused(tmp_path: Path, version: str | None) -> None:
    state = tmp_path / "state"
    Journal.create(state, 1, "equi").close()
    with closing(sqlite3.connect(state / "state.db")) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'version'", (version,))
        if version is None:
            connection.execute("DROP TABLE meta")
        connection.execute(f"PRAGMA user_version = {migrations.FORMAT + 1}")
    written_by = "a later version of hesrpt" + (f", {version}" if version else "")
    for open_journal in (Journal.read, Journal.resume):
        with pytest.raises(StateError, match=rf"{written_by} \(format"):
            open_journal(state)


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (None, DONE),
        ("cancelled", STOPPED),
        ("cancelled on request", REQUESTED),
        ("cancelled by hesrpt cancel", REQUESTED),
        ("cancelled: it is no longer in the jobs file", REMOVED),
        (JobEnd("predecessor_failed", "it's").error, JobEnd("predecessor_failed", "it's")),
        (JobEnd("predecessor_cancelled", "a").error, JobEnd("predecessor_cancelled", "a")),
        ("item 2: boom", JobEnd("items_failed", "item 2: boom")),
        ("cannot read its items: no", JobEnd("unreadable_items", "cannot read its items: no")),
    ],
)
def test_errors_become_reasons(state: Path, error: str | None, end: JobEnd) -> None:
    with closing(sqlite3.connect(state / "state.db")) as connection, connection:
        connection.execute("UPDATE jobs SET error = ? WHERE name = 'failed'", (error,))
    with closing(Journal.read(state)) as journal:
        record = journal.get_record("failed")
    assert record.end == end
    assert record.error == (error if error != "cancelled by hesrpt cancel" else REQUESTED.error)


def test_idempotency_keys_name_the_jobs_that_they_have_added(state: Path) -> None:
    with closing(sqlite3.connect(state / "state.db")) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS request_keys (key TEXT PRIMARY KEY, digest TEXT NOT NULL, "
            "numbers TEXT NOT NULL, time REAL NOT NULL) WITHOUT ROWID"
        )
        numbers = [number for (number,) in connection.execute("SELECT number FROM jobs LIMIT 2")]
        for request, number in enumerate(numbers, 70):
            query = "UPDATE jobs SET spec = json_set(spec, '$.submission', ?) WHERE number = ?"
            connection.execute(query, (request, number))
        rows = [("both", "a", "70 71", 5.0), ("removed", "b", "3", 6.0)]
        connection.executemany("INSERT INTO request_keys VALUES (?, ?, ?, ?)", rows)
    with closing(Journal.read(state)) as journal:
        both, removed = (journal.requests.read_key(key, 7.0) for key in ("both", "removed"))
    assert both == SubmissionKey("both", "a", numbers, 5.0)
    # Its request may still be pending, and add the job later.
    assert removed == SubmissionKey("removed", "b", [-3], 6.0)
