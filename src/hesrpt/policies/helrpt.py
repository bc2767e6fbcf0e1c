"""heLRPT: the lowest makespan, with all jobs ending together."""

from __future__ import annotations

from dataclasses import dataclass

from hesrpt.arrays import FloatArray
from hesrpt.optimal.makespan import minimise_makespan
from hesrpt.policies.policy import Policy, State


@dataclass(frozen=True)
class HeLrpt(Policy):
    """Each job gets the servers it needs for all jobs to end at the same time, and soon.

    Under k^p, servers are in proportion to x^(1/p). Whole servers are rounded fairly.
    """

    def __call__(self, state: State) -> FloatArray:
        return minimise_makespan(state.remaining, state.speedups, state.servers).held
