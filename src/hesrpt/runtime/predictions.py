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
from hesrpt.runtime.allocation import limit_speedup
from hesrpt.runtime.core import Core
from hesrpt.runtime.jobs import ActiveJob
from hesrpt.runtime.limited_policy import respect_needs
from hesrpt.runtime.limited_sharing import Need
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
    needs: list[Need]


def estimate_remaining_work(core: Core, time: float) -> RemainingWork:
    """Return the remaining work of the jobs that can run; fast, unlike :func:`predict_ends`."""
    jobs = [job for job in core.jobs.values() if not job.is_paused]
    jobs = [job for job in jobs if job.is_bag or job.max_servers > 0]
    needs = [_describe_need(job) for job in jobs]
    return RemainingWork(
        time=time,
        servers=core.servers,
        policy=core.allocator.policy,
        names=[job.name for job in jobs],
        sizes=[max(core.allocator.estimate_remaining(job, time), 1e-6) for job in jobs],
        speedups=[
            limit_speedup(job.speedup, need.most, core.servers)
            for job, need in zip(jobs, needs, strict=True)
        ],
        weights=[job.spec.weight for job in jobs],
        needs=needs,
    )


def predict_ends(remaining: RemainingWork) -> dict[str, float]:
    """Return when each active job will end if nothing unexpected happens.

    The result is empty if there are no servers, or too many jobs to simulate.
    """
    if not 0 < len(remaining.names) <= _MAX_JOBS or remaining.servers < 1:
        return {}
    workload = Workload(remaining.sizes, remaining.speedups, weights=remaining.weights)
    policy = _bind_policy(remaining.policy, workload, remaining.servers, remaining.needs)
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
    needs = [_describe_recorded_need(record, servers) for record in records]
    workload = Workload(
        [get_measured_size(record) for record in records],
        [
            limit_speedup(get_measured_speedup(record), need.most, servers)
            for record, need in zip(records, needs, strict=True)
        ],
        arrivals=earliest_starts - origin,
        weights=[record.spec.weight for record in records],
        names=[record.name for record in records],
    )
    bound = _bind_policy(policy, workload, servers, needs)
    simulation = simulate(workload, servers, bound, whole=True)
    flow_times: FloatArray = simulation.completion_times + origin - arrivals
    return flow_times


def _describe_need(job: ActiveJob) -> Need:
    """Return how many servers an active job will have, once its known items have been read."""
    if job.is_bag:
        most = max(job.max_servers_later, 1)
        return Need(fewest=min(job.spec.min_servers, most), most=most, promise=1)
    if job.spec.resize == "never" and job.observed > 0:
        return Need(fewest=job.observed, most=job.observed, promise=2)
    return Need(fewest=job.min_servers, most=job.max_servers)


def _describe_recorded_need(record: JobRecord, servers: int) -> Need:
    """Return how many of ``servers`` a job that has ended could have had."""
    spec = record.spec
    usable = max(record.done, 1) if spec.is_bag else servers
    most = min(usable, spec.max_servers or usable, servers)
    return Need(fewest=min(spec.min_servers, most), most=most, promise=int(spec.is_bag))


def _bind_policy(
    policy: PolicyLike, workload: Workload, servers: int, needs: Sequence[Need]
) -> Policy:
    """Bind a policy as the live scheduler does."""
    approximate_p = approximate_exponent(workload.speedups, workload.sizes)
    facts = describe_workload(workload, servers, True, approximate_p)
    return respect_needs(bind_policy(get_malleable_policy(policy), facts), needs)
