"""What every engine must do, and what only real processes can."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

from hesrpt.runtime.engines.engine import CommandTask, Engine, Outcome, PythonTask
from hesrpt.runtime.engines.fake import FakeEngine
from hesrpt.runtime.engines.local import LocalEngine
from hesrpt.runtime.engines.processes import MARK


def python(
    engine: Engine, function: Callable[[Any], Any], argument: Any = None, **options: Any
) -> PythonTask:
    return PythonTask(
        function=engine.pack_function(function), argument=engine.pack_argument(argument), **options
    )


@pytest.fixture(params=["fake", "local", "ray"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Every engine."""
    made = made_engine(request)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=["local", "ray"])
def real(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Every engine with processes."""
    made = made_engine(request)
    try:
        yield made
    finally:
        made.close()


def made_engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "ray":
        address = request.getfixturevalue("ray_address")
        from hesrpt.runtime.engines.ray.ray_engine import RayEngine

        return RayEngine(2, address=address)
    return FakeEngine(2) if request.param == "fake" else LocalEngine(2)


@pytest.fixture
def local() -> Iterator[LocalEngine]:
    engine = LocalEngine(2)
    try:
        yield engine
    finally:
        engine.close()


def outcomes(engine: Engine, count: int, seconds: float = 90.0) -> dict[tuple[str, int], Outcome]:
    found: dict[tuple[str, int], Outcome] = {}
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        for outcome in engine.wait_for_outcomes(0.2):
            key = (outcome.job, outcome.item)
            assert key not in found, "said twice"
            found[key] = outcome
    return found


# --- the contract -----------------------------------------------------------------------------


def test_every_item_has_one_outcome(engine: Engine) -> None:
    for item in range(5):
        engine.start("a", {item: python(engine, lambda x: x * 2, item)}, 1)
    found = outcomes(engine, 5)
    assert set(found) == {("a", item) for item in range(5)}
    assert all(outcome.error is None and outcome.seconds >= 0 for outcome in found.values())
    assert engine.wait_for_outcomes(0.05) == []


def test_nothing_is_heard_of_a_stopped_item(engine: Engine) -> None:
    engine.start("a", {0: python(engine, time.sleep, 0.3)}, 1)
    engine.start("a", {1: python(engine, time.sleep, 0.3)}, 1)
    engine.stop("a", 0)
    engine.stop("nobody", 7)
    assert set(outcomes(engine, 1)) == {("a", 1)}
    assert engine.wait_for_outcomes(0.5) == []


def test_a_stopped_item_may_be_started_again(engine: Engine) -> None:
    engine.start("a", {0: python(engine, time.sleep, 0.2)}, 1)
    engine.stop("a", 0)
    engine.start("a", {0: python(engine, time.sleep, 0.2)}, 1)
    assert set(outcomes(engine, 1)) == {("a", 0)}
    assert engine.wait_for_outcomes(0.5) == []


def test_waiting_takes_no_longer_than_asked_and_can_be_ended(engine: Engine) -> None:
    before = engine.now()
    assert engine.wait_for_outcomes(0.1) == []
    assert engine.now() - before >= 0.09
    engine.wake()
    engine.wait_for_outcomes(0.0 if isinstance(engine, FakeEngine) else 5.0)
    assert engine.now() - before < 4
    assert engine.capacity() == 2


# --- real processes ---------------------------------------------------------------------------


def test_results_and_errors_come_back(real: Engine) -> None:
    real.start("a", {0: python(real, lambda x: {"twice": 2 * x}, 21)}, 1)
    real.start("a", {1: python(real, lambda x: 1 / x, 0)}, 1)
    real.start("a", {2: python(real, lambda x: (y for y in range(x)), 3)}, 1)  # cannot be pickled
    found = outcomes(real, 3)
    assert cloudpickle.loads(found["a", 0].result) == {"twice": 42}
    assert str(found["a", 1].error).startswith("ZeroDivisionError: division by zero\n")
    assert "test_engines.py" in str(found["a", 1].error)  # where it was raised
    assert "generator" in str(found["a", 2].error)


def test_a_worker_that_dies_costs_its_own_item_only(real: Engine) -> None:
    real.start("a", {0: python(real, lambda _: os.kill(os.getpid(), signal.SIGKILL))}, 1)
    for item in range(1, 5):
        real.start("a", {item: python(real, lambda x: x, item)}, 1)
    found = outcomes(real, 5)
    assert "ended abnormally" in str(found["a", 0].error)
    assert all(found["a", item].error is None for item in range(1, 5))


def test_items_have_time_limits(real: Engine) -> None:
    real.start("a", {0: python(real, lambda _: time.sleep(60), timeout=0.5)}, 1)
    real.start("a", {1: CommandTask("sleep 60", timeout=0.5)}, 1)
    found = outcomes(real, 2)
    assert all("longer than its time limit" in str(outcome.error) for outcome in found.values())


def test_commands_run_with_and_without_a_shell(real: Engine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    real.start("a", {0: CommandTask("echo $((1+1)); exit 3", log=log, directory=tmp_path)}, 1)
    assert outcomes(real, 1)["a", 0].error == "exit code 3\n2"
    assert log.read_text() == "2\n"
    real.start("a", {1: CommandTask(("echo", "$HOME; x"), log=log)}, 1)
    assert outcomes(real, 1)["a", 1].error is None
    assert log.read_text() == "2\n$HOME; x\n"
    real.start("a", {2: CommandTask(("no-such-program",))}, 1)
    assert "cannot be started" in str(outcomes(real, 1)["a", 2].error)


def test_what_an_item_prints_goes_to_its_log(real: Engine, tmp_path: Path) -> None:
    def talk(x: int) -> None:
        print("hello", x)
        os.system("echo from a child")

    real.start("a", {0: python(real, talk, 1, log=tmp_path / "0")}, 1)
    real.start("a", {1: python(real, len, "quiet", log=tmp_path / "1")}, 1)
    outcomes(real, 2)
    assert sorted((tmp_path / "0").read_text().splitlines()) == ["from a child", "hello 1"]
    assert not (tmp_path / "1").exists()


def test_a_command_can_be_given_other_cores(local: LocalEngine) -> None:
    cores = sorted(os.sched_getaffinity(0))
    local.start("a", {0: CommandTask("sleep 20 & sleep 20", pin_cores=True)}, len(cores))
    while not local.commands:
        time.sleep(0.01)
    time.sleep(0.2)
    local.resize("a", 0, 1)
    (command,) = local.commands.values()
    tree = psutil.Process(command.pid)
    for process in [tree, *tree.children(recursive=True)]:
        assert len(process.cpu_affinity()) == 1
    local.stop("a", 0)


def test_closing_leaves_no_process_behind() -> None:
    engine = LocalEngine(2)
    mark = engine.mark
    engine.start("a", {0: python(engine, lambda _: os.system("sleep 100 & sleep 100"))}, 1)
    engine.start("a", {1: CommandTask("sleep 100 & setsid sleep 100 & sleep 100")}, 1)
    time.sleep(1.5)
    assert len(marked(mark)) >= 4
    engine.close()
    assert marked(mark) == []
    assert engine.guardian.process.poll() == 0


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            marks = process.environ().get(MARK, "").split()
            if mark in marks and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
