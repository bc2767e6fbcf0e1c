"""Results that are read while their job runs: in order, as completed, and after a resume."""

from __future__ import annotations

import gc
import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from support.inline_engine import InlineEngine
from support.stepping import GuidedItems, KillSwitch, SteppedEngine, compute, drain
from support.waiting import wait_until

from hesrpt import InputError, Job, JobError, Pool
from hesrpt.engines.engine import Outcome, Task
from hesrpt.engines.fake import FakeEngine
from hesrpt.storage.journal import Journal

T = TypeVar("T")


class Stage:
    """A pool whose items end when a test says so, with or without a journal."""

    def __init__(self, state: Path | None, resume: bool = False) -> None:
        self.engine = SteppedEngine(8, KillSwitch())
        self.pool = Pool(engine=self.engine, state=state, resume=resume)

    def start(self, items: Iterable[Any], **options: Any) -> Job[Any]:
        """Add a job that doubles numbers, and let its items start."""
        job = self.pool.map(lambda x: x * 2, items, name="double", retries=0, **options)
        self.wait_for_items(len(items) if isinstance(items, range) else 1)
        return job

    def wait_for_items(self, count: int) -> None:
        self.engine.step_until(lambda: len(self.engine.running) >= count)

    def finish(self, *items: int) -> None:
        """Let items end, in this order."""
        running = [self.engine.running["double", item] for item in items]
        self.engine.step([compute(each) for each in running])

    def fail(self, item: int, error: str) -> None:
        """Let an item fail."""
        self.engine.step([Outcome("double", item, 1.0, error=error)])

    def close(self) -> None:
        self.engine.release()
        self.pool.close()


