"""When jobs will end if nothing changes, by simulation from where they are now."""

from __future__ import annotations

from hesrpt.policies import Policy
from hesrpt.runtime.core import Core
from hesrpt.runtime.history import bind_live_policy
from hesrpt.simulator import simulate
from hesrpt.workload import Workload

# More jobs than this are not predicted: it would take as long as running them.
_MOST = 200


def forecast(core: Core, time: float, policy: Policy) -> dict[str, float]:
    """Return when each job of a scheduler will end, as far as is known now."""
    jobs = list(core.jobs.values())
    if not jobs or len(jobs) > _MOST or core.servers < 1:
        return {}
    workload = Workload(
        [max(core.allocator.estimate_remaining(job, time), 1e-6) for job in jobs],
        [
            job.speedup.limited(float(job.max_servers))
            if job.max_servers < core.servers
            else job.speedup
            for job in jobs
        ],
        weights=[job.spec.weight for job in jobs],
    )
    bound = bind_live_policy(policy, workload, core.servers)
    run = simulate(workload, core.servers, bound, whole=True)
    return {
        job.name: time + float(end) for job, end in zip(jobs, run.completion_times, strict=True)
    }
