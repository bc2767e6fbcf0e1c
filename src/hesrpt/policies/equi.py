"""EQUI: equal shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies.policy import State
from hesrpt.policies.ranked import RankedPolicy, RowFactors
from hesrpt.policies.sharing import redistribute_excess, round_fairly, usable_servers
from hesrpt.speedups import Mixed, Speedup


@dataclass(frozen=True)
class Equi(RankedPolicy):
    """Every job gets the same number of servers; what one cannot use, the others share.

    Whole servers that cannot be shared equally go to the jobs that arrived first.
    """

    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        equal = np.full(jobs, servers / jobs)
        held = redistribute_excess(equal, usable_servers(speedup, servers, jobs))
        return round_fairly(held, servers)[::-1] if whole else held

    def __call__(self, state: State) -> FloatArray:
        row = self.row(len(state), state.servers, state.speedup, state.whole)
        return row[::-1] if state.whole else row

    def factors(self, jobs: int, servers: float, speedup: Speedup) -> RowFactors | None:
        if isinstance(speedup, Mixed) or float(usable_servers(speedup, servers, 1)[0]) < servers:
            return None
        m = np.arange(2, jobs + 1)
        held, rate = np.zeros(jobs + 1), np.zeros(jobs + 1)
        held[2:] = m / (m - 1)
        rate[2:] = speedup.rate(servers / (m - 1)) / speedup.rate(servers / m)
        return RowFactors(held, rate, uniform=True)

    def ranks_by_size(self, whole: bool) -> bool:
        return not whole
