"""A policy for simulations of live jobs, which respects how many servers these may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies import Policy, State, round_fairly
from hesrpt.runtime.limited_sharing import Need, share_servers


@dataclass(frozen=True)
class LimitedPolicy(Policy):
    """A bound policy, and what each job of the workload can do with servers."""

    policy: Policy
    needs: Sequence[Need]

    @property
    def name(self) -> str:
        return self.policy.name

    def __call__(self, state: State) -> FloatArray:
        def ask(places: IntArray, servers: int) -> IntArray:
            if servers == 0:
                return np.zeros(len(places), dtype=np.int64)
            asked = replace(
                state,
                servers=float(servers),
                jobs=state.jobs[places],
                remaining=state.remaining[places],
                sizes=state.sizes[places],
                arrivals=state.arrivals[places],
                weights=state.weights[places],
                speedups=state.speedups.take(places),
            )
            decision = np.asarray(self.policy(asked), dtype=np.float64)
            return round_fairly(decision, float(servers)).astype(np.int64)

        needs = [self.needs[job] for job in state.jobs.tolist()]
        return share_servers(ask, needs, int(state.servers)).servers.astype(np.float64)


def respect_needs(policy: Policy, needs: Sequence[Need]) -> Policy:
    """Return a bound policy that respects the fewest servers of the jobs of a workload.

    Policies respect the most servers by themselves, because speedups are limited to them.
    """
    if all(need.fewest <= (0 if need.promise else 1) for need in needs):
        return policy
    return LimitedPolicy(policy, tuple(needs))
