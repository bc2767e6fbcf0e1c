"""Jobs whose items fail: what users are told, what stays reachable, and what runs again."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.inline_engine import InlineEngine
from support.waiting import wait_until

from hesrpt import InputError, Job, JobError, Pool
from hesrpt.scheduler.requests import request_change
from hesrpt.storage.journal import Journal


class Flaky:
    """A function that fails for some items, until it is repaired; pickled by reference."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.calls = set(bad), list[int]()

    def __call__(self, x: int) -> int:
        self.calls.append(x)
        if x in self.bad:
            raise ValueError(f"{x} is bad")
        return x * x


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(engine=InlineEngine()) as created:
        yield created


def add(pool: Pool, flaky: Flaky, items: Any, **options: Any) -> Job[int]:
    return pool.map(flaky, items, name="job", **options)


def test_other_items_go_on_after_a_failure(pool: Pool) -> None:
    job = add(pool, Flaky(3, 7), range(10), on_error="keep", retries=1)
    job.wait()
    assert (job.state, job.done) == ("failed", 8)
    assert job.error == "2 of 10 items failed; the first: item 3: ValueError: 3 is bad"
    assert [(each.item, each.attempts, each.error) for each in job.failures] == [
        (3, 2, "ValueError: 3 is bad"),
        (7, 2, "ValueError: 7 is bad"),
    ]
    assert "test_failures.py" in job.failures[0].traceback
    results = job.results(errors="return")
    assert [x for x in results if isinstance(x, int)] == [0, 1, 4, 16, 25, 36, 64, 81]
    assert [str(results[item]) for item in (3, 7)] == ["3 is bad", "7 is bad"]
    with pytest.raises(JobError, match=r"^job 'job' failed: 2 of 10 items failed") as caught:
        job.results()
    assert isinstance(caught.value.__cause__, ValueError)


def test_more_failures_than_are_read_ahead_do_not_stop_a_job(pool: Pool) -> None:
    flaky = Flaky(*range(200))
    job = add(pool, flaky, (x for x in range(300)), on_error="keep", retries=0)
    assert job.wait(60)
    assert (len(job.failures), job.done) == (200, 100)


def test_failed_items_run_again_alone_after_the_job_has_ended(pool: Pool) -> None:
    flaky = Flaky(3, 7)
    job = add(pool, flaky, (x for x in range(10)), on_error="keep", retries=0)
    job.wait()
    flaky.bad, flaky.calls = {7}, []
    job.retry()
    assert not job.has_ended
    job.wait()
    assert sorted(flaky.calls) == [3, 7]
    assert (job.state, job.done) == ("failed", 9)
    assert [(each.item, each.attempts) for each in job.failures] == [(7, 2)]
    flaky.bad = set()
    job.retry()
    assert job.results() == [x * x for x in range(10)]
    assert (job.state, job.error, job.failures) == ("done", None, [])


@pytest.mark.parametrize("is_generator", [False, True])
def test_job_that_a_failure_has_stopped_can_go_on(pool: Pool, is_generator: bool) -> None:
    flaky = Flaky(5)
    items = (x for x in range(200)) if is_generator else range(200)
    job = add(pool, flaky, items, retries=0)
    job.wait()
    assert (job.state, job.error) == ("failed", "item 5: ValueError: 5 is bad")
    done = job.done
    assert 0 < done < 199
    results = job.results(errors="return")
    assert results[:5] == [0, 1, 4, 9, 16]
    assert isinstance(results[5], ValueError)
    flaky.bad, flaky.calls = set(), []
    job.retry()
    assert job.results() == [x * x for x in range(200)]
    assert len(flaky.calls) == 200 - done, "items that were done ran again"


@pytest.mark.parametrize("ordered", [True, False])
def test_streams_of_results_go_on_when_failed_items_are_retried(pool: Pool, ordered: bool) -> None:
    flaky = Flaky(0)
    job = add(pool, flaky, range(4), on_error="keep", retries=0)
    job.wait()
    flaky.bad = set()
    job.retry()
    stream = job.iter_results(ordered=ordered, errors="return")  # before the driver has seen it
    assert sorted(stream) == [0, 1, 4, 9]


def test_job_that_is_retried_while_jobs_are_yielded_is_yielded_again(pool: Pool) -> None:
    first, second = Flaky(1), Flaky(2)
    for flaky in (first, second):
        add(pool, flaky, range(4), on_error="keep", retries=0)
    pool.wait()
    states = []
    for job in pool.as_completed():  # which holds no job any longer
        states.append(job.state)
        if job.state == "failed":
            first.bad, second.bad = set(), set()
            job.retry()
        else:
            assert job.results() == [0, 1, 4, 9]
        del job
    assert sorted(states) == ["done", "done", "failed", "failed"]


