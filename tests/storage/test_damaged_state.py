"""Damaged state directories: right results, a clear error, or items that are done again.

Results have checksums. Everything else is left to SQLite, which notices some damage, but not all.
"""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.inline_engine import InlineEngine

from hesrpt import StateError
from hesrpt.pool.pool import Pool
from hesrpt.scheduler.job_registry import ChangedJobsError
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import NO_POSITION, Changes, MovedItem

JOBS = {"short": range(12), "long": range(5), "large": range(3)}
SIZES = {"short": 1, "long": 50, "large": 500}


def compute(name: str) -> Callable[[int], list[int]]:
    size = SIZES[name]
    return lambda item: [item] * size


EXPECTED = {name: [compute(name)(item) for item in items] for name, items in JOBS.items()}


@pytest.fixture(autouse=True)
def small_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hesrpt.storage.journal.MAX_BYTES_IN_DATABASE", 1000)


def run(
    state: Path, *, resume: bool, engine: InlineEngine | None = None
) -> dict[str, list[list[int]]]:
    engine = InlineEngine() if engine is None else engine
    with Pool(state=state, resume=resume, engine=engine) as pool:
        jobs = [pool.map(compute(name), items, name=name) for name, items in JOBS.items()]
        return {job.name: job.results() for job in jobs}


@pytest.fixture
def closed_state(tmp_path: Path) -> Path:
    """The state directory of a run that has ended."""
    assert run(tmp_path / "closed", resume=False) == EXPECTED
    return tmp_path / "closed"


@pytest.fixture
def killed_state(tmp_path: Path) -> Path:
    """The state directory of a run that was killed: the latest transactions are in the WAL."""
    state, copy = tmp_path / "state", tmp_path / "killed"
    with Pool(state=state, engine=InlineEngine()) as pool:
        for name, items in JOBS.items():
            pool.map(compute(name), items, name=name)
        pool.wait()
        shutil.copytree(state, copy)
    return copy


