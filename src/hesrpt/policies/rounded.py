"""Rounding a policy's shares to whole servers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies.policy import Policy, State

if TYPE_CHECKING:
    from hesrpt.policies.binding import WorkloadFacts


@dataclass(frozen=True)
class Rounded(Policy):
    """A policy with its shares rounded, for policies that are slow to allocate whole servers.

    It returns unrounded shares: simulator and scheduler round all decisions if servers are whole.
    """

    policy: Policy

    @property
    def name(self) -> str:
        return self.policy.name

    def bind(self, facts: WorkloadFacts) -> Rounded:
        return replace(self, policy=self.policy.bind(facts))

    def __call__(self, state: State) -> FloatArray:
        return self.policy(replace(state, whole=False))

    def order(self, state: State) -> IntArray | None:
        return self.policy.order(replace(state, whole=False))
