"""Jobs on real Ray clusters of several nodes: nodes come and go, others use them, drivers die."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray

from hesrpt import InputError, Pool
from hesrpt.runtime.engines.base import CommandTask, Outcome
from hesrpt.runtime.engines.ray import RayEngine
from hesrpt.runtime.events import JobSpec
from hesrpt.runtime.journal import Journal
from hesrpt.runtime.sources import CommandSource

STORE = 80 * 2**20


@pytest.fixture
def cluster(new_cluster: Callable[[int], Any]) -> Iterator[Any]:
    made = new_cluster(1)
    yield made
    ray.shutdown()
    made.shutdown()


def until(ready: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def core_servers(pool: Pool) -> int:
    return pool._driver.core.servers


# --- the cluster changes ----------------------------------------------------------------------


def test_nodes_that_come_are_used_and_nodes_that_die_lose_nothing(
    cluster: Any, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    starts = tmp_path / "starts"

    def work(item: int) -> int:
        with starts.open("a") as file:
            file.write(f"{item}\n")
        time.sleep(0.1)
        return item * item

    with Pool(engine="ray", address=cluster.address, state=tmp_path / "state") as pool:
        jobs = [pool.map(work, range(size), name=f"{size}", retries=0) for size in (20, 120)]
        assert core_servers(pool) == 1
        node = cluster.add_node(num_cpus=3, object_store_memory=STORE)
        until(lambda: core_servers(pool) == 4)
        until(lambda: pool._driver.core.observed == 4)
        for _ in range(2):
            time.sleep(chance.uniform(0.2, 1.2))
            cluster.remove_node(node, allow_graceful=False)  # kill -9 of its raylet
            until(lambda: core_servers(pool) == 1, 20)
            node = cluster.add_node(num_cpus=3, object_store_memory=STORE)
            until(lambda: core_servers(pool) == 4)
        for job in jobs:
            assert job.results(timeout=60) == [item * item for item in range(job.done)]
        assert [job.done for job in jobs] == [20, 120]
        assert pool.schedule.flow_times.shape == (2,)
    begun = Counter(starts.read_text().split())
    # Only what ran on a node that died is done again.
    assert sum(begun.values()) - 140 <= 2 * 3
    journal = Journal.read(tmp_path / "state")
    assert {row.name: row.error for row in journal.jobs()} == {"20": None, "120": None}
    assert [journal.failures(name) for name in ("20", "120")] == [[], []]
    assert int(journal.get("servers")) == 4
    journal.close()


def test_commands_stay_within_a_node_and_are_started_again_if_it_dies(
    cluster: Any, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        f"""[[job]]
        name = "wide"
        command = "echo {{servers}} $$ >> {tmp_path}/wide; sleep 3"
        size = 100
        [[job]]
        name = "narrow"
        command = "echo {{item}} >> {tmp_path}/narrow; sleep 0.05"
        items = {{range = [0, 40]}}
        """
    )
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE)
    run = subprocess.Popen(
        [sys.executable, "-m", "hesrpt", "run", jobs, "--engine", "ray", "--address",
         cluster.address, "--policy", "fifo", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until((tmp_path / "wide").exists)
    time.sleep(0.5)
    (first,) = (tmp_path / "wide").read_text().splitlines()
    assert first.split()[0] == "2"  # there are three servers, but not on one node
    cluster.remove_node(node, allow_graceful=False)
    until(lambda: len((tmp_path / "wide").read_text().splitlines()) == 2)
    assert (tmp_path / "wide").read_text().splitlines()[1].split()[0] == "1"
    assert not psutil.pid_exists(int(first.split()[1])), "it still runs"
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, err
    assert {job["state"] for job in json.loads(out)["jobs"]} == {"done"}
    assert sorted(map(int, (tmp_path / "narrow").read_text().split())) == list(range(40))


def test_a_node_that_is_taken_away_politely_costs_no_item(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE)
    with Pool(engine="ray", address=cluster.address) as pool:
        job = pool.map(lambda _: time.sleep(0.3), range(24), retries=0)
        until(lambda: job.done > 2)
        cluster.remove_node(node, allow_graceful=True)
        assert job.results(60) == [None] * 24


def test_commands_of_different_widths_share_a_node(new_cluster: Callable[[int], Any]) -> None:
    cluster = new_cluster(5)
    engine = RayEngine(5, cluster.address)
    try:
        assert (engine.capacity(), engine.widest()) == (5, 5)
        engine.start("x", {0: CommandTask("sleep 0.2")}, 2)
        engine.start("y", {0: CommandTask("sleep 0.2")}, 3)
        engine.start("z", {0: CommandTask("true"), 1: CommandTask("false")}, 1)
        found: dict[tuple[str, int], Outcome] = {}
        end = time.monotonic() + 40
        while len(found) < 4 and time.monotonic() < end:
            found |= {(one.job, one.item): one for one in engine.outcomes(0.2)}
            assert engine.fleet._held().total() <= 5
        assert {key: one.error for key, one in found.items()} == {
            ("x", 0): None, ("y", 0): None, ("z", 0): None, ("z", 1): "exit code 1",
        }  # fmt: skip
    finally:
        engine.close()
        cluster.shutdown()


def test_an_autoscaler_sees_what_could_be_used_and_others_are_left_alone(cluster: Any) -> None:
    cluster.add_node(num_cpus=3, object_store_memory=STORE)
    ray.init(address=cluster.address, log_to_driver=False)

    class Foreign:
        def here(self) -> bool:
            return True

    foreign: Any = ray.remote(num_cpus=2)(Foreign)
    other = foreign.remote()
    assert ray.get(other.here.remote())
    time.sleep(0.5)  # until all know
    with Pool(engine="ray") as pool:
        job = pool.map(lambda _: time.sleep(0.1), range(120))
        until(lambda: pool._driver.core.observed == 2)
        assert core_servers(pool) == 2
        ray.kill(other)
        until(lambda: core_servers(pool) == 4)
        until(lambda: pool._driver.core.observed == 4)
        until(lambda: waiting_bundles() == [{"CPU": 1.0}] * 4)
        job.wait()
        until(lambda: waiting_bundles() == [])
        # What nobody needs is given back.
        until(lambda: ray.available_resources().get("CPU", 0) == 4)
        again = foreign.remote()
        assert ray.get(again.here.remote())
        until(lambda: core_servers(pool) == 2)
    assert ray.is_initialized()  # the connection was not the pool's


def waiting_bundles() -> list[dict[str, float]]:
    groups = ray.util.placement_group_table().values()
    return [
        bundle
        for group in groups
        if group["state"] == "PENDING"
        for bundle in group["bundles"].values()
    ]


def test_the_driver_dies_and_another_goes_on_with_another_cluster(
    cluster: Any, ray_address: str, tmp_path: Path
) -> None:
    state, jobs = tmp_path / "state", tmp_path / "jobs.toml"
    jobs.write_text(
        f"""[[job]]
        name = "a"
        command = "sleep 0.1; echo {{item}} >> {tmp_path}/a"
        items = {{range = [0, 40]}}
        """
    )
    begun = [sys.executable, "-m", "hesrpt", "run", "--engine", "ray", "--state", str(state)]
    first = subprocess.Popen([*begun, str(jobs), "--address", cluster.address])
    done = tmp_path / "a"
    until(lambda: done.exists() and len(done.read_text().split()) > 10, 60)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    time.sleep(1.0)  # nothing goes on without the driver
    before = len(done.read_text().split())
    time.sleep(0.5)
    assert len(done.read_text().split()) == before
    second = subprocess.run(
        [*begun, "--resume", "--address", ray_address], capture_output=True, text=True, timeout=60
    )
    assert second.returncode == 0, second.stderr
    counted = Counter(done.read_text().split())
    assert set(counted) == {str(item) for item in range(40)}
    assert sum(counted.values()) <= 40 + 1  # what was running when the driver died


# --- items and results ------------------------------------------------------------------------


@pytest.fixture
def pool(ray_address: str) -> Iterator[Pool]:
    with Pool(2, engine="ray", address=ray_address) as made:
        yield made


class Counted:
    """Large, and counts how often it is sent and received."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.data = directory, np.ones(2**20)

    def __getstate__(self) -> dict[str, Any]:
        (self.directory / f"sent-{time.monotonic_ns()}").touch()
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        (self.directory / f"received-{os.getpid()}-{time.monotonic_ns()}").touch()


