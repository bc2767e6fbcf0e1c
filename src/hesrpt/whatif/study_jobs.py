"""The jobs of a trace as jobs of a study: with sizes, speedups and limits.

A job that ran for r seconds on q servers has size r·s(q), where s is its speedup without any limit.
So its size does not depend on how many servers a study allows it, and a limit below q makes it
slower than it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.speedups import Speedup
from hesrpt.traces import Trace
from hesrpt.whatif.assumptions import Assumption
from hesrpt.whatif.request_limits import ServerLimit
from hesrpt.workload import Workload


@dataclass(frozen=True, eq=False)
class StudyJobs:
    """The jobs of a trace, and what a study assumes about each."""

    trace: Trace
    machine: int
    assumption: Assumption
    drawn: IntArray  # the number of each job's speedup among those of the assumption
    sizes: FloatArray  # seconds on one server

    @property
    def limits(self) -> FloatArray:
        """The most servers that each job gets."""
        return self.assumption.limit.compute(self.trace.servers, float(self.machine))

    def build_rigid(self) -> Workload:
        """Return the jobs for disciplines that give them what they asked for."""
        return self._build(self.assumption.list_speedups(self.drawn))

    def build_malleable(self, limit: ServerLimit | None = None) -> Workload:
        """Return the jobs for malleable policies, with the limit of the study or another one."""
        machine = float(self.machine)
        limits = (limit or self.assumption.limit).compute(self.trace.servers, machine)
        return self._build_limited(limits)

    def build_least_limited(self) -> Workload:
        """Return jobs that can use all that any schedule of the study gives them."""
        return self._build_limited(np.maximum(self.limits, self.trace.servers))

    def _build_limited(self, limits: FloatArray) -> Workload:
        return self._build(
            self.assumption.list_limited_speedups(self.drawn, limits, float(self.machine))
        )

    def _build(self, speedup: Speedup | list[Speedup]) -> Workload:
        trace = self.trace
        has_estimate = np.isfinite(trace.estimates)
        return Workload(
            self.sizes,
            speedup,
            arrivals=trace.submit_times,
            names=trace.names,
            requested=trace.servers,
            estimates=np.where(has_estimate, trace.estimates, trace.runtimes),
        )


def build_jobs(trace: Trace, machine: int, assumption: Assumption, seed: int) -> StudyJobs:
    """Return the jobs of a trace for a study; ``seed`` decides which speedup each job has."""
    drawn = assumption.draw(len(trace), seed)
    unit_jobs = Workload(np.ones(len(trace)), assumption.list_speedups(drawn))
    sizes = trace.runtimes * unit_jobs.speedups.rate(trace.servers)
    return StudyJobs(trace, machine, assumption, drawn, sizes)
