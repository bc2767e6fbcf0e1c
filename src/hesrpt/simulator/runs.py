"""What a simulation needs and what it yields, for whichever loop executes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies import Policy
from hesrpt.workload import Workload

# Loops return after this many events, to report progress and to be stopped.
EVENTS_AT_A_TIME = 200_000

Progress = Callable[[int, int], None]


class Capacity(NamedTuple):
    """The servers that are left for malleable jobs, from each of these times on."""

    times: FloatArray  # in ascending order; before the first of them, all servers are left
    servers: FloatArray
    at_first: float

    def at(self, time: float) -> float:
        """Return how many servers are left at a time."""
        place = int(np.searchsorted(self.times, time, side="right"))
        return float(self.servers[place - 1]) if place else self.at_first

    def next_change(self, time: float) -> float:
        """Return when that changes next."""
        place = int(np.searchsorted(self.times, time, side="right"))
        return float(self.times[place]) if place < len(self.times) else np.inf


@dataclass(frozen=True)
class Run:
    """Everything that determines a simulation: checked arguments and a bound policy."""

    workload: Workload
    servers: float
    policy: Policy
    whole: bool
    resize_cost: float
    estimates: FloatArray | None  # of sizes, relative to the true ones; None if exact
    capacity: Capacity | None = None  # the servers that rigid jobs leave, if there are any
    tallying: bool = False  # whether to count resizes and server time by job
    max_flow_time: float = np.inf  # in total; a run that exceeds it ends early


@dataclass(frozen=True, eq=False)
class Tally:
    """What happened to each job of a simulation; one entry per job in each array."""

    resizes: IntArray  # changes of its number of servers since its start, resumptions included
    most_servers: FloatArray
    server_seconds: FloatArray
    server_seconds_beyond: FloatArray  # of the servers beyond those that it asked for
    server_seconds_lost: FloatArray  # while it paused after a resize


class Outcome(NamedTuple):
    """The result of a simulation up to some time; ``held`` and ``remaining`` are those then."""

    completion_times: FloatArray
    events: int
    server_seconds: float
    job_seconds: float  # the number of jobs in the system, integrated over time
    held: FloatArray
    remaining: FloatArray
    tally: Tally | None = None  # if it was asked for
    decision_times: tuple[float, ...] = ()  # of a policy that was called
