"""The pool: real functions in real processes."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import fields
from inspect import signature
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.paused_engine import PausedEngine, wait_until_read
from support.waiting import wait_until

from hesrpt import InputError, JobError, Pool, Schedule
from hesrpt.arrays import FloatArray
from hesrpt.engines.fake import FakeEngine
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.policies import State


def square(x: int) -> int:
    return x * x


def wait_for(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.01)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(servers=2) as created:
        yield created


def test_results_are_in_the_order_of_the_items(pool: Pool) -> None:
    offset = 7
    job = pool.map(lambda x: square(x) + offset, range(30), name="closure")
    assert job.results() == [x * x + 7 for x in range(30)]
    assert (job.state, job.done, job.items, job.error) == ("done", 30, 30, None)
    assert job.flow_time > 0


def test_arguments_that_are_not_given_mean_what_job_specs_mean() -> None:
    defaults = {field.name: field.default for field in fields(JobSpec) if field.name != "name"}
    for method in (Pool.map, Pool.executor):
        for name, parameter in signature(method).parameters.items():
            if name in defaults and parameter.default not in (None, parameter.empty):
                assert parameter.default == defaults[name], name


def test_generator_and_empty_iterables_are_accepted(pool: Pool) -> None:
    job = pool.map(square, (x for x in range(40)), name="generator")
    assert job.results() == [x * x for x in range(40)]
    assert job.items == 40
    assert pool.map(square, iter([]), name="empty").results() == []
    assert pool.map(square, [], name="empty list").results() == []


def test_job_added_during_a_run_gets_a_unique_name(pool: Pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = pool.map(wait_for, [gate], name="twin")
    second = pool.map(square, range(3), name="twin")
    assert (first.name, second.name) == ("twin", "twin (2)")
    assert second.results() == [0, 1, 4]
    gate.touch()
    assert first.wait(60)
    assert first.flow_time > second.flow_time


def test_failed_job_reports_its_error_and_others_continue(pool: Pool) -> None:
    bad = pool.map(lambda x: 1 / (3 - x), range(10), name="bad")
    good = pool.map(square, range(10), name="good")
    with pytest.raises(JobError, match=r"job 'bad' failed: item 3: ZeroDivisionError"):
        bad.results()
    assert bad.state == "failed"
    assert good.results() == [x * x for x in range(10)]


def test_crashed_item_is_retried(pool: Pool, tmp_path: Path) -> None:
    def crash_twice_at_2(x: int) -> int:
        with (tmp_path / str(x)).open("a") as file:
            file.write("x")
        if x == 2 and len((tmp_path / "2").read_text()) < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    assert pool.map(crash_twice_at_2, range(4), name="retried", retries=2).results() == [0, 1, 2, 3]
    assert (tmp_path / "2").read_text() == "xxx"
    assert (tmp_path / "1").read_text() == "x"


def test_iterable_that_raises_fails_its_job(pool: Pool) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk gone")

    job = pool.map(square, broken(), name="broken", retries=0)
    with pytest.raises(JobError, match="disk gone"):
        job.results()


def test_cancelled_job_ends(pool: Pool) -> None:
    job = pool.map(time.sleep, [60] * 5, name="endless")
    wait_until(lambda: pool.snapshot().held.get("endless", 0) > 0)
    job.cancel()
    assert job.wait(60)
    assert job.state == "cancelled"
    with pytest.raises(JobError, match=r"^job 'endless' was cancelled$"):
        job.results()


def test_wait_and_results_respect_the_timeout(pool: Pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = pool.map(wait_for, [gate], name="slow")
    assert not job.wait(0.05)
    with pytest.raises(TimeoutError):
        job.results(timeout=0.05)
    gate.touch()
    assert job.results() == [None]


def test_schedule_records_a_run_whose_short_job_ends_first(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def work(gate: Path | None) -> None:
        if gate is not None:
            wait_for(gate)
        time.sleep(0.05)

    with Pool(servers=2) as pool:
        pool.map(work, [gate] * 30, name="large", size=1.5, max_servers=1)
        pool.map(work, [None] * 6, name="small")
        completed = pool.as_completed(timeout=60)
        assert next(completed).name == "small"
        gate.touch()
        assert [job.name for job in completed] == ["large"]
    schedule = pool.schedule
    assert isinstance(schedule, Schedule)
    assert list(schedule.workload.names) == ["large", "small"]
    large, small = schedule.workload.sizes
    assert large > 0.7 * 1.5  # more if the machine is busy
    assert small > 0.7 * 0.3  # how much more depends on what else the machine does
    assert schedule.mean_flow_time == pytest.approx(
        np.mean([job.flow_time for job in pool.jobs]), rel=1e-9
    )
    held = [schedule.servers_at(t) for t in np.linspace(0, schedule.makespan, 50)]
    assert all(row.sum() <= 2 for row in held)
    assert max(row[1] for row in held) >= 1
    with pytest.raises(InputError, match="the pool is closed"):
        pool.map(square, [1])


def test_snapshot_shows_planned_and_held_servers() -> None:
    engine = PausedEngine(4, lambda job, item, width: 1.0)
    with Pool(servers=4, engine=engine) as pool:
        pool.map(square, range(40), name="large", size=40, speedup=0.5)
        pool.map(square, range(4), name="small", size=4, speedup=0.5)
        wait_until(lambda: sum(pool.snapshot().held.values()) == 4)
        snapshot = pool.snapshot()
        assert snapshot.servers == 4
        assert snapshot.planned.keys() == {"large", "small"}
        assert sum(snapshot.planned.values()) == 4
        assert pool.predict_ends()["small"] < pool.predict_ends()["large"]
        engine.go.set()
    assert pool.snapshot().held == {}
    assert [record.name for record in pool.records] == ["large", "small"]


def test_scheduler_does_not_wait_for_a_prediction() -> None:
    is_predicting, may_end = threading.Event(), threading.Event()

    def share_equally(state: State) -> FloatArray:
        if threading.current_thread() is predictor:
            is_predicting.set()
            assert may_end.wait(60)
        return np.full(len(state), state.servers / len(state))

    engine = PausedEngine(4, lambda job, item, width: 1.0)
    with Pool(servers=4, policy=share_equally, engine=engine) as pool:
        predictor = threading.Thread(target=pool.predict_ends)
        pool.map(square, range(40), name="first", size=40)
        wait_until(lambda: sum(pool.snapshot().held.values()) == 4)
        predictor.start()
        assert is_predicting.wait(60)
        engine.go.set()
        assert pool.wait(60)
        may_end.set()
        predictor.join()


def test_error_in_the_with_block_stops_all_jobs() -> None:
    def fail() -> None:
        with Pool(servers=2) as pool:
            pool.map(time.sleep, [1000] * 4)
            wait_until(lambda: sum(pool.snapshot().held.values()) == 2)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()  # does not wait for the items


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": 3}, "function must be callable, got 3"),
        ({"items": 3}, "items must be iterable, got 3"),
        ({"size": -1}, "size"),
        ({"timeout": 0}, "timeout"),
        ({"retries": -1}, "retries must be a whole number from 0 to 1,000,000, got -1"),
        ({"speedup": 1.5}, "speedup must lie in (0, 1), got 1.5"),
        ({"name": 3}, "name must be a non-empty string without zero bytes, got 3"),
        ({"name": ""}, "name must be a non-empty string without zero bytes, got ''"),
        ({"weight": 0}, "weight"),
    ],
)
def test_wrong_arguments_of_map_are_reported(
    pool: Pool, options: dict[str, object], message: str
) -> None:
    arguments = {"function": square, "items": [1], **options}
    with pytest.raises(InputError) as caught:
        pool.map(**arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"servers": 0}, "servers"),
        ({"servers": 1.5}, "servers must be a whole number of at least 1, got 1.5"),
        ({"policy": "best"}, "no policy named 'best'"),
        ({"resume": True}, "resume=True needs state="),
    ],
)
def test_wrong_arguments_of_pool_are_reported(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Pool(**options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_only_a_few_items_are_in_memory_at_once() -> None:
    engine = FakeEngine(64, lambda job, item, width: 0.001)
    read = max_in_memory = 0

    def many() -> Iterator[bytes]:
        nonlocal read
        for _ in range(30_000):
            read += 1
            yield bytes(1000)

    with Pool(servers=64, engine=engine) as pool:
        job = pool.map(len, many(), name="many")
        while not job.wait(0.01):
            max_in_memory = max(max_in_memory, read - job.done)
    assert read == 30_000
    # Two for each server, two more, and the one that is waiting for room.
    assert 64 <= max_in_memory <= 2 * 64 + 3


def test_job_with_shorter_items_ends_first() -> None:
    """The sizes of both jobs are unknown, and have to be learned."""
    engine = PausedEngine(8, lambda job, item, width: {"long": 9.0, "short": 0.5}[job])
    with Pool(servers=8, engine=engine) as pool:
        long = pool.map(square, range(400), name="long")
        short = pool.map(square, range(400), name="short")
        wait_until_read(long, short)
        engine.go.set()
    assert short.flow_time < 0.25 * long.flow_time


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def test_items_may_be_local_instances_and_lambdas(pool: Pool) -> None:
    class Local(Point):
        pass

    assert pool.map(lambda p: p.x, [Local(1), Local(2)], name="local").results() == [1, 2]
    assert pool.map(lambda f: f(3), [lambda x: x + 1], name="functions").results() == [4]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_item_that_exits_fails_and_its_worker_survives(pool: Pool, error: BaseException) -> None:
    def exit_with_error(_: int) -> None:
        raise error

    job = pool.map(exit_with_error, [1], name="exiting", retries=0)
    with pytest.raises(JobError, match=type(error).__name__):
        job.results(timeout=60)
    assert pool.map(square, [3], name="after").results(timeout=60) == [9]


def test_iterable_that_raises_late_fails_its_job(pool: Pool) -> None:
    def broken() -> Iterator[int]:
        yield from range(5)
        raise OSError("disk gone")

    job = pool.map(square, broken(), name="late", retries=3)
    with pytest.raises(JobError, match="cannot read its items: OSError: disk gone") as caught:
        job.results(timeout=60)
    cause = caught.value.__cause__
    assert isinstance(cause, OSError)
    assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["broken"]


def test_slow_iterable_does_not_delay_other_jobs(pool: Pool) -> None:
    may_continue = threading.Event()

    def slow() -> Iterator[int]:
        for x in range(3):
            assert may_continue.wait(90)
            yield x

    first = pool.map(square, slow(), name="slow")
    second = pool.map(lambda x: x + 1, first.iter_results(), name="fed")
    assert pool.map(square, [2], name="quick").results() == [4]
    assert first.state == "waiting"
    may_continue.set()
    assert second.results(timeout=90) == [1, 2, 5]


def test_closing_the_pool_cancels_jobs() -> None:
    pool = Pool(servers=1)
    job = pool.map(time.sleep, [60], name="long")
    pool.close()
    with pytest.raises(JobError, match="cancelled"):
        job.results(timeout=60)


def test_timeout_also_kills_child_processes(tmp_path: Path) -> None:
    started = tmp_path / "started"
    with Pool(servers=1) as pool:
        job = pool.map(
            lambda _: os.system(f"touch {started}; sleep 177"),
            [1],
            name="children",
            timeout=3.0,
            retries=0,
        )
        assert job.wait(90)
        assert started.exists()
        wait_until(lambda: "sleep 177" not in running_commands())


def running_commands() -> set[str]:
    found = set()
    for process in psutil.process_iter():
        try:
            found.add(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def test_repr_says_what_is_going_on() -> None:
    engine = PausedEngine(2, lambda job, item, width: 1.0)
    with Pool(policy="equi", engine=engine) as pool:
        assert repr(pool) == "<Pool: 2 servers, policy equi, no jobs>"
        job = pool.map(square, range(8), name="a\n", size=8, speedup=0.5)
        wait_until(lambda: job.servers == 2 and job.eta is not None)
        shown = "running, 0 of 8 items, 2 servers, 5.7 s left"
        assert repr(job) == f"<Job 'a\\n': {shown}>"
        assert repr(pool) == f"<Pool: 2 servers, policy equi, 1 running\n  a\\n: {shown}>"
        assert "2 of 2" in job._repr_html_()
        engine.go.set()
    assert repr(pool) == (
        "<Pool: closed, 2 servers, policy equi, 1 done\n  a\\n: done, 8 of 8 items in 4 s>"
    )


def test_repr_lists_at_most_thirty_jobs() -> None:
    with Pool(engine=FakeEngine(2)) as pool:
        for _ in range(40):
            pool.map(square, [1], name="job")
    lines = repr(pool).splitlines()
    assert len(lines) == 1 + 30 + 1
    assert lines[-1] == "  and 10 done>"
