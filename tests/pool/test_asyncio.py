"""Jobs in programs of asyncio: awaited, streamed, cancelled, and in several event loops at once."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, assert_type

import pytest
from support.inline_engine import InlineEngine
from support.stepping import KillSwitch, SteppedEngine, compute
from support.waiting import wait_until

from hesrpt import InputError, Job, JobError, Pool
from hesrpt.engines.engine import Outcome
from hesrpt.engines.fake import FakeEngine


@pytest.fixture(params=["memory", "journal"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    state = tmp_path / "s" if request.param == "journal" else None
    with Pool(engine=InlineEngine(), state=state) as created:
        yield created


def double(x: int) -> int:
    return 2 * x


def fail(x: int) -> int:
    raise ValueError(f"{x} is not nice")


async def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, while other tasks run."""
    async with asyncio.timeout(90):
        while not condition():
            await asyncio.sleep(0.005)


# --- awaiting -------------------------------------------------------------------------------------


def test_await_returns_the_results(pool: Pool) -> None:
    async def main() -> None:
        job = pool.map(double, range(200), name="double")
        results = await job
        assert_type(results, list[int])
        assert results == [2 * x for x in range(200)]
        assert await job == results  # again, now that it has ended
        with pytest.raises(JobError, match=r"job 'fail' failed: .*0 is not nice"):
            await pool.map(fail, [0], name="fail")

    asyncio.run(main())


def test_jobs_in_gather_wait_for_and_task_group(pool: Pool) -> None:
    async def add(number: int) -> list[int]:
        return await pool.map(double, [number], name=f"job {number}")

    async def main() -> None:
        jobs = [pool.map(double, [number]) for number in range(5)]
        assert await asyncio.gather(*jobs) == [[0], [2], [4], [6], [8]]
        assert await asyncio.wait_for(pool.map(double, [7]), 60) == [14]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(add(number)) for number in range(30)]
        assert [task.result() for task in tasks] == [[2 * number] for number in range(30)]

    threads = threading.active_count()
    asyncio.run(main())
    if pool.driver.journal is None:
        assert threading.active_count() == threads  # waiting takes none


def test_cancelling_a_task_leaves_its_job_running() -> None:
    async def main(pool: Pool) -> None:
        job = pool.map(double, [1], name="endless")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await job
        task = asyncio.ensure_future(job)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert not job.has_ended
        assert sum(map(len, pool._driver._watches.values())) == 0
        job.cancel()
        with pytest.raises(JobError, match="job 'endless' was cancelled"):
            await job

    with Pool(engine=FakeEngine(1, lambda job, item, width: 1e9)) as pool:
        asyncio.run(main(pool))


def test_several_event_loops_and_threads_wait_for_one_job() -> None:
    engine = SteppedEngine(1, KillSwitch())
    pool = Pool(engine=engine)
    job = pool.map(double, [4], name="job")
    results: list[Any] = []

    async def main() -> None:
        results.extend(await asyncio.gather(job, job))

    loops = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
    for loop in loops:
        loop.start()
    engine.step_until(lambda: bool(engine.running))
    wait_until(lambda: sum(map(len, pool._driver._watches.values())) == 3)
    finish(engine, 0)
    for loop in loops:
        loop.join(60)
    assert results == [[8]] * 6
    engine.release()
    pool.close()


def test_loop_that_was_closed_does_not_disturb_the_scheduler() -> None:
    engine = SteppedEngine(1, KillSwitch())
    pool = Pool(engine=engine)
    job = pool.map(double, [4], name="job")

    async def wait_in_vain() -> None:
        asyncio.ensure_future(job)  # noqa: RUF006 - nobody awaits it
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(wait_in_vain())
    task = asyncio.all_tasks(loop).pop()
    loop.close()
    assert sum(map(len, pool._driver._watches.values())) == 1
    engine.step_until(lambda: bool(engine.running))
    finish(engine, 0)
    assert job.results(60) == [8]
    task.get_coro().close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    engine.release()
    pool.close()


def test_awaiting_a_scheduler_that_fails() -> None:
    class BrokenEngine(FakeEngine):
        def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
            if self._running:
                raise OSError("the machine is on fire")
            return super().wait_for_outcomes(timeout)

    async def main(job: Job[int]) -> None:
        with pytest.raises(RuntimeError, match="the machine is on fire"):
            await job
        with pytest.raises(RuntimeError, match="the machine is on fire"):
            await anext(job.iter_results())

    pool = Pool(engine=BrokenEngine(1))
    asyncio.run(main(pool.map(double, [1])))
    pool.close()


