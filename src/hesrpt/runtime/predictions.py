"""Simulations of real jobs that have ended: how other policies would have done."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies import (
    Policy,
    PolicyLike,
    approximate_exponent,
    bind_policy,
    describe_workload,
    get_malleable_policy,
    respect_weights,
)
from hesrpt.runtime.allocation import limit_speedup
from hesrpt.runtime.limited_policy import respect_needs
from hesrpt.runtime.limited_sharing import Need
from hesrpt.runtime.run_schedule import get_measured_size, get_measured_speedup
from hesrpt.runtime.storage.journal_entries import JobRecord
from hesrpt.simulator import simulate
from hesrpt.workload import Workload

# The policies that a run is compared with.
_ALTERNATIVES = ("fifo", "equi")


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
    found = get_malleable_policy(policy)
    if workload.weights is not None:
        found = respect_weights(found, workload.weights)
    return respect_needs(bind_policy(found, facts), needs)
