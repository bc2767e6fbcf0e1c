"""How many servers each job should have: what is left of the jobs, put to the policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies import HeSrpt, Policy, PolicyLike, Rigid, State, get_policy, round_fairly
from hesrpt.runtime.jobs import ActiveJob, common_power, power_like
from hesrpt.runtime.learning import Learned
from hesrpt.speedups import Mixed

# An item of which nothing is known takes so many seconds.
_SOME_SECONDS = 1.0
# Of an item in flight, at least this part is still to do.
_LEAST_LEFT = 0.05
# A command of which nothing is known has at least so many seconds to go.
_LONG = 600.0
# Up to so many jobs, heSRPT in whole servers is computed exactly.
_EXACT = 100


class Planner:
    """Sets what is planned for each job."""

    def __init__(self, policy: PolicyLike) -> None:
        self.policy = get_policy(policy)
        if isinstance(self.policy, Rigid):
            raise InputError(f"policy {self.policy.name} can only be simulated: it shares nothing")
        self.known = Learned()  # of all jobs, for those of which nothing is known
        self._hesrpt: dict[float, Policy] = {}

    def remaining(self, job: ActiveJob, time: float) -> float:
        """Return how many seconds of work on one server are left of a job, as far as is known."""
        return self._of_bag(job, time) if job.is_bag else self._of_command(job, time)

    def _of_bag(self, job: ActiveJob, time: float) -> float:
        each = job.learned.item_seconds(power_like(job.speedup))
        if job.spec.size is not None and job.items is not None:
            each = job.spec.size / max(job.items, 1)
        elif each is None:
            each = self.known.item_seconds(self.known.p) or _SOME_SECONDS
        in_flight = 0.0
        for flight in job.in_flight.values():
            rate = float(job.speedup(flight.width)) / flight.width
            in_flight += max(1 - (time - flight.started) * rate / each, _LEAST_LEFT)
        left = (job.left - len(job.in_flight) + in_flight) * each
        if job.spec.size is not None and job.items is None:
            return max(job.spec.size - job.done_count * each, left)
        return left

    def _of_command(self, job: ActiveJob, time: float) -> float:
        done = job.worked + sum(
            (time - flight.started) * float(job.speedup(flight.servers))
            for flight in job.in_flight.values()
        )
        # Of unknown length, or longer than said: it may well take as long again.
        if job.spec.size is None:
            return max(done, _LONG)
        return max(job.spec.size - done, _LEAST_LEFT * job.spec.size, done - job.spec.size)

    def plan(self, jobs: list[ActiveJob], servers: int, time: float) -> None:
        """Decide how many servers each job should have."""
        self._share(jobs, servers, time)
        _let_all_be_known(jobs, servers)

    def _share(self, all_jobs: list[ActiveJob], servers: int, time: float) -> None:
        """Ask the policy how many servers each job should have."""
        fixed = [job for job in all_jobs if is_fixed(job, time)]
        for job in fixed:
            job.planned = job.observed
        free = servers - sum(job.planned for job in fixed)
        jobs = [job for job in all_jobs if job not in fixed]
        remaining = {job.name: max(self.remaining(job, time), 1e-9) for job in jobs}
        while jobs:
            held = self._ask(jobs, remaining, max(free, 0), time)
            enough = [job for job, share in zip(jobs, held, strict=True) if share >= job.most]
            if not enough:
                for job, share in zip(jobs, held, strict=True):
                    job.planned = int(share)
                return
            # What a job cannot use passes on: the others are asked again without it.
            for job in enough:
                job.planned = min(job.most, max(free, 0))
                free -= job.planned
            names = {job.name for job in enough}
            jobs = [job for job in jobs if job.name not in names]

    def _ask(
        self, jobs: list[ActiveJob], remaining: dict[str, float], servers: int, time: float
    ) -> FloatArray:
        if servers == 0:
            return np.zeros(len(jobs))
        each = [job.speedup for job in jobs]
        shared = all(speedup == each[0] for speedup in each)
        state = State(
            time=time,
            servers=float(servers),
            whole=True,
            jobs=np.array([job.number for job in jobs]),
            remaining=np.array([remaining[job.name] for job in jobs]),
            sizes=np.array([remaining[job.name] for job in jobs]),
            arrivals=np.array([job.arrived for job in jobs]),
            weights=np.array([job.spec.weight for job in jobs]),
            speedup=each[0] if shared else Mixed(each),
        )
        policy = self.policy
        if isinstance(policy, HeSrpt) and policy.p is None:
            policy = self._told(round(common_power(each, state.remaining), 2))
            # The optimum in whole servers takes long to find for very many: rounding is as good.
            state.whole = len(jobs) <= _EXACT
        return round_fairly(np.asarray(policy(state), dtype=np.float64), float(servers))

    def _told(self, p: float) -> Policy:
        """Return heSRPT with a p; it remembers what it has computed."""
        assert isinstance(self.policy, HeSrpt)
        if p not in self._hesrpt:
            self._hesrpt[p] = replace(self.policy, p=p)
        return self._hesrpt[p]


def _let_all_be_known(jobs: list[ActiveJob], servers: int) -> None:
    """Give a server to jobs of which nothing is known, so that it becomes known."""
    unknown = [
        job
        for job in jobs
        if job.is_bag
        and job.spec.size is None
        and job.learned.items == 0
        and job.planned == 0
        and job.most > 0
    ]
    for job in unknown[: servers // 2]:
        richest = max(jobs, key=lambda other: other.planned * other.is_bag)
        if richest.planned < 2 or not richest.is_bag:
            return
        richest.planned -= 1
        job.planned = 1


def is_fixed(job: ActiveJob, time: float) -> bool:
    """Return whether a running command cannot be resized, or should not be so soon."""
    if job.is_bag or not job.in_flight or job.spec.resize == "affinity":
        return False
    if job.spec.resize == "never":
        return True
    (flight,) = job.in_flight.values()
    gained = 1.0
    if job.width_before:
        speeds = float(job.speedup(job.width_before)), float(job.speedup(flight.servers))
        gained = abs(1 - min(speeds) / max(speeds))
    return (time - job.resized_at) * gained < job.spec.restart_cost
