"""Items and results on a Ray cluster, batches, the connection, and invalid options."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import numpy as np
import pytest
import ray
from support.local_engine import collect_outcomes, python_task, run_item
from support.paths import ROOT
from support.waiting import wait_until

from hesrpt import InputError, Job, Pool
from hesrpt.engines.local.supervisor_client import THREAD_VARIABLES
from hesrpt.engines.ray.fleet import Assignment, Batch
from hesrpt.engines.ray.ray_engine import RayEngine
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.scheduler.live_job import LiveJob

T = TypeVar("T")


@pytest.fixture
def pool(ray_address: str) -> Iterator[Pool]:
    with Pool(2, engine="ray", address=ray_address) as pool:
        yield pool


# --- functions and results --------------------------------------------------------------------


class CountedData:
    """Large data that records each time it is sent or received."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.data = directory, np.ones(2**20)

    def __getstate__(self) -> dict[str, Any]:
        (self.directory / f"sent-{time.monotonic_ns()}").touch()
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        (self.directory / f"received-{os.getpid()}-{time.monotonic_ns()}").touch()


@pytest.mark.slow
def test_data_of_a_function_is_sent_to_each_server_once(pool: Pool, tmp_path: Path) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    large = CountedData(tmp_path)
    job = pool.map(lambda item: item + int(large.data.sum()), range(40))
    assert job.results() == [item + 2**20 for item in range(40)]
    assert len(list(tmp_path.glob("sent-*"))) == 1
    receivers = [path.name.split("-")[1] for path in tmp_path.glob("received-*")]
    assert len(receivers) == len(set(receivers)) <= 2


async def wait_for(job: Job[T]) -> list[T]:
    return await job


@pytest.mark.slow
def test_item_that_ended_before_it_was_stopped_is_done(ray_address: str) -> None:
    engine = RayEngine(2, address=ray_address)
    try:
        run_item(engine, abs, -1)
        for item in (1, 2):
            engine.start("a", {item: python_task(engine, abs, -item)}, 1)
            wait_until(lambda: not engine._replies.empty())
            if item == 1:
                engine.stop("a", 1)
                assert engine.is_stopping("a")
                assert list(collect_outcomes(engine, 1)) == [("a", 1)]
                assert not engine.is_stopping("a")
    finally:
        last = engine.close()
    assert [(outcome.item, outcome.is_done) for outcome in last] == [(2, True)]


@pytest.mark.slow
def test_results_can_stay_in_the_cluster(ray_address: str, tmp_path: Path) -> None:
    ray.init(address=ray_address, log_to_driver=False)
    try:
        with Pool(2, engine="ray") as pool:
            squares = pool.map(lambda x: np.full(2**17, x * x), range(4), keep=True)
            firsts = {item: int(values[0]) for item, values in squares.as_completed()}
            assert firsts == {0: 0, 1: 1, 2: 4, 3: 9}
            assert [int(values[0]) for values in asyncio.run(wait_for(squares))] == [0, 1, 4, 9]
            refs = squares.refs()
            assert all(isinstance(ref, ray.ObjectRef) for ref in refs)
            assert [int(ray.get(ref)[0]) for ref in refs] == [0, 1, 4, 9]
            sums = pool.map(lambda values: int(values.sum()), refs, name="sums")
            assert sums.results() == [2**17 * x * x for x in range(4)]
            assert int(squares.results()[3][5]) == 9
            with pytest.raises(InputError, match="were not kept"):
                sums.refs()
        with (
            Pool(1, engine="ray", state=tmp_path / "state") as pool,
            pytest.raises(InputError, match="cannot be combined with state="),
        ):
            pool.map(abs, [1], keep=True)
    finally:
        ray.shutdown()
    with Pool(1) as local, pytest.raises(InputError, match="needs a cluster"):
        local.map(abs, [1], keep=True)


