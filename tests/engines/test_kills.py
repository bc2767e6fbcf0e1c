"""Kills at any moment: of workers, guardian, supervisor and scheduler. Nothing hangs or remains."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import psutil
import pytest
from support.local_engine import collect_outcomes, open_engine, python_task, run_item, run_until
from support.processes import is_running, kill
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.engines.engine import CommandTask
from hesrpt.engines.local import supervisor_client, workers_and_commands
from hesrpt.engines.local.local_engine import LocalEngine

# --- workers ----------------------------------------------------------------------------------


@contextlib.contextmanager
def kill_workers(engine: LocalEngine, kills: int, seed: int) -> Iterator[list[int]]:
    """Kill workers at random moments, in another thread."""
    rng, killed = random.Random(seed), list[int]()
    is_over = threading.Event()

    def kill_some() -> None:
        while len(killed) < kills and not is_over.is_set():
            time.sleep(rng.uniform(0.0, 0.15))
            if pids := [pid for pid in engine.worker_pids if is_running(pid)]:
                pid = rng.choice(pids)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    thread = threading.Thread(target=kill_some)
    thread.start()
    try:
        yield killed
    finally:
        is_over.set()
        thread.join()


def test_killing_workers_with_short_items_neither_hangs_nor_loses_any() -> None:
    engine = LocalEngine(3)
    with Pool(engine=engine) as pool, kill_workers(engine, 12, seed=1) as killed:
        rounds = 0
        while len(killed) < 12:
            rounds += 1
            timeout = 30.0 if rounds % 2 else None
            job = pool.map(lambda x: 3 * x, range(300), retries=100, timeout=timeout)
            assert job.results(timeout=60) == [3 * x for x in range(300)]


def test_killing_workers_with_large_results_neither_hangs_nor_loses_any() -> None:
    engine = LocalEngine(2)
    size = 10 * 2**20
    with Pool(engine=engine) as pool, kill_workers(engine, 8, seed=2) as killed:
        while len(killed) < 8:
            job = pool.map(lambda x: bytes([x]) * size, range(4), retries=100, timeout=60)
            for number, result in enumerate(job.iter_results(timeout=60)):
                assert (len(result), result[:1], result[-1:]) == (
                    size,
                    bytes([number]),
                    bytes([number]),
                )


def test_worker_killed_before_it_starts_an_item_costs_the_item_nothing() -> None:
    """Its item is lost rather than failed, so it uses up no retry."""
    with open_engine(1) as engine:
        run_item(engine, abs, -1)
        (worker,) = engine.worker_pids
        for item in range(2):
            os.kill(worker, signal.SIGSTOP)
            engine.start("a", {item: python_task(engine, abs, -1)}, 1)
            kill(worker)
            outcome = collect_outcomes(engine, 1)["a", item]
            assert outcome.is_lost
            assert not outcome.was_started
            run_item(engine, abs, -1)
            (worker,) = engine.worker_pids


def test_part_of_a_result_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, the second item must not be withdrawn before the first one is done.
    monkeypatch.setattr(workers_and_commands, "_PATIENCE_SECONDS", 600.0)
    with open_engine(1) as engine:
        engine.start("a", {0: python_task(engine, lambda _: b"x" * 10**6)}, 1)
        engine.start("a", {1: python_task(engine, lambda x: x, "next")}, 1)

        def is_sending() -> bool:
            return any(worker.channel.incoming for worker in engine.workers)

        deadline = time.monotonic() + 90
        while not is_sending():
            assert time.monotonic() < deadline
            assert engine.wait_for_outcomes(0.0) == []
        (worker,) = engine.workers
        assert worker.pid is not None
        kill(worker.pid)
        outcomes = collect_outcomes(engine, 2)
        assert outcomes["a", 0].error is not None
        assert outcomes["a", 1].is_lost  # the worker has had it already
        assert not outcomes["a", 1].was_started


def test_workers_that_cannot_start_fail_their_items(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_engine(1) as engine:
        engine.start("a", {0: CommandTask("true")}, 1)
        collect_outcomes(engine, 1)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        outcomes = [run_item(engine, abs, -1) for _ in range(3)]
        assert [outcome.is_lost for outcome in outcomes] == [True, True, False]
        assert outcomes[-1].error == "the process ended (exit code 1) before the item did"


def test_guardians_that_cannot_start_end_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Pool(servers=1) as pool:
        job = pool.map(abs, [-1])
        with pytest.raises(RuntimeError, match="process that starts workers and commands cannot"):
            job.results(timeout=60)
        pool.close()


# --- guardian and supervisor ------------------------------------------------------------------

# Each attempt writes its process id and those of its daemons, of which one clears its environment.
DAEMONS = """
echo $$ >> {path}
for wrapper in "setsid" "env -i setsid"; do
    ($wrapper sh -c 'echo $$ >> "$1"; exec sleep 1000' - {path} &)
