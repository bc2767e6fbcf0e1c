"""FIFO: all servers to the job that arrived first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies.policy import Policy, Rule, RuleKind, State
from hesrpt.policies.sharing import usable_servers
from hesrpt.speedups import SpeedupVector


@dataclass(frozen=True)
class Fifo(Policy):
    """The job that arrived first gets all the servers it can use, the next one the rest."""

    uses_sizes = False

    def state_rule(self, speedups: SpeedupVector, whole: bool) -> Rule | None:
        return Rule(RuleKind.FIRST_COME)

    def __call__(self, state: State) -> FloatArray:
        return serve_in_order(state, np.arange(len(state)))

    def order(self, state: State) -> IntArray | None:
        return np.arange(len(state))


def serve_in_order(state: State, order: IntArray) -> FloatArray:
    """Give the first of the jobs all the servers it can use, the next one the rest, and so on."""
    speedups = state.speedups.on_whole_servers() if state.whole else state.speedups
    usable = usable_servers(speedups, state.servers, len(state))[order]
    held = np.empty(len(state))
    held[order] = np.clip(state.servers - (np.cumsum(usable) - usable), 0.0, usable)
    return held
