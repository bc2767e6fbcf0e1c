"""Ranked policies, which depend only on the number of jobs and on the order of their sizes."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.closed_form_batch import own_share, power_of_ratio
from hesrpt.policies.policy import Policy, State
from hesrpt.speedups import Speedup, SpeedupVector

# Powers stay between exp(-this) and exp(this), so that no product of two overflows.
_MAX_LOG = 340.0


class RankRates(NamedTuple):
    """Rates that are products: with m jobs, the i-th largest runs at base_i / pace_m.

    The arrays start with the entries of rank ``first`` and of ``first`` jobs. Lower ranks, those of
    larger jobs, get nothing. Rates hold for at least ``fewest`` jobs, and for at most as many as
    there are entries for. If ``uniform``, every base is 1.
    """

    base: FloatArray
    pace: FloatArray
    first: int = 1
    fewest: int = 1
    uniform: bool = False

    @property
    def most(self) -> int:
        """The greatest number of jobs for which there are rates."""
        return self.first + len(self.pace) - 1


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

    def rank_rates(
        self, jobs: int, most: int, servers: float, speedup: Speedup
    ) -> RankRates | None:
        """Return the rates for ``jobs`` jobs, and for up to ``most`` if rates are products.

        All servers are in use, whatever the number of jobs.
        """
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


def compute_rank_rates(jobs: int, most: int, servers: float, c: float, p: float) -> RankRates:
    """Return the rates of k^p if the i-th largest of m jobs holds (i/m)^c − ((i−1)/m)^c.

    That share is (i/m)^c b_i with b_i = 1 − ((i−1)/i)^c. Its powers may overflow, so (i/r)^cp and
    (m/r)^cp take the places of i^cp and m^cp, with a reference r that is close to ``jobs`` or from
    which all numbers of jobs are within reach.
    """
    reach = float(np.exp(min(_MAX_LOG / (c * p), 700.0)))
    reference = float(jobs)
    if jobs > reach and jobs <= reach**2:
        reference = reach
    most = max(jobs, int(min(most, reference * reach)))  # which may be infinite
    # The powers of ranks below the first one underflow.
    first = max(int(reference * np.exp(-2 * _MAX_LOG / (c * p))), 1)
    rank = np.arange(first, most + 1.0)
    powers = power_of_ratio(rank, np.full(1, reference), c * p)
    with np.errstate(divide="ignore", under="ignore"):
        base = powers * own_share(np.log1p(-1 / rank), 1 - 1 / c) ** p
    fewest = 1 if reference <= reach else min(int(np.ceil(reference / reach)), jobs)
    return RankRates(base, powers / servers**p, first, fewest)


def as_ranked(policy: object, speedups: SpeedupVector) -> RankedPolicy | None:
    """Return the policy if its rows define it completely for jobs with these speedups, or None."""
    if isinstance(policy, RankedPolicy) and policy.is_ranked and speedups.shared is not None:
        return policy
    return None
