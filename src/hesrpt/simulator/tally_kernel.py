"""Counts over the phases of a simulation, compiled: resizes, and server time by job."""

from __future__ import annotations

from typing import NamedTuple

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.simulator.kernel import SAME_SERVERS


class Counts(NamedTuple):
    """What is counted for each job, and what is needed to continue with the next phases."""

    resizes: IntArray  # changes of the number of servers since the start, resumptions included
    most_servers: FloatArray
    server_seconds: FloatArray
    server_seconds_beyond: FloatArray  # … beyond a number of servers, one for each job
    server_seconds_lost: FloatArray  # … while the job paused after a resize
    held: FloatArray  # at the last phase in which the job was listed …
    listed: IntArray  # … and that phase, from 1; 0 if there was none
    paused_until: FloatArray


@compiled
def count_phases(
    ends: FloatArray,
    first_entry: IntArray,
    job: IntArray,
    held: FloatArray,
    phases: int,
    counted: int,
    now: float,
    resize_cost: float,
    beyond: FloatArray,
    counts: Counts,
) -> None:
    """Count more phases, given how many have been counted and when the last of these ended."""
    for phase in range(phases):
        number = counted + phase + 1
        for entry in range(first_entry[phase], first_entry[phase + 1]):
            which, servers = job[entry], held[entry]
            if servers <= 0.0:
                continue
            before = counts.held[which] if counts.listed[which] == number - 1 else 0.0
            if counts.listed[which] > 0 and abs(servers - before) > SAME_SERVERS * servers:
                counts.resizes[which] += 1
                counts.paused_until[which] = now + resize_cost
            counts.listed[which] = number
            counts.held[which] = servers
            counts.most_servers[which] = max(counts.most_servers[which], servers)
            passed = ends[phase] - now
            counts.server_seconds[which] += servers * passed
            if servers > beyond[which]:
                counts.server_seconds_beyond[which] += (servers - beyond[which]) * passed
            paused = min(ends[phase], counts.paused_until[which]) - now
            if paused > 0.0:
                counts.server_seconds_lost[which] += servers * paused
        now = ends[phase]