done
sleep 1000
"""


@pytest.mark.parametrize("victims", ["guardian", "supervisor", "both"])
def test_killed_guardians_are_replaced_and_items_run_again(tmp_path: Path, victims: str) -> None:
    daemons = DAEMONS if victims != "both" else DAEMONS.replace('"env -i setsid"', "")
    count = daemons.count("setsid") + 1
    with open_engine() as engine:
        run_item(engine, abs, -1)
        for round_number in range(2):
            path = tmp_path / str(round_number)
            path.touch()
            engine.start("a", {0: CommandTask(daemons.format(path=path))}, 1)
            engine.start("a", {1: python_task(engine, time.sleep, 1000)}, 1)
            run_until(
                engine,
                lambda path=path: (  # type: ignore[misc]
                    len(path.read_text().split()) == count and bool(engine.worker_pids)
                ),
            )
            pids = [int(line) for line in path.read_text().split()] + engine.worker_pids
            guardian, supervisor = engine.guardian_pids
            kill(
                *{"guardian": [guardian], "supervisor": [supervisor]}.get(
                    victims, [guardian, supervisor]
                )
            )
            outcomes = collect_outcomes(engine, 2)
            assert all(outcome.is_lost for outcome in outcomes.values())
            assert not any(map(is_running, [guardian, supervisor, *pids]))
            assert cloudpickle.loads(run_item(engine, abs, -1).result) == 1
            assert not set(engine.guardian_pids) & {guardian, supervisor}


SCRIPT = """
import sys, time
from pathlib import Path
from hesrpt import Pool
from hesrpt.jobs.jobs_file import read_jobs_file
from hesrpt.engines.local import workers_and_commands
from hesrpt.engines.local.local_engine import LocalEngine

engine = LocalEngine(2)
pool = Pool(engine=engine{options})
def work(path):
    import os
    os.system(Path("command.sh").read_text().replace("sleep 1000\\n", "").format(path=path))
    time.sleep(1000)
pool.map(work, ["python"])
while True:
    Path("guardians.new").write_text(" ".join(map(str, engine.guardian_pids)))
    Path("guardians.new").rename("guardians")
    time.sleep(0.05)
