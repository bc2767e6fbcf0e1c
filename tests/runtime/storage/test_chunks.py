"""Items that are kept together in the journal: read back, resumed, split and damaged."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.chunk_engine import ChunkEngine

from hesrpt import JobError, StateError
from hesrpt.runtime.pool import Pool
from hesrpt.runtime.reports.inspection import read_report, read_status
from hesrpt.runtime.storage.journal import Journal

ITEMS = 100


def double(item: Any) -> Any:
    return 2 * item


def run(
    state: Path,
    items: Sequence[Any] = range(ITEMS),
    function: Callable[[Any], Any] = double,
    *,
    on_change: Any = "error",
    **options: Any,
) -> tuple[list[Any], int]:
    """Start or resume a run; return its results, and how many items were computed."""
    engine = ChunkEngine()
    with Pool(state=state, resume=state.exists(), engine=engine, on_change=on_change) as pool:
        return pool.map(function, items, name="a", **options).results(), engine.calls


def query(state: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(state / "state.db")) as connection, connection:
        return connection.execute(statement).fetchall()


def count_rows(state: Path) -> tuple[int, int]:
    """Return how many items have rows of their own, and how many rows the others share."""
    ((single,),) = query(state, "SELECT COUNT(*) FROM items")
    ((chunks,),) = query(state, "SELECT COUNT(*) FROM chunks")
    return single, chunks


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state directory of a run that has ended."""
    assert run(tmp_path / "s") == ([2 * item for item in range(ITEMS)], ITEMS)
    single, chunks = count_rows(tmp_path / "s")
    assert single < 10
    assert 0 < chunks < 20
    return tmp_path / "s"


@pytest.mark.parametrize(
    "items",
    [
        range(ITEMS),
        [(-1) ** item * (2**62 - item) for item in range(ITEMS)],
        [item / 2 for item in range(ITEMS)],
        [f"item {n}" for n in range(ITEMS)],
        [(n, n / 2, f"item {n}", n**20)[n % 4] for n in range(ITEMS)],
    ],
    ids=["integers", "large", "floats", "strings", "mixed"],
)
def test_resume_finds_the_items_of_chunks(tmp_path: Path, items: Sequence[Any]) -> None:
    expected = [double(item) for item in items]
    assert run(tmp_path / "s", items) == (expected, ITEMS)
    assert count_rows(tmp_path / "s")[1] > 0
    assert run(tmp_path / "s", items) == (expected, 0)
    assert run(tmp_path / "s", list(items)) == (expected, 0)
    assert run(tmp_path / "s", iter(items)) == (expected, 0)  # type: ignore[arg-type]


def test_types_of_numbers_count(state: Path) -> None:
    assert run(state, [float(item) for item in range(ITEMS)])[1] == ITEMS


def test_status_and_report_count_the_items_of_chunks(state: Path) -> None:
    (job,) = read_status(state).jobs
    assert (job.done, job.state) == (ITEMS, "done")
    (record,) = read_report(state).history.records
    assert record.item_seconds == pytest.approx(ITEMS * 0.01)
    (timings,) = read_report(state).history.timings.values()
    assert [timing.position for timing in timings] == list(range(ITEMS))
    assert {timing.seconds for timing in timings} == {0.01}  # not rounded


def test_items_of_chunks_are_read_one_by_one(state: Path) -> None:
    with closing(Journal.read(state)) as journal:
        found = dict(journal.read_pickled(1, range(30, 47)))
        assert list(found) == list(range(30, 47))
        assert found[31] == b"\x80\x05K>."
        assert [item for item, _, _ in journal.read_timings(1, range(30, 47))] == list(found)
        assert sorted(item for item, _ in journal.read_places(1)) == list(range(ITEMS))
        assert 2 * ITEMS <= journal.measure_results()[1] <= 8 * ITEMS