def test_what_all_items_share_is_sent_once(pool: Pool, tmp_path: Path) -> None:
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    large = Counted(tmp_path)
    job = pool.map(lambda item: item + int(large.data.sum()), range(40))
    assert job.results() == [item + 2**20 for item in range(40)]
    assert len(list(tmp_path.glob("sent-*"))) == 1
    received = [path.name.split("-")[1] for path in tmp_path.glob("received-*")]
    assert len(received) == len(set(received)) <= 2  # by each server once


def test_results_can_stay_in_the_cluster(ray_address: str, tmp_path: Path) -> None:
    ray.init(address=ray_address, log_to_driver=False)
    try:
        with Pool(2, engine="ray") as pool:
            squares = pool.map(lambda x: np.full(2**17, x * x), range(4), keep=True)
            refs = squares.refs()
            assert all(isinstance(ref, ray.ObjectRef) for ref in refs)
            assert [int(ray.get(ref)[0]) for ref in refs] == [0, 1, 4, 9]
            sums = pool.map(lambda values: int(values.sum()), refs, name="sums")
            assert sums.results() == [2**17 * x * x for x in range(4)]
            assert int(squares.results()[3][5]) == 9
            with pytest.raises(InputError, match="say map"):
                sums.refs()
        with (
            Pool(1, engine="ray", state=tmp_path / "state") as pool,
            pytest.raises(InputError, match="a state directory is to hold the results"),
        ):
            pool.map(abs, [1], keep=True)
    finally:
        ray.shutdown()
    with Pool(1) as local, pytest.raises(InputError, match="in a cluster only"):
        local.map(abs, [1], keep=True)


