"""Ray without hesrpt, to compare with."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from benchmarks.cluster_overhead import run_item
from hesrpt import Pool

_BATCH = 10  # hesrpt sends a server a tenth of a second of work at a time


def _run_batch(items: range) -> list[int]:
    return [run_item(item) for item in items]


class PlainRay:
    """A Ray cluster that runs items as its own tasks."""

    name = "Ray"
    method = f"Ray's tasks of {_BATCH} items"

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._run_batch: Any = ray.remote(_run_batch)
        self._run_item: Any = ray.remote(run_item)

    def open_pool(self, policy: str = "adaptive") -> Pool:
        time.sleep(1.0)  # Ray needs some time to take back what its tasks held
        return Pool(self._cpus, policy, engine="ray")

    def run_items(self, items: int) -> None:
        batches = [range(first, first + _BATCH) for first in range(0, items, _BATCH)]
        ray.get([self._run_batch.remote(batch) for batch in batches])

    def run_jobs(self, jobs: dict[str, int], order: list[str]) -> Iterator[str]:
        pending = {
            self._run_item.remote(item): name for name in order for item in range(jobs[name])
        }
        while pending:
            done, _ = ray.wait(list(pending), num_returns=1)
            yield from [pending.pop(reference) for reference in done]


@contextmanager
def start_ray(cpus: int) -> Iterator[PlainRay]:
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
            yield PlainRay(cpus)
        finally:
            ray.shutdown()
