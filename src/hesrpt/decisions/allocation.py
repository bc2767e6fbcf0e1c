"""How many servers each job should have: ask the policy, and respect limits and resources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.decisions.active_job import ActiveJob
from hesrpt.decisions.remaining_work import WorkEstimator, add_running, has_estimate
from hesrpt.objectives import FlowObjective, weight_of_each_job
from hesrpt.policies import (
    Calibration,
    HeSrpt,
    Policy,
    PolicyBinder,
    PolicyLike,
    State,
    WorkloadFacts,
    approximate_exponent,
    get_malleable_policy,
    respect_weights,
    round_fairly,
)
from hesrpt.policies.pricing import Resizes, count_resizes
from hesrpt.speedups import PowerLaw, Speedup, SpeedupVector

# --- limits: sharing servers between jobs that need several at once, or can use only a few -------
#
# The policy shares the servers, and again those that it gave to jobs that cannot use them. It does
# not know the fewest servers of a job. If it gives a job less, this is settled first, and the
# policy shares the other servers between the other jobs:
#
# 1. A job that is promised its fewest servers gets them.
# 2. Any other job gets its fewest servers or none, whichever is closer to the plan, as far as this
#    leaves at least one server, or the fewest they need, to the jobs that have some. A job that is
#    overdue gets its fewest servers before others get any.
#
# Servers that are left because of this go to jobs that can use them.

#: Asks the policy: the places of some jobs and a number of servers in, whole servers of each out.
Ask: TypeAlias = Callable[[IntArray, int], IntArray]


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a job can do with servers."""

    fewest: int = 0  # it cannot run on less
    most: int  # it cannot use more
    promise: int = 0  # those with a higher one get their fewest first; 0: the policy decides
    is_overdue: bool = False


def share_servers(ask: Ask, needs: Sequence[Need], servers: int) -> tuple[IntArray, IntArray]:
    """Share servers between jobs, which are listed in the order of their arrival.

    Return the servers of each job, and what the policy gave to jobs that need more.
    """
    sharing = _Sharing(ask, needs, servers)
    plan = sharing.plan()
    usable = int(plan.sum())  # the policy may leave servers idle
    while sharing.settle(plan):
        plan = sharing.plan()
    if sharing.settled:
        plan = sharing.use_leftover(plan, usable)
    return plan, np.where(plan == 0, sharing.denied, 0)


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


# --- resources: granted if the plans of all jobs together need more of them than there is ---------
#
# The policy shares servers, and knows nothing of other resources. Each job is granted as many of
# the items that were planned for it as the resources allow. The next item always goes to the job
# that has the smallest part of what was planned for it, if it fits.
#
# A job that needs much at once might wait for ever, while others take whatever becomes free. So a
# job that has waited as long as its work takes on the servers that were planned for it is
# *overdue*: one item of it is granted first, and what that needs is not granted to others. A job
# of unknown size is overdue after some seconds, so that its size can be learned.


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


# --- the plan -----------------------------------------------------------------------------------

# How long a job of unknown size waits for resources that others take, in seconds on one server.
_PATIENCE_SECONDS = 10.0
# With more jobs than this, heSRPT's whole servers are rounded rather than computed exactly, and
# policies, for which limited speedups are slow, do not know the most servers of a job: it gives up
# those that it cannot use.
_MAX_EXACT_JOBS = 100
# The speedup of jobs that can use one server each, whatever they could do with more.
_ON_ONE_SERVER = PowerLaw(0.5).limited(1.0)


