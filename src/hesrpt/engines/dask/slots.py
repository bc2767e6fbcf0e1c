"""Which items wait and run, and on which workers of a Dask cluster. Nothing here talks to Dask.

A server is a *slot* of a worker: one of its threads, or one share of its resources. A command on
several servers needs that many slots of one worker. If no worker has enough free slots yet, one
worker is reserved: nothing else starts there until the command does.

A worker may be closed when it has been idle for some time and is not needed. From then on it gets
no items, so Dask never closes a worker that runs one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf
from typing import Any, NamedTuple

from distributed.deploy.cluster import Cluster

from hesrpt.engines.engine import Outcome, Task

# Dask counts resources as floating-point numbers.
_ROUNDING = 1e-6


@dataclass(eq=False)
class Batch:
    """Items that one worker runs one after another."""

    number: int
    job: str
    tasks: Mapping[int, Task]
    servers: int
    worker: Worker | None = None
    looked_at: float = inf  # when we last looked whether it takes too long
    keeps_results: bool = False
    stopped: set[int] = field(default_factory=set)  # items that we have stopped


@dataclass(eq=False)
class Worker:
    """A worker of the cluster."""

    address: str
    name: Any
    slots: int  # how many servers it has
    process: str | None = None  # None: it has not answered yet
    is_open: bool = True  # False: it is paused, or is about to close
    usable: int = 0  # how many of its servers we may use
    batches: list[Batch] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)  # functions that it may forget
    idle_since: float = field(default_factory=time.monotonic)

    @property
    def free(self) -> int:
        """How many servers are free; negative if we may use fewer than before."""
        return self.usable - sum(batch.servers for batch in self.batches)


class WorkerInfo(NamedTuple):
    """What Dask says about a worker."""

    name: Any
    threads: int
    resources: Mapping[str, float]
    is_open: bool


class WorkerTable:
    """The workers of the cluster, as last seen."""

    def __init__(self, max_servers: float, resources: Mapping[str, float]) -> None:
        self.max_servers, self.resources = max_servers, resources
        self.workers: dict[str, Worker] = {}
        self._drained: frozenset[Any] = frozenset()
        #: Whether a worker will be there for long enough to run a batch.
        self.outlasts: Callable[[Worker, Batch], bool] = lambda worker, batch: True

    @property
    def capacity(self) -> int:
        """How many servers we may use."""
        return sum(worker.usable for worker in self.workers.values())

    @property
    def widest(self) -> int:
        """The most servers that we may use on one worker."""
        return max((worker.usable for worker in self.workers.values()), default=0)

    def drain(self, names: Iterable[Any]) -> None:
        """Send nothing more to the workers of these names; what runs there may end."""
        if self._drained != (drained := frozenset(names)):
            self._drained = drained
            self._divide_servers()

    def update(self, seen: Mapping[str, WorkerInfo]) -> tuple[list[Worker], list[Worker]]:
        """Take over what Dask reports; return the workers that are new, and those that are gone."""
        gone = [self.workers.pop(address) for address in set(self.workers) - set(seen)]
        new = []
        for address, info in seen.items():
            slots = self._count_slots(info)
            if address not in self.workers:
                worker = self.workers[address] = Worker(address, info.name, slots)
                new.append(worker)
            self.workers[address].slots = slots
            self.workers[address].is_open = info.is_open
        self._divide_servers()
        return new, gone

    def remove(self, worker: Worker) -> None:
        """Forget a worker; if Dask still lists it, it is a new one."""
        self.workers.pop(worker.address, None)
        self._divide_servers()

    def _count_slots(self, info: WorkerInfo) -> int:
        """Return how many servers a worker has.

        >>> table = WorkerTable(inf, {"GPU": 0.5})
        >>> table._count_slots(WorkerInfo("a", 4, {"GPU": 2}, True))
        4
        """
        fitting = [
            floor(info.resources.get(name, 0.0) / amount + _ROUNDING)
            for name, amount in self.resources.items()
        ]
        return min([info.threads, *fitting])

    def _divide_servers(self) -> None:
        """Decide how many servers of each worker we use: first of those that have been here."""
        left = self.max_servers
        for worker in self.workers.values():
            is_usable = worker.is_open and worker.name not in self._drained
            worker.usable = int(min(worker.slots, left)) if is_usable else 0
            left -= worker.usable

    def assign(
        self, queue: Sequence[Batch], is_held_back: Callable[[Batch], bool]
    ) -> list[tuple[Worker, Batch]]:
        """Return the batches that can be sent now, each with the worker that is to run it."""
        assignments = []
        reserved: set[Worker] = set()
        ready = [worker for worker in self.workers.values() if worker.process is not None]
        for batch in queue:
            if is_held_back(batch):
                continue
            large_enough = [
                each
                for each in ready
                if each not in reserved
                and each.usable >= batch.servers
                and self.outlasts(each, batch)
            ]
            worker = max(large_enough, key=lambda each: each.free, default=None)
            if worker is None:
                continue
            if worker.free >= batch.servers:
                worker.batches.append(batch)
                batch.worker = worker
                assignments.append((worker, batch))
            elif batch.servers > 1:
                reserved.add(worker)
        return assignments


class ItemLedger:
    """The items without an outcome, the batches that wait, and the items that are being stopped."""

    def __init__(self) -> None:
        self.waiting: list[Batch] = []
        self._batches: dict[tuple[str, int], Batch] = {}  # of each item without an outcome
        self.ending: dict[tuple[str, int], Batch] = {}  # stopped items that may not be gone
        self.stops: dict[Batch, list[int]] = {}  # items to stop, of which no worker knows yet

    def add(self, batch: Batch) -> None:
        """Let a batch wait for a server."""
        self._batches |= {(batch.job, item): batch for item in batch.tasks}
        self.waiting.append(batch)

    def list_pending(self, batch: Batch) -> list[int]:
        """Return the items of a batch that have no outcome yet and were not stopped."""
        return [item for item in batch.tasks if self._batches.get((batch.job, item)) is batch]

    # --- stopping -----------------------------------------------------------------------------

    def stop(self, job: str, item: int) -> None:
        """Expect no outcome of an item."""
        batch = self._batches.pop((job, item), None)
        if batch is None:
            return
        batch.stopped.add(item)
        if batch in self.waiting:
            if not self.list_pending(batch):
                self.waiting.remove(batch)
            return
        self.ending[job, item] = batch
        self.stops.setdefault(batch, []).append(item)

    def is_stopping(self, job: str) -> bool:
        """Whether stopped items of a job may not be gone."""
        return any(name == job for name, _ in self.ending)

    def is_held_back(self, batch: Batch) -> bool:
        """Whether a stopped attempt of one of its items may not be gone yet."""
        return bool(self.ending) and any((batch.job, item) in self.ending for item in batch.tasks)

    def forget_stopped(self, batch: Batch, items: Iterable[int]) -> None:
        """Note that stopped items are gone."""
        for item in items:
            if self.ending.get((batch.job, item)) is batch:
                del self.ending[batch.job, item]

    # --- outcomes -----------------------------------------------------------------------------

    def take(self, batch: Batch, outcome: Outcome) -> bool:
        """Return whether an outcome is to be reported, and expect no other one.

        A stopped item is reported if it is done nevertheless. If it was started again, that attempt
        is still waiting, and is not needed.
        """
        key = batch.job, outcome.item
        latest = self._batches.get(key)
        if latest is not batch and (not outcome.is_done or self.ending.get(key) is not batch):
            return False
        self.forget_stopped(batch, [outcome.item])
        if latest is not None:
            del self._batches[key]
            if latest is not batch:
                latest.stopped.add(outcome.item)
                if not self.list_pending(latest):
                    self.waiting.remove(latest)
        return True

    def take_items(self, batch: Batch, items: Iterable[int]) -> None:
        """Expect no more outcomes of items of a batch, none of which was stopped."""
        for item in items:
            del self._batches[batch.job, item]

    def take_rest(self, batch: Batch) -> list[int]:
        """Forget a batch of which nothing more will be heard; return its items without outcome."""
        self.forget_stopped(batch, batch.stopped)
        lost = self.list_pending(batch)
        self.take_items(batch, lost)
        return lost


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
