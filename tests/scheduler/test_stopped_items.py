"""Items that end just before their job does: they are done, and do not run again."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.evidence import REPAIRED, count_ends, create_work, find_ended
from support.local_engine import collect_outcomes, open_engine, python_task, split_outcomes
from support.waiting import wait_until

from hesrpt import Job, Pool
from hesrpt.engines.engine import CommandTask, PythonTasks
from hesrpt.engines.local.local_engine import LocalEngine

# So short that many of them end between two messages of their worker.
_SECONDS, _ITEMS = 0.0001, 800


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with open_engine() as engine:
        yield engine


@pytest.fixture(
    params=[pytest.param(False, marks=pytest.mark.slow), True], ids=["in memory", "with state"]
)
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "state" if request.param else None


def read_done(job: Job[int]) -> set[int]:
    """Return the items of an ended job whose results can be read, in two ways."""
    results = [result for result in job.results(errors="return") if isinstance(result, int)]
    streamed = job.iter_results(ordered=False, errors="return")
    assert sorted(result for result in streamed if isinstance(result, int)) == results
    assert job.done == len(results)
    return set(results)


def check_ended_once(folder: Path, items: set[int]) -> None:
    counts = count_ends(folder)
    assert {counts[item] for item in items} == {1}, "an item ran again"


def create_folders(folder: Path, count: int) -> Iterator[Path]:
    for number in range(count):
        (each := folder / f"evidence {number}").mkdir()
        yield each


def test_what_was_done_stays_reachable_when_a_job_fails(state: Path | None, tmp_path: Path) -> None:
    with Pool(servers=2, state=state) as pool:
        for folder in create_folders(tmp_path, 2):
            work = create_work(folder, _SECONDS, bad=_ITEMS // 2)
            job = pool.map(work, range(_ITEMS), retries=0)
            assert job.wait(60)
            assert job.state == "failed"
            ended = find_ended(folder)
            assert len(ended) > 100
            assert ended <= read_done(job)
            (folder / REPAIRED).touch()
            job.retry()
            assert job.results() == list(range(_ITEMS))
            check_ended_once(folder, ended)


def test_what_was_done_stays_reachable_when_a_job_is_cancelled(
    state: Path | None, tmp_path: Path
) -> None:
    with Pool(servers=2, state=state) as pool:
        for folder in create_folders(tmp_path, 2):
            job = pool.map(create_work(folder, _SECONDS), range(20_000))
            wait_until(lambda each=folder: len(find_ended(each)) > 300)  # type: ignore[misc]
            job.cancel()
            assert job.wait(60)
            assert job.state == "cancelled"
            assert find_ended(folder) <= read_done(job)


@pytest.mark.parametrize("end", [Job.cancel, lambda job: None], ids=["cancelled", "pool closed"])
def test_resumed_run_does_not_run_again_what_was_done(
    end: Callable[[Job[int]], object], tmp_path: Path
) -> None:
    (folder := tmp_path / "evidence").mkdir()
    work = create_work(folder, _SECONDS)
    with Pool(servers=2, state=tmp_path / "state") as pool:
        job = pool.map(work, range(3000), name="job")
        wait_until(lambda: len(find_ended(folder)) > 500)
        end(job)
    ended = find_ended(folder)
    with Pool(servers=2, state=tmp_path / "state", resume=True) as pool:
        assert pool.map(work, range(3000), name="job").results() == list(range(3000))
    check_ended_once(folder, ended)


def test_stopped_items_are_reported_once_even_if_they_start_again(
    engine: LocalEngine, tmp_path: Path
) -> None:
    packed = engine.pack_function(create_work(tmp_path, _SECONDS))

    def start(items: range) -> None:
        engine.start("a", PythonTasks(items, list(items), function=packed), 1)

    items = range(2000)
    start(items)
    wait_until(lambda: len(find_ended(tmp_path)) > 100)
    for item in items:
        engine.stop("a", item)
    assert engine.is_stopping("a")
    start(items[:1000])
    outcomes = collect_outcomes(engine, 1000)
    outcomes |= {(each.job, each.item): each for each in split_outcomes(engine.close())}
    done = {item for _, item in outcomes}
    assert done.issuperset(items[:1000])
    ended = find_ended(tmp_path)
    assert ended <= done
    check_ended_once(tmp_path, ended)


def test_engine_says_when_what_was_stopped_is_gone(engine: LocalEngine, tmp_path: Path) -> None:
    engine.start("a", {0: python_task(engine, create_work(tmp_path, 1000.0), 0)}, 1)
    engine.start("b", {0: CommandTask(("sleep", "1000"))}, 1)
    wait_until(lambda: engine.wait_for_outcomes(0.01) == [] and len(engine.command_pids) == 1)
    wait_until(lambda: any(tmp_path.iterdir()))
    for job in ("a", "b"):
        engine.stop(job, 0)
        assert engine.is_stopping(job)
        began = engine.now()
        while engine.is_stopping(job):
            assert engine.wait_for_outcomes(30.0) == []
            assert engine.now() - began < 20.0, "nobody was told"


@pytest.mark.parametrize("is_started_again", [False, True])
def test_command_that_ended_before_it_was_stopped_is_reported_once(
    engine: LocalEngine, is_started_again: bool, tmp_path: Path
) -> None:
    task = CommandTask(f"echo >>{tmp_path}/runs")
    engine.start("a", {0: task}, 1)
    wait_until(lambda: (tmp_path / "runs").exists())
    wait_until(lambda: b"gone" in peek(engine))
    engine.stop("a", 0)
    if is_started_again:
        engine.start("a", {0: task}, 1)
    outcomes = collect_outcomes(engine, 1)
    assert outcomes["a", 0].is_done
    assert engine.wait_for_outcomes(0.2) == []


def peek(engine: LocalEngine) -> bytes:
    """Return what the supervisor has reported, without reading it."""
    supervision = engine.supervision
    assert supervision is not None
    try:
        return supervision.channel.connection.recv(2**16, socket.MSG_PEEK)
    except BlockingIOError:
        return b""
