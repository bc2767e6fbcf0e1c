"""A job that is running, as the core remembers it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.runtime.events import JobSpec
from hesrpt.runtime.learning import Learned
from hesrpt.speedups import PowerLaw, Speedup


@dataclass
class Flight:
    """An item that the engine has."""

    started: float
    width: int  # how many servers its job held, with its own
    servers: int  # 0 if it waits, for any server or for the one that does an item before it


@dataclass(eq=False)
class ActiveJob:
    """A job that has not ended."""

    name: str
    spec: JobSpec
    arrived: float
    number: int
    items: int | None
    done: set[int] = field(default_factory=set)
    done_count: int = 0
    next_item: int = 0
    again: list[int] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)
    losses: dict[int, int] = field(default_factory=dict)
    in_flight: dict[int, Flight] = field(default_factory=dict)
    learned: Learned = field(default_factory=Learned)
    planned: int = 0
    observed: int = 0  # how many servers it holds
    widest: int = 0  # how many servers one command can have
    read: int | None = None  # how many items could be started so far, where that is said
    taken: int = 0  # how many were
    worked: float = 0.0  # what a command had done when it was last stopped, to be started again
    # Of a command that can be started again: when it was, and the width before.
    resized_at: float = -np.inf
    width_before: int = 0

    @property
    def is_bag(self) -> bool:
        return self.spec.resize is None

    @property
    def left(self) -> int:
        """How many items are not done; if that is not known, as many as are, and in flight."""
        if self.items is None:
            unknown = self.startable if self.spec.calls else max(self.done_count, 1)
            return unknown + len(self.in_flight)
        return self.items - self.done_count

    @property
    def waiting(self) -> int:
        """How many items wait to be started, as far as is known."""
        if self.items is None:
            return self.startable
        return self.items - self.done_count - len(self.in_flight)

    @property
    def startable(self) -> int:
        """How many items can be started now."""
        if self.read is None:
            return self.waiting
        known = len(self.again) + self.read - self.taken
        return known if self.items is None else min(known, self.waiting)

    @property
    def most(self) -> int:
        """The most servers that it can use."""
        return len(self.in_flight) + self.waiting if self.is_bag else self.widest

    @property
    def requested(self) -> int:
        """How many servers are asked for it: as planned, but no more than it can use."""
        return min(self.planned, self.most)

    @property
    def speedup(self) -> Speedup:
        return self.spec.speedup or PowerLaw(self.learned.p)

    def fly(self, item: int, flight: Flight) -> None:
        """Take note that the engine has an item."""
        self.in_flight[item] = flight
        self.observed += flight.servers

    def hold(self, flight: Flight, servers: int) -> None:
        """Take note that an item in flight has another number of servers."""
        self.observed += servers - flight.servers
        flight.servers = servers

    def land(self, item: int) -> Flight | None:
        """Take note that the engine no longer has an item; return what it was, if it was."""
        flight = self.in_flight.pop(item, None)
        if flight is not None:
            self.observed -= flight.servers
        return flight

    def take_item(self) -> int:
        """Return the next item to start."""
        if self.again:
            return self.again.pop(0)
        while self.next_item in self.done:
            self.done.discard(self.next_item)
            self.next_item += 1
        self.next_item += 1
        self.taken += 1
        return self.next_item - 1


def common_power(speedups: list[Speedup], weights: FloatArray) -> float:
    """Return one p for jobs that differ: the mean, by how much work there is of each."""
    powers = np.array([power_like(speedup) for speedup in speedups])
    return float(np.clip(powers @ weights / weights.sum(), 0.01, 0.99))


def power_like(speedup: Speedup) -> float:
    """Return the p of a power law, or of the one closest to another speedup on 1 and 8 servers."""
    if isinstance(speedup, PowerLaw):
        return speedup.p
    return float(np.log(float(speedup(8.0)) / float(speedup(1.0))) / np.log(8.0))
