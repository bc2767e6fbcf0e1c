"""Carrying out the value recursion: hand out servers, wait for a departure, decide again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.recursion import Values, job_values
from hesrpt.schedule import Timeline
from hesrpt.speedup import Speedup

# Departures this close together, relative to the time since the start, are at the same time.
_SAME_TIME = 1e-12


@dataclass(frozen=True)
class Decision:
    """Who is present in a phase, from the last to end to the first, and their values."""

    present: IntArray
    values: Values


class DecisionTimeline(Timeline):
    """A timeline that keeps the decisions and works the allocations out again on demand."""

    def __init__(self, jobs: int, ends: FloatArray, decisions: list[Decision]) -> None:
        self.jobs, self.ends, self.decisions = jobs, ends, decisions

    def servers(self, phase: int) -> FloatArray:
        decision = self.decisions[phase]
        start, held = decision.values.allocation(len(decision.present))
        servers = np.zeros(self.jobs)
        servers[decision.present[start:]] = held
        return servers


@dataclass(frozen=True)
class Outcome:
    """What came of the decisions."""

    completion_times: FloatArray  # in the order the jobs were given
    first_to_last: IntArray
    timeline: DecisionTimeline
    values: Values  # of the first decision


def decide(
    sizes: FloatArray,
    speedup: Speedup,
    servers: float,
    weights: FloatArray,
    first_to_last: IntArray,
    in_order: bool,
) -> Outcome:
    """Hand out servers by the values of the jobs in a wished completion order.

    Where the recursion follows its own order, its values hold to the end; it is known to do so if
    ``in_order``. Otherwise a job that ends before its turn leaves a list whose values, from its
    place on, are found again.
    """
    present = first_to_last[::-1]
    values = first_values = job_values(speedup.reordered(present), servers, weights[present])
    remaining, now = sizes.copy(), 0.0
    completion = np.empty(len(sizes))
    ended: list[int] = []
    ends: list[float] = []
    decisions: list[Decision] = []
    while len(present):
        decisions.append(Decision(present, values))
        start, held = values.allocation(len(present))
        rates = values.speedup.first(len(present)).rate(held)
        left = remaining[present[start:]]
        place, until_end = _next_to_end(left, rates, now, in_order)
        remaining[present[start:]] = np.maximum(left - rates * until_end, 0.0)

        now += until_end
        place += start
        completion[present[place]] = now
        ended.append(int(present[place]))
        ends.append(now)
        if place < len(present) - 1:
            present = np.delete(present, place)
            values = job_values(
                speedup.reordered(present), servers, weights[present], keep=values, known=place
            )
        else:
            present = present[:-1]
    timeline = DecisionTimeline(len(sizes), np.array(ends), decisions)
    return Outcome(completion, np.array(ended), timeline, first_values)


def _next_to_end(
    left: FloatArray, rates: FloatArray, now: float, in_order: bool
) -> tuple[int, float]:
    """Return which job ends next, the last of the list if tied, and how long that takes."""
    last = len(left) - 1
    if rates[last] > 0:
        until_end = float(left[last] / rates[last])
        # Compare work rather than times: a job may hold no servers, or have nothing left.
        if in_order or not np.any(rates * (until_end - _SAME_TIME * (now + until_end)) > left):
            return last, until_end
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(left > 0, left / rates, 0.0)
    first = int(np.argmin(times))
    return first, float(times[first])
