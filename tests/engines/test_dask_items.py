"""Items on a Dask cluster: batches, references, functions that carry much, and commands."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client
from support.local_engine import collect_outcomes, run_until, split_outcomes
from support.waiting import wait_until

from hesrpt import InputError, Pool
from hesrpt.engines import CommandTask, DaskEngine
from hesrpt.engines.dask import dask_connection
from hesrpt.engines.engine import PythonTasks
from hesrpt.engines.local.worker import GATHER_SECONDS
from hesrpt.jobs.jobs_file import read_jobs_file
from hesrpt.scheduler.live_job import LiveJob


@pytest.fixture
def engine(dask_address: str) -> Iterator[DaskEngine]:
    with contextlib.closing(DaskEngine(2, cluster=dask_address)) as engine:
        workers = engine.table.workers.values()
        run_until(engine, lambda: all(worker.process is not None for worker in workers))
        yield engine


def start_calls(engine: DaskEngine, function: Any, arguments: list[Any], **options: Any) -> None:
    packed = [engine.pack_argument(each) for each in arguments]
    options["function"] = engine.pack_function(function)
    engine.start("a", PythonTasks(range(len(packed)), packed, **options), 1)


def test_items_of_a_batch_are_reported_before_its_end(engine: DaskEngine) -> None:
    start_calls(engine, time.sleep, [2 * GATHER_SECONDS, 2 * GATHER_SECONDS, 60])
    assert set(collect_outcomes(engine, 2)) == {("a", 0), ("a", 1)}
    engine.stop("a", 2)


def test_stopped_items_are_reported_once_even_if_they_are_done_or_start_again(
    engine: DaskEngine, tmp_path: Path
) -> None:
    def work(item: int) -> int:
        time.sleep(0.002)
        with (tmp_path / str(item)).open("a") as file:
            file.write("ended\n")
        return item

    start_calls(engine, work, list(range(300)))
    wait_until(lambda: len(list(tmp_path.iterdir())) > 50)
    for item in range(300):
        engine.stop("a", item)
    assert engine.is_stopping("a")
    start_calls(engine, work, list(range(200)))
    outcomes = collect_outcomes(engine, 200)
    outcomes |= {(each.job, each.item): each for each in split_outcomes(engine.close())}
    done = {item for _, item in outcomes}
    assert done.issuperset(range(200))
    assert {int(path.name) for path in tmp_path.iterdir()} <= done
    # Only the item that was running when it was stopped may have ended twice.
    again = [path.name for path in tmp_path.iterdir() if path.read_text() != "ended\n"]
    assert len(again) <= 1


def test_engine_says_when_what_was_stopped_is_gone(engine: DaskEngine) -> None:
    start_calls(engine, time.sleep, [600])
    engine.start("b", {0: CommandTask(("sleep", "600"))}, 1)
    engine.wait_for_outcomes(1.0)
    for job in ("a", "b"):
        engine.stop(job, 0)
        assert engine.is_stopping(job)
        began = engine.now()
        while engine.is_stopping(job):
            assert engine.wait_for_outcomes(30.0) == []
            assert engine.now() - began < 20.0, "nobody was told"


def test_what_is_done_when_the_engine_is_closed_is_reported(
    engine: DaskEngine, tmp_path: Path
) -> None:
    def work(seconds: float) -> None:
        (tmp_path / str(seconds)).touch()
        time.sleep(seconds)

    start_calls(engine, work, [2 * GATHER_SECONDS, 600])
    wait_until(lambda: (tmp_path / "600").exists())
    assert {each.item for each in split_outcomes(engine.close())} == {0}


def test_item_that_crashes_fails_alone_and_the_dask_worker_lives(
    engine: DaskEngine,
) -> None:
    workers = set(engine.table.workers)
    start_calls(engine, lambda x: os._exit(x) if x else x, [0, 7, 0])
    outcomes = collect_outcomes(engine, 3)
    assert "exit code 7" in str(outcomes["a", 1].error)
    assert [outcomes["a", item].error for item in (0, 2)] == [None, None]
    assert set(engine.table.workers) == workers


def test_results_can_stay_in_the_cluster(dask_address: str) -> None:
    with Client(dask_address, set_as_default=False) as client:
        with Pool(2, engine=DaskEngine(2, cluster=client)) as pool:
            squares = pool.map(lambda x: np.full(3, x * x), range(4), keep=True)
            references = squares.refs()
            assert [int(each.result().sum()) for each in references] == [0, 3, 12, 27]
            sums = pool.map(lambda array: int(array.sum()), references)
            assert sums.results() == [0, 3, 12, 27]
            assert [int(each[0]) for each in squares.results()] == [0, 1, 4, 9]
            failing = pool.map(lambda x: 1 // x, [1, 0], keep=True, retries=0, on_error="keep")
            assert failing.wait(60)
            assert [failure.item for failure in failing.failures] == [1]
        assert client.gather(references[3]).tolist() == [9, 9, 9], "the client is still usable"


class Loud:
    """A callable that carries data, and leaves evidence of being unpickled."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.data = folder, np.random.default_rng(1).bytes(size)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        (self.folder / f"{os.getpid()}-{time.monotonic_ns()}").touch()

    def __call__(self, item: int) -> int:
        return item + len(self.data)


