"""When active jobs will end: the forecast, and what jobs say of their progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from support.stepping import KillSwitch, SteppedEngine, finish
from support.waiting import wait_until

from hesrpt import Pool, PowerLaw, Workload, simulate
from hesrpt.arrays import FloatArray
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import ItemsFinished, ItemsRead, JobArrived, JobSteered
from hesrpt.decisions.forecast import Forecaster, collect_remaining_work, predict_ends
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.policies import Adaptive, Calibration, PolicyLike, State

HALF = PowerLaw(0.5)


@contextmanager
def open_pool(engine: SteppedEngine, policy: PolicyLike = "hesrpt") -> Iterator[Pool]:
    """Open a pool whose driver goes on without steps at the end, so that it can be closed."""
    pool = Pool(engine=engine, policy=policy)
    try:
        yield pool
    finally:
        engine.release()
        pool.close()


def predict(core: Core, time: float = 0.0) -> dict[str, float]:
    return predict_ends(collect_remaining_work(core, time))


@pytest.mark.parametrize("policy", ["hesrpt", "equi", "srpt", "fifo", "helrpt"])
def test_forecast_is_what_the_simulator_says(policy: str) -> None:
    sizes = [100.0, 10.0, 37.0, 2.0]
    core = Core(4, policy)
    jobs = {
        str(size): JobSpec(name=str(size), items=100, size=size, speedup=HALF) for size in sizes
    }
    core.handle(*(JobArrived(0, job) for job in jobs.values()))
    expected = simulate(Workload(sizes, HALF), 4, policy, whole=True).completion_times
    assert predict(core) == pytest.approx(dict(zip(map(str, sizes), expected, strict=True)))


def test_forecast_uses_what_the_policy_has_learned() -> None:
    core = Core(8, "adaptive")
    core.allocator.resume_calibration(Calibration(numerator=50, denominator=1000, jobs_seen=10**5))
    sizes = [100.0, 10.0, 37.0]
    for size in sizes:
        job = JobSpec(name=str(size), items=1000, size=size, speedup=HALF)
        core.handle(JobArrived(0, job))
    calibration = core.allocator.calibration
    assert calibration is not None
    assert calibration.focus < 0.1
    policy = Adaptive(focus=calibration.focus)
    expected = simulate(Workload(sizes, HALF), 8, policy, whole=True).completion_times
    assert predict(core) == pytest.approx(dict(zip(map(str, sizes), expected, strict=True)))


def test_job_uses_at_most_one_server_per_item() -> None:
    core = Core(16)
    core.handle(JobArrived(0, JobSpec(name="narrow", items=4, size=4, speedup=HALF)))
    assert predict(core) == pytest.approx({"narrow": 4 / 4**0.5})


def test_forecast_respects_how_many_servers_jobs_may_have() -> None:
    core = Core(4)
    core.handle(
        JobArrived(0, JobSpec(name="a", size=16, speedup=HALF, resize="restart", max_servers=1)),
        JobArrived(0, JobSpec(name="b", size=20, speedup=HALF, resize="restart", min_servers=4)),
    )
    ends = predict(core)
    assert ends == pytest.approx({"a": 16.0, "b": 16 + 20 / 4**0.5})  # one after the other


def test_command_that_keeps_its_servers_is_predicted_to_keep_them() -> None:
    core = Core(4)
    core.handle(JobArrived(0, JobSpec(name="c", size=16, resize="never", speedup=HALF)))
    core.handle(JobArrived(1, JobSpec(name="b", items=4, size=4, speedup=HALF)))
    assert core.jobs["c"].observed == 4
    ends = predict(core, 1.0)
    assert ends == pytest.approx({"c": 8.0, "b": 8 + 4 / 4**0.5})


def test_command_that_waits_for_a_larger_node_has_no_prediction() -> None:
    core = Core(4)
    core.handle(JobArrived(0, JobSpec(name="wide", resize="never", min_servers=5)))
    core.handle(JobArrived(0, JobSpec(name="b", items=4, size=4, speedup=HALF)))
    assert list(predict(core)) == ["b"]


def test_unknown_and_paused_jobs_have_no_forecast() -> None:
    core = Core(2)
    core.handle(JobArrived(0, JobSpec(name="a", items=4)), JobArrived(0, JobSpec(name="b")))
    assert predict(core) == {}
    core.handle(ItemsRead(0, "b", 3))
    core.handle(ItemsFinished(2.0, "a", (0,), (2.0,)), ItemsFinished(2.0, "b", (0,), (2.0,)))
    assert 2.0 < predict(core, 2.0)["a"] < 20.0
    assert "b" not in predict(core, 2.0)  # nobody knows how many items it has
    core.handle(JobSteered(2.0, "a", is_paused=True))
    assert predict(core, 2.0) == {}


def test_no_forecast_without_servers() -> None:
    core = Core(0)
    core.handle(JobArrived(0, JobSpec(name="a", items=4, size=4)))
    assert predict(core) == {}


def test_only_the_first_ends_of_many_jobs_are_predicted() -> None:
    core = Core(2, "fifo")
    core.handle(*(JobArrived(0, JobSpec(name=str(n), items=1, size=1)) for n in range(200)))
    assert list(predict(core)) == [str(n) for n in range(50)]


def test_policy_that_serves_nobody_gives_no_forecast() -> None:
    core = Core(2, lambda state: np.zeros(len(state)))
    core.handle(JobArrived(0, JobSpec(name="a", items=1, size=1)))
    assert predict(core) == {}


def test_job_tells_its_servers_progress_and_eta() -> None:
    engine = SteppedEngine(2, KillSwitch())
    with open_pool(engine) as pool:
        job = pool.map(abs, range(4), name="job", size=8.0, speedup=0.99)
        generated = pool.map(abs, iter(range(4)), name="generated")
        nothing = pool.map(abs, list[int](), name="nothing")
        assert (job.servers, job.progress, generated.progress) == (0, 0.0, None)
        generated.cancel()
        for _ in range(4):
            engine.step()
        assert (nothing.progress, job.progress) == (1.0, 0.0)
        assert (job.servers, generated.servers) == (2, 0)
        assert job.eta == pytest.approx(8 / 2**0.99)
        engine.step([finish(engine.running["job", 0], 0)], 2.0)
        assert job.progress == 0.25
        engine.step([finish(running, 0) for running in engine.running.values()], 2.0)
        engine.step([finish(running, 0) for running in engine.running.values()], 2.0)
        assert (job.state, job.servers, job.progress, job.eta) == ("done", 0, 1.0, 0.0)
        assert generated.eta == 0.0


def test_neither_the_scheduler_nor_a_repr_waits_for_a_slow_forecast() -> None:
    may_end = threading.Event()

    def share_equally(state: State) -> FloatArray:
        if threading.current_thread().name == "hesrpt-forecast":
            assert may_end.wait(60)
        return np.full(len(state), state.servers / len(state))

    engine = SteppedEngine(2, KillSwitch())
    with open_pool(engine, share_equally) as pool:
        job = pool.map(abs, range(2), name="job", size=2)
        for _ in range(3):
            engine.step()
        forecaster = pool._driver.forecaster
        started = time.monotonic()
        assert forecaster.recall() == {}
        assert time.monotonic() - started < 30
        engine.step([finish(running, 0) for running in engine.running.values()], 1.0)
        assert job.state == "done"
        may_end.set()
        wait_until(lambda: not forecaster._thread.is_alive())  # type: ignore[union-attr]


def test_error_of_a_policy_in_a_forecast_is_left_to_the_scheduler() -> None:
    def fail_in_forecasts(state: State) -> FloatArray:
        if threading.current_thread().name == "hesrpt-forecast":
            raise ValueError("no")
        return np.full(len(state), state.servers / len(state))

    engine = SteppedEngine(2, KillSwitch())
    with open_pool(engine, fail_in_forecasts) as pool:
        pool.map(abs, range(2), name="job", size=2)
        for _ in range(3):
            engine.step()
        forecaster = pool._driver.forecaster
        assert forecaster.recall() == {}
        forecaster._thread.join()  # type: ignore[union-attr]


def test_two_threads_may_recall_a_forecast_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = Core(2, "hesrpt")
    forecaster = Forecaster(core, lambda: collect_remaining_work(core, 0.0))
    create_thread = threading.Thread

    class InterruptedThread(create_thread):  # type: ignore[misc, valid-type]
        def start(self) -> None:
            super().start()
            forecaster._thread = create_thread()  # another thread is about to start its own

    monkeypatch.setattr(threading, "Thread", InterruptedThread)
    assert forecaster.recall(60) == {}