@pytest.mark.parametrize(
    "items",
    [
        [7, *range(1, ITEMS)],
        [*range(50), -1, *range(50, ITEMS)],
        range(ITEMS - 1, -1, -1),
        range(40, ITEMS),
        [*range(10), *range(10)],
    ],
    ids=["changed", "inserted", "reversed", "removed", "repeated"],
)
def test_items_that_are_elsewhere_keep_their_results(state: Path, items: Sequence[int]) -> None:
    missing = len(items) - len(set(items) & set(range(ITEMS)))
    assert run(state, items) == ([2 * item for item in items], missing)
    assert run(state, items) == ([2 * item for item in items], 0)
    # Those that had gone are found again.
    again = [*items, *(item for item in range(ITEMS) if item not in set(items))]
    assert run(state, again) == ([2 * item for item in again], 0)


def test_half_a_chunk_is_resumed(tmp_path: Path) -> None:
    def fail(item: int) -> int:
        if item == 57:
            raise ValueError("bad")
        return 2 * item

    with pytest.raises(JobError, match="item 57"):
        run(tmp_path / "s", function=fail, retries=0)
    (job,) = read_status(tmp_path / "s").jobs
    assert 1 < job.done < ITEMS
    assert count_rows(tmp_path / "s")[1] > 0
    results, calls = run(tmp_path / "s", on_change="keep")
    assert (results, calls) == ([2 * item for item in range(ITEMS)], ITEMS - job.done)


def test_failed_item_in_the_middle_of_a_chunk_is_retried_alone(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    def fail_once(item: int) -> int:
        if item == 57 and not marker.exists():
            marker.touch()
            raise ValueError("bad")
        return 2 * item

    results, calls = run(tmp_path / "s", function=fail_once, on_error="keep", retries=1)
    assert (results, calls) == ([2 * item for item in range(ITEMS)], ITEMS + 1)


def test_job_that_is_done_again_loses_its_chunks(state: Path) -> None:
    assert run(state, function=lambda item: item, on_change="redo") == (list(range(ITEMS)), ITEMS)
    assert sum(size for (size,) in query(state, "SELECT size FROM chunks")) <= ITEMS


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "seconds = 9",
        "ended = 9",
        "size = size - 1",
        "durations = zeroblob(LENGTH(durations))",
        "identities = x'6e80054b072e'",
        "digest = x'00000000'",
        "start = 'x'",
    ],
)
def test_damaged_entry_is_done_again(
    state: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    ((number, size),) = query(state, "SELECT number, size FROM chunks ORDER BY start DESC LIMIT 1")
    query(state, f"UPDATE chunks SET {change} WHERE number = {number}")
    assert run(state) == ([2 * item for item in range(ITEMS)], size)
    assert "damaged entry of items from" in caplog.text


@pytest.mark.parametrize("change", ["results = zeroblob(LENGTH(results))", "code = 'd'"])
def test_damaged_results_are_noticed_and_done_again(state: Path, change: str) -> None:
    query(state, f"UPDATE chunks SET {change}")
    problem = r"items \d+ to \d+ of job 'a' have damaged results; resume the run to do the items"
    ((damaged,),) = query(state, "SELECT COUNT(*) FROM chunks")
    for _ in range(damaged):  # each attempt to read finds another chunk
        with pytest.raises(StateError, match=problem):
            run(state)
    assert run(state)[0] == [2 * item for item in range(ITEMS)]


def test_damaged_results_of_a_chunk_that_is_split_are_noticed(state: Path) -> None:
    query(state, "UPDATE chunks SET results = zeroblob(LENGTH(results))")
    with pytest.raises(StateError, match="has a damaged result"):
        run(state, range(1, ITEMS))


def test_flipped_bit_never_gives_wrong_results(state: Path, tmp_path: Path) -> None:
    expected = [2 * item for item in range(ITEMS)]
    for seed in range(40):
        rng = random.Random(seed)
        copy = tmp_path / f"trial-{seed}"
        shutil.copytree(state, copy)
        content = bytearray((copy / "state.db").read_bytes())
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        (copy / "state.db").write_bytes(content)
        for _ in range(3):
            with suppress(StateError):
                assert run(copy)[0] == expected, seed
                break
        shutil.rmtree(copy)
