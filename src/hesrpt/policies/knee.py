"""KNEE: to each job as many servers as still save a certain time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies.policy import Policy, State
from hesrpt.policies.sharing import Leftover, assign_leftover, check_leftover_rule
from hesrpt.validation import check_positive

if TYPE_CHECKING:
    from hesrpt.workload import Workload


@dataclass(frozen=True)
class Knee(Policy):
    """The job with the lowest knee first, and no job more than its knee.

    A job's knee is where one more server would shorten its remaining time x/s(k) by less than
    ``alpha``. The job with the lowest knee gets so many servers, then the next one, as long as
    there are any. ``leftover`` says what happens to servers that nobody was given. Without
    ``alpha``, the best one is searched for the workload at hand (see :meth:`tuned`).
    """

    alpha: float | None = None
    leftover: Leftover = "idle"

    def __post_init__(self) -> None:
        check_leftover_rule(self.leftover)
        if self.alpha is not None:
            object.__setattr__(self, "alpha", check_positive("alpha", self.alpha))

    def prepare(self, workload: Workload, servers: float, whole: bool) -> Policy:
        if self.alpha is not None:
            return self
        from hesrpt.simulator.tuning import best_alpha

        return replace(self, alpha=best_alpha(self, workload, servers, whole))

    @classmethod
    def tuned(
        cls,
        workload: Workload,
        servers: float,
        *,
        leftover: Leftover = "idle",
        whole: bool = False,
        values: int = 100,
    ) -> Knee:
        """Return KNEE with the α that gives the least mean flow time, as the paper's authors did.

        ``values`` values of α are tried over the whole range in which they make a difference, then
        as many again around the best one.
        """
        from hesrpt.simulator.tuning import best_alpha

        policy = cls(leftover=leftover)
        return replace(policy, alpha=best_alpha(policy, workload, servers, whole, values))

    def __call__(self, state: State) -> FloatArray:
        assert self.alpha is not None, "prepare() finds alpha"
        knees = state.speedups.knee(state.remaining / self.alpha, state.servers)
        if state.whole:
            knees = np.maximum(np.ceil(knees), 1.0)
        # Of jobs that could use all servers, or round up to as many, the smallest comes first.
        order = np.lexsort((state.remaining, knees))
        lowest_first = knees[order]
        held = np.minimum(
            lowest_first, np.maximum(state.servers - (np.cumsum(lowest_first) - lowest_first), 0.0)
        )
        result = np.empty(len(state))
        result[order] = assign_leftover(held, state.servers, self.leftover)
        return result
