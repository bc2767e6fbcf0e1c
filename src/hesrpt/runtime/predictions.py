"""Simulations of real jobs: when they will end, and how other policies would have done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies import (
    Policy,
    PolicyLike,
    approximate_exponent,
    bind_policy,
    describe_workload,
    get_malleable_policy,
)
from hesrpt.runtime.core import Core
from hesrpt.runtime.run_schedule import get_measured_size, get_measured_speedup
from hesrpt.runtime.storage.journal_entries import JobRecord
from hesrpt.simulator import simulate
from hesrpt.speedups import Speedup
from hesrpt.workload import Workload

# With more jobs than this, a prediction takes too long to be useful.
_MAX_JOBS = 200
# The policies that a run is compared with.
_ALTERNATIVES = ("fifo", "equi")


@dataclass(frozen=True, kw_only=True)
class RemainingWork:
    """The active jobs at one moment, and the work that remains of each."""

    time: float
    servers: int
    policy: Policy
    names: list[str]
    sizes: list[float]
    speedups: list[Speedup]
    weights: list[float]


def estimate_remaining_work(core: Core, time: float) -> RemainingWork:
    """Return the remaining work of all jobs but paused ones; fast, unlike :func:`predict_ends`."""
    jobs = [job for job in core.jobs.values() if not job.is_paused]
    return RemainingWork(
        time=time,
        servers=core.servers,
        policy=core.allocator.policy,
        names=[job.name for job in jobs],
        sizes=[max(core.allocator.estimate_remaining(job, time), 1e-6) for job in jobs],
        speedups=[_limit(job.speedup, job.max_servers_later, core.servers) for job in jobs],
        weights=[job.spec.weight for job in jobs],
    )


def predict_ends(remaining: RemainingWork) -> dict[str, float]:
    """Return when each active job will end if nothing unexpected happens.

    The result is empty if there are no servers, or too many jobs to simulate.
    """
    if not 0 < len(remaining.names) <= _MAX_JOBS or remaining.servers < 1:
        return {}
    workload = Workload(remaining.sizes, remaining.speedups, weights=remaining.weights)
    policy = _bind_policy(remaining.policy, workload, remaining.servers)
    simulation = simulate(workload, remaining.servers, policy, whole=True)
    ends = remaining.time + simulation.completion_times
    return dict(zip(remaining.names, ends.tolist(), strict=True))


def simulate_alternatives(
    records: Sequence[JobRecord], servers: int, first_start: float
) -> dict[str, float]:
    """Return the mean flow time that simple policies would have given on the same work."""
    return {
        policy: float(simulate_flow_times(records, servers, policy, first_start).mean())
        for policy in _ALTERNATIVES
    }


def simulate_flow_times(
    records: Sequence[JobRecord], servers: int, policy: PolicyLike, first_start: float = 0.0
) -> FloatArray:
    """Return the flow times that a policy would have given to jobs that have ended.

    No policy can run anything before ``first_start``, when the first server was up.
    """
    arrivals = np.array([record.arrived for record in records])
    earliest_starts = np.maximum(arrivals, first_start)
    origin = earliest_starts.min()
    workload = Workload(
        [get_measured_size(record) for record in records],
        [
            _limit(get_measured_speedup(record), max(record.done, 1), servers)
            if record.spec.is_bag
            else get_measured_speedup(record)
            for record in records
        ],
        arrivals=earliest_starts - origin,
        weights=[record.spec.weight for record in records],
        names=[record.name for record in records],
    )
    bound = _bind_policy(policy, workload, servers)
    simulation = simulate(workload, servers, bound, whole=True)
    flow_times: FloatArray = simulation.completion_times + origin - arrivals
    return flow_times


def _limit(speedup: Speedup, max_servers: int, servers: int) -> Speedup:
    """Return the speedup of a job that cannot use more than ``max_servers`` servers."""
    return speedup.limited(float(max_servers)) if max_servers < servers else speedup


def _bind_policy(policy: PolicyLike, workload: Workload, servers: int) -> Policy:
    """Bind a policy as the live scheduler does."""
    approximate_p = approximate_exponent(workload.speedups, workload.sizes)
    facts = describe_workload(workload, servers, True, approximate_p)
    return bind_policy(get_malleable_policy(policy), facts)
