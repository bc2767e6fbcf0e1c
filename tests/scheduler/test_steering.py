"""Pausing, resuming and weighing the jobs of a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.core_jobs import bag, count_servers
from support.paused_engine import PausedEngine, wait_until_read
from support.stepping import KillSwitch, SteppedEngine, finish

from hesrpt import InputError, Pool, PowerLaw
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import JobArrived
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_spec import JobSpec, Resizing
from hesrpt.reports.inspection import read_status
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Request, RequestKind

Create = Callable[..., tuple[Pool, SteppedEngine]]


@pytest.fixture
def create(tmp_path: Path) -> Iterator[Create]:
    """Return a function that creates a pool whose driver waits for the test."""
    created: list[tuple[Pool, SteppedEngine]] = []

    def create_pool(servers: int = 2, **options: Any) -> tuple[Pool, SteppedEngine]:
        engine = SteppedEngine(servers, KillSwitch())
        pool = Pool(engine=engine, **options)
        created.append((pool, engine))
        return pool, engine

    yield create_pool
    for pool, engine in created:
        engine.release()
        pool.close()


def create_command(resize: Resizing | None, items: int | None = None) -> LiveJob:
    values = None if items is None else tuple(map(str, range(items)))
    command = ("true",) if items is None else ("true", "{item}")
    template = CommandTemplate(job="c", command=command, items=values)
    return LiveJob.from_command(JobSpec(name="c", items=items, resize=resize, command=template))


def end(engine: SteppedEngine, *keys: tuple[str, int]) -> None:
    engine.step([finish(engine.running[key], 0) for key in keys], 1.0)


def test_paused_job_lets_its_items_end_and_starts_none(create: Create) -> None:
    pool, engine = create()
    (job,) = pool.add_jobs([create_command(None, items=4)])
    engine.step()
    assert sorted(engine.running) == [("c", 0), ("c", 1)]
    job.pause()
    assert (job.state, job.done) == ("paused", 0)
    engine.step()
    end(engine, ("c", 0), ("c", 1))
    assert (engine.running, job.done) == ({}, 2)
    assert pool.predict_ends() == {}
    job.resume()
    engine.step()
    end(engine, ("c", 2), ("c", 3))
    assert job.state == "done"
    job.pause()  # too late to matter
    engine.step()
    assert job.state == "done"


def test_weight_can_be_changed_while_a_job_runs(create: Create) -> None:
    pool, engine = create(policy="hesrpt-weighted", servers=4)
    small, large = (
        pool.add_jobs(
            [
                replace_spec(
                    create_command(None, items=40), name=name, size=size, speedup=PowerLaw(0.8)
                )
            ]
        )[0]
        for name, size in (("small", 40.0), ("large", 80.0))
    )
    engine.step()
    assert pool.snapshot().planned["small"] > 2
    large.set_weight(100)
    assert (small.weight, large.weight) == (1, 100)
    engine.step()
    assert pool.snapshot().planned["large"] > 2
    for weight in (0, -1, "2", float("inf")):
        with pytest.raises(InputError, match="weight"):
            large.set_weight(weight)  # type: ignore[arg-type]


def replace_spec(job: LiveJob, **options: Any) -> LiveJob:
    job.spec = replace(job.spec, **options)
    return job


@pytest.mark.parametrize("resize", ["affinity", "never"])
def test_command_is_suspended_if_the_engine_can(create: Create, resize: Resizing) -> None:
    pool, engine = create()
    calls: list[tuple[Any, ...]] = []
    engine.suspend = lambda *call: calls.append(("suspend", *call))  # type: ignore[method-assign]
    engine.resume = lambda *call: calls.append(("resume", *call))  # type: ignore[method-assign]
    (job,) = pool.add_jobs([create_command(resize)])
    engine.step()
    job.pause()
    engine.step()
    assert pool.snapshot().held == {"c": 0}
    job.resume()
    engine.step()
    assert calls == [("suspend", "c", 0), ("resume", "c", 0, 2)]
    assert pool.snapshot().held == {"c": 2}


def test_command_is_refused_if_the_engine_cannot_suspend_it(create: Create, tmp_path: Path) -> None:
    pool, engine = create(state=tmp_path / "s")
    engine.can_suspend = False
    (job,) = pool.add_jobs([create_command("never")])
    with pytest.raises(InputError, match="job 'c' cannot be paused, because this engine cannot"):
        job.pause()
    with closing(Journal.read(tmp_path / "s")) as journal:  # as another process asks for it
        (number,), _ = journal.requests.add([Request(kind="pause", job=1)])
        engine.step()
        answer = journal.requests.read_answers([number])[number]
    assert answer.is_refused
    assert answer.text.startswith("cannot be paused, because this engine cannot")
    (other,) = pool.add_jobs([replace_spec(create_command("restart"), name="d")])
    other.pause()


def test_pause_and_weight_survive_the_scheduler(create: Create, tmp_path: Path) -> None:
    state = tmp_path / "s"
    pool, engine = create(state=state)
    (job,) = pool.add_jobs([create_command(None, items=3)])
    engine.step()
    job.pause()
    job.set_weight(7)
    engine.step()
    engine.release()
    pool.close()

    pool, engine = create(state=state, resume=True)
    (job,) = pool.add_jobs([create_command(None, items=3)])
    engine.step()
    assert (engine.running, job.state, job.weight) == ({}, "paused", 7)
    (record,) = read_status(state).jobs
    assert (record.state, record.spec.weight) == ("paused", 7)
    job.resume()
    engine.step()
    assert (len(engine.running), job.state) == (2, "running")
    engine.release()
    pool.close()

    pool, engine = create(state=state, resume=True)
    (job,) = pool.add_jobs([replace_spec(create_command(None, items=3), weight=2.0)])
    engine.step()
    assert len(engine.running) == 2  # it is not paused any more
    assert job.weight == 2  # what the script asks for now


def ask(state: Path, kind: RequestKind) -> int:
    """Let another process ask for a change of the first job; return the request's number."""
    with closing(Journal.read(state)) as journal:
        (number,), _ = journal.requests.add([Request(kind=kind, job=1)])
    return number