def flip_bit(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def flip_random_bits(original: Path, tmp_path: Path, seeds: range) -> Counter[str]:
    """Resume damaged copies of a run; return how often each outcome was seen."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        state = tmp_path / f"trial-{seed}"
        shutil.copytree(original, state)
        files = sorted(path for path in state.rglob("*") if path.is_file() and path.stat().st_size)
        damaged = rng.choice(files) if seed % 3 else state / "state.db"
        flip_bit(damaged, rng.randrange(damaged.stat().st_size * 8))
        for attempt in range(2):
            engine = InlineEngine()
            try:
                results = run(state, resume=True, engine=engine)
            except StateError as error:
                message = str(error)
            except ChangedJobsError:  # the damage is in the fingerprint of a function
                message = str(state)
            else:
                assert results == EXPECTED, (seed, damaged)
                seen["redone" if engine.calls else "intact"] += 1
                break
            assert str(state) in message
            seen["error" if attempt == 0 else "second error"] += 1
        shutil.rmtree(state)
    return seen


def test_flipped_bit_never_gives_wrong_results(killed_state: Path, tmp_path: Path) -> None:
    """States of runs that were closed are similar, see below."""
    seen = flip_random_bits(killed_state, tmp_path, range(50))
    assert min(seen["redone"], seen["intact"], seen["error"]) >= 5, seen
    assert seen["second error"] <= 10, seen  # a resume mends results, but not the database


@pytest.mark.slow
@pytest.mark.parametrize("template", ["closed_state", "killed_state"])
def test_many_flipped_bits_never_give_wrong_results(
    template: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    original: Path = request.getfixturevalue(template)
    assert flip_random_bits(original, tmp_path, range(1000, 2000))["redone"] > 200


def find_result_files(state: Path) -> list[Path]:
    return sorted((state / "results").iterdir())


def test_large_results_are_in_private_files(closed_state: Path) -> None:
    files = find_result_files(closed_state)
    assert len(files) == len(JOBS["large"])
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    engine = InlineEngine()
    assert run(closed_state, resume=True, engine=engine) == EXPECTED
    assert engine.calls == 0


def test_damaged_result_file_is_named_and_its_item_done_again(closed_state: Path) -> None:
    path = find_result_files(closed_state)[1]
    flip_bit(path, 4000)
    engine = InlineEngine()
    with pytest.raises(StateError) as caught:
        run(closed_state, resume=True, engine=engine)
    assert engine.calls == 0
    message = (
        r"(.+): the result of item (\d) of job 'large' is damaged; resume the run to do the item"
    )
    found = re.match(message, str(caught.value))
    assert found is not None, caught.value
    assert found[1] == str(path)
    assert run(closed_state, resume=True, engine=engine) == EXPECTED
    assert engine.calls == 1


def test_item_without_its_result_file_is_done_again(
    closed_state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    find_result_files(closed_state)[0].unlink()
    engine = InlineEngine()
    assert run(closed_state, resume=True, engine=engine) == EXPECTED
    assert engine.calls == 1
    assert re.search(r"missing file of item \d of job 'large'; the item will be", caplog.text)


def test_damaged_position_of_an_item_is_mended(closed_state: Path) -> None:
    change(closed_state, "UPDATE items SET position = 6 WHERE job = 1 AND position = 7")
    engine = InlineEngine()
    assert run(closed_state, resume=True, engine=engine) == EXPECTED
    assert engine.calls == 0


def test_result_of_another_job_is_refused(closed_state: Path) -> None:
    """Both jobs have the same items, so the keys of their results are the same."""
    change(closed_state, "DELETE FROM items WHERE job = 2 AND position = 3")
    change(closed_state, "UPDATE items SET job = 2 WHERE job = 1 AND position = 3")
    engine = InlineEngine()
    with pytest.raises(StateError, match="item 3 of job 'long' has a damaged result; resume the"):
        run(closed_state, resume=True, engine=engine)
    assert run(closed_state, resume=True, engine=engine) == EXPECTED
    assert engine.calls == 2  # the first one is that of job 1, which has lost its result


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE items SET result = x'00' WHERE job = 1 AND position = 7", "has a damaged result"),
        ("DELETE FROM items WHERE job = 1 AND position = 7", "has no result"),
        ("UPDATE items SET position = 7 WHERE job = 1 AND position = 8", "has a damaged entry"),
        (
            "UPDATE items SET key = CAST(substr(key, 1, 27) || x'00' AS BLOB) "
            "WHERE job = 1 AND position = 7",
            "has a damaged result",
        ),
    ],
)
def test_result_that_was_damaged_after_the_resume(
    closed_state: Path, statement: str, problem: str
) -> None:
    engine = InlineEngine()
    with Pool(state=closed_state, resume=True, engine=engine) as pool:
        job = pool.map(compute("short"), JOBS["short"], name="short")
        job.wait()
        change(closed_state, statement)
        with pytest.raises(StateError, match=f"item 7 of job 'short' {problem}; resume the run"):
            job.results()
    assert run(closed_state, resume=True, engine=engine) == EXPECTED
    assert engine.calls == 1


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE jobs SET spec = '{}' WHERE number = 2", "job number 2"),
        (
            "UPDATE learned SET durations = '{}' WHERE kind = 'long'",
            "what was learned about jobs of kind 'long'",
        ),
        ("UPDATE meta SET value = 'x' WHERE name = 'calibration'", "the value of 'calibration'"),
        ("UPDATE meta SET value = 'x' WHERE name = 'time'", "the value of 'time'"),
    ],
)
def test_row_that_cannot_be_read_is_named(closed_state: Path, statement: str, problem: str) -> None:
    change(closed_state, statement)
    with pytest.raises(StateError, match=rf"state\.db: {problem} is damaged"):
        run(closed_state, resume=True)


def test_damage_that_sqlite_finds_is_refused(closed_state: Path) -> None:
    """An index that does not agree with its table is found by a full check only."""
    path = closed_state / "state.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP INDEX holdings_by_job")
        connection.execute("CREATE INDEX holdings_by_job ON holdings (servers)")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, '(servers)', '(job)') "
            "WHERE name = 'holdings_by_job'"
        )
    with pytest.raises(StateError, match=r"state\.db: is damaged beyond repair; start a new run"):
        run(closed_state, resume=True)


def test_orphaned_result_files_are_removed(closed_state: Path) -> None:
    files = find_result_files(closed_state)
    for name in ("1-abc", "1-def.new"):
        (closed_state / "results" / name).write_bytes(b"left behind")
    run(closed_state, resume=True)
    assert find_result_files(closed_state) == files


def test_results_of_redone_jobs_are_deleted(closed_state: Path) -> None:
    with closing(Journal.resume(closed_state)) as journal:
        numbers = {record.name: record.number for record in journal.read_records()}
        number = numbers["large"]
        (key, _), *_ = journal.read_done_items(number)
        journal.write(Changes(moved_items=[MovedItem(number, key, NO_POSITION)]))
        assert len(find_result_files(closed_state)) == len(JOBS["large"])
        journal.write(Changes(jobs_to_redo=[number]))
        assert find_result_files(closed_state) == []
        assert list(journal.read_done_items(number)) == []


def change(state: Path, statement: str) -> None:
    with closing(sqlite3.connect(state / "state.db")) as connection, connection:
        assert connection.execute(statement).rowcount == 1
