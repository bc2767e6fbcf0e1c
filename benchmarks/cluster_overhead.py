"""Jobs on a cluster compared with plain Ray or Dask on the same one: throughput and flow times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from rich.console import Console

from benchmarks.ratios import Ratio, at_least
from hesrpt import Pool

SECONDS = 0.01  # of an item


class PlainCluster(Protocol):
    """A cluster, and how it runs items without hesrpt."""

    name: str
    method: str  # how it runs many items

    def open_pool(self, policy: str = "adaptive") -> Pool:
        """Open a pool on this cluster."""

    def run_items(self, items: int) -> None:
        """Run so many items, and wait for them."""

    def run_jobs(self, jobs: dict[str, int], order: list[str]) -> Iterator[str]:
        """Submit all items of all jobs at once. Yield the name of the job when an item ends."""


StartCluster = Callable[[int], AbstractContextManager[PlainCluster]]


def run_item(item: int) -> int:
    time.sleep(SECONDS)
    return item


def measure_throughput(
    console: Console, start: StartCluster, items: int = 2000, servers: int = 2, rounds: int = 5
) -> list[Ratio]:
    """Compare the throughput of short items with that of the cluster itself, in turns."""
    ratios = []
    with start(servers) as cluster:
        for _ in range(rounds):
            cluster.run_items(20 * servers)  # start its workers
            began = time.perf_counter()
            cluster.run_items(items)
            plain_seconds = time.perf_counter() - began
            with cluster.open_pool() as pool:
                _warm_up(pool, servers)
                began = time.perf_counter()
                pool.map(run_item, range(items), name="items").results()
                our_seconds = time.perf_counter() - began
            ratios.append(plain_seconds / our_seconds)
    median = statistics.median(ratios)
    console.print(
        f"{items:,} items of {SECONDS * 1000:g} ms on {servers} servers: {min(ratios):.0%} to "
        f"{max(ratios):.0%} of the throughput of {cluster.method}, with a median of {median:.0%} "
        "(target: 90%)"
    )
    return [at_least(f"10 ms items, throughput / {cluster.method}", median, 0.9)]


def compare_flow_times(console: Console, start: StartCluster, servers: int = 4) -> None:
    """Compare the flow times of three jobs of very different sizes, submitted together."""
    jobs = {"large": 600, "medium": 150, "small": 30}
    with start(servers) as cluster:
        for order in (list(jobs), list(reversed(jobs))):
            cluster.run_items(20 * servers)
            results = [f"{cluster.name}'s own order {_run_plainly(cluster, jobs, order):.2f} s"]
            for policy in ("equi", "hesrpt"):
                with cluster.open_pool(policy) as pool:
                    _warm_up(pool, servers)
                    handles = [pool.map(run_item, range(jobs[name]), name=name) for name in order]
                    pool.wait()
                    mean = statistics.mean(job.flow_time for job in handles)
                results.append(f"{policy} {mean:.2f} s")
            console.print(f"mean flow time of {', '.join(order)}: {'; '.join(results)}")


def _warm_up(pool: Pool, servers: int) -> None:
    """Wait until all servers have started and the length of items is known."""
    pool.map(time.sleep, [1.0] * 2 * servers, name="start").wait()
    pool.map(run_item, range(10 * servers), name="learn").wait()


def _run_plainly(cluster: PlainCluster, jobs: dict[str, int], order: list[str]) -> float:
    """Return the mean flow time of jobs that the cluster runs in its own order."""
    began = time.perf_counter()
    unfinished, ended = dict(jobs), {}
    for name in cluster.run_jobs(jobs, order):
        unfinished[name] -= 1
        if unfinished[name] == 0:
            ended[name] = time.perf_counter() - began
    return statistics.mean(ended.values())
