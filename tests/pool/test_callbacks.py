"""Callbacks of jobs that have ended, and jobs in the order of their ends."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.inline_engine import InlineEngine
from support.stepping import KillSwitch, SteppedEngine, compute
from support.waiting import wait_until

from hesrpt import InputError, Job, Pool
from hesrpt.engines.engine import Outcome
from hesrpt.engines.fake import FakeEngine
from hesrpt.pool.executor import PoolExecutor
from hesrpt.scheduler.call_source import CallbackThread


def create_endless_pool() -> Pool:
    """Return a pool whose items never end."""
    return Pool(engine=FakeEngine(2, lambda job, item, width: 1e9))


# --- callbacks ------------------------------------------------------------------------------------


def test_callback_is_called_when_the_job_ends() -> None:
    seen: list[tuple[str, list[int]]] = []
    with Pool(engine=InlineEngine()) as pool:
        for name in ("first", "second"):
            job = pool.map(lambda x: x + 1, range(3), name=name)
            job.add_done_callback(lambda job: seen.append((job.name, job.results())))
    assert sorted(seen) == [("first", [1, 2, 3]), ("second", [1, 2, 3])]


def test_callback_of_an_ended_job_is_called_at_once_in_this_thread() -> None:
    with Pool(engine=InlineEngine()) as pool:
        job = pool.map(abs, [-1])
        assert job.wait(60)
        threads: list[threading.Thread] = []
        job.add_done_callback(lambda job: threads.append(threading.current_thread()))
        assert threads == [threading.current_thread()]
    job.add_done_callback(lambda job: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()] * 2


def test_callbacks_run_in_the_order_in_which_jobs_end_outside_the_scheduler() -> None:
    seen: list[str] = []
    with Pool(engine=InlineEngine(1)) as pool:
        for job in [pool.map(abs, range(5 - k), name=str(k)) for k in range(4)]:
            job.add_done_callback(
                lambda job: seen.append(f"{job.name} {threading.current_thread().name}")
            )
        pool.wait(60)
        in_order = sorted(pool.records, key=lambda record: record.ended or 0.0)
    assert seen == [f"{record.name} hesrpt-callbacks" for record in in_order]


def test_exception_in_a_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(job: Job[Any]) -> None:
        raise OSError(f"no room for {job.name}")

    seen: list[str] = []
    with caplog.at_level(logging.ERROR), Pool(engine=InlineEngine()) as pool:
        job = pool.map(abs, [-1], name="one")
        job.add_done_callback(fail)
        job.add_done_callback(lambda job: seen.append(job.name))
        job.wait(60)
        job.add_done_callback(fail)
        assert pool.map(abs, [-2], name="two").results() == [2]
    assert seen == ["one"]
    assert caplog.text.count("hesrpt: a callback of a job ended with OSError") == 2
    assert caplog.text.count("OSError: no room for one") == 2


def test_callback_may_wait_for_jobs_and_add_jobs_that_the_block_waits_for() -> None:
    seen: list[int] = []

    def add_another(job: Job[int]) -> None:
        (number,) = job.results()
        seen.append(number)
        if number < 5:
            pool.map(lambda x: x + 1, [number]).add_done_callback(add_another)
            assert pool.map(abs, [-7]).results(60) == [7]

    with Pool(engine=InlineEngine()) as pool:
        pool.map(abs, [-1]).add_done_callback(add_another)
    assert seen == [1, 2, 3, 4, 5]


def test_block_waits_for_a_callback_that_is_about_to_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put = CallbackThread.put

    def put_late(thread: CallbackThread, call: Callable[[], object]) -> None:
        time.sleep(0.05)
        put(thread, call)

    monkeypatch.setattr(CallbackThread, "put", put_late)
    seen: list[list[int]] = []
    with Pool(engine=InlineEngine()) as pool:
        pool.map(abs, [-1]).add_done_callback(
            lambda job: seen.append(pool.map(abs, [-2]).results())
        )
    assert seen == [[2]]


def test_block_ends_executors_that_callbacks_create() -> None:
    executors: list[PoolExecutor] = []
    with Pool(engine=InlineEngine()) as pool:
        wait = pool._driver.wait

        def create_executor_first(is_ready: Callable[[], bool], timeout: float | None) -> bool:
            if not executors:
                executors.append(pool.executor())
            return wait(is_ready, timeout)

        pool._driver.wait = create_executor_first  # type: ignore[method-assign]
        pool.map(abs, [-1])
    assert executors[0].job.state == "done"


def test_callback_may_close_the_pool() -> None:
    pool = Pool(engine=InlineEngine())
    is_closed = threading.Event()

    def close(job: Job[Any]) -> None:
        pool.close()
        is_closed.set()

    pool.map(abs, [-1]).add_done_callback(close)
    assert is_closed.wait(60)
    pool.close()
    with pytest.raises(InputError, match="the pool is closed"):
        pool.map(abs, [-1])


def test_cancelled_jobs_and_closed_pools_call_back() -> None:
    seen: list[tuple[str, str]] = []
    pool = create_endless_pool()
    for name in ("cancelled early", "closed"):
        job = pool.map(abs, [1], name=name)
        job.add_done_callback(lambda job: seen.append((job.name, job.state)))
        if name == "cancelled early":
            job.cancel()
            assert job.wait(60)
    pool.close()  # waits for callbacks
    assert seen == [("cancelled early", "cancelled"), ("closed", "cancelled")]


def test_scheduler_that_fails_calls_back() -> None:
    class BrokenEngine(FakeEngine):
        def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
            if self._running:
                raise OSError("the machine is on fire")
            return super().wait_for_outcomes(timeout)

    called = threading.Event()
    pool = Pool(engine=BrokenEngine(1))
    job = pool.map(abs, [1])
    job.add_done_callback(lambda job: called.set())
    assert called.wait(60)
    with pytest.raises(RuntimeError, match="the machine is on fire"):
        job.results()
    called.clear()
    job.add_done_callback(lambda job: called.set())
    assert called.is_set()
    pool.close()


def test_callback_keeps_its_job_going_and_then_lets_go_of_the_pool() -> None:
    seen: list[list[int]] = []
    engine = SteppedEngine(1, KillSwitch())
    Pool(engine=engine).map(abs, [-1], name="job").add_done_callback(
        lambda job: seen.append(job.results())
    )
    gc.collect()
    engine.step_until(lambda: bool(engine.running))
    engine.step([compute(engine.running["job", 0])])
    engine.release()
    wait_until(lambda: seen == [[1]])
    wait_until(lambda: engine.is_closed)


def test_callbacks_are_called_at_interpreter_exit(tmp_path: Path) -> None:
    script = """
        import time
        from hesrpt import Pool
        from hesrpt.engines.fake import FakeEngine

        pool = Pool(engine=FakeEngine(1, lambda job, item, width: 1e9))
        job = pool.map(abs, [1])
        job.add_done_callback(lambda job: (time.sleep(0.2), print(job.state)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "cancelled\n"


# --- jobs as completed ----------------------------------------------------------------------------


def test_given_jobs_are_yielded_as_they_end() -> None:
    with Pool(engine=FakeEngine(3, lambda job, item, width: float(job))) as pool:
        jobs = {seconds: pool.map(abs, [1], name=seconds) for seconds in ("3", "1", "2")}
        given = [jobs["3"], jobs["1"], jobs["1"]]
        assert [job.name for job in pool.as_completed(given)] == ["1", "3"]
        assert [job.name for job in pool.as_completed(given)] == ["1", "3"]
        assert [job.name for job in pool.as_completed()] == ["1", "2", "3"]
        assert list(pool.as_completed()) == []
        assert list(pool.as_completed([])) == []


def test_jobs_that_are_added_meanwhile_are_yielded() -> None:
    with Pool(engine=InlineEngine()) as pool:
        pool.map(abs, [-1], name="0")
        names = []
        for job in pool.as_completed(timeout=60):
            names.append(job.name)
            if len(names) < 4:
                pool.map(abs, [-1], name=str(len(names)))
    assert names == ["0", "1", "2", "3"]


def test_timeout_of_as_completed_counts_from_the_call() -> None:
    with create_endless_pool() as pool:
        jobs = [pool.map(abs, [1], name=name) for name in ("a", "b")]
        with pytest.raises(TimeoutError, match=r"2 jobs have not ended after 0.01 s"):
            next(pool.as_completed(jobs, timeout=0.01))
        jobs[0].cancel()
        completed = pool.as_completed(timeout=60)
        assert next(completed) is jobs[0]
        late = pool.as_completed(jobs, timeout=0)
        assert next(late) is jobs[0]
        with pytest.raises(TimeoutError, match=r"1 job has not ended after 0 s"):
            next(late)
        jobs[1].cancel()


def test_jobs_of_other_pools_are_refused() -> None:
    with Pool(engine=InlineEngine()) as pool, Pool(engine=InlineEngine()) as other:
        job = other.map(abs, [1], name="elsewhere")
        with pytest.raises(
            InputError, match="jobs must be jobs of this pool, got <Job 'elsewhere'"
        ):
            pool.as_completed([job])
        with pytest.raises(InputError, match="jobs must be jobs of this pool, got 3"):
            pool.as_completed([3])  # type: ignore[arg-type]
        with pytest.raises(InputError, match="jobs must be several jobs, got <Job 'elsewhere'"):
            pool.as_completed(job)  # type: ignore[call-overload]