@pytest.fixture(params=["memory", "journal"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with closing(Stage(tmp_path / "s" if request.param == "journal" else None)) as created:
        yield created


# --- while the job runs ---------------------------------------------------------------------------


def test_an_item_is_yielded_once_it_and_all_before_it_have_ended(stage: Stage) -> None:
    job = stage.start(range(5))
    stream = job.iter_results(timeout=0)
    assert drain(stream) == []
    stage.finish(1, 2)
    assert drain(stream) == []
    stage.finish(0)
    assert drain(stream) == [0, 2, 4]
    stage.finish(4)
    assert drain(stream) == []
    stage.finish(3)
    assert job.state == "done"
    assert drain(stream) == [6, 8]
    with pytest.raises(StopIteration):
        next(stream)
    assert job.results() == list(job.iter_results()) == [0, 2, 4, 6, 8]


def test_items_are_yielded_as_completed(stage: Stage) -> None:
    job = stage.start(range(5))
    stream, pairs = job.iter_results(0, ordered=False), job.as_completed(0)
    stage.finish(3, 1)
    assert drain(stream) == [6, 2]
    stage.finish(4)
    stage.finish(0)
    assert drain(stream) == [8, 0]
    assert drain(pairs) == [(3, 6), (1, 2), (4, 8), (0, 0)]  # two streams do not disturb each other
    stage.finish(2)
    assert drain(pairs) == [(2, 4)]
    assert list(stream) == [4]
    assert list(job.as_completed()) == [(3, 6), (1, 2), (4, 8), (0, 0), (2, 4)]


def test_generator_of_unknown_length_is_streamed(stage: Stage) -> None:
    items = GuidedItems([10, 20, 30])
    job = stage.pool.map(lambda x: x * 2, items, name="double")
    stream, completed = job.iter_results(0), job.as_completed(0)
    items.offer(2)
    stage.wait_for_items(2)
    assert job.items is None
    stage.finish(1)
    assert (drain(stream), drain(completed)) == ([], [(1, 40)])
    stage.finish(0)
    assert (drain(stream), drain(completed)) == ([20, 40], [(0, 20)])
    items.offer(1)
    stage.wait_for_items(1)
    stage.finish(2)
    stage.engine.step_until(lambda: job.state == "done")
    assert (list(stream), list(completed)) == ([60], [(2, 60)])


def test_only_what_is_durable_is_yielded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path / "s")
    job = stage.start(range(3))
    stream, completed = job.iter_results(0), job.as_completed(0)
    before: list[Any] = []
    write = Journal.write

    def look_before_writing(journal: Journal, changes: Any) -> None:
        before.append(drain(stream) + drain(completed))
        write(journal, changes)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", look_before_writing)
        stage.finish(0, 1)
    assert before == [[]]
    assert drain(stream) + drain(completed) == [0, 2, (0, 0), (1, 2)]
    stage.close()


def test_results_of_a_job_are_the_items_of_another_while_both_run(stage: Stage) -> None:
    first = stage.start(range(2))
    second = stage.pool.map(lambda x: x + 1, first.iter_results(), name="fed")
    stage.finish(0)
    stage.engine.step_until(lambda: ("fed", 0) in stage.engine.running)
    assert not first.has_ended
    stage.engine.step([compute(stage.engine.running["fed", 0])])
    assert drain(second.iter_results(0)) == [1]
    stage.finish(1)
    stage.engine.step_until(lambda: ("fed", 1) in stage.engine.running)
    stage.engine.step([compute(stage.engine.running["fed", 1])])
    stage.engine.step_until(lambda: second.has_ended)
    assert second.results() == [1, 3]


def test_timeout_counts_from_the_call_and_limits_only_waiting(stage: Stage) -> None:
    job = stage.start(range(3))
    stage.finish(0, 1)
    stream = job.iter_results(0.01)
    time.sleep(0.02)
    assert [next(stream), next(stream)] == [0, 2]  # time is up, but these are there
    with pytest.raises(
        TimeoutError, match=r"job 'double' has not yielded all results after 0.01 s"
    ):
        next(stream)
    stage.finish(2)
    assert list(stream) == [4]


def test_slow_reader_does_not_block_the_job() -> None:
    with Pool(engine=InlineEngine(2)) as pool:
        job = pool.map(lambda x: x, range(500))
        streams = [job.iter_results(60), job.iter_results(60, ordered=False)]
        assert [next(stream) for stream in streams] == [0, 0]
        assert job.wait(60)  # though hardly anything has been read
        assert [sum(stream) for stream in streams] == [sum(range(500))] * 2


def test_streams_that_are_dropped_leave_nothing_open(tmp_path: Path) -> None:
    process, threads = psutil.Process(), threading.active_count()
    with Pool(engine=InlineEngine(2), state=tmp_path / "s") as pool:
        job = pool.map(lambda x: x, range(100), name="numbers")
        for ordered in (True, False):
            for _ in range(3):
                next(job.iter_results(60, ordered=ordered))
        assert job.wait(60)
        open_files = len(process.open_files())
        for _ in range(20):
            stream = job.iter_results(60)
            next(stream)
        del stream
        gc.collect()
        # SQLite closes a file only when no other connection of the process has locked it.
        wait_until(lambda: len(process.open_files()) <= open_files, 60)
        assert job.results() == list(range(100))
    assert threading.active_count() == threads


def test_journal_is_not_open_while_a_stream_waits(tmp_path: Path) -> None:
    with closing(Stage(tmp_path / "s")) as stage:
        job = stage.start(range(3))
        stage.finish(0, 1)
        streams = [job.iter_results(0) for _ in range(20)]
        open_files = [(drain(stream), len(psutil.Process().open_files()))[1] for stream in streams]
        # SQLite keeps a few files of the first one for the others.
        assert open_files == [open_files[0]] * 20


def test_each_result_is_read_from_the_journal_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    read_results = Journal.read_results

    def count(journal: Journal, number: int, run: int, *ranges: range) -> Any:
        read.extend(ranges[1])
        return read_results(journal, number, run, *ranges)

    monkeypatch.setattr(Journal, "read_results", count)
    with Pool(engine=InlineEngine(4), state=tmp_path / "s") as pool:
        job = pool.map(lambda x: x, range(300), name="numbers")
        assert list(job.iter_results()) == list(range(300))
        assert read == list(range(300))
        read.clear()
        assert sorted(job.iter_results(ordered=False)) == sorted(read) == list(range(300))


# --- jobs that fail or are cancelled --------------------------------------------------------------


def test_cancelled_job_yields_what_is_done_and_then_raises(stage: Stage) -> None:
    job = stage.start(range(5))
    ordered, completed = job.iter_results(), job.as_completed()
    stage.finish(3, 0)
    job.cancel()
    stage.engine.step()
    seen: list[Any] = []
    with pytest.raises(JobError, match="job 'double' was cancelled"):
        seen.extend(ordered)
    assert seen == [0]  # 3 would not be in its place
    with pytest.raises(JobError, match="job 'double' was cancelled"):
        seen.extend(completed)
    assert seen == [0, (3, 6), (0, 0)]
    for stream in (ordered, completed):
        assert list(stream) == []
    with pytest.raises(JobError, match="job 'double' was cancelled"):
        job.results()


def test_items_that_were_not_done_have_errors_in_their_places(stage: Stage) -> None:
    job = stage.start(range(4))
    stage.finish(2)
    job.cancel()
    stage.engine.step()
    first, second, third, fourth = job.results(errors="return")
    assert third == 4
    for item, error in [(0, first), (1, second), (3, fourth)]:
        assert isinstance(error, JobError)
        assert str(error) == f"item {item} was not done: job 'double' was cancelled"
    pairs = list(job.as_completed(errors="return"))
    assert [item for item, _ in pairs] == [2, 0, 1, 3]
    assert [type(result) for _, result in pairs] == [int, JobError, JobError, JobError]


def test_failed_job_keeps_what_was_done(stage: Stage) -> None:
    job = stage.start(range(4))
    stage.finish(0, 3)
    stage.fail(1, "no luck")
    assert job.state == "failed"
    with pytest.raises(JobError, match="no luck"):
        job.results()
    stream = job.iter_results()
    assert next(stream) == 0
    with pytest.raises(JobError, match="no luck"):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)
    results = job.results(errors="return")
    assert (results[0], results[3]) == (0, 6)
    assert "no luck" in str(results[1])
    assert str(results[2]).startswith("item 2 was not done: job 'double' failed: item 1: no luck")


