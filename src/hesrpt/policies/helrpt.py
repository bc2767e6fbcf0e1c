"""heLRPT: the least makespan, all jobs end together."""

from __future__ import annotations

from dataclasses import dataclass

from hesrpt.arrays import FloatArray
from hesrpt.optimal import makespan
from hesrpt.policies.policy import Policy, State


@dataclass(frozen=True)
class HeLrpt(Policy):
    """Each job gets what it needs to end with all others, as early as possible.

    With s(k) = k^p that is in proportion to x^(1/p). Whole servers are rounded fairly.
    """

    def __call__(self, state: State) -> FloatArray:
        return makespan.solve(state.remaining, state.speedups, state.servers).held
