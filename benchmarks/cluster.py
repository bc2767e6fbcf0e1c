"""Jobs on Ray, with plain Ray beside them in the same run: items a second, and flow times."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from rich.console import Console

from hesrpt import Pool

_SECONDS = 0.01
_BATCH = 10  # hesrpt gives a server a tenth of a second of work in one go


@contextmanager
def _cluster(cpus: int) -> Iterator[None]:
    """Make a Ray of our own, whatever else runs on this machine."""
    with tempfile.TemporaryDirectory(prefix="ray") as directory:
        ray.init(
            address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False,
            _temp_dir=directory,
        )  # fmt: skip
        try:
            yield
        finally:
            ray.shutdown()


def _work(item: int) -> int:
    time.sleep(_SECONDS)
    return item


def _work_all(items: list[int]) -> list[int]:
    return [_work(item) for item in items]


def _meet(pool: Pool, servers: int) -> None:
    """Have all servers started, and items of this length known."""
    pool.map(time.sleep, [1.0] * 2 * servers, name="meeting").wait()
    pool.map(_work, range(10 * servers), name="warm").wait()


def throughput(console: Console, items: int = 2000, servers: int = 2, rounds: int = 5) -> None:
    """Short items on both cores, by hesrpt and by Ray's own tasks with the same batches."""
    with _cluster(servers):
        plain: Any = ray.remote(_work_all)
        batches = [list(range(k, k + _BATCH)) for k in range(0, items, _BATCH)]

        def by_ray() -> None:
            ray.get([plain.remote(batch) for batch in batches])

        ratios = []
        for _ in range(rounds):
            ray.get([plain.remote([0]) for _ in range(servers)])  # its processes are there
            began = time.perf_counter()
            by_ray()
            alone = time.perf_counter() - began
            time.sleep(1.0)
            with Pool(servers, engine="ray") as pool:
                _meet(pool, servers)
                began = time.perf_counter()
                pool.map(_work, range(items), name="items").wait()
                ours = time.perf_counter() - began
            ratios.append(alone / ours)
    console.print(
        f"{items:,} items of {_SECONDS * 1000:g} ms on {servers} servers: {min(ratios):.0%} to "
        f"{max(ratios):.0%} of Ray's own throughput with batches of {_BATCH}, in the median "
        f"{statistics.median(ratios):.0%} (wanted: 90%)"
    )


def sharing(console: Console, servers: int = 4) -> None:
    """Three jobs of very different sizes, submitted together."""
    jobs = {"large": 600, "medium": 150, "small": 30}
    with _cluster(servers):
        plain: Any = ray.remote(_work)
        for order in (list(jobs), list(reversed(jobs))):
            ray.get([plain.remote(0) for _ in range(4 * servers)])
            told = [
                f"Ray's own tasks, first come first served {_all_at_once(plain, jobs, order):.2f} s"
            ]
            time.sleep(1.0)
            for policy in ("equi", "hesrpt"):
                with Pool(servers, policy, engine="ray") as pool:
                    _meet(pool, servers)
                    handles = [pool.map(_work, range(jobs[name]), name=name) for name in order]
                    pool.wait()
                    mean = statistics.mean(job.flow_time for job in handles)
                told.append(f"{policy} {mean:.2f} s")
                time.sleep(1.0)
            console.print(f"mean flow time of {', '.join(order)}: {'; '.join(told)}")


def _all_at_once(plain: Any, jobs: dict[str, int], order: list[str]) -> float:
    """Return the mean flow time when all tasks of all jobs are submitted to Ray at once."""
    began = time.perf_counter()
    references = {name: [plain.remote(item) for item in range(jobs[name])] for name in order}
    left = {reference: name for name, those in references.items() for reference in those}
    missing, ended = dict(jobs), {}
    while left:
        done, _ = ray.wait(list(left), num_returns=1)
        for reference in done:
            name = left.pop(reference)
            missing[name] -= 1
            if missing[name] == 0:
                ended[name] = time.perf_counter() - began
    return statistics.mean(ended.values())
