"""Executors on a pool: the standard interface, and sharing servers with other jobs."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import multiprocessing
import operator
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ALL_COMPLETED, BrokenExecutor, CancelledError, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from hesrpt import InputError, JobError, Pool
from hesrpt.pool.executor import PoolExecutor


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    options = {}
    if request.param == "ray":
        options = {"engine": "ray", "address": request.getfixturevalue("ray_address")}
    with Pool(2, **options) as created:
        yield created


def test_standard_executor_interface(pool: Pool) -> None:
    with pool.executor(name="calls") as executor:
        assert executor.submit(pow, 2, 10).result() == 1024
        assert executor.submit(sorted, [1, 3, 2], reverse=True).result() == [3, 2, 1]
        assert list(executor.map(lambda a, b: a * b, range(20), range(20))) == [
            k * k for k in range(20)
        ]
        failed = executor.submit(operator.getitem, {"a": 1}, "missing")
        with pytest.raises(KeyError, match="missing") as caught:
            failed.result()
        assert "in make_call" in str(caught.value.__cause__)  # the traceback in the worker
    assert executor.job.state == "done"
    assert executor.job.done == 23
    assert repr(executor).startswith("<PoolExecutor 'calls': done, 23 of 23 items in ")
    assert "23/23" in executor._repr_html_()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pow, 1, 1)
    with pytest.raises(InputError, match="its results are in the futures of its executor"):
        executor.job.results()


def test_call_that_crashes_its_process_fails_alone(pool: Pool) -> None:
    with pool.executor() as executor:
        crash = executor.submit(os._exit, 3)
        others = [executor.submit(pow, 2, k) for k in range(5)]
        with pytest.raises(JobError, match="the process ended"):
            crash.result()
        assert [future.result() for future in others] == [1, 2, 4, 8, 16]


def test_waiting_calls_can_be_cancelled(pool: Pool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def wait_for_gate() -> None:
        while not gate.exists():
            time.sleep(0.01)

    def touch(number: int) -> None:
        (tmp_path / str(number)).touch()

    executor = pool.executor()
    slow = [executor.submit(wait_for_gate) for _ in range(2)]
    wait_until(lambda: all(future.running() for future in slow))
    later = [executor.submit(touch, k) for k in range(100)]
    assert later[50].cancel()
    executor.shutdown(wait=False, cancel_futures=True)
    gate.touch()
    assert executor.job.wait(90)
    assert wait([*slow, *later], 90, ALL_COMPLETED).not_done == set()
    assert all(future.exception() is None for future in slow)
    assert later[50].cancelled()
    # One or two may have been started already.
    assert sum(future.cancelled() for future in later) >= 95
    assert len(list(tmp_path.iterdir())) - 1 == sum(not future.cancelled() for future in later)


def test_executors_and_jobs_share_servers(pool: Pool) -> None:
    long = pool.map(time.sleep, [0.02] * 10_000, name="long")
    with pool.executor("short") as executor:
        assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]
        assert not long.has_ended
    long.cancel()
    assert {job.name for job in pool.jobs} == {"long", "short"}


def test_callbacks_of_futures_do_not_block_the_scheduler() -> None:
    """A callback may wait for another job of the same pool."""
    with Pool(2) as pool, pool.executor() as executor:
        seen: list[int] = []
        done = threading.Event()

        def run_another_job(_: object) -> None:
            seen.append(pool.map(abs, [-7], name="other").results(timeout=90)[0])
            done.set()

        executor.submit(abs, -1).add_done_callback(run_another_job)
        assert done.wait(90)
        assert seen == [7]


def test_closing_the_pool_closes_its_executors() -> None:
    pool = Pool(1)
    executor = pool.executor()
    running, waiting = executor.submit(time.sleep, 60), executor.submit(abs, 1)
    wait_until(running.running)
    pool.close()
    with pytest.raises(CancelledError):
        running.result(60)
    with pytest.raises(CancelledError):
        waiting.result(60)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)
    with pytest.raises(InputError, match="closed"):
        pool.executor()


def test_callbacks_that_exit_and_futures_finished_by_others_do_no_harm(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def wait_for(gate: Path) -> None:
        while not gate.exists():
            time.sleep(0.01)

    def leave(_: object) -> None:
        raise SystemExit

    with Pool(1) as pool, pool.executor() as executor:
        gates = [tmp_path / "first", tmp_path / "second"]
        first, running = (executor.submit(wait_for, gate) for gate in gates)
        first.add_done_callback(leave)
        executor.submit(abs, -1).set_result(5)  # it waits, because there is one server
        gates[0].touch()
        wait_until(running.running)
        running.set_result(None)
        gates[1].touch()
        assert executor.submit(abs, -2).result(60) == 2
        assert first.result(60) is None
    assert "a callback of a future ended with SystemExit" in caplog.text


async def run_on_loop(executor: PoolExecutor) -> list[int]:
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*(loop.run_in_executor(executor, abs, -k) for k in range(5)))


def test_asyncio_uses_an_executor() -> None:
    with Pool(2) as pool, pool.executor() as executor:
        assert asyncio.run(run_on_loop(executor)) == [0, 1, 2, 3, 4]


def test_slow_and_unpicklable_calls_fail() -> None:
    with Pool(1) as pool:
        with pool.executor(timeout=0.3) as executor:
            late = executor.submit(time.sleep, 60)
            unpicklable = executor.submit(print, threading.Lock())
            with pytest.raises(JobError, match="time limit"):
                late.result(90)
            with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock' object"):
                unpicklable.result(90)
        with pytest.raises(InputError, match="timeout must be"):
            pool.executor(timeout=0)


def test_initializer_runs_once_in_each_worker_before_the_first_call(
    pool: Pool, tmp_path: Path
) -> None:
    def initialize(name: str) -> None:
        with (tmp_path / f"{name} {os.getpid()}").open("a") as file:
            file.write("initialized\n")

    def read(name: str) -> str:
        return (tmp_path / f"{name} {os.getpid()}").read_text()

    with (
        pool.executor(initializer=initialize, initargs=("a",)) as first,
        pool.executor(initializer=initialize, initargs=("b",)) as second,
    ):
        assert set(first.map(read, ["a"] * 30)) == {"initialized\n"}
        assert set(second.map(read, ["b"] * 30)) == {"initialized\n"}
        assert pool.map(abs, [-1]).results() == [1]


def test_failing_initializer_breaks_its_executor_only(pool: Pool) -> None:
    def fail(message: str) -> None:
        raise ValueError(message)

    long = pool.map(time.sleep, [0.01] * 100, name="long")
    executor = pool.executor("broken", initializer=fail, initargs=("no licence",))
    futures = [executor.submit(abs, -1)]
    with contextlib.suppress(BrokenExecutor):  # it may be known already
        futures.extend(executor.submit(abs, -1) for _ in range(50))
    for future in futures:
        with pytest.raises(BrokenProcessPool, match="initializer raised ValueError: no licence"):
            future.result(90)
    with pytest.raises(JobError, match="initializer raised ValueError: no licence"):
        executor.submit(abs, -1)
    executor.shutdown()
    assert executor.job.state == "failed"
    assert long.results(90) == [None] * 100
    with pool.executor("other") as other:
        assert other.submit(abs, -2).result(90) == 2


def test_worker_is_replaced_after_so_many_calls(tmp_path: Path) -> None:
    def get_pid() -> int:
        atexit.register((tmp_path / str(os.getpid())).touch)
        return os.getpid()

    with Pool(2) as pool, pool.executor(max_tasks_per_child=3) as executor:
        futures = [executor.submit(get_pid) for _ in range(9)]
        calls = Counter(future.result(90) for future in futures)
        assert len(calls) >= 3
        assert max(calls.values()) == 3
        used_up = [pid for pid, count in calls.items() if count == 3]
        assert all((tmp_path / str(pid)).exists() for pid in used_up)
        assert pool.map(str, range(20)).results() == [str(k) for k in range(20)]


@pytest.mark.slow
def test_worker_is_replaced_even_if_its_exit_functions_hang() -> None:
    def leave_trap() -> int:
        atexit.register(time.sleep, 600)
        return os.getpid()

    with Pool(1) as pool, pool.executor(max_tasks_per_child=1) as executor:
        first = executor.submit(leave_trap).result(90)
        assert executor.submit(os.getpid).result(90) != first


def test_calls_of_a_script_see_the_globals_that_the_initializer_sets(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """\
from functools import partial
from hesrpt import Pool
state = count = None
def initialize(value):
    global state, count
    state, count = value, 0
