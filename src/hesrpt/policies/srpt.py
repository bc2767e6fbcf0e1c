"""SRPT: everything to the job with the shortest remaining size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies.policy import ByRank, State, usable
from hesrpt.speedups import Mixed, Speedup


@dataclass(frozen=True)
class Srpt(ByRank):
    """The smallest job gets all servers that it can use, the next one what is left, and so on."""

    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        most = float(usable(speedup.on_whole_servers() if whole else speedup, servers, 1)[0])
        served = min(int(np.ceil(servers / most)), jobs)
        return np.clip(servers - most * np.arange(served), 0.0, most)

    def settles_at(self, servers: float, speedup: Speedup, whole: bool) -> int | None:
        most = float(usable(speedup.on_whole_servers() if whole else speedup, servers, 1)[0])
        return int(np.ceil(servers / most))

    def __call__(self, state: State) -> FloatArray:
        if not isinstance(state.speedup, Mixed):
            return super().__call__(state)
        speedup = state.speedup.on_whole_servers() if state.whole else state.speedup
        order = self.ranking(state)
        most = usable(speedup, state.servers, len(state))[order]
        held = np.empty(len(state))
        held[order] = np.clip(state.servers - (np.cumsum(most) - most), 0.0, most)
        return held