def test_short_items_go_in_batches_but_are_told_one_by_one(pool: Pool, tmp_path: Path) -> None:
    engine = pool._driver.engine
    assert isinstance(engine, RayEngine)
    sizes: list[int] = []
    give = engine._give

    def counting(actor: Any, batch: Any) -> None:
        sizes.append(len(batch.tasks))
        give(actor, batch)

    engine._give = counting  # type: ignore[method-assign]
    job = pool.map(lambda x: x + 1, range(2000))
    assert job.results() == list(range(1, 2001))
    assert sum(sizes) == job.done == 2000
    assert len(sizes) < 300
    assert max(sizes) <= 100


def test_one_of_a_batch_that_crashes_fails_alone(pool: Pool) -> None:
    def crash_at_500(item: int) -> int:
        if item == 500:
            os._exit(1)
        return item

    with pool.executor() as executor:
        futures = [executor.submit(crash_at_500, item) for item in range(1000)]
    failed = [item for item, future in enumerate(futures) if future.exception() is not None]
    assert failed == [500]
    assert sum(future.result() for item, future in enumerate(futures) if item != 500) == 499000


def test_an_item_of_a_batch_that_hangs_is_found_out(pool: Pool) -> None:
    def hang_at_900(item: int) -> int:
        time.sleep(60 if item == 900 else 0)
        return item

    job = pool.map(hang_at_900, range(1000), timeout=0.5, retries=0)
    assert job.wait(15)
    assert job.error == "item 900: took longer than its time limit (0.5 s)"


def test_short_commands_go_in_batches_too(pool: Pool, tmp_path: Path) -> None:
    items = [str(item) for item in range(150)]
    source = CommandSource("touch", ("touch", f"{tmp_path}/{{item}}"), items, None)
    job = pool.add("touch", JobSpec(items=150), source)
    assert job.wait(60)
    assert (job.state, job.done) == ("done", 150)
    assert len(list(tmp_path.iterdir())) == 150


