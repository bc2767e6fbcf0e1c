"""What can be read from the state directory of a run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from support.stepping import KillSwitch, SteppedEngine, finish

from hesrpt import InputError, Pool
from hesrpt.display.overview import describe_job
from hesrpt.reports.inspection import list_logs, read_status
from hesrpt.storage.journal_entries import RunProgress


def print_odd(x: int) -> None:
    if x % 2:
        print("odd", x)


def test_logs_are_read_and_unknown_items_refused(tmp_path: Path) -> None:
    with Pool(servers=1, state=tmp_path / "s") as pool:
        pool.map(print_odd, range(3), name="count")
        pool.map(print_odd, [], name="empty")
    (log,) = list_logs(tmp_path / "s", "count")
    assert (log.item, log.title, log.path.read_text()) == (1, "item 1", "odd 1\n")
    assert list_logs(tmp_path / "s", "count", 2) == []
    for job, item, message in (
        ("count", 99, "there is no item 99 in job 'count'; items are 0 to 2"),
        ("count", -1, "there is no item -1 in job 'count'; items are 0 to 2"),
        ("empty", 0, "there is no item 0 in job 'empty'; it has no items"),
    ):
        with pytest.raises(InputError, match=message):
            list_logs(tmp_path / "s", job, item)


def test_logs_follow_their_items(tmp_path: Path) -> None:
    def fail_at_7(x: int) -> None:
        print("item", x)
        assert x != 7

    for items in ([1, 2, 7], [2, 1, 7]):
        with Pool(servers=1, state=tmp_path / "s", resume=(tmp_path / "s").exists()) as pool:
            pool.map(fail_at_7, items, name="count", retries=0).wait()
    logs = {log.item: log.path.read_text() for log in list_logs(tmp_path / "s", "count")}
    assert {item: text.splitlines()[0] for item, text in logs.items()} == {
        0: "item 2",
        1: "item 1",
        2: "item 7",
    }


def test_status_tells_running_from_waiting(tmp_path: Path) -> None:
    def get_states() -> dict[str, tuple[str, str]]:
        status = read_status(tmp_path / "s")
        found = {view.name: view.state for view in status.views}
        return {job.name: (job.state, found[job.name]) for job in pool.jobs}

    engine = SteppedEngine(1, KillSwitch())
    with Pool(policy="fifo", state=tmp_path / "s", engine=engine) as pool:
        first, second = (pool.map(abs, [-1], name=name) for name in ("first", "second"))
        assert (first.state, second.state) == ("waiting", "waiting")
        for _ in range(3):
            engine.step()
        assert get_states() == {"first": ("running",) * 2, "second": ("waiting",) * 2}
        engine.step([finish(engine.running["first", 0], 1)])
        assert get_states() == {"first": ("done",) * 2, "second": ("running",) * 2}
        second.cancel()
        engine.step()
        assert get_states() == {"first": ("done",) * 2, "second": ("cancelled",) * 2}
        assert all(job.has_ended for job in pool.jobs)
        engine.release()


def test_jobs_wait_while_no_scheduler_runs(tmp_path: Path) -> None:
    engine = SteppedEngine(1, KillSwitch())
    pool = Pool(state=tmp_path / "s", engine=engine)
    job = pool.map(abs, [-1], name="job")
    for _ in range(3):
        engine.step()
    assert job.state == "running"
    engine.release()
    pool.close()
    status = read_status(tmp_path / "s")
    assert status.views[0].state == "waiting"


def test_status_tells_what_is_planned_and_predicted(tmp_path: Path) -> None:
    engine = SteppedEngine(2, KillSwitch())
    pool = Pool(policy="equi", state=tmp_path / "s", engine=engine)
    try:
        pool.map(abs, range(8), name="job", size=8.0, speedup=0.5)
        for _ in range(5):
            engine.step(seconds=1.0)
            pool.predict_ends()
        status = read_status(tmp_path / "s")
        (job,) = status.views
        assert (job.servers, job.planned) == (2, 2)
        assert status.time == pytest.approx(5.0)
        assert job.eta == pytest.approx(pool.jobs[0].eta, abs=1.5)
        assert describe_job(job).startswith("running, 0 of 8 items, 2 servers, ")
        assert status.overview.describe() == "2 servers, policy equi, 1 running"
    finally:
        engine.release()
        pool.close()
    status = read_status(tmp_path / "s")
    (job,) = status.views
    assert (job.servers, job.planned, job.eta) == (0, None, None)
    assert status.overview.note == "no scheduler is running"


def test_progress_is_written_at_most_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[float] = []
    write = RunProgress.to_json

    def note(progress: RunProgress) -> str:
        written.append(progress.time)
        return write(progress)

    monkeypatch.setattr(RunProgress, "to_json", note)
    engine = SteppedEngine(2, KillSwitch())
    pool = Pool(state=tmp_path / "s", engine=engine)
    try:
        pool.map(abs, range(8), name="job")
        for _ in range(20):
            engine.step(seconds=0.25)
    finally:
        engine.release()
        pool.close()
    assert 4 <= len(written) <= 6
    assert min(after - before for before, after in pairwise(written)) >= 1.0
