"""Disciplines for jobs that are never resized: each holds the same servers from start to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from hesrpt.errors import InputError
from hesrpt.policies.policy import WorkloadFacts
from hesrpt.units import format_count


@dataclass(frozen=True)
class RigidDiscipline:
    """Decides when jobs start, on the servers that they ask for; no job is resized or stopped.

    Disciplines are simulated by :mod:`hesrpt.simulator.backfilling`.
    """

    @property
    def name(self) -> str:
        """The name of the discipline in tables and messages."""
        return type(self).__name__.lower()

    def bind(self, facts: WorkloadFacts) -> Self:
        """Return the discipline; raise an InputError if some job could never start."""
        requested = facts.requested
        if requested is None:
            raise InputError(
                f"is missing: policy {self.name} must know the servers that each job requests",
                argument="requested",
            )
        if requested.max() > facts.servers:
            job = int(np.argmax(requested))
            raise InputError(
                f"job {facts.names[job]} requests "
                f"{format_count(float(requested[job]), 'server')}, but there are only "
                f"{facts.servers:g}: it would never start"
            )
        return self


class Moldable(RigidDiscipline):
    """Each job chooses its number of servers once, when it starts; then as EASY backfilling.

    A job gets an equal share of the machine among all jobs in the system, waiting or running, or
    as many servers as it can use if that is less. If fewer are free, the first job in the queue
    starts on those, unless it is expected to end sooner if it waits for its share. Jobs that the
    workload calls rigid get the servers that they ask for.
    """


class Fcfs(RigidDiscipline):
    """First come, first served: no job starts before one that was submitted earlier."""


class Easy(RigidDiscipline):
    """EASY backfilling: a job may overtake others if that does not delay the first in the queue.

    The first job in the queue has a reservation, from the time at which enough servers will be
    free if all running jobs take as long as estimated. A job that has run past its estimate is
    expected to end at any moment.
    """
