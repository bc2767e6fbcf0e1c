"""heLRPT: the lowest makespan, with all jobs ending together."""

from __future__ import annotations

from dataclasses import dataclass

from hesrpt.arrays import FloatArray
from hesrpt.optimal.makespan import minimise_makespan
from hesrpt.policies.policy import Policy, State


@dataclass(frozen=True)
class HeLrpt(Policy):
    """Jobs get servers such that all of them end at the same time, as early as possible.

    Under k^p, a job's servers are proportional to x^(1/p). Whole servers are rounded fairly.
    """

    def __call__(self, state: State) -> FloatArray:
        return minimise_makespan(state.remaining, state.speedups, state.servers).held