def read_answers(state: Path) -> dict[int, str]:
    with closing(Journal.read(state)) as journal:
        return {n: each.text for n, each in journal.requests.read_answers(range(99)).items()}


def test_requests_are_answered_from_what_has_happened_before_them(
    create: Create, tmp_path: Path
) -> None:
    state = tmp_path / "s"
    pool, engine = create(state=state)
    (job,) = pool.add_jobs([create_command(None, items=1)])
    engine.step()
    late = [ask(state, kind) for kind in ("cancel", "pause", "resume", "retry")]
    end(engine, ("c", 0))  # in the step in which the scheduler sees the requests
    answers = ["is done already"] * 3 + ["has no failed items"]
    assert read_answers(state) == dict(zip(late, answers, strict=True))
    assert (job.state, read_status(state).jobs[0].state) == ("done", "done")


def test_request_waits_for_a_job_that_is_on_its_way(
    create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "s"
    pool, engine = create(state=state)
    pool.add_jobs([create_command(None, items=1)])
    engine.step()
    engine.release()
    pool.close()
    request = ask(state, "cancel")

    pool, engine = create(state=state, resume=True)
    (job,) = pool.add_jobs([create_command(None, items=1)])
    with monkeypatch.context() as patch:
        patch.setattr(pool._driver, "_record_arrivals", list)  # as if it came a moment later
        engine.step()
    assert (read_answers(state), job.has_ended) == ({}, False)
    engine.step()
    assert (read_answers(state), job.state) == ({request: "cancelled"}, "cancelled")
    assert not engine.running


def test_cancel_is_confirmed_when_nothing_of_the_job_runs_any_more(
    create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that dies before must find the request again."""
    state = tmp_path / "s"
    pool, engine = create(state=state)
    (job,) = pool.add_jobs([create_command(None, items=2)])
    engine.step()
    request = ask(state, "cancel")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "is_stopping", lambda job: True)
        for _ in range(3):
            engine.step(seconds=1.0)
        assert (read_answers(state), job.has_ended) == ({}, False)
    engine.step(seconds=1.0)
    assert (read_answers(state), job.state) == ({request: "cancelled"}, "cancelled")
    assert read_status(state).jobs[0].state == "cancelled"
    engine.step(seconds=1.0)
    assert read_answers(state) == {request: "cancelled"}


def test_cancelled_command_goes_on_when_it_is_retried(create: Create, tmp_path: Path) -> None:
    state = tmp_path / "s"
    pool, engine = create(state=state)
    (job,) = pool.add_jobs([create_command(None, items=3)])
    engine.step()
    end(engine, ("c", 1))
    job.pause()
    engine.step()
    cancel = ask(state, "cancel")
    engine.step(seconds=1.0)
    assert (job.state, engine.running) == ("cancelled", {})
    retry = ask(state, "retry")
    engine.step(seconds=1.0)
    assert read_answers(state) == {cancel: "cancelled", retry: "runs again"}
    assert (job.state, sorted(engine.running)) == ("running", [("c", 0), ("c", 2)])
    assert not read_status(state).jobs[0].has_ended
    end(engine, ("c", 0), ("c", 2))
    assert (job.state, job.done) == ("done", 3)


def test_job_that_was_cancelled_in_an_earlier_run_goes_on_when_it_is_retried(
    create: Create, tmp_path: Path
) -> None:
    state = tmp_path / "s"
    pool, engine = create(state=state)
    (job,) = pool.add_jobs([create_command(None, items=3)])
    engine.step()
    end(engine, ("c", 1))
    ask(state, "cancel")
    engine.step(seconds=1.0)
    engine.release()
    pool.close()

    pool, engine = create(state=state, resume=True)
    (job,) = pool.add_jobs([create_command(None, items=3)])
    engine.step()
    assert (job.state, job.done, engine.running) == ("cancelled", 1, {})
    job.retry()
    job.retry()  # nothing more to do
    engine.step()
    assert (job.state, job.done, sorted(engine.running)) == ("running", 1, [("c", 0), ("c", 2)])
    end(engine, ("c", 0), ("c", 2))
    assert (job.state, job.done) == ("done", 3)
    assert read_status(state).jobs[0].state == "done"


def test_requests_made_while_no_scheduler_runs_are_obeyed_in_their_order(
    create: Create, tmp_path: Path
) -> None:
    state = tmp_path / "s"
    pool, engine = create(state=state)
    pool.add_jobs([create_command(None, items=1)])
    engine.step()
    engine.release()
    pool.close()
    numbers = [ask(state, kind) for kind in ("cancel", "retry")]

    pool, engine = create(state=state, resume=True)
    (job,) = pool.add_jobs([create_command(None, items=1)])
    engine.step()
    assert read_answers(state) == dict(zip(numbers, ["cancelled", "runs again"], strict=True))
    assert (job.state, sorted(engine.running)) == ("running", [("c", 0)])


def test_paused_executor_does_not_keep_the_interpreter(create: Create) -> None:
    pool, engine = create()
    executor = pool.executor()
    executor.job.pause()
    future = executor.submit(abs, -1)
    engine.step()
    assert not engine.running
    executor.shutdown(wait=False)
    pool._driver.drain()  # as at interpreter exit
    engine.step()
    engine.step()
    end(engine, ("executor", 0))
    assert future.result(60) == 1


@pytest.mark.parametrize("policy", ["adaptive", "hesrpt", "optimal"])
def test_weights_count(policy: str) -> None:
    """Of two equal jobs, the one with the higher weight ends first, whichever comes first."""
    for heavy in (0, 1):
        engine = PausedEngine(4, lambda job, item, width: 1.0)
        with Pool(engine=engine, policy=policy) as pool:
            jobs = [
                pool.map(abs, range(40), size=40.0, speedup=0.9, weight=10.0 if n == heavy else 1.0)
                for n in range(2)
            ]
            wait_until_read(*jobs)
            engine.go.set()
        assert jobs[heavy].flow_time < 0.8 * jobs[1 - heavy].flow_time


def test_equal_weights_change_nothing() -> None:
    for policy in ("adaptive", "hesrpt"):
        planned = []
        for weight in (1.0, 7.0):
            core = Core(10, policy)
            for name, size in (("a", 30.0), ("b", 20.0), ("c", 10.0)):
                core.handle(JobArrived(0, bag(name, 30, size, weight=weight)))
            planned.append(count_servers(core))
        assert planned[0] == planned[1]
        assert core.allocator._binder._bound.name == policy


@pytest.mark.parametrize("is_service", [False, True])
def test_run_whose_jobs_are_all_paused_says_so(
    create: Create, caplog: pytest.LogCaptureFixture, is_service: bool
) -> None:
    pool, engine = create()
    if is_service:
        pool.driver.warner.warns_of_pauses = False
    (job,) = pool.add_jobs([create_command(None, items=4)])
    job.pause()
    engine.step()
    for _ in range(3):
        engine.step(seconds=2.0)
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    message = "hesrpt: all jobs that have not ended are paused; none goes on until it is resumed"
    assert warnings == ([] if is_service else [message])
