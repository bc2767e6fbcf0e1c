"""An engine in which nothing runs and time is a number: for tests, and for trying policies out."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from typing import Any

from hesrpt.runtime.engines.engine import Outcome, Task

#: How long an item takes: of its job, its number, and how many of its job are in flight.
Duration = Callable[[str, int, int], float]


class FakeEngine:
    """Items take as long as a function says, on a clock of its own."""

    batch_seconds = 0.0
    can_resize = True
    can_keep_results = False

    def __init__(self, servers: int, duration: Duration = lambda job, item, width: 1.0) -> None:
        self.servers, self.duration = servers, duration
        self.time = 0.0
        self.ends: list[tuple[float, int, str, int, float]] = []
        self.running: dict[tuple[str, int], int] = {}
        self.count = 0
        self.closed = False

    def now(self) -> float:
        return self.time

    def capacity(self) -> int:
        return self.servers

    def widest_command(self) -> int:
        return self.servers

    def request_servers(self, servers: int) -> None:
        """Nothing grows."""

    def pack_function(self, function: Any) -> Any:
        return function

    def pack_argument(self, argument: Any) -> Any:
        return argument

    def fetch(self, reference: Any) -> Any:
        return reference  # what is here needs no fetching

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        width = 1 + sum(name == job for name, _ in self.running) if servers == 1 else servers
        seconds = {item: self.duration(job, item, width) for item in tasks}
        end = self.time + sum(seconds.values())  # of what is done in one go, all is told at its end
        for item in tasks:
            self.count += 1
            self.running[job, item] = self.count
            heapq.heappush(self.ends, (end, self.count, job, item, seconds[item]))

    def stop(self, job: str, item: int) -> None:
        self.running.pop((job, item), None)

    def resize(self, job: str, item: int, servers: int) -> None:
        """Nothing to do: durations are fixed when an item starts."""

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        until = self.time + timeout
        found: list[Outcome] = []
        while self.ends and self.ends[0][0] <= until and not found:
            at = self.ends[0][0]
            while self.ends and self.ends[0][0] == at:
                _, count, job, item, seconds = heapq.heappop(self.ends)
                if self.running.get((job, item)) == count:  # otherwise it was stopped
                    del self.running[job, item]
                    found.append(Outcome(job, item, seconds))
            self.time = at
        if not found:
            self.time = until
            time.sleep(0.0005)  # other threads may have something for it to do
        return found

    def wake(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.running.clear()
        self.closed = True
