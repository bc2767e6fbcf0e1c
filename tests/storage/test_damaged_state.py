"""Damaged state directories: right results, a clear error, or items that are done again."""

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
from hesrpt.reports.inspection import (
    read_learned_runs,
    read_policy,
    read_report,
    read_status,
)
from hesrpt.storage import journal_items
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
    monkeypatch.setattr(journal_items, "MAX_BYTES_IN_DATABASE", 1000)


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
    assert seen["second error"] <= 3, seen  # nearly all damage is mended by the first resume


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


def test_damaged_entry_of_an_item_is_done_again(
    closed_state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change(closed_state, "UPDATE items SET seconds = 9 WHERE job = 1 AND position = 7")
    engine = InlineEngine()
    assert run(closed_state, resume=True, engine=engine) == EXPECTED
    assert engine.calls == 1
    assert "damaged entry of item 7 of job 'short'; the item will be done again" in caplog.text


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE items SET result = x'00' WHERE job = 1 AND position = 7", "has a damaged result"),
        ("DELETE FROM items WHERE job = 1 AND position = 7", "has no result"),
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


def test_damaged_entry_of_a_job_is_removed_and_the_job_can_be_added_again(
    closed_state: Path,
) -> None:
    change(closed_state, "UPDATE jobs SET ended = 9 WHERE number = 2")
    engine = InlineEngine()
    with pytest.raises(StateError, match=r"removed: the entry of job 'long' \(number 2\); the oth"):
        run(closed_state, resume=True, engine=engine)
    assert run(closed_state, resume=True, engine=engine) == EXPECTED
    assert engine.calls == len(JOBS["long"])
    assert [job.number for job in read_status(closed_state).jobs] == [1, 3, 4]


def test_damaged_memory_is_removed_without_losing_a_job(
    closed_state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert {run.kind for run in read_learned_runs(closed_state)} == set(JOBS)
    change(closed_state, "UPDATE learned SET durations = '{}' WHERE kind = 'long'")
    with pytest.raises(StateError, match="what was learned about jobs of kind 'long' is damaged"):
        read_learned_runs(closed_state)
    assert run(closed_state, resume=True) == EXPECTED
    assert "removing a damaged entry" in caplog.text
    assert {run.kind for run in read_learned_runs(closed_state)} == set(JOBS) - {"long"}


def test_damaged_values_of_a_run_are_written_again(
    closed_state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("servers", "policy"):
        change(closed_state, f"UPDATE meta SET value = 'x' WHERE name = '{name}'")
    assert read_policy(closed_state) == "adaptive"
    with Pool(state=closed_state, resume=True) as pool:
        servers = pool.servers
    assert "removing a damaged entry: 'servers'" in caplog.text
    report = read_report(closed_state)
    assert (report.servers, report.policy) == (servers, "adaptive")


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
