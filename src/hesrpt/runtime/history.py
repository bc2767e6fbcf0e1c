"""A real run as a :class:`~hesrpt.schedule.Schedule`, like a plan or a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies import HeSrpt, Policy, PolicyLike, get_policy
from hesrpt.runtime.jobs import common_power
from hesrpt.schedule import Schedule, Timeline
from hesrpt.simulator import simulate
from hesrpt.speedups import Mixed, Speedup
from hesrpt.workload import Workload


@dataclass(frozen=True)
class Ended:
    """A job that has ended, as far as its schedule is concerned."""

    name: str
    arrived: float
    ended: float
    items: int
    size: float
    speedup: Speedup
    weight: float = 1.0
    is_bag: bool = True  # otherwise it is one item that can use several servers


class _Recorded(Timeline):
    """Who was seen to hold how many servers."""

    def __init__(self, names: Sequence[str], holdings: Sequence[tuple[float, str, int]]) -> None:
        number = {name: place for place, name in enumerate(names)}
        kept = [(time, number[job], held) for time, job, held in holdings if job in number]
        times = np.array([time for time, _, _ in kept] or [0.0])
        self.starts = np.unique(np.append(times, 0.0))
        self.ends: FloatArray = np.append(self.starts[1:], self.starts[-1])
        self.changes = kept
        self.jobs = len(names)
        table = np.zeros((len(self.starts), self.jobs))
        held = np.zeros(self.jobs)
        place = 0
        for phase, start in enumerate(self.starts):
            while place < len(kept) and kept[place][0] <= start:
                _, job, servers = kept[place]
                held[job] = servers
                place += 1
            table[phase] = held
        self.table: FloatArray = table

    def servers(self, phase: int) -> FloatArray:
        row: FloatArray = self.table[phase]
        return row


def schedule_of(
    jobs: Sequence[Ended], holdings: Sequence[tuple[float, str, int]], servers: int
) -> Schedule:
    """Return the schedule of jobs that have ended."""
    if not jobs:
        raise InputError("no job has ended yet, so there is no schedule")
    workload = Workload(
        [max(job.size, 1e-9) for job in jobs],
        [job.speedup for job in jobs],
        arrivals=[job.arrived for job in jobs],
        weights=[job.weight for job in jobs],
        names=[job.name for job in jobs],
    )
    timeline = _Recorded([job.name for job in jobs], holdings)
    return Schedule(workload, float(servers), np.array([job.ended for job in jobs]), timeline)


def instead(
    jobs: Sequence[Ended], servers: int, policy: PolicyLike, began: float = 0.0
) -> FloatArray:
    """Return the flow times that another policy would have given on the same work, by simulation.

    No policy can do anything before the first server is up.
    """
    speedups = [
        job.speedup.limited(float(job.items)) if job.is_bag and job.items < servers else job.speedup
        for job in jobs
    ]
    arrived = np.array([job.arrived for job in jobs])
    seen = np.maximum(arrived, began)
    workload = Workload(
        [max(job.size, 1e-9) for job in jobs],
        speedups,
        arrivals=seen - seen.min(),
        weights=[job.weight for job in jobs],
        names=[job.name for job in jobs],
    )
    run = simulate(workload, servers, told(policy, workload), whole=True)
    flow_times: FloatArray = run.completion_times + seen.min() - arrived
    return flow_times


def told(policy: PolicyLike, workload: Workload) -> Policy:
    """Return a policy that can serve jobs with different speedups."""
    chosen = get_policy(policy)
    if isinstance(chosen, HeSrpt) and chosen.p is None and isinstance(workload.speedup, Mixed):
        p = common_power(list(workload.speedup.members), workload.sizes)
        return HeSrpt(p=p, objective=chosen.objective)
    return chosen
