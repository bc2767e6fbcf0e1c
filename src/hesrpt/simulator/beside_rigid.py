"""Malleable jobs beside rigid ones: how servers are divided between the two.

EASY backfilling schedules the rigid jobs on the whole machine, as if they were alone: malleable
jobs give back whatever a rigid job needs, at once, down to no server at all. The malleable policy
shares the servers that the rigid jobs leave.

So rigid jobs never wait for malleable ones, and their schedule does not depend on the malleable
policy. It is found first. The malleable jobs are then simulated on a number of servers that changes
whenever a rigid job starts or ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.schedule import Timeline
from hesrpt.simulator.tally import Tally


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


def find_capacity(
    servers: float, starts: FloatArray, ends: FloatArray, held: FloatArray
) -> Capacity:
    """Return what jobs that hold servers from their starts to their ends leave."""
    times, place = np.unique(np.concatenate((starts, ends)), return_inverse=True)
    changes = np.bincount(place, weights=np.concatenate((-held, held)), minlength=len(times))
    left = servers + np.cumsum(changes)
    # Where a job starts the moment that another one of its width ends, nothing changes.
    is_change = np.diff(left, prepend=servers) != 0
    return Capacity(times[is_change], left[is_change], servers)


@dataclass(frozen=True, eq=False)
class Part:
    """Some jobs of a workload, given by their numbers, with the timeline of their own schedule."""

    jobs: IntArray
    timeline: Timeline
    tally: Tally | None


class CombinedTimeline(Timeline):
    """The timelines of different jobs that share a machine."""

    def __init__(self, jobs: int, parts: tuple[Part, ...]) -> None:
        self._jobs, self._parts = jobs, parts

    @cached_property
    def ends(self) -> FloatArray:  # type: ignore[override]
        return np.unique(np.concatenate([part.timeline.ends for part in self._parts]))

    @property
    def _phase_starts(self) -> FloatArray:
        return np.concatenate(([0.0], self.ends[:-1]))

    def servers(self, phase: int) -> FloatArray:
        return self.servers_at(float(self._phase_starts[phase]))

    def servers_at(self, time: float) -> FloatArray:
        held = np.zeros(self._jobs)
        for part in self._parts:
            held[part.jobs] = part.timeline.servers_at(time)
        return held

    def total_servers(self) -> FloatArray:
        total = np.zeros(len(self.ends))
        for part in self._parts:
            # The phases of a part that begin with or contain those of the whole.
            phase = np.searchsorted(part.timeline.ends, self._phase_starts, side="right")
            total += np.append(part.timeline.total_servers(), 0.0)[phase]
        return total

    def server_seconds(self) -> float:
        return sum(part.timeline.server_seconds() for part in self._parts)


def combine_tallies(jobs: int, parts: tuple[Part, ...]) -> Tally | None:
    """Return one tally for all jobs, or None if a part has none."""
    none = np.zeros(jobs)
    combined = Tally(np.zeros(jobs, dtype=np.int64), none, none.copy(), none.copy(), none.copy())
    for part in parts:
        if part.tally is None:
            return None
        for name, values in vars(part.tally).items():
            getattr(combined, name)[part.jobs] = values
    return combined