@pytest.mark.slow
def test_a_million_items_are_read_only_as_they_are_needed(pool: Pool) -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        while read < 10**6:
            read += 1
            yield read

    job = pool.map(abs, items())
    wait_until(lambda: job.done > 2000, 120)
    ahead = read - job.done
    job.cancel()
    assert ahead <= 2 * (2 * 2 + 2) * 100


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_short_items_are_sent_in_batches(ray_address: str) -> None:
    engine = RayEngine(2, address=ray_address)
    sizes: list[int] = []
    assign = engine.fleet.assign

    def count_items(queue: list[Batch]) -> list[Assignment]:
        assignments = assign(queue)
        sizes.extend(len(batch.tasks) for _, batch in assignments)
        return assignments

    engine.fleet.assign = count_items  # type: ignore[method-assign]
    with Pool(engine=engine) as pool:
        job = pool.map(lambda x: x + 1, range(2000))
        assert job.results() == list(range(1, 2001))
    assert sum(sizes) == job.done == 2000
    assert len(sizes) < 300
    assert max(sizes) <= 100


@pytest.mark.slow
def test_short_commands_are_sent_in_batches(pool: Pool, tmp_path: Path) -> None:
    items = tuple(str(item) for item in range(150))
    command = ("touch", f"{tmp_path}/{{item}}")
    template = CommandTemplate(job="touch", command=command, items=items)
    spec = JobSpec(name="touch", items=150, command=template)
    (job,) = pool.add_jobs([LiveJob.from_command(spec)])
    assert job.wait(120)
    assert (job.state, job.done) == ("done", 150)
    assert len(list(tmp_path.iterdir())) == 150


@pytest.mark.slow
def test_crashing_item_of_a_batch_fails_alone(pool: Pool) -> None:
    def crash_at_500(item: int) -> int:
        if item == 500:
            os._exit(1)
        return item

    with pool.executor() as executor:
        futures = [executor.submit(crash_at_500, item) for item in range(1000)]
    failed = [item for item, future in enumerate(futures) if future.exception() is not None]
    assert failed == [500]
    assert sum(future.result() for item, future in enumerate(futures) if item != 500) == 499000


@pytest.mark.slow
def test_hanging_item_of_a_batch_fails_alone(pool: Pool) -> None:
    def hang_at_900(item: int) -> int:
        time.sleep(60 if item == 900 else 0)
        return item

    job = pool.map(hang_at_900, range(1000), timeout=0.5, retries=0)
    assert job.wait(120)
    assert job.error == "item 900: exceeded its time limit of 0.5 s (timeout=0.5)"


# --- the connection ---------------------------------------------------------------------------


@pytest.mark.slow
def test_pools_of_one_process_share_the_connection(ray_address: str) -> None:
    with Pool(1, engine="ray", address=ray_address) as first:
        with Pool(1, engine="ray", address=ray_address) as second:
            assert second.map(abs, [-2]).results(120) == [2]
        assert first.map(abs, [-1]).results(120) == [1]
        with pytest.raises(InputError, match=r"address must be .* already connected"):
            Pool(1, engine="ray", address="127.0.0.1:1")
    assert not ray.is_initialized()


@pytest.mark.slow
def test_closing_the_connection_fails_all_jobs(ray_address: str) -> None:
    ray.init(address=ray_address, log_to_driver=False)
    with Pool(1, engine="ray") as pool:
        executor = pool.executor()
        future = executor.submit(time.sleep, 60)
        wait_until(future.running)
        ray.shutdown()
        with pytest.raises(CancelledError, match="the connection to Ray was closed"):
            future.result(60)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(abs, 1)
        with pytest.raises(InputError, match="the connection to Ray was closed"):
            pool.map(abs, [1])
        pool.close()
    assert not ray.is_initialized(), "another Ray was started"


# --- resources and environments ---------------------------------------------------------------


@pytest.mark.slow
def test_server_may_hold_more_than_one_core(ray_address: str) -> None:
    with Pool(engine="ray", address=ray_address, resources={"CPU": 1.5}) as pool:
        assert pool.servers == 2
        job = pool.map(lambda _: ray.get_runtime_context().get_assigned_resources(), [0])
        assert job.results() == [{"CPU": 1.5}]


