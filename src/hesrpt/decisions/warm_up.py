"""A warm-up of the scheduler's decisions, on jobs that do not exist.

With many jobs, policies import and run compiled code. The first time, that takes a second, or many
if the code must be compiled. A scheduler that runs for long should not meet this with jobs waiting.
"""

from __future__ import annotations

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import Command, ItemFinished, JobArrived, Start
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.policies import PolicyLike

# How many jobs arrive. Policies compute shares of few jobs in other ways than those of many.
_JOBS = 100


def warm_up(policy: PolicyLike, servers: int) -> None:
    """Let a policy decide about few and about many jobs, so that all it needs is loaded."""
    for together in (_JOBS, 1):  # policies learn when jobs keep arriving
        _run_jobs(Core(max(servers, 2), policy), together)


def _run_jobs(core: Core, together: int) -> None:
    """Let jobs arrive, ``together`` at a time; each item ends before the next ones arrive."""
    commands: list[Command] = []
    for first in range(0, _JOBS, together):
        time = float(first)
        ended = [
            ItemFinished(time, start.job, start.item, 0.5)
            for start in commands
            if isinstance(start, Start)
        ]
        specs = [JobSpec(name=str(first + n), items=100 + first + n) for n in range(together)]
        commands = core.handle(*ended, *(JobArrived(time, spec) for spec in specs))
