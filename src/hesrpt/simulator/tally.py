"""Counting what happens to each job of a simulation: resizes, and server time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from hesrpt.simulator.kernel import Phases


@dataclass(frozen=True, eq=False)
class Tally:
    """What happened to each job of a simulation; one entry per job in each array."""

    resizes: IntArray  # changes of its number of servers since its start, resumptions included
    most_servers: FloatArray
    server_seconds: FloatArray
    server_seconds_beyond: FloatArray  # of the servers beyond those that it asked for
    server_seconds_lost: FloatArray  # while it paused after a resize


class TallyCounter:
    """Counts the phases of a simulation as they are recorded, so that they need not be kept."""

    def __init__(self, requested: FloatArray, resize_cost: float) -> None:
        from hesrpt.simulator.kernel import Counts

        jobs = len(requested)
        self._requested, self._resize_cost = requested, resize_cost
        self._counted, self._now = 0, 0.0
        self._counts = Counts(
            resizes=np.zeros(jobs, dtype=np.int64),
            most_servers=np.zeros(jobs),
            server_seconds=np.zeros(jobs),
            server_seconds_beyond=np.zeros(jobs),
            server_seconds_lost=np.zeros(jobs),
            held=np.zeros(jobs),
            listed=np.zeros(jobs, dtype=np.int64),
            paused_until=np.zeros(jobs),
        )

    def add(self, recorded: Phases, phases: int) -> None:
        """Count the first ``phases`` phases of a record."""
        from hesrpt.simulator.kernel import count_phases

        if phases == 0:
            return
        count_phases(
            recorded,
            phases,
            self._counted,
            self._now,
            self._resize_cost,
            self._requested,
            self._counts,
        )
        self._counted += phases
        self._now = float(recorded.ends[phases - 1])

    def finish(self) -> Tally:
        """Return the counts."""
        return Tally(
            self._counts.resizes,
            self._counts.most_servers,
            self._counts.server_seconds,
            self._counts.server_seconds_beyond,
            self._counts.server_seconds_lost,
        )


def tally_unresized_jobs(
    held: FloatArray, runtimes: FloatArray, requested: FloatArray | None
) -> Tally:
    """Return the tally of jobs that hold the same servers from start to end."""
    none = np.zeros(len(held))
    beyond = none if requested is None else np.maximum(held - requested, 0.0) * runtimes
    return Tally(np.zeros(len(held), dtype=np.int64), held, held * runtimes, beyond, none)
