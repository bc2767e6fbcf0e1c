"""Replays work that was done under another policy: the same scheduler, in simulated time.

The core decides as in a real run, and learns as it goes. Items take as long as they really took,
scaled to the number of servers that their job holds at each moment: with k items of a job in
flight, each of them does s(k)/k seconds of its work in a second. A command on k servers does s(k).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    Admit,
    CallHook,
    CapacityChanged,
    Command,
    Event,
    Finish,
    ItemFinished,
    JobArrived,
    Resize,
    Start,
)
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.policies import PolicyLike
from hesrpt.speedups import Speedup

# How often to replan while no job arrives or ends, in a whole replay: each plan takes about 1 ms.
_MAX_REPLANS = 50


@dataclass(frozen=True, kw_only=True)
class ReplayedJob:
    """The work of a job: how long each item takes alone; of a command, its size."""

    spec: JobSpec
    arrived: float
    seconds: Sequence[float]
    speedup: Speedup  # how it really speeds up, whatever the scheduler believes


class Capacity(NamedTuple):
    """There are ``servers`` servers from ``time`` on."""

    time: float
    servers: int


def replay_run(
    jobs: Sequence[ReplayedJob],
    capacities: Sequence[Capacity],
    policy: PolicyLike,
    resources: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return when each job ends; jobs that never end, because there are no servers, are left out.

    >>> spec = JobSpec(name="job", items=7)
    >>> from hesrpt import PowerLaw
    >>> job = ReplayedJob(spec=spec, arrived=0.0, seconds=[1.0] * 7, speedup=PowerLaw(0.9999999))
    >>> round(replay_run([job], [Capacity(0.0, 4)], "equi")["job"], 3)
    2.0
    """
    return _Replay(jobs, capacities, policy, resources).run()


@dataclass
class _RunningJob:
    """The items of a job that run, and a clock that shows how much work each has done."""

    job: ReplayedJob
    work: float = 0.0  # what the clock shows
    updated: float = 0.0
    servers: int = 0
    ends: list[tuple[float, int, int, float]] = field(default_factory=list)  # a heap
    rates: dict[int, float] = field(default_factory=dict)  # by number of servers

    @property
    def rate(self) -> float:
        """How fast the clock goes."""
        if self.servers not in self.rates:
            speed = float(self.job.speedup(self.servers)) if self.servers else 0.0
            is_bag = self.job.spec.is_bag
            self.rates[self.servers] = speed / max(self.servers, 1) if is_bag else speed
        return self.rates[self.servers]

    @property
    def next_end(self) -> float:
        """When the next item ends."""
        if not self.ends or self.rate <= 0:
            return inf
        return self.updated + max(self.ends[0][0] - self.work, 0.0) / self.rate

    def set_servers(self, time: float, servers: int) -> None:
        """Change the number of servers from now on."""
        self.work += (time - self.updated) * self.rate
        self.updated, self.servers = time, servers


class _Replay:
    """One replay: the core, and an engine that keeps the time."""

    def __init__(
        self,
        jobs: Sequence[ReplayedJob],
        capacities: Sequence[Capacity],
        policy: PolicyLike,
        resources: Mapping[str, float] | None,
    ) -> None:
        self._jobs = {job.spec.name: _RunningJob(job) for job in jobs}
        self._servers = capacities[0].servers
        self._core = Core(self._servers, policy, resources=resources)
        total = sum(sum(job.seconds) for job in jobs)
        self._core.replan_seconds = max(1.0, total / max(self._servers, 1) / _MAX_REPLANS)
        self._coming: list[tuple[float, int, Event]] = []  # a heap
        for job in jobs:
            self._expect(JobArrived(job.arrived, job.spec))
        for capacity in capacities[1:]:
            self._expect(CapacityChanged(capacity.time, capacity.servers))
        self._queue: deque[tuple[str, int]] = deque()  # items that wait for a server
        self._ends: dict[str, float] = {}

    def _expect(self, event: Event) -> None:
        heapq.heappush(self._coming, (event.time, len(self._coming), event))

    def run(self) -> dict[str, float]:
        """Return when each job ends."""
        while events := self._take_events():
            for command in self._core.handle(*events):
                self._carry_out(command, events[-1].time)
        return self._ends

    def _take_events(self) -> list[Event]:
        """Return what happens next, at one moment."""
        active = [job for job in self._jobs.values() if job.ends]
        first = min(active, key=lambda job: job.next_end, default=None)
        item_end = inf if first is None else first.next_end
        time = min(item_end, self._coming[0][0] if self._coming else inf)
        if time == inf:
            return []
        events: list[Event] = []
        while self._coming and self._coming[0][0] <= time:
            *_, event = heapq.heappop(self._coming)
            if isinstance(event, CapacityChanged):
                self._servers = event.servers
            events.append(event)
        if first is not None and item_end <= time:
            events.append(self._end_item(first, time))
        return events

    def _end_item(self, job: _RunningJob, time: float) -> ItemFinished:
        _, item, servers, started = heapq.heappop(job.ends)
        job.set_servers(time, job.servers - servers)
        if self._queue and self._busy < self._servers:
            name, waiting = self._queue.popleft()
            self._begin(self._jobs[name], waiting, 1, time)
        return ItemFinished(time, job.job.spec.name, item, time - started)

    @property
    def _busy(self) -> int:
        return sum(job.servers for job in self._jobs.values())

    def _carry_out(self, command: Command, time: float) -> None:
        job = self._jobs[command.job]
        match command:
            case Start():
                if job.job.spec.is_bag and self._busy >= self._servers:
                    self._queue.append((command.job, command.item))
                else:
                    self._begin(job, command.item, command.servers, time)
            case Resize():
                job.set_servers(time, command.servers)
                ((end, item, _, started),) = job.ends
                job.ends = [(end, item, command.servers, started)]
            case Finish():
                self._ends[command.job] = time
            case Admit() | CallHook():
                pass  # its items are known, and no job waits for hooks
            case _:
                raise AssertionError(f"a replay has no {command}")

    def _begin(self, job: _RunningJob, item: int, servers: int, time: float) -> None:
        job.set_servers(time, job.servers + servers)
        heapq.heappush(job.ends, (job.work + job.job.seconds[item], item, servers, time))
