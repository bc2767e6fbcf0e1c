"""Sharing whole servers between jobs that need several at once, or can use only a few.

The policy shares the servers, and again those that it gave to jobs that cannot use them. It does
not know the fewest servers of a job. If it gives a job less, this is settled first, and the policy
shares the other servers between the other jobs:

1. A job that is promised its fewest servers gets them.
2. Any other job gets its fewest servers or none, whichever is closer to the plan, as far as this
   leaves at least one server, or the fewest they need, to the jobs that have some. A job that is
   overdue gets its fewest servers before others get any.

Servers that are left because of this go to jobs that can use them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hesrpt.arrays import IntArray

#: Asks the policy: the places of some jobs and a number of servers in, whole servers of each out.
Ask: TypeAlias = Callable[[IntArray, int], IntArray]


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a job can do with servers."""

    fewest: int = 0  # it cannot run on less
    most: int  # it cannot use more
    promise: int = 0  # those with a higher one get their fewest first; 0: the policy decides
    is_overdue: bool = False


@dataclass(frozen=True)
class Shares:
    """The servers of each job, and what the policy gave to jobs that need more."""

    servers: IntArray
    denied: IntArray


def share_servers(ask: Ask, needs: Sequence[Need], servers: int) -> Shares:
    """Share servers between jobs, which are listed in the order of their arrival."""
    sharing = _Sharing(ask, needs, servers)
    plan = sharing.plan()
    usable = int(plan.sum())  # the policy may leave servers idle
    while sharing.settle(plan):
        plan = sharing.plan()
    if sharing.settled:
        plan = sharing.use_leftover(plan, usable)
    return Shares(plan, np.where(plan == 0, sharing.denied, 0))


class _Sharing:
    """A plan that is being made."""

    def __init__(self, ask: Ask, needs: Sequence[Need], servers: int) -> None:
        self.ask, self.needs, self.servers = ask, needs, servers
        self.settled: dict[int, int] = {}  # servers of jobs that would otherwise have too few
        self.denied = np.zeros(len(needs), dtype=np.int64)

    @property
    def unsettled(self) -> int:
        """How many servers the policy may share."""
        return self.servers - sum(self.settled.values())

    def plan(self) -> IntArray:
        """Let the policy share the servers that are not settled."""
        held = np.zeros(len(self.needs), dtype=np.int64)
        for job, servers in self.settled.items():
            held[job] = servers
        most = np.array([need.most for need in self.needs])
        free = self.unsettled
        jobs = np.array([job for job in range(len(held)) if job not in self.settled], dtype=int)
        while len(jobs):
            plan = self.ask(jobs, free)
            # Ask again without the jobs that cannot use more, to share what they leave.
            is_full = plan >= most[jobs]
            settled = is_full if is_full.any() else ~is_full
            held[jobs[settled]] = np.minimum(plan, most[jobs])[settled]
            free -= int(held[jobs[settled]].sum())
            jobs = jobs[~settled]
        return held

    def settle(self, plan: IntArray) -> bool:
        """Settle what jobs get that need more than planned; return whether there are any."""
        wanted = {
            job: int(n)
            for job, n in enumerate(plan)
            if job not in self.settled and n < self.needs[job].fewest <= self.needs[job].most
        }
        promised = [job for job in wanted if self.needs[job].promise]
        short = [job for job, n in wanted.items() if n > 0 or self.needs[job].is_overdue]
        if promised:
            for job in sorted(promised, key=lambda job: -self.needs[job].promise):
                self.settled[job] = min(self.needs[job].fewest, self.unsettled)
        elif short:
            self._raise_or_deny(short, wanted, plan)
        return bool(promised or short)

    def _raise_or_deny(self, short: list[int], wanted: dict[int, int], plan: IntArray) -> None:
        """Give jobs their fewest servers, or none."""
        needs, settled = self.needs, {*short, *self.settled}
        others = [job for job, n in enumerate(plan) if n > 0 and job not in settled]
        promised = sum(needs[job].fewest for job in others if needs[job].promise)
        entitled = sum(max(needs[job].fewest, 1) for job in others if not needs[job].promise)
        for job in sorted(short, key=lambda job: self._rank(job, wanted[job])):
            fewest, is_overdue = needs[job].fewest, needs[job].is_overdue
            room = self.unsettled - promised - (0 if is_overdue else entitled)
            if fewest <= room and (is_overdue or 2 * wanted[job] >= fewest):
                self.settled[job] = fewest
            else:
                self.settled[job] = 0
                self.denied[job] = wanted[job]

    def use_leftover(self, plan: IntArray, usable: int) -> IntArray:
        """Give servers that nobody has to jobs that can use them."""
        held = plan.copy()
        waiting = [job for job, n in enumerate(held) if n == 0 and self.needs[job].most > 0]
        for job in sorted(waiting, key=lambda job: self._rank(job, int(self.denied[job]))):
            if held.sum() + (fewest := max(self.needs[job].fewest, 1)) <= usable:
                held[job] = fewest
        while (left := usable - int(held.sum())) > 0:
            room = {
                job: need.most - int(held[job])
                for job, need in enumerate(self.needs)
                if 0 < held[job] < need.most
            }
            if not room:
                break
            for job, more in room.items():
                held[job] += min(max(left // len(room), 1), more, usable - int(held.sum()))
        return held

    def _rank(self, job: int, wanted: int) -> tuple[bool, float, int]:
        need = self.needs[job]
        return not need.is_overdue, -wanted / max(need.fewest, 1), job