def use(number):
    global count
    count += 1
    return f"{state}-{count}"
class User:
    def use(self, number):
        return use(number)
with Pool(1) as pool, pool.executor(initializer=initialize, initargs=("ready",)) as executor:
    print(executor.submit(use, 1).result())
    print(*executor.map(use, range(4), chunksize=2))
    print(executor.submit(partial(use, 1)).result())
    print(executor.submit(User().use, 1).result())
print(state)
"""
    )
    output = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, timeout=90
    ).stdout
    assert output.split() == [*(f"ready-{count}" for count in range(1, 8)), "None"]


def test_calls_share_locks_queues_and_pipes_with_the_script() -> None:
    context = multiprocessing.get_context("spawn")  # those of "fork" exist in forks only
    queue, lock, number = context.Queue(), context.Lock(), context.Value("i", 0)
    reader, writer = context.Pipe(duplex=False)

    def initialize(*shared: Any) -> None:
        vars(sys)["shared"] = shared

    def count(_: int) -> None:
        queue, lock, number = vars(sys)["shared"]
        with lock:
            number.value += 1
        queue.put(os.getpid())

    with (
        Pool(2) as pool,
        pool.executor(
            initializer=initialize, initargs=(queue, lock, number), max_tasks_per_child=4
        ) as executor,
    ):
        assert list(executor.map(count, range(10))) == [None] * 10
        assert number.value == 10
        assert len({queue.get(timeout=90) for _ in range(10)}) >= 3
        executor.submit(writer.send, "hello")
        assert reader.poll(90)
        assert reader.recv() == "hello"
        lock.acquire()
        executor.submit(lock.release).result(90)
        assert lock.acquire(timeout=90)


def test_lock_of_the_fork_context_is_refused() -> None:
    lock = multiprocessing.get_context("fork").Lock()
    with Pool(1) as pool:
        with pytest.raises(InputError, match="created in a fork context"):
            pool.executor(initializer=print, initargs=(lock,))
        with pool.executor() as executor, pytest.raises(RuntimeError, match="fork context"):
            executor.submit(print, lock).result(90)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"initializer": 5}, "initializer must be callable, got 5"),
        ({"initializer": print, "initargs": 5}, "initargs must be a tuple, got 5"),
        ({"max_tasks_per_child": 0}, "max_tasks_per_child must be a whole number of at least 1"),
        ({"max_tasks_per_child": "3"}, "max_tasks_per_child must be"),
        ({"initializer": print, "initargs": (threading.Lock(),)}, "cannot be sent"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with Pool(1) as pool, pytest.raises(InputError, match=problem):
        pool.executor(**options)


@pytest.mark.slow
def test_cluster_refuses_to_replace_workers(ray_address: str) -> None:
    with (
        Pool(1, engine="ray", address=ray_address) as pool,
        pytest.raises(InputError, match="max_tasks_per_child needs the local engine"),
    ):
        pool.executor(max_tasks_per_child=1)