class Allocator:
    """Decides how many servers are planned for each job."""

    def __init__(self, policy: PolicyLike, estimator: WorkEstimator) -> None:
        self._estimator = estimator
        self.policy = get_malleable_policy(policy)
        self._binder = PolicyBinder(self.policy)
        self._weighted_binder = PolicyBinder(respect_weights(self.policy))
        # What the policy has learned so far; None if it learns nothing.
        self.calibration: Calibration | None = None
        self._learned_from: State | None = None  # all jobs of the run, and what was learned by then
        self._told: list[ActiveJob] = []  # these jobs
        self._ended_sizes: dict[int, float] = {}  # of jobs that have ended since then
        self._restart_seconds, self._restarts = 0.0, 0  # that were measured: sum and number
        self._allocated_at = 0.0
        self._others = 0  # how many jobs wait that are not in the present plan
        self._mean_weight = 1.0  # of jobs, as the policy counts them

    def record_end(self, job: ActiveJob) -> None:
        """Learn from a job that is done."""
        size = self._estimator.record_end(job)
        if size is not None and self.policy.is_calibrated:
            self._ended_sizes[job.number] = size

    def add_restart(self, seconds: float) -> None:
        """Learn how long it took to stop a command and start it again."""
        self._restart_seconds += max(seconds, 0.0)
        self._restarts += 1

    def _count_restarts(self, jobs: list[ActiveJob], remaining: FloatArray) -> Resizes | None:
        """Return what restarts would cost jobs; None if none of them would have to restart.

        A restart costs what its job says, or what restarts took on average if that is more.
        """
        taken = self._restart_seconds / max(self._restarts, 1)
        costs = [
            max(job.spec.restart_cost, taken)
            if job.spec.resize == "restart" and (job.in_flight or job.work_done)
            else 0.0
            for job in jobs
        ]
        if not any(costs):
            return None
        speedups = SpeedupVector.create([job.speedup for job in jobs])
        now = np.array([float(job.observed) for job in jobs])
        return count_resizes(speedups, remaining, now, np.array(costs))

    def calibrate(self, jobs: Iterable[ActiveJob], servers: int, time: float) -> None:
        """Let the policy learn from all jobs, if some have come or gone."""
        if not self.policy.is_calibrated:
            return
        told = list(filter(has_estimate, jobs))
        if told != self._told:
            works = [max(self._estimator.estimate_remaining(job, time), 1e-9) for job in told]
            state = describe_jobs(told, np.array(works), max(servers, 1), time)
            state.attained = self._estimator.measure_done(told, time)
            state.sizes = state.remaining + state.attained
            stay = {job.number for job in told}
            gone = [job.number for job in self._told if job.number not in stay]
            state.ended_sizes = np.array([self._ended_sizes.get(job, np.nan) for job in gone])
            self.calibration = state.calibration = self.policy.calibrate(self._learned_from, state)
            self._learned_from, self._told = state, told
            self._ended_sizes.clear()

    def resume_calibration(self, calibration: Calibration) -> None:
        """Continue from what was learned elsewhere, without the jobs that were there."""
        self.calibration = calibration.without_jobs()
        self._learned_from = describe_jobs([], np.zeros(0), 0, 0.0)
        self._learned_from.calibration, self._told = self.calibration, []

    def order(
        self, jobs: Collection[ActiveJob], servers: int, time: float
    ) -> list[ActiveJob] | None:
        """Return jobs in the order in which the policy serves them; None if it has no order."""
        if type(self.policy).order is Policy.order:
            return None
        listed = list(jobs)
        if len(listed) <= 1:
            return listed
        works = [self._estimator.estimate_remaining(job, time) - job.waited_work for job in listed]
        state = describe_jobs(listed, np.maximum(works, 1e-9), max(servers, 1), time)
        state.calibration = self.calibration
        policy = self._bind_policy(state)
        order = policy.order(state)
        if order is None:
            return None
        objective: FlowObjective = getattr(policy, "objective", "flow")
        self._mean_weight = float(weight_of_each_job(objective, state.sizes, state.weights).mean())
        return [listed[place] for place in order.tolist()]

    def allocate(self, jobs: list[ActiveJob], servers: int, time: float, others: int = 0) -> None:
        """Set the planned servers of each job; ``others`` are next in the order, and get none."""
        self._others = others
        before: list[int] = []  # the servers planned so far
        fixed: list[ActiveJob] = []
        elastic: list[ActiveJob] = []
        free = servers
        for job in jobs:
            before.append(job.planned)
            if job.is_paused:
                job.planned = job.denied = 0
            elif job.in_flight and job.spec.resize == "never":
                fixed.append(job)
                job.planned, job.denied = job.observed, 0
                free -= job.observed
            else:
                elastic.append(job)
        for job in fixed:
            (in_flight,) = job.in_flight.values()
            needed = min(in_flight.last_servers, servers)
            if in_flight.suspended_at is not None and needed <= free:
                job.planned = needed
                free -= needed
        self._apply_policy(elastic, jobs, servers, max(free, 0), time)
        if self.policy.uses_sizes:
            _let_unknown_jobs_start(jobs, servers)
        self._allocated_at = time
        for job, planned in zip(jobs, before, strict=True):
            if job.planned != planned:
                job.tally.changed.add(job)

    def _apply_policy(
        self,
        jobs: list[ActiveJob],
        active: list[ActiveJob],
        servers: int,
        free: int,
        time: float,
    ) -> None:
        """Share the free servers between some of the active jobs, within the resources of all."""
        remaining, needs, has_needs = np.empty(len(jobs)), [], False
        for place, job in enumerate(jobs):
            if job.need:
                has_needs = True
                job.forget_grant()
            if job.denied:
                job.waited_work += (time - self._allocated_at) * float(job.speedup(job.denied))
            work = self._estimator.estimate_remaining(job, time) - job.waited_work
            remaining[place] = max(work, 1e-9)
            is_overdue = work <= 0 or (
                bool(job.need) and not job.is_size_known and job.waited_work > _PATIENCE_SECONDS
            )
            needs.append(_describe_need(job, is_overdue=is_overdue))
        self._share(jobs, needs, remaining, free, time)
        if has_needs:
            wanted = [job.planned for job in jobs]
            ranks = self._rank(jobs, servers, time)
            while _limit_to_resources(jobs, needs, active, ranks):
                needs = [
                    _describe_need(job, is_overdue=need.is_overdue)
                    for job, need in zip(jobs, needs, strict=True)
                ]
                self._share(jobs, needs, remaining, free, time)
            for job, first in zip(jobs, wanted, strict=True):
                if job.need and job.planned == 0:
                    job.denied = max(job.denied, first)  # it becomes overdue some time

    def _share(
        self,
        jobs: list[ActiveJob],
        needs: Sequence[Need],
        remaining: FloatArray,
        servers: int,
        time: float,
    ) -> None:
        """Plan servers for jobs by the policy."""
        most = [need.most for need in needs]
        denied = [0] * len(jobs)
        resizes = self._count_restarts(jobs, remaining)
        # By a power law, a job is faster on all servers that it can use.
        uses_all = resizes is None and self.policy.uses_all_servers
        uses_all = uses_all and all(isinstance(job.speedup, PowerLaw) for job in jobs)
        if uses_all and sum(most) <= servers:
            planned = most
        elif uses_all and len(jobs) == 1 and jobs[0].is_bag:
            planned = [servers]
        elif uses_all and servers > 0 and _differ_only_in_size(jobs, needs):
            planned = self._serve_in_order(jobs, most, remaining, servers, time)
        else:
            ask = partial(self._ask_policy, jobs, remaining, resizes, time)
            planned, denied = (each.tolist() for each in share_servers(ask, needs, servers))
        for place, job in enumerate(jobs):
            job.planned, job.denied = planned[place], denied[place]

    def _serve_in_order(
        self,
        jobs: list[ActiveJob],
        most: Sequence[int],
        remaining: FloatArray,
        servers: int,
        time: float,
    ) -> list[int]:
        """Return the servers of jobs of equal weights that can use one each, or none.

        Then all that matters of a policy is the order in which it serves them.
        """
        usable = [place for place, one in enumerate(most) if one]
        asked = [jobs[place] for place in usable]
        speedups = [_ON_ONE_SERVER] * len(asked)
        state = describe_jobs(asked, remaining[usable], servers, time, speedups)
        state.calibration = self.calibration
        order = self._bind_policy(state).order(state)
        assert order is not None, "ranked policies have an order if jobs share a speedup"
        served = [0] * len(jobs)
        for place in order[:servers].tolist():
            served[usable[place]] = 1
        return served

    def _rank(self, jobs: list[ActiveJob], servers: int, time: float) -> dict[ActiveJob, int]:
        """Return the places of jobs in the order in which the policy serves them, or of arrival."""
        mean_weight = self._mean_weight  # of all jobs
        ordered = self.order(jobs, servers, time) or jobs
        self._mean_weight = mean_weight
        return {job: place for place, job in enumerate(ordered)}

    def _ask_policy(
        self,
        jobs: list[ActiveJob],
        remaining: FloatArray,
        resizes: Resizes | None,
        time: float,
        places: IntArray,
        servers: int,
    ) -> IntArray:
        """Return the whole servers that the policy gives the jobs at these places."""
        if servers == 0:
            return np.zeros(len(places), dtype=np.int64)
        asked = [jobs[place] for place in places.tolist()]
        state = describe_jobs(asked, remaining[places], servers, time)
        state.others = self._others * self._mean_weight
        state.resizes = None if resizes is None else resizes.take(places)
        if self.policy.is_calibrated:
            state.attained = self._estimator.measure_done(asked, time)
        return self.decide(state, knows_sizes=any(map(has_estimate, asked)))

    def decide(self, state: State, *, knows_sizes: bool = True) -> IntArray:
        """Return the whole servers that the policy gives each job of a state.

        If no size is known, a policy may decide by what commands so far have taught.
        """
        state.calibration = self.calibration
        policy = self._bind_policy(state)
        if not knows_sizes and state.attained is not None:
            policy = policy.without_sizes()
            lifetimes = add_running(self._estimator.lifetimes, state.attained)
            state.calibration = Calibration(lifetimes=lifetimes)
        # The exact optimum in whole servers is slow for many jobs, and rounding is as good.
        state.whole = not isinstance(policy, HeSrpt) or len(state) <= _MAX_EXACT_JOBS
        return self._decide(policy, state)

    def _decide(self, policy: Policy, state: State) -> IntArray:
        """Return the whole servers that a policy gives each job, restarting them where it pays.

        A policy that does not count resizes does not say what they gain. Then a job keeps its
        servers if its speed would change by no more than the part of its work that it would lose.
        """
        decision = policy(state)
        rounded = round_fairly(np.asarray(decision, dtype=np.float64), state.servers)
        held = rounded.astype(np.int64)
        counts = policy.counts_resizes and getattr(policy, "sizes", "known") == "known"
        if state.resizes is None or counts:
            return held
        now, loss = state.resizes
        speeds = state.speedups.rate(now), state.speedups.rate(rounded)
        keeps = (now > 0) & (loss > 0)
        keeps &= np.minimum(*speeds) >= (1 - loss) * np.maximum(*speeds)
        left = state.servers - float(now[keeps].sum())
        if not keeps.any() or left < 0:
            return held
        held[keeps], others = now[keeps], np.flatnonzero(~keeps)
        held[others] = 0
        if len(others) and left > 0:
            held[others] = self._decide(policy, replace(state.take(others), servers=left))
        return held

    def _bind_policy(self, state: State) -> Policy:
        """Return the policy bound to the jobs that share servers now.

        If their weights differ, they count.
        """
        is_weighted = bool(np.any(state.weights != state.weights[0]))
        return (self._weighted_binder if is_weighted else self._binder).bind(
            WorkloadFacts(
                sizes=state.remaining,
                speedups=state.speedups,
                servers=state.servers,
                whole=state.whole,
                # Rounded, so that small changes of p do not discard what the policy has computed.
                approximate_p=round(approximate_exponent(state.speedups, state.remaining), 2),
            )
        )


