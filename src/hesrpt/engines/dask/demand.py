"""Growing and shrinking a Dask cluster with the jobs' demand for servers.

Dask's own adaptive scaling looks at the tasks that wait in its scheduler. Ours wait here, so we
tell Dask how many workers the jobs could use, and which it may close. A worker may be closed
when it has been idle for some time and is not needed. From then on it gets no items, so Dask never
closes a worker that runs one.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from math import ceil, inf
from typing import Any

from distributed import Adaptive
from distributed.deploy.cluster import Cluster

from hesrpt.engines.dask.slots import WorkerTable
from hesrpt.errors import InputError

# Seconds between two looks of Dask at the demand.
_INTERVAL = 0.5


class Demand:
    """How many workers the jobs could use, and which are not needed.

    The engine's thread updates it, and Dask's thread reads it.
    """

    def __init__(self, idle_seconds: float, servers_per_worker: int = 1) -> None:
        self.idle_seconds, self.servers_per_worker = idle_seconds, servers_per_worker
        self.workers = 0  # how many the jobs could use, at least those that are busy
        self._lock = threading.Lock()
        self._drained: set[Any] = set()  # names of workers that get no items any more
        self._closing: set[Any] = set()  # those that Dask was told to close

    def update(self, table: WorkerTable, useful_servers: int) -> None:
        """Work out the demand, and drain workers that are not needed."""
        now = time.monotonic()
        workers = list(table.workers.values())
        known_slots = max((worker.slots for worker in workers), default=self.servers_per_worker)
        self.servers_per_worker = known_slots
        needed = ceil(min(useful_servers, table.max_servers) / max(known_slots, 1))
        idle = [
            worker
            for worker in workers
            if not worker.batches and now - worker.idle_since >= self.idle_seconds
        ]
        idle.sort(key=lambda worker: worker.idle_since)
        surplus = max(len(workers) - needed, 0)
        with self._lock:
            self._closing &= {worker.name for worker in workers}
            self._drained = self._closing | {worker.name for worker in idle[:surplus]}
            self.workers = max(needed, len(workers) - len(idle))
        table.drain(self._drained)

    def close_drained(self, cluster: Cluster, surplus: int) -> list[Any]:
        """Return names of workers that Dask is to close, which it will do."""
        with self._lock:
            groups = [
                {f"{name}{suffix}" for suffix in spec["group"]}
                for name, spec in getattr(cluster, "worker_spec", {}).items()
                if "group" in spec
            ]
            # Workers of one batch job end together.
            kept = {name for group in groups if not group <= self._drained for name in group}
            chosen = [name for name in self._drained if name not in kept][:surplus]
            self._closing.update(chosen)
            return chosen


class _DemandAdaptive(Adaptive):  # type: ignore[misc]
    """Adaptive scaling by the demand of our jobs."""

    def __init__(self, cluster: Cluster, *, demand: Demand, **options: Any) -> None:
        self.demand = demand
        super().__init__(cluster, **options)

    async def target(self) -> int:
        return self.demand.workers

    async def workers_to_close(self, target: int) -> list[Any]:
        return self.demand.close_drained(self.cluster, max(len(self.plan) - target, 0))


class ClusterScaling:
    """Lets a cluster follow the demand until it is closed."""

    def __init__(
        self, cluster: Cluster, minimum: int | None, maximum: int | None, idle_seconds: float
    ) -> None:
        self._cluster = cluster
        previous = getattr(cluster, "_adaptive", None)
        self._previous = previous if getattr(previous, "state", "") == "running" else None
        bounds = {"minimum": minimum, "maximum": maximum}
        for name, value in bounds.items():
            if value is None and self._previous is not None:
                bounds[name] = getattr(self._previous, name)
        self.minimum = bounds["minimum"] or 0
        self.maximum = inf if bounds["maximum"] is None else bounds["maximum"]
        if self.maximum < self.minimum:
            raise InputError(f"must be at least {self.minimum}, got {maximum}", argument="maximum")
        self.demand = Demand(idle_seconds, _count_threads(cluster))
        self._adaptive = cluster.adapt(
            Adaptive=_DemandAdaptive,
            demand=self.demand,
            minimum=self.minimum,
            maximum=self.maximum,
            interval=_INTERVAL,
            wait_count=1,
        )

    def close(self) -> None:
        """Let the cluster do what it did before."""
        self._adaptive.stop()
        with contextlib.suppress(Exception):  # the cluster may be closed
            del self._cluster._adaptive_options["demand"]
            if self._previous is not None:
                self._cluster.adapt(
                    minimum=self.minimum,
                    maximum=self.maximum,
                    interval=self._previous.interval,
                    wait_count=self._previous.wait_count,
                )
            else:
                self._cluster.scale(self.minimum)


def is_adaptive(cluster: Any) -> bool:
    """Return whether a cluster grows and shrinks by itself."""
    return getattr(getattr(cluster, "_adaptive", None), "state", "") == "running"


def _count_threads(cluster: Cluster) -> int:
    """Return how many threads a new worker will have, as far as the cluster knows."""
    count = getattr(cluster, "_threads_per_worker", None)
    if count is not None and not inspect.signature(count).parameters:
        with contextlib.suppress(Exception):
            return max(int(count()), 1)
    return 1
