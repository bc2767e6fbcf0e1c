"""EQUI: equal shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies.policy import RankedPolicy, RankRates, Rule, RuleKind, State
from hesrpt.policies.sharing import share_in_proportion, usable_servers
from hesrpt.speedups import Speedup, SpeedupVector


@dataclass(frozen=True)
class Equi(RankedPolicy):
    """Every job gets the same number of servers. Those that a job cannot use go to the others.

    If whole servers cannot be shared equally, the jobs that arrived first get one more.
    """

    uses_all_servers = True
    uses_sizes = False

    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        held = share_in_proportion(np.ones(jobs), servers, speedup, whole)
        return held[::-1] if whole else held

    def __call__(self, state: State) -> FloatArray:
        return share_in_proportion(np.ones(len(state)), state.servers, state.speedups, state.whole)

    def state_rule(self, speedups: SpeedupVector, whole: bool) -> Rule | None:
        return Rule(RuleKind.EQUAL)

    def rank_rates(
        self, jobs: int, most: int, servers: float, speedup: Speedup
    ) -> RankRates | None:
        if float(usable_servers(speedup, servers, 1)[0]) < servers:
            return None
        numbers = np.arange(1.0, most + 1)
        return RankRates(np.ones(most), 1 / speedup.rate(servers / numbers), uniform=True)

    def ranks_by_size(self, whole: bool) -> bool:
        return not whole

    def order(self, state: State) -> IntArray | None:
        return np.arange(len(state))