def describe_jobs(
    jobs: list[ActiveJob],
    remaining: FloatArray,
    servers: int,
    time: float,
    speedups: Sequence[Speedup] | None = None,
) -> State:
    """Return the state of these jobs as policies see it, if need be with other speedups."""
    if speedups is None and len(jobs) <= _MAX_EXACT_JOBS:
        limits = [(job.cautious_speedup, job.server_limit) for job in jobs]
        speedups = [limit_speedup(speedup, limit, servers) for speedup, limit in limits]
    elif speedups is None:
        speedups = [job.cautious_speedup for job in jobs]
    return State(
        time=time,
        servers=float(servers),
        whole=True,
        jobs=np.array([job.number for job in jobs], dtype=np.int64),
        remaining=remaining.copy(),
        sizes=remaining.copy(),
        arrivals=np.array([job.arrived for job in jobs]),
        weights=np.array([job.weight for job in jobs]),
        speedups=SpeedupVector.create(speedups),
    )


def limit_speedup(speedup: Speedup, max_servers: int, servers: int) -> Speedup:
    """Return the speedup of a job that cannot use more than ``max_servers`` of the servers."""
    if max_servers >= servers:
        return speedup
    return speedup.limited(float(max(max_servers, 1)))


def _differ_only_in_size(jobs: list[ActiveJob], needs: Sequence[Need]) -> bool:
    """Return whether jobs have equal weights, and can use one server each, or none."""
    return (
        max(need.most for need in needs) == 1
        and not any(need.fewest for need in needs)
        and len({job.weight for job in jobs}) == 1
    )


