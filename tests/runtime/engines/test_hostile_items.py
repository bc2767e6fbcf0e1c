"""Items that leave, fork, close files or print anywhere: each costs at most its own item."""

from __future__ import annotations

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
import psutil
import pytest
from support.local_engine import collect_outcomes, open_engine, python_task, run_item, run_until

from hesrpt.runtime.engines.engine import CommandTask
from hesrpt.runtime.engines.local import LocalEngine


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with open_engine() as engine:
        yield engine


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


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
    assert error == "took longer than its time limit (0.3 s)"


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


def read_pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


@pytest.mark.parametrize("end", ["exit 0", "exit 1", "kill -9 $$", "sleep 1000"])
def test_processes_of_a_command_are_gone_when_it_is_reported(
    engine: LocalEngine, tmp_path: Path, end: str
) -> None:
    command = leave_processes(tmp_path / "pids") + end
    engine.start("a", {0: CommandTask(command, timeout=1.0 if "sleep" in end else None)}, 1)
    outcome = collect_outcomes(engine, 1)["a", 0]
    assert (outcome.error is None) == (end == "exit 0")
    pids = read_pids(tmp_path / "pids")
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
    command = "(sleep 0.1; echo late) & echo early"
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
    timeout = 0.5 if how == "timeout" else None
    for attempt in range(1, 6):
        engine.start("a", {0: CommandTask(command, timeout=timeout)}, 2)
        if how == "timeout":
            error = str(collect_outcomes(engine, 1)["a", 0].error)
            assert error.startswith("took longer than its time limit")
            continue
        run_until(engine, lambda n=attempt: len(ready.read_text()) == n)  # type: ignore[misc]
        if how == "stop":
            engine.stop("a", 0)
        else:
            os.kill(engine.command_pids[0], signal.SIGKILL)
            assert "signal 9" in str(collect_outcomes(engine, 1)["a", 0].error)
    if how == "timeout":
        assert len(ready.read_text()) == 5


def test_stopping_does_not_block(engine: LocalEngine) -> None:
    for item in range(2):
        engine.start("a", {item: CommandTask("sleep 1000")}, 1)
    run_until(engine, lambda: len(engine.command_pids) == 2)
    start = time.monotonic()
    engine.stop("a", 0)
    engine.stop("a", 1)
    assert time.monotonic() - start < 0.1
    engine.start("b", {0: CommandTask("true")}, 2)
    assert collect_outcomes(engine, 1)["b", 0].error is None


# --- batches ----------------------------------------------------------------------------------


def test_in_a_batch_only_the_item_that_ran_fails(engine: LocalEngine) -> None:
    def work(x: int) -> int:
        if x == 2:
            os._exit(1)
        return x

    engine.start("a", {x: python_task(engine, work, x) for x in range(5)}, 1)
    outcomes = collect_outcomes(engine, 5)
    assert [outcomes["a", x].error is None for x in range(5)] == [True, True, False, True, True]
    assert [outcomes["a", x].is_lost for x in range(5)] == [False, False, False, True, True]
    assert not any(outcomes["a", x].was_started for x in (3, 4))


def test_in_a_batch_each_item_has_its_own_time_limit(engine: LocalEngine) -> None:
    seconds = [0.3, 0.3, 0.3, 1000.0, 0.0]
    tasks = {n: python_task(engine, time.sleep, s, timeout=1.5) for n, s in enumerate(seconds)}
    engine.start("a", tasks, 1)
    outcomes = collect_outcomes(engine, 5)
    assert [outcomes["a", n].error is None for n in range(5)] == [True, True, True, False, True]
    assert not any(outcome.is_lost for outcome in outcomes.values())


def test_items_behind_a_long_one_go_to_other_workers(engine: LocalEngine, tmp_path: Path) -> None:
    def wait_for_others(number: int) -> int:
        (tmp_path / str(number)).touch()
        while number == 2 and len(list(tmp_path.iterdir())) < 10:
            time.sleep(0.01)
        return number

    engine.start("a", {n: python_task(engine, wait_for_others, n) for n in range(10)}, 1)
    outcomes = collect_outcomes(engine, 10)
    assert [cloudpickle.loads(outcomes["a", n].result) for n in range(10)] == list(range(10))


def test_item_that_waits_behind_another_is_stopped_without_it(engine: LocalEngine) -> None:
    engine.start("a", {n: python_task(engine, time.sleep, 0.3) for n in range(2)}, 1)
    engine.start("b", {0: python_task(engine, time.sleep, 0.3)}, 1)
    engine.stop("a", 1)
    outcomes = collect_outcomes(engine, 2)
    assert set(outcomes) == {("a", 0), ("b", 0)}
    assert all(outcome.error is None for outcome in outcomes.values())
    assert engine.wait_for_outcomes(0.5) == []


def test_item_that_fails_in_a_batch_does_not_stop_the_next_one(engine: LocalEngine) -> None:
    engine.start("a", {x: python_task(engine, lambda x: 1 / x, x) for x in range(3)}, 1)
    outcomes = collect_outcomes(engine, 3)
    assert [outcomes["a", x].error is None for x in range(3)] == [False, True, True]


# --- functions --------------------------------------------------------------------------------


def test_functions_are_forgotten_when_their_job_has_ended(engine: LocalEngine) -> None:
    class Witness:
        def __call__(self, path: str) -> None:
            self.path = path

        def __del__(self) -> None:
            if hasattr(self, "path"):
                Path(self.path).touch()

    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "released"
        run_item(engine, Witness(), str(path))
        run_until(engine, path.exists)


SCRIPT = """
import os, sys
from hesrpt import Pool

class Point:
    def __init__(self, x): self.x = x

def double(point):
    return Point(2 * point.x), os.getcwd()

with Pool(servers=2) as pool:
    results = pool.map(double, [Point(1), Point(2)]).results()
    print([p.x for p, _ in results], all(isinstance(p, Point) for p, _ in results))
    print(results[0][1] == os.getcwd())
    os.makedirs("later", exist_ok=True)
    with open("later/found_later.py", "w") as file:
        file.write("def triple(x): return 3 * x")
    sys.path.append(os.path.abspath("later"))
    import found_later
    print(pool.map(found_later.triple, [1, 2]).results())
"""


@pytest.mark.parametrize("how", ["file", "command", "input"])
def test_scripts_need_no_main_guard(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    arguments = {"file": ["script.py"], "command": ["-c", SCRIPT], "input": ["-"]}[how]
    done = subprocess.run(
        [sys.executable, *arguments],
        input=SCRIPT if how == "input" else "",
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=100,
    )
    assert done.stdout == "[2, 4] True\nTrue\n[3, 6]\n", done.stderr


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
