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
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from support.waiting import until

from hesrpt import Pool
from hesrpt.runtime.engines.engine import CommandTask, Outcome
from hesrpt.runtime.engines.ray.ray_engine import RayEngine
from hesrpt.runtime.journal import Journal

STORE = 80 * 2**20


@pytest.fixture
def cluster(start_cluster: Callable[[int], Any]) -> Iterator[Any]:
    made = start_cluster(1)
    yield made
    ray.shutdown()
    made.shutdown()


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
            until(lambda: core_servers(pool) == 1, 60)
            node = cluster.add_node(num_cpus=3, object_store_memory=STORE)
            until(lambda: core_servers(pool) == 4)
        for job in jobs:
            assert job.results(timeout=180) == [item * item for item in range(job.done)]
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
        command = "echo {{servers}} $$ >> wide; [ $(wc -l < wide) -gt 1 ] || sleep 90"
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
    until(lambda: has_ended(int(first.split()[1])), 40)
    out, err = run.communicate(timeout=180)
    assert run.returncode == 0, err
    assert {job["state"] for job in json.loads(out)["jobs"]} == {"done"}
    assert sorted(map(int, (tmp_path / "narrow").read_text().split())) == list(range(40))


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_node_that_is_taken_away_politely_costs_no_item(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE)
    with Pool(engine="ray", address=cluster.address) as pool:
        job = pool.map(lambda _: time.sleep(0.3), range(24), retries=0)
        until(lambda: job.done > 2)
        cluster.remove_node(node, allow_graceful=True)
        assert job.results(180) == [None] * 24


def test_commands_of_different_widths_share_a_node(start_cluster: Callable[[int], Any]) -> None:
    cluster = start_cluster(5)
    engine = RayEngine(5, address=cluster.address)
    try:
        assert (engine.capacity(), engine.widest_command()) == (5, 5)
        engine.start("x", {0: CommandTask("sleep 0.2")}, 2)
        engine.start("y", {0: CommandTask("sleep 0.2")}, 3)
        engine.start("z", {0: CommandTask("true"), 1: CommandTask("false")}, 1)
        found: dict[tuple[str, int], Outcome] = {}
        end = time.monotonic() + 120
        while len(found) < 4 and time.monotonic() < end:
            found |= {(one.job, one.item): one for one in engine.wait_for_outcomes(0.2)}
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
    until(lambda: done.exists() and len(done.read_text().split()) > 10, 120)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    time.sleep(1.0)  # nothing goes on without the driver
    before = len(done.read_text().split())
    time.sleep(0.5)
    assert len(done.read_text().split()) == before
    second = subprocess.run(
        [*begun, "--resume", "--address", ray_address], capture_output=True, text=True, timeout=180
    )
    assert second.returncode == 0, second.stderr
    counted = Counter(done.read_text().split())
    assert set(counted) == {str(item) for item in range(40)}
    assert sum(counted.values()) <= 40 + 1  # what was running when the driver died
