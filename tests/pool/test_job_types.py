"""The static types of jobs and results: mypy checks these tests, and pytest runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import assert_type

import pytest

from hesrpt import Job, Pool
from hesrpt.engines.fake import FakeEngine


def describe(number: int) -> str:
    return f"number {number}"


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(servers=1) as created:
        yield created


def test_map_infers_the_type_of_results(pool: Pool) -> None:
    job = pool.map(describe, [1, 2])
    assert_type(job, Job[str])
    assert_type(job.results(), list[str])
    assert_type(next(job.iter_results()), str)
    assert_type(next(job.as_completed()), tuple[int, str])
    assert_type(aiter(job), AsyncIterator[str])
    assert_type(next(pool.as_completed([job])), Job[str])
    assert job.results() == ["number 1", "number 2"]


def test_map_infers_the_results_of_lambdas_and_builtins(pool: Pool) -> None:
    lengths = pool.map(len, ["a", "bc"])
    assert_type(lengths.results(), list[int])
    halves = pool.map(lambda number: number / 2, range(3))
    assert_type(halves, Job[float])
    assert halves.results() == [0.0, 0.5, 1.0]


def test_job_is_covariant() -> None:
    with Pool(servers=1, engine=FakeEngine(1)) as pool:
        job: Job[object] = pool.map(describe, [1])  # a job of strings is a job of objects
        assert job.wait(60)


def test_executor_infers_the_type_of_futures(pool: Pool) -> None:
    with pool.executor() as executor:
        future = executor.submit(describe, 3)
        assert_type(future, Future[str])
        assert future.result(60) == "number 3"