def test_failed_items_of_a_job_that_goes_on(stage: Stage) -> None:
    job = stage.start(range(4), on_error="keep")
    ordered, completed = job.iter_results(0), job.as_completed(0)
    returned = job.iter_results(0, errors="return")
    stage.finish(0, 2)
    stage.fail(1, "no luck")
    assert next(ordered) == 0
    with pytest.raises(JobError, match=r"job 'double': item 1 has failed: .*no luck") as caught:
        next(ordered)  # now, and not at the end of the job
    assert caught.value.__cause__ is job.failures[0].exception
    first, second, third = drain(returned)
    assert (first, second, third) == (0, job.failures[0].exception, 4)
    assert drain(completed) == [(0, 0), (2, 4)]
    stage.finish(3)
    assert job.state == "failed"
    assert drain(returned) == [6]
    assert next(completed) == (3, 6)
    with pytest.raises(JobError, match="no luck"):
        next(completed)


def test_streams_of_a_job_that_is_retried(stage: Stage) -> None:
    job = stage.start(range(3))
    stage.finish(0)
    stage.fail(1, "no luck")
    early = job.as_completed(0, errors="return")
    assert next(early) == (0, 0)
    job.retry()
    stage.wait_for_items(2)
    ordered = job.iter_results(0)
    assert drain(ordered) == [0]
    stage.finish(2, 1)
    assert drain(ordered) == [2, 4]
    assert job.state == "done"
    pairs = list(job.as_completed())
    assert pairs == [(0, 0), (2, 4), (1, 2)]
    (item, problem), *others = list(early)  # which had seen the failure
    assert (item, type(problem)) == (1, JobError)
    assert others[-2:] == [(2, 4), (1, 2)]


def test_job_that_ended_before_all_items_were_read(stage: Stage) -> None:
    items = GuidedItems([1, 2, 3, 4])
    job = stage.pool.map(lambda x: x * 2, items, name="double")
    items.offer(3)
    stage.wait_for_items(3)
    stage.finish(1)
    job.cancel()
    stage.engine.step()
    first, second = job.results(errors="return")
    assert (type(first), second) == (JobError, 4)
    items.abandon()


def test_errors_must_be_known(stage: Stage) -> None:
    job = stage.start(range(1))
    for read in (job.results, job.iter_results, job.as_completed):
        with pytest.raises(InputError, match=r"errors must be 'raise' or 'return', got 'ignore'"):
            read(errors="ignore")  # type: ignore[arg-type]


def test_executor_has_no_results() -> None:
    with Pool(engine=InlineEngine()) as pool, pool.executor("calls") as executor:
        for read in (executor.job.results, executor.job.iter_results, executor.job.as_completed):
            with pytest.raises(InputError, match="job 'calls': its results are in the futures"):
                read()  # at once: the executor has not been shut down


class Unloadable:
    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return raise_error, ("cannot be opened here",)


def raise_error(problem: str) -> None:
    raise OSError(problem)


