"""Which worker of a Dask cluster runs which batch. Decisions only: nothing here talks to Dask.

A server is a *slot* of a worker: one of its threads, or one share of its resources. A command on
several servers needs as many slots of one worker. If no worker has so many free slots yet, one
worker is reserved: nothing else starts there until the command does. While the items of a job are
short, each slot is sent one batch more, so that no worker waits for the scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, inf
from typing import Any, NamedTuple

from hesrpt.engines.engine import Task

# A batch is expected to end this soon, in seconds, if another one is to wait behind it.
_SHORT_SECONDS = 0.5
# Dask counts resources as floating-point numbers.
_ROUNDING = 1e-6


@dataclass(eq=False)
class Batch:
    """Items that one worker runs one after another."""

    number: int
    job: str
    tasks: Mapping[int, Task]
    servers: int
    expected_seconds: float = inf
    worker: Worker | None = None
    sent_at: float = inf
    looked_at: float = inf  # when we last looked whether it takes too long
    keeps_results: bool = False
    stopped: set[int] = field(default_factory=set)  # items that we have stopped

    def is_short(self, now: float) -> bool:
        """Return whether the batch will probably end soon."""
        return self.expected_seconds <= _SHORT_SECONDS and now - self.sent_at <= 2 * _SHORT_SECONDS


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
        """How many servers are free; negative if batches wait behind others."""
        return self.usable - sum(batch.servers for batch in self.batches)


class WorkerInfo(NamedTuple):
    """What Dask says about a worker."""

    name: Any
    threads: int
    resources: Mapping[str, float]
    is_open: bool


class Assignment(NamedTuple):
    """A batch, and the worker that is to run it."""

    worker: Worker
    batch: Batch


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
    ) -> list[Assignment]:
        """Return which batches can be sent to which workers now."""
        assignments = []
        reserved: set[Worker] = set()
        ready = [worker for worker in self.workers.values() if worker.process is not None]
        now = time.monotonic()
        for batch in queue:
            if is_held_back(batch):
                continue
            open_workers = [each for each in ready if each not in reserved]
            large_enough = [
                each
                for each in open_workers
                if each.usable >= batch.servers and self.outlasts(each, batch)
            ]
            worker = max(large_enough, key=lambda each: each.free, default=None)
            if worker is None:
                continue
            if worker.free < batch.servers:
                if batch.servers > 1:
                    reserved.add(worker)
                    continue
                worker = _choose_to_wait_behind(large_enough, now)
                if worker is None:
                    continue
            worker.batches.append(batch)
            batch.worker, batch.sent_at = worker, now
            assignments.append(Assignment(worker, batch))
        return assignments


def _choose_to_wait_behind(workers: Iterable[Worker], now: float) -> Worker | None:
    """Return the worker on which another batch soon finds a free server, if there is one."""
    candidates = [
        worker
        for worker in workers
        if worker.free > -worker.usable and all(batch.is_short(now) for batch in worker.batches)
    ]
    return max(candidates, key=lambda each: each.free, default=None)