"""


def start_scheduler(tmp_path: Path, daemons: str, options: str = "") -> subprocess.Popen[bytes]:
    (tmp_path / "command.sh").write_text(daemons)
    (tmp_path / "script.py").write_text(SCRIPT.format(options=options, path="{path}"))
    return subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path)


def wait_for_daemons(tmp_path: Path, count: int) -> list[int]:
    path = tmp_path / "python"
    wait_until(lambda: path.exists() and len(path.read_text().split()) == count)
    wait_until(lambda: len((tmp_path / "guardians").read_text().split()) == 2)
    return [int(line) for line in path.read_text().split()][1:]


@pytest.mark.parametrize(
    "others",
    [[], [0], pytest.param([1], marks=pytest.mark.slow)],
    ids=["alone", "with guardian", "with supervisor"],
)
def test_nothing_outlives_a_killed_scheduler(tmp_path: Path, others: list[int]) -> None:
    scheduler = start_scheduler(tmp_path, DAEMONS)
    pids = wait_for_daemons(tmp_path, 3)
    guardians = [int(pid) for pid in (tmp_path / "guardians").read_text().split()]
    descendants = [each.pid for each in psutil.Process(scheduler.pid).children(recursive=True)]
    kill(scheduler.pid, *(guardians[place] for place in others))
    scheduler.wait()
    wait_until(lambda: not any(map(is_running, [*pids, *guardians, *descendants])))


def test_keepers_leave_nothing_if_all_above_them_are_killed(tmp_path: Path) -> None:
    """Not even daemons without an environment, which nobody could find later."""
    scheduler = start_scheduler(tmp_path, DAEMONS)
    pids = wait_for_daemons(tmp_path, 3)
    guardians = [int(pid) for pid in (tmp_path / "guardians").read_text().split()]
    kill(scheduler.pid, *guardians)
    scheduler.wait()
    wait_until(lambda: not any(map(is_running, pids)))


def test_resume_first_kills_what_guardians_and_keepers_left_behind(tmp_path: Path) -> None:
    daemons = DAEMONS.replace('"env -i setsid"', "")
    scheduler = start_scheduler(tmp_path, daemons, ", state='state'")
    (daemon,) = wait_for_daemons(tmp_path, 2)
    guardians = [int(pid) for pid in (tmp_path / "guardians").read_text().split()]
    keepers = [keeper.pid for keeper in psutil.Process(guardians[1]).children()]
    kill(scheduler.pid, *guardians, *keepers)
    scheduler.wait()
    assert is_running(daemon), "the test needs a process that outlives all of them"
    with Pool(servers=1, state=tmp_path / "state", resume=True):
        assert not is_running(daemon)


def test_fork_of_the_script_does_not_keep_processes_alive(tmp_path: Path) -> None:
    fork = "import os; pid = os.fork()\nif pid == 0:\n    time.sleep(1000)\n    os._exit(0)\n"
    fork += 'Path("fork").write_text(str(pid))\nwhile True:'
    (tmp_path / "command.sh").write_text(DAEMONS)
    script = SCRIPT.format(options="", path="{path}").replace("while True:", fork)
    (tmp_path / "script.py").write_text(script)
    scheduler = subprocess.Popen([sys.executable, "-W", "ignore", "script.py"], cwd=tmp_path)
    pids = wait_for_daemons(tmp_path, 3)
    wait_until((tmp_path / "fork").exists)
    try:
        kill(scheduler.pid)
        scheduler.wait()
        wait_until(lambda: not any(map(is_running, pids)))
    finally:
        kill(int((tmp_path / "fork").read_text()))


@pytest.mark.parametrize("victim", [0, 1])
def test_guardian_and_supervisor_that_are_stopped_go_on(
    victim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_client, "_CLEANING_SECONDS", 300.0)
    with open_engine() as engine:
        run_item(engine, abs, -1)
        stopped = engine.guardian_pids[victim]
        os.kill(stopped, signal.SIGSTOP)
        assert "before the item did" in str(run_item(engine, os._exit, 0).error)
        started = time.monotonic()
    assert time.monotonic() - started < 200  # it does not wait until it may kill them


# --- process 1 --------------------------------------------------------------------------------

AS_PROCESS_1 = """
import os, signal, time
import psutil
from hesrpt import Pool
from hesrpt.engines.local import workers_and_commands
from hesrpt.engines.local.local_engine import LocalEngine

assert os.getpid() == 1
engine = LocalEngine(2)
with Pool(engine=engine) as pool:
    slow = pool.map(lambda x: time.sleep(2) or x, [5], retries=0)
    crash = pool.map(lambda x: os._exit(1), [0], retries=0, name="crash")
    crash.wait()
    print(crash.state, slow.results())
    print([p.name() for p in psutil.process_iter() if p.status() == psutil.STATUS_ZOMBIE])
    pool.map(lambda x: os.system("setsid sleep 1000 &"), [0]).wait()
    for pid in engine.guardian_pids:
        os.kill(pid, signal.SIGKILL)
    print(pool.map(abs, [-1]).results())
others = [process for process in psutil.process_iter() if process.pid != 1]
print([(p.name(), p.status()) for p in others if p.status() != psutil.STATUS_ZOMBIE])
"""


def can_unshare() -> bool:
    """Return whether this system lets us start a process 1."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return (
        shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0
    )


@pytest.mark.slow
def test_crash_of_one_worker_costs_only_its_item_as_process_1() -> None:
    if not can_unshare():
        pytest.skip("needs the right to create process namespaces")
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", AS_PROCESS_1],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.stdout == "failed [5]\n[]\n[1]\n[]\n", done.stderr


# --- limits -----------------------------------------------------------------------------------

FEW_FILES = """
import resource
from hesrpt import Pool
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.scheduler.live_job import LiveJob

with Pool(servers=100) as pool:
    pool.map(abs, [-1]).wait()
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    import time
    slow = pool.map(lambda x: time.sleep(0.2) or x, range(40))
    print(slow.results() == list(range(40)))
    items = tuple(map(str, range(60)))
    template = CommandTemplate(job="c", command=("sleep", "0.1"), items=items)
    (job,) = pool.add_jobs([LiveJob.from_command(JobSpec(name="c", items=60, command=template))])
    job.wait()
    print(job.state, job.done)
"""


@pytest.mark.slow
def test_more_servers_than_files_slow_a_run_down_and_nothing_else() -> None:
    command = [sys.executable, "-W", "error", "-c", FEW_FILES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "True\ndone 60\n", done.stderr
    assert done.stderr == ""