def test_executor_cannot_be_awaited() -> None:
    async def main() -> None:
        with pytest.raises(InputError, match="its results are in the futures of its executor"):
            await executor.job

    with Pool(engine=InlineEngine()) as pool, pool.executor() as executor:
        asyncio.run(main())


# --- streaming ------------------------------------------------------------------------------------


def finish(engine: SteppedEngine, item: int) -> None:
    """Let an item of the job "job" end."""
    engine.step([compute(engine.running["job", item])])


def test_results_are_streamed_while_the_job_runs(tmp_path: Path) -> None:
    async def main(engine: SteppedEngine, job: Job[int]) -> None:
        ordered, completed = aiter(job), aiter(job.as_completed())
        await asyncio.to_thread(finish, engine, 1)
        assert await anext(completed) == (1, 2)
        waiting = asyncio.ensure_future(anext(ordered))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await asyncio.to_thread(finish, engine, 0)
        assert await waiting == 0
        assert await anext(ordered) == 2
        # A task that gives up waiting loses nothing.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(ordered), 0.01)
        await asyncio.to_thread(finish, engine, 2)
        assert [result async for result in ordered] == [4]
        assert [pair async for pair in completed] == [(0, 0), (2, 4)]
        with pytest.raises(StopAsyncIteration):
            await anext(ordered)

    for state in (None, tmp_path / "s"):
        engine = SteppedEngine(3, KillSwitch())
        pool = Pool(engine=engine, state=state)
        job = pool.map(double, range(3), name="job")
        engine.step_until(lambda: len(engine.running) == 3)  # noqa: B023
        asyncio.run(main(engine, job))
        engine.release()
        pool.close()


def test_stream_gives_way_to_other_tasks(pool: Pool) -> None:
    async def main() -> None:
        job = pool.map(double, range(300), name="double")
        await job
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.ensure_future(count())
        await asyncio.sleep(0)
        assert [result async for result in job] == [2 * x for x in range(300)]
        counter.cancel()
        assert turns > 3

    asyncio.run(main())


def test_large_results_are_read_from_their_files(tmp_path: Path) -> None:
    async def main(pool: Pool) -> None:
        job = pool.map(lambda x: bytes([x]) * 1_200_000, range(3), name="large")
        assert [result[-1] async for result in job] == [0, 1, 2]
        assert [len(result) for result in await job] == [1_200_000] * 3

    with Pool(engine=InlineEngine(), state=tmp_path / "s") as pool:
        asyncio.run(main(pool))
    assert len(list((tmp_path / "s" / "results").iterdir())) == 3


def test_timeout_and_errors_of_a_stream() -> None:
    async def main(pool: Pool) -> None:
        job = pool.map(double, [1, 2], name="endless")
        with pytest.raises(TimeoutError, match="job 'endless' has not yielded all results after"):
            async for _ in job.iter_results(timeout=0.01):
                pass
        job.cancel()
        with pytest.raises(JobError, match="job 'endless' was cancelled"):
            async for _ in job:
                pass
        results: list[object] = [each async for each in job.iter_results(errors="return")]
        assert [type(result) for result in results] == [JobError, JobError]

    with Pool(engine=FakeEngine(1, lambda job, item, width: 1e9)) as pool:
        asyncio.run(main(pool))


def test_program_that_follows_several_jobs_and_stops_one_of_them(pool: Pool) -> None:
    """A program as people write it: workers of a task group, one of which stops early."""

    async def find_first_square_above(limit: int) -> int:
        job = pool.map(lambda x: x * x, itertools.count(), name=f"above {limit}")
        async for square in job:
            if square > limit:
                job.cancel()
                return square
        raise AssertionError("there are always more squares")

    async def main() -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(find_first_square_above(limit)) for limit in (10, 1000, 3000)
            ]
            total = group.create_task(wait_and_add())
        assert total.result() == 90
        await wait_for(lambda: all(job.has_ended for job in pool.jobs))
        return [task.result() for task in tasks]

    async def wait_and_add() -> int:
        return sum(await pool.map(double, range(10), name="sum"))

    assert asyncio.run(main()) == [16, 1024, 3025]
