"""An engine that only pretends to run items, for tests and for trying out policies."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hesrpt.engines.engine import Engine, Outcome, Task

#: The seconds an item takes, given its job, its number and how many items of the job are running.
Duration = Callable[[str, int, int], float]


class _ScheduledEnd(NamedTuple):
    """When an item will end; ends at the same time are ordered by when their items started."""

    time: float
    start_number: int
    job: str
    item: int
    seconds: float


class FakeEngine(Engine):
    """Pretends to run items in simulated time; a function decides how long each takes."""

    can_resize = True
    can_suspend = True
    can_replace_workers = True

    def __init__(self, servers: int, duration: Duration = lambda job, item, width: 1.0) -> None:
        self.servers = servers
        self.duration = duration
        self.time = 0.0
        self._ends: list[_ScheduledEnd] = []  # a heap
        self._running: dict[tuple[str, int], int] = {}  # job and item -> start number
        self._starts = 0
        self._suspended: dict[tuple[str, int], tuple[float, float]] = {}  # what remains, of what

    def now(self) -> float:
        return self.time

    def capacity(self) -> int:
        return self.servers

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        width = 1 + sum(name == job for name, _ in self._running) if servers == 1 else servers
        seconds = {item: self.duration(job, item, width) for item in tasks}
        end = self.time + sum(seconds.values())  # a batch reports all its items when it ends
        for item in tasks:
            self._starts += 1
            self._running[job, item] = self._starts
            heapq.heappush(self._ends, _ScheduledEnd(end, self._starts, job, item, seconds[item]))

    def stop(self, job: str, item: int) -> None:
        self._running.pop((job, item), None)
        self._suspended.pop((job, item), None)

    def suspend(self, job: str, item: int) -> None:
        number = self._running.pop((job, item), None)
        for end in self._ends:
            if end.start_number == number:
                self._suspended[job, item] = end.time - self.time, end.seconds

    def resume(self, job: str, item: int, servers: int) -> None:
        remaining, seconds = self._suspended.pop((job, item))
        self._starts += 1
        self._running[job, item] = self._starts
        end = _ScheduledEnd(self.time + remaining, self._starts, job, item, seconds)
        heapq.heappush(self._ends, end)

    def resize(self, job: str, item: int, servers: int) -> None:
        """Do nothing: an item's duration is fixed when it starts."""

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        deadline = self.time + timeout
        outcomes: list[Outcome] = []
        while self._ends and self._ends[0].time <= deadline and not outcomes:
            self.time = self._ends[0].time
            while self._ends and self._ends[0].time == self.time:
                end = heapq.heappop(self._ends)
                was_stopped = self._running.get((end.job, end.item)) != end.start_number
                if not was_stopped:
                    del self._running[end.job, end.item]
                    outcomes.append(Outcome(end.job, end.item, end.seconds))
        if not outcomes:
            self.time = deadline
            time.sleep(0.0005)  # let other threads submit work
        return outcomes

    def wake(self) -> None:
        """Do nothing: waiting takes no real time."""

    def close(self) -> list[Outcome]:
        self._running.clear()
        return []
