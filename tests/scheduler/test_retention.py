"""Removing old jobs: which ones, and that nothing else is lost, whatever happens meanwhile."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest
from support.waiting import wait_until

from hesrpt import InputError, Pool, Retention
from hesrpt.reports.inspection import read_status
from hesrpt.scheduler import pruning
from hesrpt.scheduler.pruning import StoredJob, choose_jobs_to_remove, survey_directory
from hesrpt.storage.journal import Journal

LARGE = 2**21  # such results are in files


def make(size: int) -> bytes:
    print("output")
    return bytes(size)


def is_there(path: str) -> bool:
    while not os.path.exists(path):
        time.sleep(0.01)
    return True


JOBS = [
    StoredJob(number=1, ended=10.0, size=100),
    StoredJob(number=2, ended=None, size=100),
    StoredJob(number=3, ended=5.0, size=100),
    StoredJob(number=4, ended=30.0, size=100),
]


@pytest.mark.parametrize(
    ("retention", "chosen"),
    [
        (Retention(), []),
        (Retention(max_age=25), [3]),
        (Retention(max_age=1), [3, 1, 4]),
        (Retention(max_jobs=2), [3]),
        (Retention(max_jobs=0), [3, 1, 4]),
        (Retention(max_bytes=250), [3, 1]),
        (Retention(max_bytes=50), [3, 1, 4]),
        (Retention(max_age=25, max_jobs=1), [3, 1]),
    ],
)
def test_oldest_jobs_are_removed_first(retention: Retention, chosen: list[int]) -> None:
    assert choose_jobs_to_remove(JOBS, retention, now=33.0) == chosen


def test_protected_jobs_stay() -> None:
    assert choose_jobs_to_remove(JOBS, Retention(max_jobs=1), 33.0, protected={3}) == [1]


@pytest.mark.parametrize("wrong", [{"max_age": 0}, {"max_bytes": -1}, {"max_jobs": 0.5}])
def test_wrong_limits_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Retention(**wrong)  # type: ignore[arg-type]


def test_retention_needs_a_state_directory() -> None:
    with pytest.raises(InputError, match="retention= needs state="):
        Pool(1, retention=Retention(max_jobs=1))


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_SECONDS", "_PAUSE_SECONDS", "_SETTLED_SECONDS"):
        monkeypatch.setattr(pruning, name, 0.0)


@pytest.mark.usefixtures("_impatient")
def test_old_jobs_are_removed_with_their_results_and_output(tmp_path: Path) -> None:
    state, gate = tmp_path / "state", tmp_path / "gate"
    with Pool(2, state=state, retention=Retention(max_jobs=1)) as pool:
        pool.map(make, [1, LARGE], name="old").wait()
        first = pool.map(make, [1], name="first")
        waits = pool.map(is_there, [str(gate)], name="runs", after=[first])
        pool.map(make, [LARGE], name="new").wait()
        wait_until(lambda: [job.name for job in pool.jobs] == ["first", "runs", "new"])
        wait_until(lambda: 1 not in _list_numbers(state / "logs"))
        again = pool.map(make, [1], name="old")  # its name is free
        assert again.name == "old"
        assert again.wait(60)  # before "runs", which is then the last to end, and stays
        assert first.results() == [b"\0"]  # somebody waits for it
        gate.touch()
        assert waits.wait(60)
        assert waits.state == "done"
    assert len(os.listdir(state / "results")) <= 1
    assert "runs" in {job.name for job in read_status(state).jobs}


@pytest.mark.usefixtures("_impatient")
def test_crash_between_two_steps_leaves_a_valid_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hesrpt.storage.journal._REMOVAL_BATCH", 2)
    state = tmp_path / "state"
    with Pool(2, state=state) as pool:
        pool.map(make, [1, 2, LARGE, 3, 4], name="old").wait()
        pool.map(make, [5], name="new").wait()
    # Do the first step of several, as if the scheduler was killed then.
    with closing(Journal.resume(state)) as journal:
        assert not journal.remove_job(1)
        assert [end.name for end in journal.read_ends()] == ["new"]
        assert 1 in journal.measure_results()
    with Pool(2, state=state, resume=True, retention=Retention(max_jobs=5)) as pool:
        assert pool.map(make, [5], name="new").results() == [bytes(5)]
        wait_until(lambda: _list_numbers(state / "logs") == [2])  # the rest of it goes too
    with closing(Journal.read(state)) as journal:
        assert list(journal.measure_results()) == [2]
    assert os.listdir(state / "results") == []


def test_jobs_with_pending_hooks_stay(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Pool(1, state=state) as pool:
        pool.map(make, [1], name="a").wait()
        pool.map(make, [1], name="b", on_end="exit 1").wait()
    survey = survey_directory(state, Retention(max_jobs=0), now=1000.0)
    assert survey.jobs == [1]


def _list_numbers(directory: Path) -> list[int]:
    return sorted({int(name.partition("-")[0]) for name in os.listdir(directory)})
