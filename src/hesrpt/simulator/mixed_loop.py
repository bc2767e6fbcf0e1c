"""What the compiled event loop for jobs that differ needs: the rule of a policy and the jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.objectives import weight_of_each_job
from hesrpt.policies import Rule, RuleKind
from hesrpt.policies.sharing import usable_servers
from hesrpt.simulator import mixed_kernel, mixed_kernel_data
from hesrpt.simulator.kernel_data import Jobs, Phases, create_record
from hesrpt.simulator.mixed_kernel_data import MixedJobs, RuleSettings, Workspace
from hesrpt.speedups import SpeedupVector
from hesrpt.speedups.shape_kernel_data import Shapes

_CODES = {
    RuleKind.EQUAL: mixed_kernel_data.EQUAL,
    RuleKind.FIRST_COME: mixed_kernel_data.FIRST_COME,
    RuleKind.SMALLEST_FIRST: mixed_kernel_data.SMALLEST_FIRST,
    RuleKind.CLOSED_FORM: mixed_kernel_data.CLOSED_FORM,
}
# Rules of these kinds round shares of servers that could be divided.
_ROUNDED = RuleKind.EQUAL, RuleKind.CLOSED_FORM


@dataclass(frozen=True)
class MixedLoop:
    """The loop with all that it needs apart from the state that all loops have."""

    mixed: MixedJobs
    shapes: Shapes
    work: Workspace
    rule: Any  # an array of one record

    def run(self, jobs: Jobs, phases: Phases, state: Any, settings: Any) -> int:
        """Run until there is a reason to return, and return that reason."""
        return mixed_kernel.run(
            jobs, self.mixed, self.shapes, self.work, phases, state, settings, self.rule
        )


def create_mixed_loop(
    rule: Rule,
    speedups: SpeedupVector,
    servers: float,
    whole: bool,
    sizes: FloatArray,
    weights: FloatArray,
    by_arrival: IntArray,
) -> MixedLoop:
    """Return the loop for jobs with these speedups, sizes (as the policy sees them) and weights."""
    jobs = len(sizes)
    deciding = speedups.on_whole_servers() if whole and rule.kind not in _ROUNDED else speedups
    arrival_rank = np.empty(jobs, dtype=np.int64)
    arrival_rank[by_arrival] = np.arange(jobs)
    return MixedLoop(
        mixed=MixedJobs(
            usable=usable_servers(deciding, servers, jobs),
            weight=np.array(weight_of_each_job(rule.objective, sizes, weights)),
            arrival_rank=arrival_rank,
            key=np.empty(jobs),
            held=np.empty(jobs),
            order=np.empty(jobs, dtype=np.int64),
        ),
        shapes=speedups.shapes(servers),
        work=Workspace(
            keys=np.empty(jobs),
            sums=np.empty(jobs),
            entries=np.empty(jobs, dtype=np.int64),
            scratch=np.empty(jobs, dtype=np.int64),
        ),
        rule=create_record(
            RuleSettings,
            kind=_CODES[rule.kind],
            is_whole=whole,
            exponent=rule.exponent or 0.0,
            servers=servers,
        ),
    )
