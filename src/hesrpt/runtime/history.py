"""A real run as a :class:`~hesrpt.schedule.Schedule`, like a plan or a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies import (
    Policy,
    PolicyLike,
    approximate_exponent,
    bind_policy,
    describe_workload,
    get_malleable_policy,
)
from hesrpt.schedule import Schedule, Timeline
from hesrpt.simulator import simulate
from hesrpt.speedups import Speedup
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


class RecordedTimeline(Timeline):
    """The servers that each job held, as recorded whenever a number changed.

    A job's progress is taken to follow its speedup function, scaled so that its remaining size
    reaches zero exactly when the job ended: the speed that was learned and the real one differ.
    """

    def __init__(
        self,
        names: Sequence[str],
        holdings: Sequence[tuple[float, str, int]],
        completion_times: FloatArray,
    ) -> None:
        job_numbers = {name: number for number, name in enumerate(names)}
        changes = [
            (time, job_numbers[job], held) for time, job, held in holdings if job in job_numbers
        ]
        times = np.array([time for time, _, _ in changes])
        self.starts: FloatArray = np.unique(np.concatenate((times, completion_times, [0.0])))
        self.ends: FloatArray = np.append(self.starts[1:], self.starts[-1])
        self.completion_times = completion_times
        self.table: FloatArray = np.zeros((len(self.starts), len(names)))
        held_now = np.zeros(len(names))
        next_change = 0
        for phase, start in enumerate(self.starts):
            while next_change < len(changes) and changes[next_change][0] <= start:
                _, job, held = changes[next_change]
                held_now[job] = held
                next_change += 1
            self.table[phase] = held_now

    def servers(self, phase: int) -> FloatArray:
        row: FloatArray = self.table[phase]
        return row

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        total = sum(self._progress(workload, phase) for phase in range(len(self.ends)))
        # A job that was never seen to hold a server did its work at the moment it ended.
        scale = workload.sizes / np.where(total > 0, total, np.inf)
        done = np.zeros(len(workload))
        phase = 0
        for time in times:
            while phase < len(self.ends) - 1 and self.ends[phase] <= time:
                done += self._progress(workload, phase)
                phase += 1
            part = self._progress(workload, phase, until=float(time))
            left = np.maximum(workload.sizes - scale * (done + part), 0.0)
            yield np.where(time < self.completion_times, left, 0.0)

    def _progress(self, workload: Workload, phase: int, until: float = np.inf) -> FloatArray:
        """Return the work that each job does in a phase, or in the part of it before a time."""
        length = min(float(self.ends[phase]), until) - float(self.starts[phase])
        running = self.starts[phase] < self.completion_times
        work: FloatArray = workload.speedups.rate(self.table[phase]) * running * max(length, 0.0)
        return work


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
    completion_times = np.array([job.ended for job in jobs])
    timeline = RecordedTimeline([job.name for job in jobs], holdings, completion_times)
    return Schedule(workload, float(servers), completion_times, timeline)


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
    run = simulate(workload, servers, bind_live_policy(policy, workload, servers), whole=True)
    flow_times: FloatArray = run.completion_times + seen.min() - arrived
    return flow_times


def bind_live_policy(policy: PolicyLike, workload: Workload, servers: float) -> Policy:
    """Return the policy bound as the live scheduler binds it, to simulate what it would do."""
    approximate_p = approximate_exponent(workload.speedups, workload.sizes)
    facts = describe_workload(workload, servers, True, approximate_p)
    return bind_policy(get_malleable_policy(policy), facts)
