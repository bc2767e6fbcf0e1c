"""Of many jobs, the few that take part in plans: those that run, and those that are next.

With a few jobs, all of them take part. If there are many more jobs than servers, almost all of them
wait, and a plan for all would cost more the longer the queue is. So the *line* is drawn up now and
then, in the order in which the policy serves jobs. The first jobs of it are *contenders*: plans are
made for them, and the policy is told the weight of the others. When contenders have left, the next
ones of the line take their places. A job that arrives is compared with the contenders. If it is not
one of the first, it waits for the next comparison.

The line is drawn up again when a fraction of the jobs has come or gone, or after some time. That
costs as much as there are jobs, but the cost per arrival, end or second does not grow with them.
Jobs that need other resources than servers stand in lines of their own, one for each set of kinds.
Each such line has at most twice as many contenders as the resources can serve at a time. So a long
queue for GPUs does not delay jobs that need none.

Nobody starves: a job waits no longer than until the line is drawn up with the job among the first,
where the policy itself would put it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from typing import TypeAlias

from hesrpt.decisions.active_job import ActiveJob

# Up to this many jobs, all take part in plans.
_FEW_JOBS = 50
# How many contenders there are at least, besides one for each server. There are up to twice as
# many, so that they need not be chosen after each end of a job.
_SPARE = 4
# The line is drawn up again when this fraction of the jobs has come or gone.
_CHANGED = 1 / 8
# It also is after as many seconds as there are jobs, divided by this number: sizes are learned.
_JOBS_PER_SECOND = 64

#: Returns jobs in the order in which the policy serves them; None if it has no such order.
Order: TypeAlias = Callable[[Collection[ActiveJob]], list[ActiveJob] | None]


@dataclass(frozen=True)
class Contenders:
    """The jobs of a plan."""

    jobs: list[ActiveJob]  # in the order of their arrival
    others: int = 0  # how many more there are, which wait
    is_drawn: bool = True  # whether all jobs were compared for it


class WaitingLine:
    """Chooses the jobs of each plan."""

    def __init__(self, jobs: Mapping[str, ActiveJob]) -> None:
        self._jobs = jobs
        self._reset()

    def _reset(self) -> None:
        """Let all jobs take part from now on."""
        self._is_long = False
        self._contenders: dict[ActiveJob, None] = {}  # while the line is long
        # Who is next, by the kinds of resources that they need; may have ended, or come forward.
        self._lines: dict[frozenset[str], deque[ActiveJob]] = {}
        self._early: deque[ActiveJob] = deque()  # must get servers early, in order of arrival
        # Contenders and others that have come since the line was drawn up:
        self._new: dict[ActiveJob, None] = {}
        self._unplaced: dict[ActiveJob, None] = {}
        self._changes, self._changes_allowed, self._drawn_at = 0.0, 0.0, -inf

    @property
    def contenders(self) -> Iterable[ActiveJob]:
        """The jobs that may hold servers. If the line is long, those who are next come first."""
        return self._contenders if self._is_long else self._jobs.values()

    def list_first(self, count: int = 0) -> list[ActiveJob]:
        """Return the contenders and those that are next, in the order of their arrival.

        There are at least ``count``, unless there are fewer.
        """
        if not self._is_long:
            return list(self._jobs.values())
        everyone = chain.from_iterable(self._lines.values())
        first, next_ones = dict(self._contenders), filter(self._is_next, everyone)
        first |= dict.fromkeys(islice(next_ones, max(count - len(first), 0)))
        return sorted(first, key=lambda job: job.number)

    def add(self, job: ActiveJob) -> None:
        """Let a job take part that has arrived, or has changed."""
        if self._is_long and job not in self._contenders:
            self._contenders[job] = self._new[job] = None
            self._unplaced.pop(job, None)
            self._changes += 1

    def remove(self, job: ActiveJob) -> None:
        """Let a job leave that has ended."""
        if self._is_long:
            for jobs in (self._contenders, self._new, self._unplaced):
                jobs.pop(job, None)
            self._changes += 1

    def dissolve(self) -> None:
        """Draw up the line again before the next plan, because all jobs have changed."""
        self._changes = inf

    def choose(self, order: Order, servers: int, time: float) -> Contenders:
        """Return the jobs of a plan for this many servers."""
        fewest, count = servers + _SPARE, len(self._jobs)
        if count <= max(_FEW_JOBS, 3 * fewest):
            if self._is_long:
                self._reset()
            return Contenders(list(self._jobs.values()))
        is_outdated = (
            not self._is_long
            or self._changes >= self._changes_allowed
            or time - self._drawn_at >= count / _JOBS_PER_SECOND
        )
        if not is_outdated:
            self._fill_up(order, servers, fewest)
        elif not self._draw_up(order, servers, fewest, time):
            self._reset()  # the policy needs to see all jobs
            return Contenders(list(self._jobs.values()))
        chosen = sorted(self._contenders, key=lambda job: job.number)
        return Contenders(chosen, count - len(chosen), is_outdated)

    def _draw_up(self, order: Order, servers: int, fewest: int, time: float) -> bool:
        """Draw up the line; return False if the policy has no order."""
        everyone = [job for job in self._jobs.values() if _can_use_servers(job)]
        ordered = order(everyone)
        if ordered is None:
            return False
        if not self._is_long:
            self._contenders = dict.fromkeys(self._jobs.values())
        self._new, self._unplaced = {}, {}
        self._lines, self._early = {}, deque(filter(_is_early, everyone))
        self._select(ordered, servers, 2 * fewest)
        self._is_long, self._drawn_at = True, time
        self._changes, self._changes_allowed = 0, len(self._jobs) * _CHANGED
        return True

    def _fill_up(self, order: Order, servers: int, fewest: int) -> None:
        """Let the next ones take the places of those that have left; dismiss some of too many."""
        candidates = {job: None for job in self._contenders if _can_use_servers(job)}
        if fewest <= len(candidates) <= 3 * fewest:
            return
        if len(candidates) < fewest:
            for line in self._lines.values():
                next_ones = 0
                while line and next_ones < 2 * fewest:
                    if self._is_next(job := line.popleft()):
                        candidates[job] = None
                        next_ones += 1
            candidates |= {job: None for job in self._unplaced if _can_use_servers(job)}
            self._new |= self._unplaced
            self._unplaced = {}
        ordered = order(sorted(candidates, key=lambda job: job.number))
        assert ordered is not None, "the policy had an order before"
        self._select(ordered, servers, 2 * fewest)

    def _select(self, ordered: list[ActiveJob], servers: int, most: int) -> None:
        """Let the first jobs be contenders, and those that hold servers or must get some early."""
        first = _choose_first(ordered, most)
        rest = [job for job in ordered if job not in first]
        first |= {job: None for job in rest if job.in_flight or job.denied or job.planned}
        missing = servers - sum(_is_early(job) and not job.in_flight for job in first)
        while self._early and missing > 0:
            job = self._early.popleft()
            if job not in first and self._is_active(job) and _can_use_servers(job):
                first[job] = None
                missing -= 1
        behind = [job for job in rest if job not in first]
        self._unplaced |= {job: None for job in behind if job in self._new}
        for job in reversed(behind):
            if job not in self._new:
                self._lines.setdefault(frozenset(job.need), deque()).appendleft(job)
        self._new = {job: None for job in self._new if job in first}
        for job in self._contenders:
            if job not in first:
                job.set_planned(0)
                job.denied = 0
                if job.need:
                    job.forget_grant()
        self._contenders = first

    def _is_active(self, job: ActiveJob) -> bool:
        return self._jobs.get(job.name) is job

    def _is_next(self, job: ActiveJob) -> bool:
        """Return whether a job of the line still waits for its turn."""
        return self._is_active(job) and job not in self._contenders and _can_use_servers(job)


def _can_use_servers(job: ActiveJob) -> bool:
    if job.in_flight or job.is_paused:
        return bool(job.in_flight)
    return job.unstarted_items > 0 if job.is_bag else job.can_ever_run


def _choose_first(ordered: list[ActiveJob], most: int) -> dict[ActiveJob, None]:
    """Return the first jobs, without those that need resources of which others need plenty."""
    first: dict[ActiveJob, None] = {}
    needed: Counter[str] = Counter()
    for job in ordered:
        if len(first) == most:
            break
        if any(needed[kind] > 2 * job.stock.totals.get(kind, 0) for kind in job.need):
            continue
        needed.update(job.need)
        first[job] = None
    return first


def _is_early(job: ActiveJob) -> bool:
    """Return whether a bag must get servers whatever the policy says."""
    return job.is_bag and (job.spec.min_servers > 0 or not job.is_size_known)