def test_retry_is_refused_if_no_item_can_run_again(pool: Pool) -> None:
    job = add(pool, Flaky(), range(3))
    job.wait()
    with pytest.raises(InputError, match="'job' cannot be retried: it has no failed item"):
        job.retry()
    gate = threading.Event()

    def generate() -> Iterator[int]:
        yield 0
        gate.wait(60)

    cancelled = pool.map(Flaky(0), generate(), name="cancelled", on_error="keep", retries=0)
    wait_until(lambda: len(cancelled.failures) == 1)
    cancelled.cancel()
    cancelled.wait()
    gate.set()
    with pytest.raises(InputError, match="cannot be retried: it was cancelled"):
        cancelled.retry()
    endless = pool.map(Flaky(), itertools.count(), name="endless")  # no item fails
    endless.cancel()
    endless.wait()
    with pytest.raises(InputError, match="cannot be retried: it was cancelled"):
        endless.retry()
    assert isinstance(cancelled.results(errors="return")[0], ValueError)
    with Pool(engine=InlineEngine()) as other:
        job = add(other, Flaky(1), range(3))
        job.wait()
    with pytest.raises(InputError, match="the pool is closed"):
        job.retry()


def test_results_of_a_cancelled_job_stay_reachable(pool: Pool) -> None:
    gate = threading.Event()

    def generate() -> Iterator[int]:
        yield from range(3)
        gate.wait(60)

    job = add(pool, Flaky(), generate())
    wait_until(lambda: job.done == 3)
    job.cancel()
    job.wait()
    gate.set()
    assert job.results(errors="return")[:3] == [0, 1, 4]


def test_dropped_job_releases_the_items_that_it_might_have_retried() -> None:
    before = set(threading.enumerate())
    with Pool(engine=InlineEngine()) as pool:
        job = add(pool, Flaky(0), (x for x in range(10_000)), retries=0)
        job.wait()
        with pytest.raises(JobError):
            job.results()
        assert list(pool.as_completed())
        del job

        def has_released_items() -> bool:
            gc.collect()  # another thread may have held the job at the last collection
            readers = {each for each in threading.enumerate() if each.name == "hesrpt-items"}
            return readers <= before

        wait_until(has_released_items)


def test_failures_are_in_the_journal_and_a_resume_does_them_again(tmp_path: Path) -> None:
    state, flaky = tmp_path / "state", Flaky(3)
    with Pool(engine=InlineEngine(), state=state) as pool:
        job = add(pool, flaky, list(range(6)), on_error="keep", retries=1)
        job.wait()
        journal = Journal.read(state)
        (record,) = journal.read_records()
        assert (record.state, record.failures) == ("failed", 2)
        (failure,) = journal.read_failures(record)
        assert failure == job.failures[0]
        assert (failure.value, failure.attempts) == ("3", 2)
        assert isinstance(failure.exception, ValueError)
        assert "test_failures.py" in str(failure.exception.__cause__)
        flaky.bad.clear()
        job.retry()
        job.wait()
        (record,) = journal.read_records()
        assert (record.state, record.error, record.failures) == ("done", None, 2)
        assert journal.read_failures(record) == []
        journal.close()
    flaky.bad, flaky.calls = {9}, []
    with Pool(engine=InlineEngine(), state=state, resume=True, on_change="keep") as pool:
        job = add(pool, flaky, list(range(10)), on_error="keep", retries=0)
        with pytest.raises(JobError) as caught:
            job.results()
        assert isinstance(caught.value.__cause__, ValueError)
        assert sorted(flaky.calls) == [6, 7, 8, 9]
    flaky.bad, flaky.calls = set(), []
    with Pool(engine=InlineEngine(), state=state, resume=True, on_change="keep") as pool:
        assert add(pool, flaky, list(range(10))).results() == [x * x for x in range(10)]
        assert flaky.calls == [9]


def test_wrong_on_error_is_refused(pool: Pool) -> None:
    with pytest.raises(InputError, match="on_error must be 'raise' or 'keep', got 'ignore'"):
        add(pool, Flaky(), range(3), on_error="ignore")


def test_other_process_can_retry_a_job_that_has_ended(tmp_path: Path) -> None:
    state, flaky = tmp_path / "state", Flaky(3)
    with Pool(engine=InlineEngine(), state=state) as pool:
        job = add(pool, flaky, list(range(6)), on_error="keep", retries=0)
        job.wait()
        flaky.bad, flaky.calls = set(), []
        (result,) = request_change(state, "retry", ["job"])
        assert (result.text, result.is_refused) == ("runs its failed items again", False)
        wait_until(lambda: job.state == "done")
        assert flaky.calls == [3]
