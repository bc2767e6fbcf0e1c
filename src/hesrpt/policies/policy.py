"""What a policy is: the state of the jobs in, servers for each job out.

A policy does no I/O and keeps no clock. It knows neither the simulator nor the live scheduler, and
the same object drives both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.speedups import Mixed, Speedup

if TYPE_CHECKING:
    from hesrpt.workload import Workload

Leftover = Literal["idle", "smallest", "equal"]
# Fewer servers than this part of them all are a sum's rounding.
ROUNDING = 1e-12


@dataclass(slots=True)
class State:
    """What a policy sees: the jobs in the system, in the order of their arrival."""

    time: float
    servers: float
    whole: bool  # whether servers are handed out whole
    jobs: IntArray  # their numbers in the workload
    remaining: FloatArray  # sizes that remain, as far as they are known
    sizes: FloatArray  # at arrival, as far as they are known
    arrivals: FloatArray
    weights: FloatArray
    speedup: Speedup  # of these jobs

    def __len__(self) -> int:
        return len(self.jobs)


class Policy(ABC):
    """A decision: how many servers each job gets.

    Any callable that takes a :class:`State` and returns an array can be used as a policy. This
    class adds a name, and a look at the workload beforehand.
    """

    #: Decide again after so many seconds, even if no job has arrived or left.
    review_every: float | None = None

    @property
    def name(self) -> str:
        """What tables call the policy."""
        return type(self).__name__.lower()

    @abstractmethod
    def __call__(self, state: State) -> FloatArray:
        """Return the servers of each job of the state."""

    def prepare(self, workload: Workload, servers: float, whole: bool) -> Policy:
        """Return the policy with what it must know of a workload; raise if it cannot serve it."""
        return self


class Factors(NamedTuple):
    """By how much servers and rates of all other jobs grow when the smallest of m jobs leaves.

    Entry m of each array is for m jobs; 0 where there is no such factor.
    """

    held: FloatArray
    rate: FloatArray
    uniform: bool = False  # whether all jobs have the same rate, so that newcomers divide by them


class ByRank(Policy):
    """A policy that looks only at how many jobs there are, and which is smaller than which.

    It is defined by its rows. The simulator looks these up, once for each number of jobs.
    """

    #: Whether the rows are all there is to it. Some policies have rows only in some of their forms.
    ranked: bool = True

    def by_size(self, whole: bool) -> bool:
        """Return whether rows begin with the smallest job, rather than the last to arrive."""
        return True

    @abstractmethod
    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        """Return the servers of the jobs by rank; none for those left out at the end."""

    def settles_at(self, servers: float, speedup: Speedup, whole: bool) -> int | None:
        """Return from how many jobs on the row stays the same: further ones just wait."""
        return None

    def factors(self, jobs: int, servers: float, speedup: Speedup) -> Factors | None:
        """Return common factors for up to so many jobs, if rows are multiples of each other."""
        return None

    def __call__(self, state: State) -> FloatArray:
        row = self.row(len(state), state.servers, state.speedup, state.whole)
        held = np.zeros(len(state))
        held[self.ranking(state)[: len(row)]] = row
        return held

    def ranking(self, state: State) -> IntArray:
        """Return the jobs in the order of the rows: of equal ones, the first to arrive first."""
        if not self.by_size(state.whole):
            return np.arange(len(state))[::-1]
        return np.argsort(state.remaining, kind="stable")


def looked_up(policy: Policy, speedup: Speedup) -> ByRank | None:
    """Return a policy that its rows define completely; all jobs then have one speedup."""
    shared = not isinstance(speedup, Mixed)
    return policy if isinstance(policy, ByRank) and policy.ranked and shared else None


def usable(speedup: Speedup, servers: float, jobs: int) -> FloatArray:
    """Return how many servers each job can make use of."""
    return speedup.demand(np.zeros(jobs), servers)


def pass_on(held: FloatArray, most: FloatArray) -> FloatArray:
    """Return allocations in which what a job cannot use goes to the others, in proportion.

    Where these hold nothing (as do large jobs with p near 1), it goes to the first of them.
    """
    while np.any(over := held > most):
        excess = float(np.sum(held[over] - most[over]))
        held = np.minimum(held, most)
        room = np.where(held < most, held, 0.0)
        if room.sum() <= 0:
            free = most - held
            return held + np.clip(excess - (np.cumsum(free) - free), 0.0, free)
        held = held + excess * room / room.sum()
    return held


def leftover(held: FloatArray, servers: float, rule: Leftover) -> FloatArray:
    """Return allocations, smallest job first, with what nobody was given handed out by a rule."""
    left = servers - float(held.sum())
    if left <= ROUNDING * servers:  # next to no servers give more than next to no speed
        return held
    if rule == "smallest" and len(held):
        held[0] += left
    elif rule == "equal" and len(held):
        held += left / len(held)
    return held


def leftover_rule(rule: str) -> Leftover:
    """Return a leftover rule, checked."""
    for known in ("idle", "smallest", "equal"):
        if rule == known:
            return known
    raise InputError(f"leftover must be idle, smallest or equal, got {rule!r}")


def rounded_fairly(held: FloatArray, servers: float) -> FloatArray:
    """Return whole servers: each job its share rounded down, then one more where most was lost.

    Of jobs that lost as much, the first to arrive comes first. No more are handed out than the
    shares were in sum.
    """
    whole = np.floor(held + 1e-9)
    missing = int(min(np.floor(float(held.sum()) + 1e-9), servers) - whole.sum())
    if missing > 0:
        lost = np.round(held - whole, 9)
        whole[np.argsort(-lost, kind="stable")[:missing]] += 1
    return whole
