"""What a simulation needs and what it yields, for whichever loop executes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hesrpt.arrays import FloatArray
from hesrpt.policies import Policy
from hesrpt.simulator.beside_rigid import Capacity
from hesrpt.simulator.kernel import Phases
from hesrpt.simulator.tally import Tally
from hesrpt.workload import Workload

# Loops return after this many events, to report progress and to be stopped.
EVENTS_AT_A_TIME = 200_000

Progress = Callable[[int, int], None]


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


class Outcome(NamedTuple):
    """The result of a simulation; ``held`` and ``remaining`` are those at its end."""

    completion_times: FloatArray
    events: int
    server_seconds: float
    job_seconds: float  # the number of jobs in the system, integrated over time
    allocations: int  # running jobs, summed over phases
    phases: Phases | None  # if they were recorded
    tally: Tally | None  # if it was asked for
    held: FloatArray
    remaining: FloatArray