def test_result_that_cannot_be_unpickled_is_named(stage: Stage) -> None:
    job = stage.pool.map(lambda x: Unloadable() if x == 1 else x, range(3), name="double")
    stage.wait_for_items(3)
    stage.finish(0, 1, 2)
    problem = "job 'double': the result of item 1 cannot be unpickled: OSError: cannot be opened"
    with pytest.raises(Exception, match=problem) as caught:
        job.results()
    assert isinstance(caught.value.__cause__, OSError)
    first, second, third = job.results(errors="return")
    assert (first, third) == (0, 2)
    assert str(second).startswith(problem)


# --- resumed runs ---------------------------------------------------------------------------------


def run_some(state: Path, items: Iterable[int]) -> None:
    with Pool(engine=InlineEngine(), state=state) as pool:
        pool.map(lambda x: x * 2, items, name="double").results()


@pytest.mark.parametrize("as_generator", [False, True])
def test_results_of_earlier_runs_are_yielded_at_their_places(
    tmp_path: Path, as_generator: bool
) -> None:
    run_some(tmp_path / "s", [1, 2, 3, 4, 5])
    stage = Stage(tmp_path / "s", resume=True)
    numbers = [9, 2, 1, 5, 8, 3]  # 4 has gone, 9 and 8 are new, and others have moved
    items: Any = iter(numbers) if as_generator else numbers
    job = stage.pool.map(lambda x: x * 2, items, name="double")
    stage.wait_for_items(2)
    stage.engine.step_until(lambda: job.done == 4)
    ordered, completed = job.iter_results(0), job.as_completed(0)
    assert drain(ordered) == []
    assert sorted(drain(completed)) == [(1, 4), (2, 2), (3, 10), (5, 6)]
    stage.finish(0)
    assert (drain(ordered), drain(completed)) == ([18, 4, 2, 10], [(0, 18)])
    stage.finish(4)
    stage.engine.step_until(lambda: job.state == "done")
    assert (drain(ordered), drain(completed)) == ([16, 6], [(4, 16)])
    stage.close()
    # Results that have moved twice, and a job with nothing left to do.
    for _ in range(2):
        with Pool(engine=InlineEngine(), state=tmp_path / "s", resume=True) as pool:
            job = pool.map(lambda x: x * 2, list(range(1, 10)), name="double")
            assert list(job.iter_results()) == [2 * x for x in range(1, 10)]
            assert sorted(job.as_completed()) == [(x - 1, 2 * x) for x in range(1, 10)]


# --- results that stay in a cluster ---------------------------------------------------------------


class KeepingEngine(FakeEngine):
    """Leaves results in a pretended cluster."""

    can_keep_results = True

    def __init__(self) -> None:
        super().__init__(2)
        self.tasks: dict[int, Task] = {}
        self.fetched: list[str] = []

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        self.tasks |= tasks
        super().start(job, tasks, servers)

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        return [
            Outcome(each.job, each.item, each.seconds, reference=f"reference {each.item}")
            for each in super().wait_for_outcomes(timeout)
        ]

    def fetch(self, reference: str) -> str:
        self.fetched.append(reference)
        return reference.upper()


def test_references_are_fetched_one_by_one() -> None:
    engine = KeepingEngine()
    with Pool(engine=engine) as pool:
        job: Job[Any] = pool.map(abs, range(3), keep=True)
        stream = job.iter_results()
        assert next(stream) == "REFERENCE 0"
        assert job.wait(60)
        assert engine.fetched == ["reference 0"]
        assert list(stream) == ["REFERENCE 1", "REFERENCE 2"]
        assert len(job.refs()) == 3


# --- real work ------------------------------------------------------------------------------------


def count_hits(seed: int) -> int:
    """Throw 5,000 darts at a square; count those inside its circle."""
    generator = random.Random(seed)
    return sum(generator.random() ** 2 + generator.random() ** 2 < 1 for _ in range(5_000))


def test_monte_carlo_run_stops_when_its_estimate_is_precise() -> None:
    estimates = []
    with Pool(2) as pool:
        job = pool.map(count_hits, itertools.count(), name="pi")  # endless
        hits = 0
        for batches, found in enumerate(job.iter_results(timeout=90, ordered=False), start=1):
            hits += found
            darts = 5_000 * batches
            share = hits / darts
            estimates.append(4 * share)
            if 4 * math.sqrt(share * (1 - share) / darts) < 0.01:
                job.cancel()
                break
        assert job.wait(60)
    assert job.state == "cancelled"
    assert len(estimates) > 5
    assert abs(estimates[-1] - math.pi) < 0.05
