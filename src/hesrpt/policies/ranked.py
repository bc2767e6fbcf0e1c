"""Ranked policies, which depend only on the number of jobs and on the order of their sizes."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies.policy import Policy, State
from hesrpt.speedups import Speedup, SpeedupVector


class RowFactors(NamedTuple):
    """The factors by which servers and rates of the others grow when the smallest of m jobs leaves.

    Entry m of each array is for m jobs; 0 means that there is no common factor.
    """

    servers: FloatArray
    rates: FloatArray
    uniform: bool = False  # whether all jobs run at one rate, so that arrivals have factors too


class RankedPolicy(Policy):
    """A policy that depends only on the number of jobs and on the order of their sizes.

    It is defined by its rows: the servers by rank, for each number of jobs. The simulator keeps
    them in a table and runs at full speed.
    """

    @property
    def is_ranked(self) -> bool:
        """Whether the rows define the policy, which may depend on its parameters."""
        return True

    def at_level(self, level: int) -> RankedPolicy:
        """Return the policy at a level of its calibration: each level has rows of its own."""
        return self

    def ranks_by_size(self, whole: bool) -> bool:
        """Return whether rows start with the smallest job, rather than the last to arrive."""
        return True

    @abstractmethod
    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        """Return the servers of the jobs by rank; jobs beyond the end of the row get none."""

    def constant_from(self, servers: float, speedup: Speedup, whole: bool) -> int | None:
        """Return the number of jobs at which rows stop changing, because all further jobs wait."""
        return None

    def factors(self, jobs: int, servers: float, speedup: Speedup) -> RowFactors | None:
        """Return the factors for up to ``jobs`` jobs if rows are multiples of each other."""
        return None

    def __call__(self, state: State) -> FloatArray:
        speedup = state.speedups.shared
        assert speedup is not None, "rows are for jobs that share one speedup"
        row = self.row(len(state), state.servers, speedup, state.whole)
        held = np.zeros(len(state))
        held[self.ranking(state)[: len(row)]] = row
        return held

    def order(self, state: State) -> IntArray | None:
        return None if state.speedups.shared is None else self.ranking(state)

    def ranking(self, state: State) -> IntArray:
        """Return the jobs in the order of the rows; ties go to the job that arrived first."""
        if not self.ranks_by_size(state.whole):
            return np.arange(len(state))[::-1]
        return np.argsort(state.remaining, kind="stable")


def as_ranked(policy: object, speedups: SpeedupVector) -> RankedPolicy | None:
    """Return the policy if its rows define it completely for jobs with these speedups, or None."""
    if isinstance(policy, RankedPolicy) and policy.is_ranked and speedups.shared is not None:
        return policy
    return None
