"""What happened in a run, as far as a replay needs it: jobs, items, servers held, servers there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.jobs.job_spec import Group
from hesrpt.policies import PolicyLike
from hesrpt.scheduler.live_job import ItemTiming
from hesrpt.speedups import Speedup
from hesrpt.storage.journal_entries import WHOLE_POOL, Holding, JobRecord

#: Why a run cannot be replayed whose jobs were served by two policies.
POLICY_CHANGED = "the run was resumed with another policy"


@dataclass(frozen=True, kw_only=True)
class RunHistory:
    """The jobs of a run, and what they did. Times are those of the run's clock.

    The clock stands still while no scheduler runs, so pauses between two runs count nowhere.
    """

    policy: PolicyLike
    servers: int
    first_start: float  # when the first item started
    records: Sequence[JobRecord]  # in order of arrival
    holdings: Sequence[Holding]  # in order of time
    timings: Mapping[int, Sequence[ItemTiming]] = field(default_factory=dict)  # by job number
    resources: Mapping[str, float] = field(default_factory=dict)  # besides servers
    groups: Mapping[str, Group] = field(default_factory=dict)  # by their names
    obstacle: str | None = None  # why the run cannot be replayed, if that is known

    def get_capacities(self) -> list[tuple[float, int]]:
        """Return how many servers there were, and since when."""
        changes = [(each.time, each.servers) for each in self.holdings if each.job == WHOLE_POOL]
        # A scheduler that stops has no servers until the next one starts, at the same time.
        return sorted(dict(changes).items()) or [(0.0, self.servers)]

    def trace_servers(self, number: int) -> ServersHeld:
        """Return the servers that a job held over time, from the first start of an item on.

        Of a job that ended in the step in which it started, the journal has none.
        """
        changes = [(each.time, each.servers) for each in self.holdings if each.job == number]
        changes = changes or [(self.first_start, 0)]
        times = np.array([max(time, self.first_start) for time, _ in changes])
        return ServersHeld(times, np.array([servers for _, servers in changes], dtype=np.int64))


@dataclass(frozen=True)
class ServersHeld:
    """The servers that a job held: ``servers[i]`` from ``times[i]`` on, of at least one time."""

    times: FloatArray
    servers: np.ndarray[tuple[int], np.dtype[np.int64]]

    def count_server_seconds(self) -> float:
        """Return the seconds during which servers were held, summed over servers."""
        return float(self.integrate(self.servers.astype(np.float64))[-1])

    def integrate(self, rates: FloatArray) -> FloatArray:
        """Return the integral up to each time of rates that hold from each time on."""
        lengths = np.diff(self.times)
        return np.concatenate(([0.0], np.cumsum(rates[:-1] * lengths)))

    def measure_work(self, speedup: Speedup, timings: Sequence[ItemTiming]) -> FloatArray:
        """Return how many seconds each item would have taken alone."""
        width = np.maximum(self.servers, 1).astype(np.float64)
        rates: FloatArray = np.asarray(speedup(width), dtype=np.float64) / width
        ends = np.array([timing.ended for timing in timings])
        seconds = np.array([timing.seconds for timing in timings])
        work: FloatArray = self._advance(rates, ends) - self._advance(rates, ends - seconds)
        return work

    def measure_widths(self, timings: Sequence[ItemTiming]) -> FloatArray:
        """Return the mean number of servers that the job held while each item ran."""
        held = np.maximum(self.servers, 1).astype(np.float64)
        ends = np.array([timing.ended for timing in timings])
        starts = ends - np.array([max(timing.seconds, 1e-9) for timing in timings])
        mean = (self._advance(held, ends) - self._advance(held, starts)) / (ends - starts)
        widths: FloatArray = np.maximum(mean, 1.0)
        return widths

    def _advance(self, rates: FloatArray, times: FloatArray) -> FloatArray:
        """Return the integral of rates up to given times; before and after all, they are 1."""
        inside = np.interp(times, self.times, self.integrate(rates))
        before = np.minimum(times - self.times[0], 0.0)
        after = np.maximum(times - self.times[-1], 0.0)
        total: FloatArray = inside + before + after
        return total
