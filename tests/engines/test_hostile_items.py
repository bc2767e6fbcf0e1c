"""Items that leave, fork, close files or print anywhere: each costs at most its own item."""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from support.local_engine import collect_outcomes, open_engine, python_task, run_item

from hesrpt.engines.engine import CommandTask
from hesrpt.engines.local.local_engine import LocalEngine


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """Create one engine, which must survive all of these items."""
    with open_engine() as engine:
        yield engine


# --- items that end their worker --------------------------------------------------------------


def execute(argument: Any) -> None:
    os.execvp(argument[0], argument)


def stop_keeper(_: Any) -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    os._exit(5)


@pytest.mark.parametrize(
    ("function", "argument", "reason"),
    [
        (os._exit, 0, "the process ended (exit code 0) before the item did"),
        (os._exit, 7, "the process ended (exit code 7) before the item did"),
        (execute, ["true"], "the process ended (exit code 0) before the item did"),
        (execute, ["sleep", "1000"], "the process left the scheduler (by exec, for instance)"),
        (lambda _: os.kill(os.getpid(), 9), None, "the process ended (ended by signal 9, SIGKILL)"),
        (lambda _: os.abort(), None, "the process ended (ended by signal 6, SIGABRT)"),
        (lambda _: os.closerange(3, 1000), None, "the process"),
        (lambda text: os.write(3, text), b"x", "something was written to the connection"),
        (lambda text: os.write(3, text), bytes(64), "something was written to the connection"),
        (lambda text: os.write(3, text), b"\xff" * 64, "something was written to the connection"),
        (stop_keeper, None, "the process ended (exit code 5) before the item did"),
    ],
)
def test_item_that_ends_its_worker_fails(
    engine: LocalEngine, function: Callable[[Any], Any], argument: Any, reason: str
) -> None:
    outcome = run_item(engine, function, argument)
    assert str(outcome.error).startswith(reason)
    assert not outcome.is_lost
    assert cloudpickle.loads(run_item(engine, abs, -1).result) == 1


def test_item_that_reopens_the_files_of_its_worker_does_not_get_the_reply(
    engine: LocalEngine, tmp_path: Path
) -> None:
    def replace_files(path: str) -> None:
        os.closerange(3, 50)
        for _ in range(10):
            os.open(path, os.O_RDWR | os.O_CREAT)

    outcome = run_item(engine, replace_files, str(tmp_path / "file"))
    assert outcome.error is not None
    assert (tmp_path / "file").read_bytes() == b""


def test_item_that_writes_to_the_connection_of_its_worker_fails_at_once(
    engine: LocalEngine,
) -> None:
    def write_and_wait(_: Any) -> None:
        os.write(3, b"x")
        time.sleep(1000)

    assert "something was written" in str(run_item(engine, write_and_wait).error)


def test_item_that_returns_after_writing_to_the_connection_fails(engine: LocalEngine) -> None:
    """Its result is complete when the worker is killed, because it waits for an exit function."""

    class WriteAndReturn:
        needs_new_worker = True

        def __call__(self, text: bytes) -> int:
            atexit.register(time.sleep, 1000)
            return os.write(3, text)

    assert "something was written" in str(run_item(engine, WriteAndReturn(), b"x").error)
    assert cloudpickle.loads(run_item(engine, abs, -1).result) == 1


@pytest.mark.parametrize("reading", [float("nan"), float("inf"), -1e9, None])
def test_item_may_replace_the_clock(engine: LocalEngine, reading: Any) -> None:
    def replace_clock(reading: Any) -> None:
        time.perf_counter = time.monotonic = time.time = lambda: reading

    outcome = run_item(engine, replace_clock, reading)
    assert outcome.error is None
    assert 0 <= outcome.seconds < 100


def test_item_may_ignore_signals_and_still_has_a_time_limit(engine: LocalEngine) -> None:
    def ignore_signals(_: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(1000)

    engine.start("a", {0: python_task(engine, ignore_signals, timeout=0.3)}, 1)
    error = collect_outcomes(engine, 1)["a", 0].error
    assert error == "exceeded its time limit of 0.3 s (timeout=0.3)"


# --- items that fork --------------------------------------------------------------------------


def test_only_the_worker_replies_when_both_it_and_its_fork_return(engine: LocalEngine) -> None:
    def fork(_: Any) -> str:
        child = os.fork()
        if child == 0:
            return "child"
        os.waitpid(child, 0)
        return "worker"

    for _ in range(5):
        assert cloudpickle.loads(run_item(engine, fork).result) == "worker"


def test_fork_that_outlives_its_worker_does_not_keep_the_item_alive(engine: LocalEngine) -> None:
    def fork_and_leave(_: Any) -> None:
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)

    error = str(run_item(engine, fork_and_leave).error)
    assert error == "the process ended (exit code 0) before the item did"


def test_fork_that_raises_an_error_is_not_heard(engine: LocalEngine) -> None:
    def fork(_: Any) -> int:
        child = os.fork()
        if child == 0:
            raise ValueError("in the fork")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert cloudpickle.loads(run_item(engine, fork).result) == 0


# --- items that print -------------------------------------------------------------------------


def test_output_on_standard_files_does_not_disturb_replies(engine: LocalEngine) -> None:
    def write_everywhere(_: Any) -> str:
        for fd in (1, 2):
            os.write(fd, b"\0\1\2 noise\n")
        os.system("echo noise; echo noise >&2")
        return "done"

    assert cloudpickle.loads(run_item(engine, write_everywhere).result) == "done"


def test_items_read_an_empty_standard_input(engine: LocalEngine) -> None:
    assert cloudpickle.loads(run_item(engine, lambda _: sys.stdin.read()).result) == ""
    engine.start("a", {0: CommandTask('test -z "$(cat)"')}, 1)
    assert collect_outcomes(engine, 1)["a", 0].error is None


# --- time -------------------------------------------------------------------------------------


def test_time_limits_do_not_follow_the_system_clock(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, clock = itertools.count(step=3600), time.time
    monkeypatch.setattr(time, "time", lambda: clock() + next(steps))
    engine.start("a", {0: python_task(engine, time.sleep, 0.3, timeout=60)}, 1)
    engine.start("a", {1: CommandTask("sleep 0.3", timeout=60)}, 1)
    outcomes = collect_outcomes(engine, 2)
    assert [outcome.error for outcome in outcomes.values()] == [None, None]
    assert all(0 < outcome.seconds < 60 for outcome in outcomes.values())


# --- the directory ----------------------------------------------------------------------------


def test_items_run_in_a_directory_that_was_removed(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "from hesrpt import Pool\n"
        f"os.mkdir({str(tmp_path / 'gone')!r})\n"
        f"os.chdir({str(tmp_path / 'gone')!r})\n"
        f"os.rmdir({str(tmp_path / 'gone')!r})\n"
        "with Pool(servers=1) as pool:\n"
        "    print(pool.map(abs, [-1]).results())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout == "[1]\n", done.stderr


def test_command_with_a_megabyte_of_arguments_runs(engine: LocalEngine) -> None:
    """It does not fit into the connections through which it is started."""
    engine.start("a", {0: CommandTask(("true", *["x" * 100_000] * 10))}, 1)
    assert collect_outcomes(engine, 1)["a", 0].error is None
