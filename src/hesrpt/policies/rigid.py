"""Rigid disciplines: each job runs on the servers that its user asked for, from start to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.policies.binding import WorkloadFacts


@dataclass(frozen=True)
class RigidDiscipline:
    """Decides when jobs start, but not on how many servers: no job is ever resized or stopped.

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
                f"is missing: policy {self.name} gives each job the servers that it requests",
                argument="requested",
            )
        if requested.max() > facts.servers:
            job = int(np.argmax(requested))
            raise InputError(
                f"job {facts.names[job]} requests {requested[job]:g} servers, but there are only "
                f"{facts.servers:g}: it would never start"
            )
        return self


class Fcfs(RigidDiscipline):
    """First come, first served: no job starts before one that was submitted earlier."""


class Easy(RigidDiscipline):
    """EASY backfilling: a job may overtake others if that does not delay the first in the queue.

    The first job in the queue has a reservation, from the time at which enough servers will be
    free if all running jobs take as long as estimated. A job that has run past its estimate is
    expected to end at any moment.
    """