@pytest.mark.slow
def test_runtime_environment_is_set_up_or_its_error_reported(ray_address: str) -> None:
    environment = {"env_vars": {"A": "b"}}
    with Pool(1, engine="ray", address=ray_address, runtime_env=environment) as pool:
        assert pool.map(lambda name: os.environ[name], ["A"]).results(120) == ["b"]
    missing = {"working_dir": "/no/such/directory"}
    with Pool(1, engine="ray", address=ray_address, runtime_env=missing) as pool:
        with pytest.raises(InputError, match="/no/such/directory"):
            pool.map(abs, [1]).results(120)
        pool.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"resources": {"GPU": 1}},
            r"resources \{'GPU': 1\} do not fit on any node of the cluster: \{'CPU': 4.0\}",
        ),
        ({"resources": {}}, "resources must be like"),
        ({"resources": {"CPU": 0}}, "resources must hold 0.0001 to 1e15 of 'CPU', got 0"),
        ({"resources": {"CPU": 1e-5}}, "resources must hold 0.0001 to 1e15 of 'CPU', got 1e-05"),
        ({"resources": {"CPU": "1"}}, "resources must hold 0.0001 to 1e15 of 'CPU', got '1'"),
        ({"runtime_env": "x"}, "runtime_env must be a dictionary"),
        ({"address": "127.0.0.1:9"}, "nothing answers there"),
        ({"address": "ray://127.0.0.1:10001"}, "ray job submit"),
    ],
)
def test_invalid_options_are_refused_at_once(
    ray_address: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Pool(engine="ray", **({"address": ray_address} | options))
    assert not ray.is_initialized()


def test_error_without_ray_says_how_to_install_it() -> None:
    script = "import sys; sys.modules['ray'] = None; from hesrpt.cli.main import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", script, "run", "examples/demo.toml", "--engine", "ray"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.returncode == 2
    assert "pip install 'hesrpt[ray]'" in run.stderr
    assert "Traceback" not in run.stderr


LISTENING = """
import sys
import psutil
from hesrpt import Pool

with Pool(1, engine="ray", address="local") as pool:
    assert pool.map(abs, [-1, 2]).results() == [1, 2]
    process = psutil.Process()
    for member in [process, *process.children(recursive=True)]:
        for connection in member.net_connections("inet"):
            if connection.status in (psutil.CONN_LISTEN, psutil.CONN_NONE):
                print(member.name(), connection.laddr.ip)
"""


@pytest.mark.slow
def test_private_ray_listens_on_loopback_only(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LISTENING], capture_output=True, text=True, cwd=tmp_path, timeout=200
    )
    assert run.returncode == 0, run.stderr
    listening = [line.rsplit(" ", 1) for line in run.stdout.splitlines()]
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    for name, address in listening:
        ip = ipaddress.ip_address(address)
        ipv4 = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        assert (ipv4 or ip).is_loopback, f"{name} listens on {address}"


# --- threads ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_libraries_start_as_many_threads_as_a_server_has_cpus(pool: Pool, tmp_path: Path) -> None:
    def count_threads(item: int) -> tuple[set[int], set[str]]:
        from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

        assert np.ones(3).sum() == 3
        numbers = {os.environ[name] for name in THREAD_VARIABLES}
        return {each["num_threads"] for each in threadpool_info()}, numbers

    assert pool.map(count_threads, [1]).results() == [({1}, {"1"})]
    template = CommandTemplate(job="wide", command="env > shown", directory=str(tmp_path))
    spec = JobSpec(name="wide", command=template, resize="never", min_servers=2)
    pool.add_jobs([LiveJob.from_command(spec)])[0].wait()
    shown = (tmp_path / "shown").read_text().splitlines()
    assert {f"{name}=2" for name in THREAD_VARIABLES} <= {*shown}
