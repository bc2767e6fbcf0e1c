"""The least makespan for any concave speedups: all jobs end at the same time.

To end at time T, job i must run at rate x_i/T, which takes s_i⁻¹(x_i/T) servers. The optimal T is
the least one for which there are enough servers. Proof: give a unit of job i's work the value y_i,
such that N servers never earn more than 1 per second. Then T ≥ Σ y_i x_i for every schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.schedule import Timeline
from hesrpt.speedups import PowerLaw, SpeedupVector

# A job that is far smaller than the others may need fewer servers than a float can represent. It
# gets this many, and ends before the others.
_FEWEST_SERVERS = 1e-300


@dataclass(frozen=True)
class MakespanOptimum:
    """The least makespan, the servers of each job (time averages), and the values that prove it."""

    makespan: float
    held: FloatArray
    job_values: FloatArray


def minimise_makespan(
    sizes: FloatArray, speedups: SpeedupVector, servers: float
) -> MakespanOptimum:
    """Return the least makespan of jobs of these sizes."""
    rate_alone = speedups.rate(speedups.demand(np.zeros(len(sizes)), servers))
    times_alone = sizes / rate_alone
    slowest = int(np.argmax(times_alone))
    shortest = float(times_alone[slowest])
    makespan, held = shortest, speedups.inverse(sizes / shortest, servers)
    if held.sum() > servers:
        if isinstance(shared := speedups.shared, PowerLaw):
            makespan = closed_form.makespan(sizes, servers, shared.p)
            held = servers * closed_form.makespan_shares(sizes, shared.p)
        else:
            makespan = _search_makespan(sizes, speedups, servers, shortest, times_alone.sum())
            held = speedups.inverse(sizes / makespan, servers)
    held = np.maximum(held, _FEWEST_SERVERS)
    if held.sum() < servers * (1 - 1e-9):  # the slowest job alone determines the makespan
        values = np.zeros(len(sizes))
        values[slowest] = 1 / rate_alone[slowest]
        return MakespanOptimum(makespan, held, values)
    # A server has the same marginal value for every job, so a unit of work is worth 1/slope.
    slopes = speedups.slope_before(held)
    least = slopes.min()  # 0 where a speedup has almost stopped growing
    values = np.where(slopes == least, 1.0, least / np.where(slopes > 0, slopes, 1.0))
    return MakespanOptimum(makespan, held, values / (values @ speedups.rate(held)))


def _search_makespan(
    sizes: FloatArray, speedups: SpeedupVector, servers: float, shortest: float, one_by_one: float
) -> float:
    """Return the least time for which there are enough servers, by bisection.

    Running one job after the other is always possible. By concavity, side by side is no slower.
    """
    low, high = shortest, float(one_by_one) * (1 + 1e-12)
    while low < (middle := (low + high) / 2) < high:
        is_enough = speedups.inverse(sizes / middle, servers).sum() <= servers
        low, high = (low, middle) if is_enough else (middle, high)
    return high


class ConstantTimeline(Timeline):
    """A timeline in which every job holds the same servers until it ends."""

    def __init__(self, held: FloatArray, completion_times: FloatArray) -> None:
        self.held, self.completion_times = held, completion_times
        self.ends = np.unique(completion_times)

    def servers(self, phase: int) -> FloatArray:
        return np.where(self.completion_times >= self.ends[phase], self.held, 0.0)


class SwitchingTimeline(Timeline):
    """Whole servers whose time averages are the given fractions: jobs take turns on some servers.

    Job i always holds ⌊n_i⌋ servers, and one more during a fraction of the time. These fractions
    are laid end to end around a clock (McNaughton's wrap-around rule). So at every moment the extra
    servers in use are exactly those that are free, and no job holds two of them at once.
    """

    def __init__(self, end: float, held: FloatArray, servers: float) -> None:
        self.always = np.floor(held)
        fraction = held - self.always
        if fraction.sum() > servers - self.always.sum():
            # Rounding left too few extra servers: turn a server that a job always holds into an
            # extra one that it holds all the time.
            job = int(np.argmax(np.where(fraction == 0, self.always, 0.0)))
            if fraction[job] == 0 and self.always[job] >= 1:
                self.always[job], fraction[job] = self.always[job] - 1, 1.0
        # Add up the smallest fractions first, so that none is lost in rounding. Rounding must not
        # allocate a server that does not exist either.
        order = np.argsort(fraction)
        turns = np.minimum(np.cumsum(fraction[order]), servers - self.always.sum())
        full = np.rint(turns)  # turns that are full up to rounding errors count as full
        turns = np.where((full >= 1) & (np.abs(turns - full) <= 1e-12 * full), full, turns)
        until, since = np.empty(len(held)), np.empty(len(held))
        until[order], since[order] = turns, np.concatenate(([0.0], turns[:-1]))
        self.switches = until > since
        self.start, self.stop = since % 1.0, until % 1.0
        self.moments = np.unique(np.concatenate((self.start, self.stop, [0.0])))
        self.ends = end * np.append(self.moments[1:], 1.0)

    def servers(self, phase: int) -> FloatArray:
        return self._held(slice(None), self.moments[phase])

    def _held(self, jobs: slice | int, now: FloatArray) -> FloatArray:
        start, stop = self.start[jobs], self.stop[jobs]
        has_begun, has_not_ended = start <= now, now < stop
        extra = np.where(stop <= start, has_begun | has_not_ended, has_begun & has_not_ended)
        held: FloatArray = self.always[jobs] + (extra & self.switches[jobs])
        return held

    @property
    def completion_times(self) -> FloatArray:
        """The completion times: all the same, unless a job takes its only turn early."""
        is_early = (self.always == 0) & (self.stop > self.start)
        times: FloatArray = np.where(is_early, self.stop * self.ends[-1], self.ends[-1])
        return times
