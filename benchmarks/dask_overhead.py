"""Jobs on Dask compared with plain Dask on the same cluster: throughput and flow times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, LocalCluster, as_completed
from rich.console import Console

from benchmarks.ratios import Ratio, at_least
from hesrpt import Pool
from hesrpt.engines import DaskEngine

_SECONDS = 0.01


@contextmanager
def _start_cluster(servers: int) -> Iterator[Client]:
    """Start a cluster of processes with one thread each."""
    with (
        LocalCluster(
            n_workers=servers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(servers)
        yield client


def _run_item(item: int) -> int:
    time.sleep(_SECONDS)
    return item


def _warm_up(pool: Pool, servers: int) -> None:
    """Wait until all servers have started and the length of items is known."""
    pool.map(time.sleep, [0.5] * 2 * servers, name="start").wait()
    pool.map(_run_item, range(10 * servers), name="learn").wait()


def measure_throughput(
    console: Console, items: int = 2000, servers: int = 2, rounds: int = 5
) -> list[Ratio]:
    """Compare the throughput of short items with that of ``client.map``, in turns."""
    ratios = []
    with _start_cluster(servers) as client:
        client.gather(client.map(_run_item, range(20 * servers), pure=False))
        for _ in range(rounds):
            began = time.perf_counter()
            client.gather(client.map(_run_item, range(items), pure=False))
            plain_seconds = time.perf_counter() - began
            with Pool(engine=DaskEngine(cluster=client)) as pool:
                _warm_up(pool, servers)
                began = time.perf_counter()
                pool.map(_run_item, range(items), name="items").results()
                our_seconds = time.perf_counter() - began
            ratios.append(plain_seconds / our_seconds)
    console.print(
        f"{items:,} items of {_SECONDS * 1000:g} ms on {servers} servers: {min(ratios):.0%} to "
        f"{max(ratios):.0%} of the throughput of Dask's client.map, with a median of "
        f"{statistics.median(ratios):.0%} (target: 90%)"
    )
    return [at_least("10 ms items, throughput / client.map", statistics.median(ratios), 0.9)]


def compare_flow_times(console: Console, servers: int = 4) -> None:
    """Compare the flow times of three jobs of very different sizes, submitted together."""
    jobs = {"large": 600, "medium": 150, "small": 30}
    with _start_cluster(servers) as client:
        client.gather(client.map(_run_item, range(20 * servers), pure=False))
        for order in (list(jobs), list(reversed(jobs))):
            results = [f"Dask's own order {_submit_all_at_once(client, jobs, order):.2f} s"]
            for policy in ("equi", "hesrpt"):
                with Pool(policy=policy, engine=DaskEngine(cluster=client)) as pool:
                    _warm_up(pool, servers)
                    handles = [pool.map(_run_item, range(jobs[name]), name=name) for name in order]
                    pool.wait()
                    mean = statistics.mean(job.flow_time for job in handles)
                results.append(f"{policy} {mean:.2f} s")
            console.print(f"mean flow time of {', '.join(order)}: {'; '.join(results)}")


def _submit_all_at_once(client: Client, jobs: dict[str, int], order: list[str]) -> float:
    """Map all items of all jobs at once, and return the mean flow time of the jobs."""
    began = time.perf_counter()
    futures = {
        future: name
        for name in order
        for future in client.map(_run_item, range(jobs[name]), pure=False)
    }
    unfinished, ended = dict(jobs), {}
    for future in as_completed(list(futures), loop=client.loop):
        name = futures[future]
        unfinished[name] -= 1
        if unfinished[name] == 0:
            ended[name] = time.perf_counter() - began
    return statistics.mean(ended.values())
