"""Sharing resources between jobs whose plans together need more of them than there is.

The policy shares servers, and knows nothing of other resources. Each job is granted as many of the
items that were planned for it as the resources allow. The next item always goes to the job that has
the smallest part of what was planned for it, if it fits.

A job that needs much at once might wait for ever, while others take whatever becomes free. So a job
that has waited as long as its work takes on the servers that were planned for it is *overdue*: one
item of it is granted first, and what that needs is not granted to others. A job of unknown size is
overdue after some seconds, so that its size can be learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(frozen=True, kw_only=True)
class Want:
    """How many items are planned for a job, and what each of them needs."""

    items: int
    need: Mapping[str, int]
    is_overdue: bool = False


def grant_items(wants: Sequence[Want], available: Mapping[str, int]) -> list[int]:
    """Return how many items of each job may run; jobs are listed as the policy serves them.

    >>> gpu = {"gpu": 1}
    >>> grant_items([Want(items=6, need=gpu), Want(items=2, need=gpu)], {"gpu": 4})
    [3, 1]
    >>> grant_items([Want(items=6, need=gpu), Want(items=1, need={"gpu": 2})], {"gpu": 2})
    [2, 0]
    """
    free, granted = dict(available), [0] * len(wants)

    def grant(job: int) -> bool:
        need = wants[job].need
        if any(amount > free.get(kind, 0) for kind, amount in need.items()):
            return False
        for kind, amount in need.items():
            free[kind] -= amount
        granted[job] += 1
        return True

    for job, want in enumerate(wants):
        if want.is_overdue and want.items > 0:
            grant(job)
    # Of equal parts, first those of jobs for which more is planned.
    planned = [(job, want.items) for job, want in enumerate(wants) if want.items]
    queue = [(granted[job] / items, -items, job) for job, items in planned]
    heapify(queue)
    while queue:
        _, _, job = heappop(queue)
        want = wants[job]
        if granted[job] < want.items and grant(job):
            heappush(queue, (granted[job] / want.items, -want.items, job))
    return granted
