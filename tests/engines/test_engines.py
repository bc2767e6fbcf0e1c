"""The contract of every engine, and what engines with real processes must do in addition."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import psutil
import pytest
from support.local_engine import collect_outcomes, python_task, run_until
from support.waiting import wait_until

from hesrpt.engines.engine import CommandTask, Engine
from hesrpt.engines.fake import FakeEngine
from hesrpt.engines.local.local_engine import LocalEngine
from hesrpt.engines.local.processes import find_marked
from hesrpt.engines.registry import create_engine


def start_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine: Engine
    if request.param == "ray":
        engine = create_engine("ray", 2, {"address": request.getfixturevalue("ray_address")})
    elif request.param == "dask":
        engine = create_engine("dask", 2, {"address": request.getfixturevalue("dask_address")})
    elif request.param == "slurm":
        request.getfixturevalue("slurm")
        engine = create_engine("slurm", 2, {"cores": 2, "walltime": "10m"})
        engine.request_servers(2)
        run_until(engine, lambda: engine.capacity() == 2)
    elif request.param == "local":
        engine = create_engine("local", 2)
    else:
        engine = FakeEngine(2)
    try:
        yield engine
    finally:
        engine.close()


# Processes of Ray start slowly.
ON_RAY = pytest.param("ray", marks=pytest.mark.slow)
ON_SLURM = pytest.param("slurm", marks=pytest.mark.slurm)


@pytest.fixture(params=["fake", "local", ON_RAY, "dask", ON_SLURM])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Every engine."""
    yield from start_engine(request)


