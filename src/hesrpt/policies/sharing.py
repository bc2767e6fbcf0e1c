"""Limits, leftover servers and rounding, which several policies have in common."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.speedups import Speedup, SpeedupVector
from hesrpt.validation import check_choice

Leftover = Literal["idle", "smallest", "equal"]
#: A smaller fraction of all servers than this is the rounding error of a sum.
ROUNDING = 1e-12


def usable_servers(speedup: Speedup | SpeedupVector, servers: float, jobs: int) -> FloatArray:
    """Return how many of ``servers`` each job can use: more would not make it faster."""
    return speedup.demand(np.zeros(jobs), servers)


def redistribute_excess(held: FloatArray, usable: FloatArray) -> FloatArray:
    """Give servers that some jobs cannot use to the others, in proportion to what those hold.

    If the others hold nothing (as large jobs do if p is near 1), the first of them get the excess.
    """
    while np.any(over := held > usable):
        excess = float(np.sum(held[over] - usable[over]))
        held = np.minimum(held, usable)
        growing = np.where(held < usable, held, 0.0)
        if growing.sum() <= 0:
            room = usable - held
            return held + np.clip(excess - (np.cumsum(room) - room), 0.0, room)
        held = held + excess * growing / growing.sum()
    return held


def share_in_proportion(
    parts: FloatArray, servers: float, speedups: Speedup | SpeedupVector, whole: bool
) -> FloatArray:
    """Share servers in proportion to the parts of jobs, from the first to arrive to the last."""
    usable = usable_servers(speedups, servers, len(parts))
    held = redistribute_excess(servers * parts / parts.sum(), usable)
    return round_fairly(held, servers) if whole else held


def check_leftover_rule(rule: str) -> None:
    """Raise an error if there is no such leftover rule."""
    check_choice("leftover", rule, get_args(Leftover))


def assign_leftover(held: FloatArray, servers: float, rule: Leftover) -> FloatArray:
    """Assign the leftover servers by a rule; ``held`` lists the smallest job first."""
    unassigned = servers - float(held.sum())
    # With a small p, even 1e-14 servers would give a job a noticeable speed.
    if unassigned <= ROUNDING * servers:
        return held
    if rule == "smallest" and len(held):
        held[0] += unassigned
    elif rule == "equal" and len(held):
        held += unassigned / len(held)
    return held


def round_fairly(held: FloatArray, servers: float) -> FloatArray:
    """Round all shares down, then give one server more to the jobs that lost the most.

    The result adds up to the sum of the shares, rounded down. Ties go to the job that arrived
    first.
    """
    whole = np.floor(held + 1e-9)
    missing = int(min(np.floor(float(held.sum()) + 1e-9), servers) - whole.sum())
    if missing > 0:
        lost = np.round(held - whole, 9)
        whole[np.argsort(-lost, kind="stable")[:missing]] += 1
    return whole