def test_what_a_function_carries_is_sent_once(
    engine: DaskEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scattered = []
    scatter = engine.connection.client.scatter

    def count_scatters(data: bytes, **options: Any) -> Any:
        scattered.append(len(data))
        return scatter(data, **options)

    monkeypatch.setattr(engine.connection.client, "scatter", count_scatters)
    function = engine.pack_function(Loud(tmp_path, 3_000_000))
    for item in range(6):
        argument = engine.pack_argument(item)
        engine.start("a", PythonTasks([item], [argument], function=function), 1)
    outcomes = collect_outcomes(engine, 6)
    assert all(outcome.error is None for outcome in outcomes.values())
    assert len(scattered) == 1
    processes = [path.name.partition("-")[0] for path in tmp_path.iterdir()]
    assert len(processes) == len(set(processes)) <= 2


def test_large_arguments_and_results_arrive(engine: DaskEngine) -> None:
    start_calls(engine, lambda data: data[::-1], [b"ab" * 2_000_000])
    (outcome,) = collect_outcomes(engine, 1).values()
    assert outcome.error is None
    assert len(outcome.result) > 4_000_000


@pytest.mark.slow
def test_output_and_results_of_a_jobs_file_come_home(dask_address: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nname = "wide"\ncommand = "echo I have {servers}"\nservers = 2\n'
        '[[job]]\nname = "bag"\nitems = {range = [0, 4]}\ncommand = "echo item {item}"\n'
    )
    options = ["--engine", "dask", "--engine-option", f"address={dask_address}"]
    command = [sys.executable, "-m", "hesrpt", "run", "jobs.toml", "--state", "s", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    logs = sorted(path.read_text() for path in (tmp_path / "s" / "logs").iterdir())
    assert logs == ["I have 2\n", *(f"item {item}\n" for item in range(4))]


def test_command_gets_no_more_servers_than_a_worker_has(dask_address: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text('[[job]]\nname = "wide"\ncommand = "echo {servers} > out"\np = 0.99\n')
    with Pool(engine="dask", address=dask_address) as pool:
        assert pool.servers == 4
        (job,) = pool.add_jobs([LiveJob.from_command(spec) for spec in read_jobs_file(path).jobs])
        assert job.wait(60)
    assert (tmp_path / "out").read_text() == "2\n"


DRIVER = """
import sys
from hesrpt import Pool

pool = Pool(2, engine="dask", address=sys.argv[1])
pool.map(lambda item, folder=sys.argv[2]: (
    __import__("pathlib").Path(folder, str(__import__("os").getpid())).touch(),
    __import__("time").sleep(600),
), [0, 1])
pool.wait()
"""


@pytest.mark.slow
def test_items_end_when_their_scheduler_is_killed(dask_address: str, tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, dask_address, str(tmp_path)])
    try:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        assert all(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir())
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    wait_until(lambda: not any(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir()))


def test_next_scheduler_of_a_run_ends_what_the_last_one_has_left(
    dask_address: str, tmp_path: Path
) -> None:
    def write_and_sleep(path: str) -> None:
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)

    pid = tmp_path / "pid"
    with (
        contextlib.closing(DaskEngine(1, cluster=dask_address)) as first,
        contextlib.closing(DaskEngine(1, cluster=dask_address)) as second,
    ):
        for engine in (first, second):
            engine.claim(tmp_path)
        start_calls(first, write_and_sleep, [str(pid)])
        run_until(first, lambda: pid.exists() and bool(pid.read_text()))
        start_calls(second, abs, [-1])
        assert collect_outcomes(second, 1)["a", 0].error is None
        assert not psutil.pid_exists(int(pid.read_text()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": "127.0.0.1:9"}, "cluster '127.0.0.1:9' is not a Dask scheduler"),
        ({"cluster": 7}, "cluster must be the address of a Dask scheduler, a Client or a Cluster"),
        ({"cluster": "a", "address": "b"}, "address cannot be combined with cluster"),
        ({"address": "here", "maximum": 3}, "maximum needs a cluster object"),
        ({"address": "here", "resources": {"GPU": 0}}, "resources must hold .* of 'GPU', got 0"),
    ],
)
def test_impossible_options_are_refused(
    dask_address: str, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_connection, "_ANSWER_SECONDS", 1.0)
    if options.get("address") == "here":
        options = options | {"address": dask_address}
    with pytest.raises(InputError, match=message):
        Pool(engine="dask", **options)


def test_worker_without_hesrpt_is_named(engine: DaskEngine) -> None:
    worker = next(iter(engine.table.workers.values()))
    missing = ModuleNotFoundError("No module named 'hesrpt'")
    engine._events.put(dask_connection.Greeted(worker, None, missing))
    with pytest.raises(InputError, match=r"hesrpt cannot be used on the Dask worker .* install"):
        engine.wait_for_outcomes(5.0)