def _describe_need(job: ActiveJob, *, is_overdue: bool) -> Need:
    promise, fewest = 0, job.min_servers
    if job.is_bag:
        promise = 1
        if job.need and is_overdue:
            fewest = max(fewest, min(1, job.max_servers))
    elif job.observed > 0 and job.spec.resize == "affinity":
        promise = 2  # a running command cannot do without
    return Need(fewest=fewest, most=job.max_servers, promise=promise, is_overdue=is_overdue)


def _limit_to_resources(
    jobs: Sequence[ActiveJob],
    needs: Sequence[Need],
    active: Iterable[ActiveJob],
    ranks: Mapping[ActiveJob, int],
) -> bool:
    """Limit jobs to what the resources allow of their plans; return whether some have too much."""
    stock = next(job.stock for job in jobs if job.need)
    available = dict(stock.totals)
    for job in active:
        if not job.is_bag and job.in_flight:  # it keeps what it has, also while it is suspended
            for kind, amount in job.need.items():
                available[kind] -= amount
    wanting = [
        (job, need)
        for job, need in zip(jobs, needs, strict=True)
        if job.need and (job.is_bag or not job.in_flight)
    ]
    wanting.sort(key=lambda pair: ranks[pair[0]])
    wants = [
        Want(
            items=job.planned if job.is_bag else min(job.planned, 1),
            need=job.need,
            is_overdue=need.is_overdue,
        )
        for job, need in wanting
    ]
    is_limited = False
    for (job, _), want, items in zip(wanting, wants, grant_items(wants, available), strict=True):
        if items < want.items:
            job.granted, is_limited = items, True
    return is_limited


def _let_unknown_jobs_start(jobs: list[ActiveJob], servers: int) -> None:
    """Give jobs of unknown size one server each, so that their size can be learned."""
    spare = servers // 2
    for job in jobs:
        if (
            spare == 0
            or job.planned > 0
            or not job.is_bag
            or job.is_size_known
            or job.max_servers == 0
            or job.is_paused
            or not job.has_resources
        ):
            continue
        richest = max(jobs, key=lambda other: other.planned * other.is_bag)
        if richest.planned <= max(richest.min_servers, 1) or not richest.is_bag:
            return
        richest.planned -= 1
        job.planned = 1
        spare -= 1