@pytest.fixture(params=["local", ON_RAY, "dask", ON_SLURM])
def real_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Every engine with real processes."""
    yield from start_engine(request)


# --- every engine -----------------------------------------------------------------------------


def test_every_item_has_one_outcome(engine: Engine) -> None:
    for item in range(5):
        engine.start("a", {item: python_task(engine, lambda x: x * 2, item)}, 1)
    outcomes = collect_outcomes(engine, 5)
    assert set(outcomes) == {("a", item) for item in range(5)}
    assert all(outcome.error is None and outcome.seconds >= 0 for outcome in outcomes.values())
    assert engine.wait_for_outcomes(0.05) == []


def test_stopped_item_has_no_outcome_until_it_is_started_again(engine: Engine) -> None:
    engine.start("a", {0: python_task(engine, time.sleep, 0.3)}, 1)
    engine.start("a", {1: python_task(engine, time.sleep, 0.3)}, 1)
    engine.stop("a", 0)
    engine.stop("unknown job", 7)
    assert set(collect_outcomes(engine, 1)) == {("a", 1)}
    assert engine.wait_for_outcomes(0.5) == []
    engine.start("a", {0: python_task(engine, time.sleep, 0.2)}, 1)
    engine.stop("a", 0)
    engine.start("a", {0: python_task(engine, time.sleep, 0.2)}, 1)
    assert set(collect_outcomes(engine, 1)) == {("a", 0)}
    assert engine.wait_for_outcomes(0.5) == []


def test_waiting_respects_its_timeout_and_can_be_interrupted(engine: Engine) -> None:
    start = engine.now()
    assert engine.wait_for_outcomes(0.1) == []
    assert engine.now() - start >= 0.09
    engine.wake()
    engine.wait_for_outcomes(0.0 if isinstance(engine, FakeEngine) else 300.0)
    assert engine.now() - start < 200
    assert engine.capacity() == 2


# --- real processes ---------------------------------------------------------------------------


def test_results_and_errors_are_returned(real_engine: Engine) -> None:
    real_engine.start("a", {0: python_task(real_engine, lambda x: {"twice": 2 * x}, 21)}, 1)
    real_engine.start("a", {1: python_task(real_engine, lambda x: 1 / x, 0)}, 1)
    unpicklable = python_task(real_engine, lambda x: (y for y in range(x)), 3)
    real_engine.start("a", {2: unpicklable}, 1)
    outcomes = collect_outcomes(real_engine, 3)
    assert cloudpickle.loads(outcomes["a", 0].result) == {"twice": 42}
    assert outcomes["a", 1].error == "ZeroDivisionError: division by zero"
    details = outcomes["a", 1].details
    assert isinstance(cloudpickle.loads(details.pickled_exception), ZeroDivisionError)
    assert details.value == "0"
    lines = details.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "test_engines.py" in lines[1], "the traceback begins with frames of the engine"
    problem = "its result, a generator, cannot be pickled: TypeError: cannot pickle"
    assert str(outcomes["a", 2].error).startswith(problem)
    exception = cloudpickle.loads(outcomes["a", 2].details.pickled_exception)
    assert isinstance(exception, pickle.PicklingError)


def test_dying_worker_fails_only_its_own_item(real_engine: Engine) -> None:
    killer = python_task(real_engine, lambda _: os.kill(os.getpid(), signal.SIGKILL))
    real_engine.start("a", {0: killer}, 1)
    for item in range(1, 5):
        real_engine.start("a", {item: python_task(real_engine, lambda x: x, item)}, 1)
    outcomes = collect_outcomes(real_engine, 5)
    assert "the process ended" in str(outcomes["a", 0].error)
    assert all(outcomes["a", item].error is None for item in range(1, 5))


def test_items_that_exceed_their_time_limit_fail(real_engine: Engine) -> None:
    sleeper = python_task(real_engine, lambda _: time.sleep(60), timeout=0.5)
    real_engine.start("a", {0: sleeper}, 1)
    real_engine.start("a", {1: CommandTask("sleep 60", timeout=0.5)}, 1)
    outcomes = collect_outcomes(real_engine, 2)
    for outcome in outcomes.values():
        # The shell may print that its child was killed, which then follows.
        assert str(outcome.error).startswith("exceeded its time limit of 0.5 s (timeout=0.5)")
        assert isinstance(cloudpickle.loads(outcome.details.pickled_exception), TimeoutError)


def test_commands_run_with_and_without_a_shell(real_engine: Engine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    shell = CommandTask("echo $((1+1)); exit 3", log=log, directory=tmp_path)
    real_engine.start("a", {0: shell}, 1)
    assert collect_outcomes(real_engine, 1)["a", 0].error == "exit code 3\n2"
    assert log.read_text() == "2\n"
    real_engine.start("a", {1: CommandTask(("echo", "$HOME; x"), log=log)}, 1)
    assert collect_outcomes(real_engine, 1)["a", 1].error is None
    assert log.read_text() == "2\n$HOME; x\n"
    real_engine.start("a", {2: CommandTask(("no-such-program",))}, 1)
    error = str(collect_outcomes(real_engine, 1)["a", 2].error)
    assert error.startswith("cannot be started: no-such-program: No such file or directory")
    real_engine.start("a", {3: CommandTask("true", directory=tmp_path / "none")}, 1)
    error = str(collect_outcomes(real_engine, 1)["a", 3].error)
    assert error.startswith(f"cannot be started: {tmp_path / 'none'}: No such file or directory")


def test_error_of_a_retried_command_shows_only_its_own_output(
    real_engine: Engine, tmp_path: Path
) -> None:
    for _ in range(2):
        task = CommandTask("echo oops; exit 1", log=tmp_path / "log")
        real_engine.start("a", {0: task}, 1)
        assert collect_outcomes(real_engine, 1)["a", 0].error == "exit code 1\noops"
    assert (tmp_path / "log").read_text() == "oops\noops\n"


def test_output_of_an_item_goes_to_its_log(real_engine: Engine, tmp_path: Path) -> None:
    def print_something(x: int) -> None:
        print("hello", x)
        os.system("echo from a child")

    real_engine.start("a", {0: python_task(real_engine, print_something, 1, log=tmp_path / "0")}, 1)
    real_engine.start("a", {1: python_task(real_engine, len, "quiet", log=tmp_path / "1")}, 1)
    collect_outcomes(real_engine, 2)
    assert sorted((tmp_path / "0").read_text().splitlines()) == ["from a child", "hello 1"]
    assert not (tmp_path / "1").exists(), "an empty log was left"


# --- this machine -----------------------------------------------------------------------------


def test_running_command_can_be_moved_to_fewer_cores() -> None:
    engine = LocalEngine(2)
    try:
        cores = sorted(os.sched_getaffinity(0))
        engine.start("a", {0: CommandTask("sleep 20 & sleep 20", pin_cores=True)}, len(cores))
        run_until(engine, lambda: bool(engine.command_pids))
        (pid,) = engine.command_pids
        shell = psutil.Process(pid)
        wait_until(lambda: len(shell.children()) == 2)
        engine.resize("a", 0, 1)
        for process in [shell, *shell.children(recursive=True)]:
            assert len(process.cpu_affinity()) == 1
    finally:
        engine.close()


def test_closing_leaves_no_process_behind() -> None:
    engine = LocalEngine(2)
    sleepers = "sleep 100 & setsid sleep 100 & sleep 100"
    engine.start("a", {0: python_task(engine, lambda _: os.system(sleepers))}, 1)
    engine.start("a", {1: CommandTask(sleepers)}, 1)

    def list_names() -> list[str]:
        return [psutil.Process(pid).name() for pid in find_marked(engine.mark)]

    wait_until(lambda: list_names().count("sleep") == 6)
    engine.close()
    assert find_marked(engine.mark) == []
