"""SRPT: everything to the job with the shortest remaining size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies.fifo import serve_in_order
from hesrpt.policies.policy import RankedPolicy, Rule, RuleKind, State
from hesrpt.policies.sharing import usable_servers
from hesrpt.speedups import Speedup, SpeedupVector


@dataclass(frozen=True)
class Srpt(RankedPolicy):
    """The smallest job gets all the servers it can use, the next one the rest, and so on."""

    uses_all_servers = True
    serves_first_only = True

    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        speedup = speedup.on_whole_servers() if whole else speedup
        usable = float(usable_servers(speedup, servers, 1)[0])
        served = min(int(np.ceil(servers / usable)), jobs)
        return np.clip(servers - usable * np.arange(served), 0.0, usable)

    def state_rule(self, speedups: SpeedupVector, whole: bool) -> Rule | None:
        return Rule(RuleKind.SMALLEST_FIRST)

    def __call__(self, state: State) -> FloatArray:
        if state.speedups.shared is not None:
            return super().__call__(state)
        return serve_in_order(state, self.ranking(state))

    def order(self, state: State) -> IntArray | None:
        return self.ranking(state)
