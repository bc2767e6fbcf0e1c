"""Dask clusters that change: workers join, leave and are killed, and clusters grow and shrink."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from support.dask_cluster import DaskProcesses, start_dask
from support.local_engine import collect_outcomes, python_task, run_until
from support.waiting import wait_until

from hesrpt import InputError, Job, Pool
from hesrpt.engines import DaskEngine
from hesrpt.reports.inspection import read_status


@pytest.fixture(scope="module")
def processes() -> Iterator[DaskProcesses]:
    with start_dask(workers=1) as processes:
        yield processes


def leave_evidence(item: int, folder: str, seconds: float) -> int:
    """Take a while, and leave a line that says that the item has ended."""
    time.sleep(seconds)
    with open(f"{folder}/{item}", "a") as file:
        file.write("ended\n")
    return item * item


def has_progressed(job: Job[int], done: int) -> bool:
    return job.has_ended or job.done > done


def run_with_kills(
    processes: DaskProcesses, tmp_path: Path, *, kills: int, items: int, seed: int
) -> None:
    """Run a job while workers and nannies are killed; check the results and the journal."""
    rng = random.Random(seed)
    folder = tmp_path / "evidence"
    folder.mkdir()
    engine = DaskEngine(cluster=processes.address)
    ballast = bytes(1_000_000)  # which is scattered, and lost with the worker that has it
    with Pool(engine=engine, state=tmp_path / "s") as pool:
        job = pool.map(
            lambda item: leave_evidence(
                item, str(folder), (0.02 + 0.2 * (item % 5 == 0)) * len(ballast) / 1e6
            ),
            range(items),
            name="squares",
            retries=0,
        )
        for kill in range(kills):
            wait_until(partial(has_progressed, job, job.done))
            time.sleep(rng.uniform(0.0, 0.3))
            if kill % 2:
                processes.kill_nanny(rng)
                processes.add_worker()
            else:
                processes.kill_worker(rng)
        assert job.results() == [item * item for item in range(items)]
    assert {path.name for path in folder.iterdir()} == set(map(str, range(items)))
    (record,) = read_status(tmp_path / "s").jobs
    assert (record.state, record.done) == ("done", items)


@pytest.mark.slow
def test_every_item_is_done_once_though_workers_and_nannies_are_killed(
    processes: DaskProcesses, tmp_path: Path
) -> None:
    run_with_kills(processes, tmp_path, kills=2, items=40, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_kills(processes: DaskProcesses, tmp_path: Path, seed: int) -> None:
    processes.add_worker()
    run_with_kills(processes, tmp_path, kills=15, items=400, seed=seed)


@pytest.mark.slow
def test_capacity_follows_workers_that_join_and_retire(processes: DaskProcesses) -> None:
    with closing(DaskEngine(cluster=processes.address)) as engine:
        run_until(engine, lambda: engine.capacity() > 0)  # the first worker may have just started
        before = engine.capacity()
        processes.add_worker("--name", "late", threads=3)
        run_until(engine, lambda: engine.capacity() == before + 3)
        assert engine.widest_command() == 3
        (late,) = [each for each in engine.table.workers.values() if each.name == "late"]
        with Client(processes.address, set_as_default=False) as client:
            client.retire_workers([late.address])
        run_until(engine, lambda: engine.capacity() == before)


def test_killed_item_is_lost_only_if_its_dask_worker_was_killed(
    processes: DaskProcesses, tmp_path: Path
) -> None:
    with closing(DaskEngine(cluster=processes.address)) as engine:
        run_until(engine, lambda: any(w.process for w in engine.table.workers.values()))
        flag = tmp_path / "started"

        def start_and_sleep(path: str) -> None:
            Path(path).touch()
            time.sleep(60)

        engine.start("a", {0: python_task(engine, start_and_sleep, str(flag))}, 1)
        run_until(engine, flag.exists)
        processes.kill_all_workers()
        outcome = collect_outcomes(engine, 1)["a", 0]
        assert outcome.is_lost
        assert outcome.was_started


# --- clusters that grow and shrink ------------------------------------------------------------


@pytest.mark.slow
def test_cluster_grows_with_demand_and_shrinks_when_idle() -> None:
    with LocalCluster(
        n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        engine = DaskEngine(cluster=cluster, minimum=0, maximum=2, idle_seconds=0.5)
        with Pool(engine=engine) as pool:
            assert engine.capacity() == 0
            long = pool.map(time.sleep, [0.2] * 20, name="long")
            wait_until(lambda: engine.capacity() == 2)
            assert long.wait(60)
            assert not long.failures
            wait_until(lambda: not cluster.plan)
            assert pool.map(abs, [-3], name="again").results() == [3]
        wait_until(lambda: not cluster.plan)


@pytest.mark.slow
def test_adaptive_cluster_keeps_its_bounds_and_busy_workers() -> None:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        cluster.adapt(minimum=1, maximum=2)
        engine = DaskEngine(cluster=cluster, idle_seconds=0.3)
        with Pool(engine=engine) as pool:
            assert pool.map(time.sleep, [0.2] * 10, name="all").wait(60)
            lone = pool.map(time.sleep, [3.0], name="lone", retries=0)
            wait_until(lambda: len(engine.table.workers) == 1)
            assert not lone.has_ended
            lone.results()
            assert lone.failures == []
        assert type(cluster._adaptive).__name__ == "Adaptive"


@pytest.mark.slow
def test_worker_that_restarts_at_its_address_is_a_new_one(
    processes: DaskProcesses, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    processes.add_worker("--worker-port", str(port), "--name", "fixed", "--resources", "own=1")
    flag = tmp_path / "started"

    def start_and_wait(path: str) -> bool:
        was_started = Path(path).exists()
        Path(path).touch()
        time.sleep(0 if was_started else 60)
        return was_started

    with Pool(engine=DaskEngine(processes.address, resources={"own": 1})) as pool:
        job = pool.map(start_and_wait, [str(flag)], retries=0)
        wait_until(flag.exists)
        processes.kill_all_workers()
        assert job.results() == [True]


@pytest.mark.slow
def test_scheduler_that_dies_is_an_error(processes: DaskProcesses) -> None:
    with closing(Pool(engine=DaskEngine(cluster=processes.address))) as pool:
        job = pool.map(time.sleep, [600])
        processes.kill_scheduler()
        with pytest.raises(InputError, match="the connection to Dask was closed"):
            job.results()
