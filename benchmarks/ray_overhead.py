"""Jobs on Ray compared with plain Ray in the same run: throughput and flow times."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from rich.console import Console

from benchmarks.ratios import Ratio, at_least
from hesrpt import Pool

_SECONDS = 0.01
_BATCH = 10  # hesrpt sends a server a tenth of a second of work at a time


@contextmanager
def _start_cluster(cpus: int) -> Iterator[None]:
    """Start a private Ray cluster, even if another one runs on this machine."""
    with tempfile.TemporaryDirectory(prefix="ray") as directory:
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=directory,
        )
        try:
            yield
        finally:
            ray.shutdown()


def _run_item(item: int) -> int:
    time.sleep(_SECONDS)
    return item


def _run_items(items: list[int]) -> list[int]:
    return [_run_item(item) for item in items]


def _warm_up(pool: Pool, servers: int) -> None:
    """Wait until all servers have started and the length of items is known."""
    pool.map(time.sleep, [1.0] * 2 * servers, name="start").wait()
    pool.map(_run_item, range(10 * servers), name="learn").wait()


def measure_throughput(
    console: Console, items: int = 2000, servers: int = 2, rounds: int = 5
) -> list[Ratio]:
    """Compare the throughput of short items with that of Ray's own tasks in the same batches."""
    with _start_cluster(servers):
        plain: Any = ray.remote(_run_items)
        batches = [list(range(k, k + _BATCH)) for k in range(0, items, _BATCH)]

        def run_on_plain_ray() -> None:
            ray.get([plain.remote(batch) for batch in batches])

        ratios = []
        for _ in range(rounds):
            ray.get([plain.remote([0]) for _ in range(servers)])  # start Ray's workers
            began = time.perf_counter()
            run_on_plain_ray()
            plain_seconds = time.perf_counter() - began
            time.sleep(1.0)
            with Pool(servers, engine="ray") as pool:
                _warm_up(pool, servers)
                began = time.perf_counter()
                pool.map(_run_item, range(items), name="items").wait()
                our_seconds = time.perf_counter() - began
            ratios.append(plain_seconds / our_seconds)
    console.print(
        f"{items:,} items of {_SECONDS * 1000:g} ms on {servers} servers: {min(ratios):.0%} to "
        f"{max(ratios):.0%} of Ray's own throughput with batches of {_BATCH}, with a median "
        f"of {statistics.median(ratios):.0%} (target: 90%)"
    )
    return [at_least("10 ms items, throughput / Ray's own", statistics.median(ratios), 0.9)]


def compare_flow_times(console: Console, servers: int = 4) -> None:
    """Compare the flow times of three jobs of very different sizes, submitted together."""
    jobs = {"large": 600, "medium": 150, "small": 30}
    with _start_cluster(servers):
        plain: Any = ray.remote(_run_item)
        for order in (list(jobs), list(reversed(jobs))):
            ray.get([plain.remote(0) for _ in range(4 * servers)])
            plain_mean = _submit_all_at_once(plain, jobs, order)
            results = [f"Ray's own tasks, first come first served {plain_mean:.2f} s"]
            time.sleep(1.0)
            for policy in ("equi", "hesrpt"):
                with Pool(servers, policy, engine="ray") as pool:
                    _warm_up(pool, servers)
                    handles = [pool.map(_run_item, range(jobs[name]), name=name) for name in order]
                    pool.wait()
                    mean = statistics.mean(job.flow_time for job in handles)
                results.append(f"{policy} {mean:.2f} s")
                time.sleep(1.0)
            console.print(f"mean flow time of {', '.join(order)}: {'; '.join(results)}")


def _submit_all_at_once(plain: Any, jobs: dict[str, int], order: list[str]) -> float:
    """Submit all tasks of all jobs to Ray at once, and return the mean flow time of the jobs."""
    began = time.perf_counter()
    references = {name: [plain.remote(item) for item in range(jobs[name])] for name in order}
    pending = {reference: name for name, tasks in references.items() for reference in tasks}
    unfinished, ended = dict(jobs), {}
    while pending:
        done, _ = ray.wait(list(pending), num_returns=1)
        for reference in done:
            name = pending.pop(reference)
            unfinished[name] -= 1
            if unfinished[name] == 0:
                ended[name] = time.perf_counter() - began
    return statistics.mean(ended.values())
