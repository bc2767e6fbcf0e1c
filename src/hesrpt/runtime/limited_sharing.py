"""Sharing whole servers between jobs that need a number at once, or can use only so many.

Policies know the most servers that a job can use, but not the fewest. So a plan is made in steps.
As soon as it is clear what a job with a limit gets, the policy shares the other servers between the
other jobs:

1. A job that is promised its fewest servers gets them, if the policy gives it less.
2. A job that the policy gives all it can use gets that.
3. If the policy gives a job some servers, but too few, it gets its fewest or none, whichever is
   closer, as far as this leaves other jobs what they need. A job that is overdue comes first.

Servers that are left because of this go to jobs that can use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    """The servers of each job, and what the policy gave to jobs for which that is too little."""

    servers: IntArray
    denied: IntArray


def share_servers(ask: Ask, needs: Sequence[Need], servers: int) -> Shares:
    """Share servers between jobs, which are listed in the order of their arrival."""
    sharing = _Sharing(needs, servers)
    while len(sharing.open):
        sharing.settle_some(ask(sharing.open, sharing.free))
    if sharing.has_changed_plan:
        sharing.use_leftover()
    return Shares(sharing.held, np.where(sharing.held == 0, sharing.denied, 0))


class _Sharing:
    """A plan that is being made."""

    def __init__(self, needs: Sequence[Need], servers: int) -> None:
        self.needs, self.free = needs, servers
        self.held = np.zeros(len(needs), dtype=np.int64)
        self.denied = np.zeros(len(needs), dtype=np.int64)
        self.open = np.arange(len(needs))  # jobs whose servers are not settled
        self.planned: int | None = None  # how many servers the policy uses; it may leave some idle
        self.has_changed_plan = False  # whether jobs got more or less than the policy gave them

    def settle_some(self, plan: IntArray) -> None:
        """Settle the jobs to which a limit applies or, if there are none, all."""
        wanted = dict(zip(self.open.tolist(), plan.tolist(), strict=True))
        needs = self.needs
        if self.planned is None:
            self.planned = sum(wanted.values())
        settled: Iterable[int]
        if promised := [j for j, n in wanted.items() if needs[j].promise and n < needs[j].fewest]:
            promised.sort(key=lambda job: -needs[job].promise)
            for job in promised:
                self._give(job, min(needs[job].fewest, self.free))
            settled, self.has_changed_plan = promised, True
        elif full := [job for job, n in wanted.items() if n >= needs[job].most]:
            for job in full:
                self._give(job, needs[job].most)
            settled = full
        elif short := [job for job, n in wanted.items() if 0 < n < needs[job].fewest]:
            self._raise_or_deny(short, wanted)
            settled, self.has_changed_plan = short, True
        else:
            for job, n in wanted.items():
                self._give(job, n)
            settled = list(wanted)
        self.open = np.setdiff1d(self.open, settled, assume_unique=True)

    def _raise_or_deny(self, short: list[int], wanted: dict[int, int]) -> None:
        """Give jobs their fewest servers, or none."""
        needs, others = self.needs, set(wanted) - set(short)
        promised = sum(needs[job].fewest for job in others if needs[job].promise)
        running = [job for job in others if wanted[job] > 0 and not needs[job].promise]
        entitled = sum(max(needs[job].fewest, 1) for job in running)
        for job in sorted(short, key=lambda job: self._rank(job, wanted[job])):
            fewest, is_overdue = needs[job].fewest, needs[job].is_overdue
            room = self.free - promised - (0 if is_overdue else entitled)
            if fewest <= room and (is_overdue or 2 * wanted[job] >= fewest):
                self._give(job, fewest)
            else:
                self.denied[job] = wanted[job]

    def use_leftover(self) -> None:
        """Give servers that nobody has to jobs that can use them."""
        self.free = min(self.free, (self.planned or 0) - int(self.held.sum()))
        waiting = [job for job, n in enumerate(self.held) if n == 0 and self.needs[job].most > 0]
        for job in sorted(waiting, key=lambda job: self._rank(job, int(self.denied[job]))):
            if 0 < max(self.needs[job].fewest, 1) <= self.free:
                self._give(job, max(self.needs[job].fewest, 1))
        while self.free > 0:
            room = {job: need.most - int(self.held[job]) for job, need in enumerate(self.needs)}
            growing = [job for job, more in room.items() if more > 0 and self.held[job] > 0]
            if not growing:
                return
            each = max(self.free // len(growing), 1)
            for job in growing:
                self._give(job, min(each, room[job], self.free))

    def _rank(self, job: int, wanted: int) -> tuple[bool, float, int]:
        need = self.needs[job]
        return not need.is_overdue, -wanted / max(need.fewest, 1), job

    def _give(self, job: int, servers: int) -> None:
        self.held[job] += servers
        self.free -= servers
