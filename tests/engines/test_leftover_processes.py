"""Processes that items leave behind: gone before the item is reported, or starts again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.local_engine import collect_outcomes, open_engine, run_item, run_until
from support.processes import is_running

from hesrpt.engines.engine import CommandTask
from hesrpt.engines.local.local_engine import LocalEngine


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with open_engine() as engine:
        yield engine


# --- items that leave processes behind --------------------------------------------------------

# Daemons of every kind: a child, one in a session of its own, and one without our environment.
LEAVE_PROCESSES = """
for wrapper in "" "setsid" "env -i setsid"; do
    ($wrapper sh -c 'echo $$ >> "$1"; exec sleep 1000' - "{path}" &)
done
while [ "$(wc -l < "{path}")" != 3 ]; do sleep 0.01; done
"""


def leave_processes(path: Path) -> str:
    path.touch()
    return LEAVE_PROCESSES.format(path=path)


def let_time_pass(engine: LocalEngine) -> None:
    """Let the only command look as if it had run beyond its time limit."""
    (command,) = engine.commands
    command.started -= 1000.0


def read_pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


@pytest.mark.parametrize("end", ["exit 0", "exit 1", "kill -9 $$", "sleep 1000"])
def test_processes_of_a_command_are_gone_when_it_is_reported(
    engine: LocalEngine, tmp_path: Path, end: str
) -> None:
    command, path = leave_processes(tmp_path / "pids") + end, tmp_path / "pids"
    engine.start("a", {0: CommandTask(command, timeout=600.0)}, 1)
    if "sleep" in end:
        run_until(engine, lambda: len(read_pids(path)) == 3)
        let_time_pass(engine)
    outcome = collect_outcomes(engine, 1)["a", 0]
    assert (outcome.error is None) == (end == "exit 0")
    pids = read_pids(path)
    assert len(pids) == 3
    assert not any(map(is_running, pids))


@pytest.mark.parametrize(
    "end", [lambda: os._exit(0), lambda: os.kill(os.getpid(), 9), lambda: 1 / 0]
)
def test_processes_of_a_failed_python_item_are_gone_when_it_is_reported(
    engine: LocalEngine, tmp_path: Path, end: Callable[[], None]
) -> None:
    def start_processes(command: str) -> None:
        os.system(command)
        end()

    outcome = run_item(engine, start_processes, leave_processes(tmp_path / "pids"))
    assert outcome.error is not None
    pids = read_pids(tmp_path / "pids")
    assert len(pids) == 3
    assert not any(map(is_running, pids))


def test_keeper_that_is_killed_leaves_nothing_behind(engine: LocalEngine, tmp_path: Path) -> None:
    engine.start("a", {0: CommandTask(leave_processes(tmp_path / "pids") + "sleep 1000")}, 1)
    path = tmp_path / "pids"
    run_until(engine, lambda: bool(engine.command_pids) and len(read_pids(path)) == 3)
    (command,) = engine.command_pids
    keeper = psutil.Process(command).parent()
    assert keeper.name() == "hesrpt-keeper"
    keeper.kill()
    assert collect_outcomes(engine, 1)["a", 0].error is not None
    assert not any(map(is_running, [command, *read_pids(path)]))


def test_output_that_a_child_writes_just_after_its_command_is_kept(
    engine: LocalEngine, tmp_path: Path
) -> None:
    # The child waits until the command has ended, and little longer: it may be killed soon.
    command = "(while kill -0 $$ 2>&-; do sleep 0.01; done; echo late) & echo early"
    engine.start("a", {0: CommandTask(command, log=tmp_path / "log")}, 1)
    assert collect_outcomes(engine, 1)["a", 0].error is None
    assert (tmp_path / "log").read_text() == "early\nlate\n"


# --- starting again ---------------------------------------------------------------------------

# Fails if an earlier attempt, or a child of it, still holds the lock.
EXCLUSIVE = "flock --nonblock {lock} sleep 1000 & sleep 0.1; kill -0 $! || exit 5; "


@pytest.mark.parametrize("how", ["stop", "kill", "timeout"])
def test_command_starts_again_only_when_its_predecessor_is_gone(
    engine: LocalEngine, tmp_path: Path, how: str
) -> None:
    command = EXCLUSIVE.format(lock=tmp_path / "lock") + f"echo >> {tmp_path / 'ready'}; wait"
    ready = tmp_path / "ready"
    ready.touch()
    for attempt in range(1, 4):
        engine.start("a", {0: CommandTask(command, timeout=600.0)}, 2)
        run_until(engine, lambda n=attempt: len(ready.read_text()) == n)  # type: ignore[misc]
        if how == "timeout":
            let_time_pass(engine)
            error = str(collect_outcomes(engine, 1)["a", 0].error)
            assert error.startswith("exceeded its time limit")
        elif how == "stop":
            engine.stop("a", 0)
        else:
            os.kill(engine.command_pids[0], signal.SIGKILL)
            assert "signal 9" in str(collect_outcomes(engine, 1)["a", 0].error)


def test_stopping_does_not_block(engine: LocalEngine) -> None:
    for item in range(2):
        engine.start("a", {item: CommandTask("sleep 1000")}, 1)
    run_until(engine, lambda: len(engine.command_pids) == 2)
    pids = engine.command_pids
    engine.stop("a", 0)
    engine.stop("a", 1)
    assert engine.command_pids == pids  # nobody has waited until they are gone
    engine.start("b", {0: CommandTask("true")}, 2)
    assert collect_outcomes(engine, 1)["b", 0].error is None
