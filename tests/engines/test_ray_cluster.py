"""Jobs on Ray clusters of several nodes: nodes come and go, others use them, drivers die."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.engines.engine import CommandTask, Outcome
from hesrpt.engines.ray import cluster as cluster_module
from hesrpt.engines.ray.ray_engine import RayEngine
from hesrpt.storage.journal import Journal

STORE = 80 * 2**20


@pytest.fixture(scope="module")
def shared_cluster(start_cluster: Callable[[int], Any]) -> Any:
    """A cluster whose head has one CPU. Use :func:`cluster`, which tidies it up."""
    return start_cluster(1)


@pytest.fixture
def cluster(shared_cluster: Any) -> Iterator[Any]:
    """A cluster whose head has one CPU; its other nodes are removed after the test."""
    yield shared_cluster
    ray.shutdown()
    for node in list(shared_cluster.worker_nodes):
        shared_cluster.remove_node(node)
    shared_cluster.wait_for_nodes()


@pytest.fixture
def doomed_cluster(start_cluster: Callable[[int], Any]) -> Iterator[Any]:
    """A cluster for a test that kills nodes, which Ray would go on listing in later tests."""
    cluster = start_cluster(1)
    yield cluster
    cluster.shutdown()


def count_busy_servers(engine: RayEngine) -> int:
    return sum(actor.servers for actor in list(engine.fleet.actors) if not actor.is_idle)


@pytest.mark.slow
def test_address_without_tokens_is_warned_about_once(
    cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster_module._warn_of_unprotected_cluster.cache_clear()
    for _ in range(2):
        RayEngine(1, address=cluster.address).close()
    (message,) = [each.getMessage() for each in caplog.records if each.name == "hesrpt"]
    assert message.startswith(f"hesrpt: the Ray cluster at {cluster.address} is not protected")


# --- nodes come and go ------------------------------------------------------------------------


@pytest.mark.slow
def test_new_nodes_are_used_and_dead_nodes_lose_no_item(
    doomed_cluster: Any, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    starts, release = tmp_path / "starts", tmp_path / "release"

    def work(item: int) -> int:
        with starts.open("a") as file:
            file.write(f"{item}\n")
        time.sleep(0.1)
        while item >= 50 and not release.exists():  # so that work remains, however slow the nodes
            time.sleep(0.05)
        return item * item

    engine = RayEngine(address=doomed_cluster.address)
    with Pool(engine=engine, state=tmp_path / "state") as pool:
        jobs = [pool.map(work, range(size), name=f"{size}", retries=0) for size in (20, 120)]
        assert engine.capacity() == 1
        node = doomed_cluster.add_node(num_cpus=3, object_store_memory=STORE)
        wait_until(lambda: engine.capacity() == 4)
        wait_until(lambda: count_busy_servers(engine) == 4)
        for _ in range(2):
            time.sleep(rng.uniform(0.2, 1.2))
            doomed_cluster.remove_node(node, allow_graceful=False)  # kill -9 of its raylet
            wait_until(lambda: engine.capacity() == 1, 60)
            node = doomed_cluster.add_node(num_cpus=3, object_store_memory=STORE)
            wait_until(lambda: engine.capacity() == 4)
        release.touch()
        for job in jobs:
            assert job.results(timeout=180) == [item * item for item in range(job.done)]
        assert [job.done for job in jobs] == [20, 120]
        assert pool.schedule.flow_times.shape == (2,)
    # Only the items that were running on a node when it died run again.
    assert len(starts.read_text().split()) - 140 <= 2 * 3
    journal = Journal.read(tmp_path / "state")
    records = journal.read_records()
    assert {record.name: record.error for record in records} == {"20": None, "120": None}
    assert [record.failures for record in records] == [0, 0]
    assert int(journal.get_value("servers")) == 4
    journal.close()


@pytest.mark.slow
def test_commands_fit_on_one_node_and_restart_elsewhere_if_it_dies(
    doomed_cluster: Any, tmp_path: Path
) -> None:
    jobs, wide = tmp_path / "jobs.toml", tmp_path / "wide"
    jobs.write_text(
        f"""[[job]]
        name = "wide"
        command = "echo {{servers}} $$ >> wide; [ $(wc -l < wide) -gt 1 ] || sleep 90"
        size = 100
        [[job]]
        name = "narrow"
        command = "echo {{item}} >> {tmp_path}/narrow; sleep 0.05"
        items = {{range = [0, 40]}}
        """
    )
    node = doomed_cluster.add_node(num_cpus=2, object_store_memory=STORE)
    command = ["run", str(jobs), "--engine", "ray", "--address", doomed_cluster.address]
    run = subprocess.Popen(
        [sys.executable, "-m", "hesrpt", *command, "--policy", "fifo", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: wide.exists() and wide.read_text().endswith("\n"))
    servers, pid = wide.read_text().split()
    assert servers == "2", "there are three servers, but only two on one node"
    doomed_cluster.remove_node(node, allow_graceful=False)
    wait_until(lambda: len(wide.read_text().splitlines()) == 2)
    assert wide.read_text().splitlines()[1].split()[0] == "1"
    wait_until(lambda: has_ended(int(pid)))
    out, err = run.communicate(timeout=180)
    assert run.returncode == 0, err
    assert {job["state"] for job in json.loads(out)["jobs"]} == {"done"}
    assert sorted(map(int, (tmp_path / "narrow").read_text().split())) == list(range(40))


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_draining_a_node_loses_no_item(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE)
    with Pool(engine="ray", address=cluster.address) as pool:
        job = pool.map(lambda _: time.sleep(0.3), range(24), retries=0)
        wait_until(lambda: job.done > 2)
        cluster.remove_node(node, allow_graceful=True)
        assert job.results(180) == [None] * 24


# --- sharing nodes ----------------------------------------------------------------------------


@pytest.mark.slow
def test_commands_of_different_widths_share_a_node(cluster: Any) -> None:
    cluster.add_node(num_cpus=5, object_store_memory=STORE)
    engine = RayEngine(5, address=cluster.address)
    try:
        assert (engine.capacity(), engine.widest_command()) == (5, 5)
        engine.start("x", {0: CommandTask("sleep 0.2")}, 2)
        engine.start("y", {0: CommandTask("sleep 0.2")}, 3)
        engine.start("z", {0: CommandTask("true"), 1: CommandTask("false")}, 1)
        outcomes: dict[tuple[str, int], Outcome] = {}
        deadline = time.monotonic() + 120
        while len(outcomes) < 4 and time.monotonic() < deadline:
            for outcome in engine.wait_for_outcomes(0.2):
                outcomes[outcome.job, outcome.item] = outcome
            assert engine.fleet.count_servers_by_node().total() <= 5
        assert {key: outcome.error for key, outcome in outcomes.items()} == {
            ("x", 0): None,
            ("y", 0): None,
            ("z", 0): None,
            ("z", 1): "exit code 1",
        }
    finally:
        engine.close()


@pytest.mark.slow
def test_resources_of_others_are_left_alone_and_an_autoscaler_sees_our_demand(
    cluster: Any, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=3, object_store_memory=STORE)
    ray.init(address=cluster.address, log_to_driver=False)

    class Other:
        def is_running(self) -> bool:
            return True

    release = tmp_path / "release"

    def wait_for_release(_: int) -> None:
        while not release.exists():
            time.sleep(0.05)

    other: Any = ray.remote(num_cpus=2)(Other)
    first = other.remote()
    assert ray.get(first.is_running.remote())
    time.sleep(0.5)  # until all nodes know
    engine = RayEngine()
    with Pool(engine=engine) as pool:
        job = pool.map(wait_for_release, range(20))
        wait_until(lambda: count_busy_servers(engine) == 2)
        assert engine.capacity() == 2
        ray.kill(first)
        wait_until(lambda: engine.capacity() == 4)
        wait_until(lambda: count_busy_servers(engine) == 4)
        wait_until(lambda: waiting_bundles() == [{"CPU": 1.0}] * 4)
        release.touch()
        job.wait()
        wait_until(lambda: waiting_bundles() == [])
        wait_until(
            lambda: ray.available_resources().get("CPU", 0) == 4
        )  # idle servers are given back
        second = other.remote()
        assert ray.get(second.is_running.remote())
        wait_until(lambda: engine.capacity() == 2)
    assert ray.is_initialized(), "the pool closed a connection that it had not opened"
    ray.kill(second)


def waiting_bundles() -> list[dict[str, float]]:
    """Return the bundles of resources that placement groups wait for."""
    return [
        bundle
        for group in ray.util.placement_group_table().values()
        if group["state"] == "PENDING"
        for bundle in group["bundles"].values()
    ]


# --- the driver dies --------------------------------------------------------------------------


@pytest.mark.slow
def test_run_whose_driver_died_resumes_on_another_cluster(
    cluster: Any, ray_address: str, tmp_path: Path
) -> None:
    state, jobs, log = tmp_path / "state", tmp_path / "jobs.toml", tmp_path / "log"
    jobs.write_text(
        f"""[[job]]
        name = "a"
        command = "sleep 0.1; echo {{item}} >> {log}"
        items = {{range = [0, 40]}}
        """
    )

    def finished_items() -> list[str]:
        return log.read_text().split() if log.exists() else []

    command = [sys.executable, "-m", "hesrpt", "run", "--engine", "ray", "--state", str(state)]
    first = subprocess.Popen([*command, str(jobs), "--address", cluster.address])
    wait_until(lambda: len(finished_items()) > 10, 120)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    time.sleep(1.0)
    before = len(finished_items())
    time.sleep(0.5)
    assert len(finished_items()) == before, "items still run without their driver"
    second = subprocess.run(
        [*command, "--address", ray_address],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert second.returncode == 0, second.stderr
    assert set(finished_items()) == {str(item) for item in range(40)}
    # Only the item that was running when the driver died may have run twice.
    assert len(finished_items()) <= 40 + 1