def test_pools_of_one_process_share_the_connection(ray_address: str) -> None:
    with Pool(1, engine="ray", address=ray_address) as first:
        with Pool(1, engine="ray", address=ray_address) as second:
            assert second.map(abs, [-2]).results(30) == [2]
        assert first.map(abs, [-1]).results(30) == [1]
        with pytest.raises(InputError, match="is connected to Ray at"):
            Pool(1, engine="ray", address="127.0.0.1:1")
    assert not ray.is_initialized()


def test_without_the_connection_nobody_waits_for_ever(ray_address: str) -> None:
    ray.init(address=ray_address, log_to_driver=False)
    with Pool(1, engine="ray") as pool:
        executor = pool.executor()
        future = executor.submit(time.sleep, 60)
        until(future.running)
        ray.shutdown()
        with pytest.raises(CancelledError, match="the connection to Ray was closed"):
            future.result(20)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(abs, 1)
        with pytest.raises(InputError, match="the connection to Ray was closed"):
            pool.map(abs, [1])
        pool.close()
    assert not ray.is_initialized()  # and no other was started


def test_processes_get_what_they_need_or_it_is_said(ray_address: str) -> None:
    environment = {"env_vars": {"A": "b"}}
    with Pool(1, engine="ray", address=ray_address, runtime_env=environment) as pool:
        assert pool.map(lambda name: os.environ[name], ["A"]).results(60) == ["b"]
    missing = {"working_dir": "/no/such/directory"}
    with Pool(1, engine="ray", address=ray_address, runtime_env=missing) as pool:
        with pytest.raises(InputError, match="/no/such/directory"):
            pool.map(abs, [1]).results(60)
        pool.close()


def test_a_million_items_are_never_read_at_once(pool: Pool) -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        while read < 10**6:
            read += 1
            yield read

    job = pool.map(abs, items())
    until(lambda: job.done > 2000, 60)
    ahead = read - job.done
    job.cancel()
    assert ahead <= 2 * (2 * 2 + 2) * 100


# --- mistakes -----------------------------------------------------------------------------------


def test_what_the_cluster_does_not_have_is_said_at_once(ray_address: str) -> None:
    with pytest.raises(
        InputError, match=r"no node of the cluster has \{'GPU': 1\}: \{'CPU': 4.0\}"
    ):
        Pool(engine="ray", address=ray_address, resources={"GPU": 1})
    with pytest.raises(InputError, match="nobody answers"):
        Pool(engine="ray", address="127.0.0.1:9")
    with pytest.raises(InputError, match="ray job submit"):
        Pool(engine="ray", address="ray://127.0.0.1:10001")
    for amount in (0, 1e-5, "1"):
        with pytest.raises(InputError, match=rf"resources: 'CPU' must be .* got {amount!r}"):
            Pool(engine="ray", address=ray_address, resources={"CPU": amount})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="resources must be like"):
        Pool(engine="ray", address=ray_address, resources={})
    with pytest.raises(InputError, match="runtime_env must be a dictionary"):
        Pool(engine="ray", address=ray_address, runtime_env="x")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="are for engine 'ray'"):
        Pool(address=ray_address)
    with pytest.raises(InputError, match="unknown engine 'slurm'; there are: local, ray"):
        Pool(engine="slurm")
    assert not ray.is_initialized()


def test_a_server_may_be_more_than_a_core(ray_address: str) -> None:
    with Pool(engine="ray", address=ray_address, resources={"CPU": 1.5}) as pool:
        assert pool.servers == 2
        found = pool.map(
            lambda _: ray.get_runtime_context().get_assigned_resources(), [0]
        ).results()
        assert found == [{"CPU": 1.5}]


def test_without_ray_it_is_said_how_to_get_it() -> None:
    script = "import sys; sys.modules['ray'] = None; from hesrpt.cli import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", script, "run", "examples/demo.toml", "--engine", "ray"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert found.returncode == 2
    assert "pip install 'hesrpt[ray]'" in found.stderr
    assert "Traceback" not in found.stderr
