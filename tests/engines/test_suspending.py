"""Suspending commands on this machine: all their processes stop, and go on later."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import psutil
import pytest
from support.local_engine import collect_outcomes, open_engine, run_until
from support.waiting import wait_until

from hesrpt.engines.engine import CommandTask
from hesrpt.engines.local.local_engine import LocalEngine

# A command with a child and a daemon in a session of its own; each writes to its own file.
WRITERS = (
    "write() { while [ ! -e end ]; do echo x >> $1; sleep 0.01; done; }\n"
    "write child & (setsid sh -c 'while [ ! -e end ]; do echo x >> daemon; sleep 0.01; done' &)\n"
    "write parent; wait"
)
FILES = ("parent", "child", "daemon")


def start_writers(engine: LocalEngine, folder: Path, servers: int = 2, **options: float) -> None:
    task = CommandTask(WRITERS, directory=folder, **options)  # type: ignore[arg-type]
    engine.start("writers", {0: task}, servers)
    run_until(engine, lambda: all((folder / name).exists() for name in FILES))


def read_sizes(folder: Path) -> list[int]:
    return [(folder / name).stat().st_size for name in FILES]


def wait_until_still(engine: LocalEngine, folder: Path) -> None:
    """Wait until no process of the command runs."""
    (pid,) = engine.command_pids
    keeper = psutil.Process(pid).parent()
    assert keeper is not None
    # What ends at that moment stays a zombie, since its parent is stopped. A shell that is starting
    # a program waits for that.
    still = ("stopped", "zombie", "disk-sleep")

    def is_still() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):  # a program that ends is not stopped yet
            return all(each.status() in still for each in keeper.children(recursive=True))
        return False

    wait_until(is_still)
    sizes = read_sizes(folder)
    time.sleep(0.05)
    assert read_sizes(folder) == sizes


def test_whole_tree_is_suspended_while_others_run_and_goes_on(tmp_path: Path) -> None:
    with open_engine(servers=2) as engine:
        start_writers(engine, tmp_path)
        engine.suspend("writers", 0)
        wait_until_still(engine, tmp_path)
        engine.start("other", {0: CommandTask("exit 0")}, 2)  # its servers are free
        assert collect_outcomes(engine, 1)["other", 0].error is None
        sizes = read_sizes(tmp_path)
        engine.resume("writers", 0, 2)
        run_until(
            engine, lambda: all(a < b for a, b in zip(sizes, read_sizes(tmp_path), strict=True))
        )
        (tmp_path / "end").touch()
        assert collect_outcomes(engine, 1)["writers", 0].error is None


def test_time_limit_stands_still(tmp_path: Path) -> None:
    with open_engine(servers=2) as engine:
        start_writers(engine, tmp_path, timeout=60.0)
        engine.suspend("writers", 0)
        (command,) = engine.commands
        assert command.suspended_at is not None
        command.started -= 100.0  # as if it had been suspended for 100 seconds
        command.suspended_at -= 100.0
        assert engine.wait_for_outcomes(0.02) == []
        engine.resume("writers", 0, 2)
        (tmp_path / "end").touch()
        outcome = collect_outcomes(engine, 1)["writers", 0]
        assert outcome.error is None
        assert outcome.seconds < 60


@pytest.mark.parametrize("how", ["stop", "close", "kill"])
def test_suspended_command_can_be_ended(tmp_path: Path, how: str) -> None:
    with open_engine(servers=2) as engine:
        start_writers(engine, tmp_path)
        engine.suspend("writers", 0)
        wait_until_still(engine, tmp_path)
        (pid,) = engine.command_pids
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        if how == "stop":
            engine.stop("writers", 0)
            engine.start("writers", {0: CommandTask("exit 3")}, 2)
            assert collect_outcomes(engine, 1)["writers", 0].error == "exit code 3"
        elif how == "kill":
            os.kill(engine.guardian_pids[1], 9)  # the supervisor; the attempt is lost
            assert collect_outcomes(engine, 1)["writers", 0].is_lost
    assert not any(process.is_running() and process.status() != "zombie" for process in processes)


def test_command_that_waits_is_not_started_while_it_is_suspended(tmp_path: Path) -> None:
    with open_engine(servers=1) as engine:
        hold = CommandTask("while [ ! -e end ]; do sleep 0.01; done", directory=tmp_path)
        engine.start("first", {0: hold}, 1)
        engine.start("second", {0: CommandTask("touch ran", directory=tmp_path)}, 1)
        engine.start("third", {0: CommandTask("exit 0")}, 1)
        engine.suspend("second", 0)
        (tmp_path / "end").touch()
        assert set(collect_outcomes(engine, 2)) == {("first", 0), ("third", 0)}
        assert not (tmp_path / "ran").exists()
        engine.resume("second", 0, 1)
        assert collect_outcomes(engine, 1)["second", 0].error is None
