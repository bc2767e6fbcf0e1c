"""The lifetime of pools: memory is freed, dropped pools end, and forks leave their parent alone."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.waiting import wait_until

from hesrpt import InputError, JobError, Pool
from hesrpt.engines.fake import FakeEngine
from hesrpt.scheduler import driver as driver_module
from hesrpt.storage.journal_entries import WHOLE_POOL

MEGABYTE = 2**20


def create_fake_pool() -> Pool:
    return Pool(2, engine=FakeEngine(2, lambda job, item, width: 0.001))


def find_driver_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "hesrpt-driver"}


def count_children() -> int:
    """Count child processes, except the one that multiprocessing keeps until the end."""
    children = psutil.Process().children(recursive=True)
    return sum("resource_tracker" not in " ".join(child.cmdline()) for child in children)


# --- dropped pools --------------------------------------------------------------------------------


def test_dropped_pool_ends_its_processes_at_once() -> None:
    gc.collect()
    threads, children = find_driver_threads(), count_children()
    gc.disable()  # references are counted, so no cycle may keep the pool alive
    try:
        pool = Pool(2)
        job = pool.map(time.sleep, [600] * 3)
        while sum(pool.snapshot().held.values()) < 2:  # a function would refer to the pool
            time.sleep(0.01)
        del pool, job
        wait_until(lambda: find_driver_threads() <= threads)
        wait_until(lambda: count_children() <= children)
    finally:
        gc.enable()


def test_job_keeps_its_dropped_pool_running() -> None:
    assert Pool(1).map(abs, [-1, -2]).results(timeout=60) == [1, 2]
    job = Pool(1).map(time.sleep, [0.05] * 4)
    assert job.results(timeout=60) == [None] * 4
    executor = Pool(1).executor()
    assert executor.submit(pow, 2, 3).result(60) == 8


def test_calls_end_though_nobody_holds_their_executor() -> None:
    threads = find_driver_threads()
    futures = [Pool(2).executor().submit(pow, 2, k) for k in range(2)]
    assert [future.result(60) for future in futures] == [1, 2]
    wait_until(lambda: find_driver_threads() <= threads)


def test_dropped_executor_is_shut_down() -> None:
    with create_fake_pool() as pool:
        job = pool.executor().job
        assert job.wait(60)
        assert job.state == "done"


def test_jobs_are_refused_while_a_dropped_pool_ends() -> None:
    pool = create_fake_pool()
    pool._driver.drain()
    with pytest.raises(InputError, match="the pool is closed"):
        pool.map(abs, [1])


def test_closing_twice_and_from_several_threads() -> None:
    pool = Pool(1)
    job = pool.map(time.sleep, [600])
    closers = [threading.Thread(target=pool.close) for _ in range(4)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(60)
        assert not closer.is_alive()
    pool.close()
    with pytest.raises(JobError, match="cancelled"):
        job.results()


def test_pool_that_cannot_start_its_thread_lets_go_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            Pool(1, state=tmp_path / "s")
    with Pool(1, state=tmp_path / "s", resume=True) as pool:
        assert pool.map(abs, [-1]).results() == [1]


# --- memory ---------------------------------------------------------------------------------------


class Witness:
    """An object whose end can be observed."""

    __name__ = "witness"

    def __call__(self, x: object) -> int:
        return 1


@pytest.mark.parametrize("read", [False, True])
def test_functions_and_items_of_ended_jobs_are_freed(read: bool) -> None:
    with Pool(1) as pool:
        function, items = Witness(), [Witness() for _ in range(3)]
        seen = [weakref.ref(value) for value in (function, *items)]
        job = pool.map(function, items)
        assert job.wait(60)
        if read:
            job.results()
        del function, items

        def are_freed() -> bool:
            gc.collect()
            return not any(reference() is not None for reference in seen)

        wait_until(are_freed)


def test_arguments_results_and_futures_of_calls_are_freed() -> None:
    def create(x: object) -> set[int]:
        return {1}

    with Pool(1) as pool, pool.executor() as executor:
        argument = Witness()
        future = executor.submit(create, argument)
        seen: list[weakref.ref[Any]] = [weakref.ref(argument), weakref.ref(future)]
        seen.append(weakref.ref(future.result(60)))
        del argument, future
        wait_until(lambda: not any(reference() is not None for reference in seen))


def read_results(pool: Pool) -> None:
    assert len(pool.map(lambda x: bytes(MEGABYTE), range(20)).results(timeout=60)) == 20


def read_one_by_one(pool: Pool) -> None:
    job = pool.map(lambda x: bytes(MEGABYTE), range(20))
    assert sum(len(result) for result in job.iter_results(timeout=60)) == 20 * MEGABYTE


def yield_as_completed(pool: Pool) -> None:
    pool.map(lambda x: bytes(MEGABYTE), range(20))
    (name,) = [job.name for job in pool.as_completed()]
    assert name


def submit_calls(pool: Pool) -> None:
    with pool.executor() as executor:
        futures = [executor.submit(bytes, MEGABYTE) for _ in range(20)]
        assert sum(len(future.result()) for future in futures) == 20 * MEGABYTE


def fail(pool: Pool) -> None:
    job = pool.map(lambda x: bytes(MEGABYTE) if x < 19 else 1 / 0, range(20), retries=0)
    with pytest.raises(JobError):
        job.results(timeout=60)


def drop_pool(pool: Pool) -> None:
    other = Pool(1)
    job = other.map(lambda x: bytes(MEGABYTE), range(20))
    assert job.wait(60)


@pytest.mark.parametrize(
    "use",
    [
        read_results,
        *(
            pytest.param(use, marks=pytest.mark.slow)
            for use in (submit_calls, read_one_by_one, yield_as_completed, fail, drop_pool)
        ),
    ],
)
def test_memory_does_not_grow(use: Callable[[Pool], None]) -> None:
    # Python's own count: what the system reports includes freed memory that malloc keeps.
    tracemalloc.start()
    try:
        with Pool(2) as pool:
            use(pool)
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            use(pool)
            gc.collect()
            # 20 MB, if results stayed. The thread of a dropped pool may still be ending.
            wait_until(lambda: tracemalloc.get_traced_memory()[0] - before < 5 * MEGABYTE)
    finally:
        tracemalloc.stop()


def test_results_that_nobody_has_read_stay() -> None:
    with Pool(1) as pool:
        pool.map(abs, [-1, -2], name="unread")
        assert pool.wait(60)
        gc.collect()
        (job,) = pool.jobs
        iterator = job.iter_results()
        assert next(iterator) == 1  # not all of them
        del job, iterator
        gc.collect()
        assert [job.results() for job in pool.jobs] == [[1, 2]]
        (job,) = pool.jobs
        assert (job.name, job.state, job.done) == ("unread", "done", 2)
        with pytest.raises(InputError, match="job 'unread': its results were freed"):
            job.results()


def test_jobs_are_read_as_they_are_completed() -> None:
    with Pool(1) as pool:
        for k in range(3):
            pool.map(abs, [-k], name=f"job {k}")
        assert sorted(job.results() for job in pool.as_completed()) == [[0], [1], [2]]
        for job in pool.jobs:
            with pytest.raises(InputError, match="its results were freed"):
                job.results()


def test_job_that_somebody_holds_can_be_read_again() -> None:
    with Pool(1) as pool:
        job = pool.map(abs, [-1, -2])
        assert job.results() == [1, 2]
        assert [other is job for other in pool.jobs] == [True]
        assert [other is job for other in pool.as_completed()] == [True]
        assert job.results() == [1, 2]
    assert job.results() == [1, 2]


def test_results_on_disk_are_never_freed(tmp_path: Path) -> None:
    with Pool(1, state=tmp_path / "s") as pool:
        pool.map(abs, [-1, -2], name="first").results()
        assert pool.jobs[0].results() == [1, 2]


def test_endless_items_are_no_longer_read_once_the_pool_is_dropped() -> None:
    is_read = threading.Event()

    def count() -> Iterator[int]:
        k = 0
        while True:
            is_read.set()
            yield (k := k + 1)

    before = threading.active_count()
    pool = create_fake_pool()
    pool.map(abs, count())
    assert is_read.wait(60)
    del pool
    wait_until(lambda: threading.active_count() <= before)


def test_pool_that_runs_for_weeks_forgets_old_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_REMEMBERED", 20)
    monkeypatch.setattr(driver_module, "_FORGOTTEN_AT_ONCE", 5)
    with Pool(1) as pool:
        held = pool.map(abs, [-1], name="held")
        pool.map(abs, [-2], name="unread")
        for _ in range(4):
            for k in range(15):
                assert pool.map(abs, [-k], name=f"job {k}").results(timeout=60) == [k]
            with pool.executor() as executor:
                assert executor.submit(abs, -1).result(60) == 1
            failed = pool.map(lambda x: 1 // x, [0], name="failed", retries=0)
            with pytest.raises(JobError):
                failed.results(timeout=60)
            del failed, executor
        jobs = pool.jobs
        assert len(jobs) <= 20 + 5 + 4
        assert len({job.name for job in jobs}) == len(jobs)
        assert [job.name for job in jobs[:2]] == ["held", "unread"]
        assert [job.results() for job in (held, jobs[1])] == [[1], [2]]
        driver = pool._driver
        assert len(driver.core.retriable_jobs) <= 3
        numbers = {job._live.number for job in jobs}
        assert {each.job for each in driver.holdings} <= numbers | {WHOLE_POOL}
        assert len(pool.schedule.completion_times) == len(jobs)
