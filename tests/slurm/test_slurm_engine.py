"""Pilots on a real Slurm: they come and go with demand, die, and reach their walltimes."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.slurm_cluster import SlurmCluster
from support.waiting import wait_until

from hesrpt import InputError, Pool
from hesrpt.engines import SlurmEngine

pytestmark = pytest.mark.slurm


def create_item(evidence: Path, seconds: float) -> Callable[[int], int]:
    """Return a function that takes some seconds, and leaves a line in a file when it starts."""

    def work(value: int) -> int:
        with open(evidence, "a") as file:
            file.write(f"{value} {os.environ['SLURM_JOB_ID']} {time.time()}\n")
        time.sleep(seconds)
        return value

    return work


def read_evidence(evidence: Path) -> list[tuple[int, str, float]]:
    """Return which items have started, in which pilots, and when."""
    lines = [line.split() for line in evidence.read_text().splitlines()]
    return [(int(value), job, float(started)) for value, job, started in lines]


def test_pilots_come_and_go_with_demand(slurm: SlurmCluster, tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    engine = SlurmEngine(max_pilots=3, cores=2, walltime="10m", idle="2s", poll="1s")
    with Pool(engine=engine) as pool:
        job = pool.map(create_item(evidence, 0.3), range(80))
        wait_until(lambda: len(slurm.list_jobs("running")) == 3)
        assert job.results() == list(range(80))
        assert len({pilot for _, pilot, _ in read_evidence(evidence)}) == 3
        wait_until(lambda: not slurm.list_jobs())
        wait_until(lambda: engine.capacity() == 0)
        assert pool.map(abs, [-1]).results() == [1]
        assert len(slurm.list_jobs()) == 1, "one item needs one pilot"
    wait_until(lambda: not slurm.list_jobs("running"))
    assert list((tmp_path / "home" / ".hesrpt").iterdir()) == []


def test_nothing_is_lost_when_pilots_and_nodes_die(slurm: SlurmCluster, tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    engine = SlurmEngine(max_pilots=3, cores=2, walltime="10m", poll="1s")
    with Pool(engine=engine, state=tmp_path / "state") as pool:
        job = pool.map(create_item(evidence, 0.5), range(120))
        wait_until(lambda: job.done > 10)
        cancelled, dead, _ = slurm.list_jobs("running")
        slurm.run("scancel", cancelled)
        wait_until(lambda: job.done > 40)
        slurm.kill_node(slurm.list_jobs("running")[dead])
        assert job.results() == list(range(120))
    runs = Counter(value for value, _, _ in read_evidence(evidence))
    assert set(runs) == set(range(120))
    # Only the items that were running in the two pilots, two in each, may have run again.
    assert sum(runs.values()) <= 120 + 8
    assert len({pilot for _, pilot, _ in read_evidence(evidence)}) >= 4, "pilots were replaced"


def test_pilots_are_drained_before_their_walltime(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Items of eight seconds in pilots of one minute: each runs once, and none is cut off."""
    engine = SlurmEngine(max_pilots=2, cores=2, walltime="1m", poll="1s")
    with Pool(engine=engine) as pool:
        long = pool.map(create_item(tmp_path / "long", 8.0), range(32))
        short = pool.map(create_item(tmp_path / "short", 0.5), range(80))
        assert short.results() == list(range(80))
        assert long.results() == list(range(32))
    started = read_evidence(tmp_path / "long")
    assert sorted(value for value, _, _ in started) == list(range(32)), "an item ran twice"
    short_started = read_evidence(tmp_path / "short")
    assert sorted(value for value, _, _ in short_started) == list(range(80)), "an item ran twice"
    pilots = {pilot for _, pilot, _ in started}
    assert len(pilots) >= 3, "no pilot was replaced"
    for pilot in pilots:
        times = [start for _, job, start in started + short_started if job == pilot]
        last = max(start for _, job, start in started if job == pilot)
        # The first item starts some seconds after the pilot, and an item takes eight.
        assert last - min(times) < 60 - 8


def test_slurm_refuses_pilots(slurm: SlurmCluster) -> None:
    with pytest.raises(InputError, match=r"refuses the pilots: .*invalid partition specified: no"):
        SlurmEngine(max_pilots=1, partition="no")


def test_pilots_that_cannot_start_are_reported(slurm: SlurmCluster, tmp_path: Path) -> None:
    engine = SlurmEngine(
        max_pilots=1, setup="echo no such module >&2; exit 1", poll="0.2s", walltime="5m"
    )
    with pytest.raises(InputError, match="no such module"), Pool(engine=engine) as pool:
        pool.map(abs, [1]).results()
    (kept,) = (tmp_path / "home" / ".hesrpt").iterdir()
    assert not list(kept.glob("*.pem")), "keys were left behind"
