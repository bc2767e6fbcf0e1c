"""The jobs of a trace as jobs of a study: with sizes, speedups and limits.

A job that ran for r seconds on q servers has size r·s(q), where s is its speedup without any limit.
So its size does not depend on how many servers a study allows it, and a limit below q makes it
slower than it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.speedups import Speedup, SpeedupVector
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
    is_malleable: BoolArray  # the others are rigid

    @property
    def limits(self) -> FloatArray:
        """The most servers that each job gets."""
        return self.assumption.limit.compute_for(self.trace, float(self.machine))

    def build_rigid(self) -> Workload:
        """Return the jobs for disciplines that give all of them what they asked for."""
        return self._build(self.assumption.list_speedups(self.drawn))

    def build_malleable(self, limit: ServerLimit | None = None) -> Workload:
        """Return the jobs for malleable policies, with the limit of the study or another one."""
        limits = (limit or self.assumption.limit).compute_for(self.trace, float(self.machine))
        # Rigid jobs run on what they asked for.
        limits = np.where(self.is_malleable, limits, np.maximum(limits, self.trace.servers))
        return self._build_limited(limits, rigid=~self.is_malleable)

    def build_least_limited(self) -> Workload:
        """Return jobs that can use all that any schedule of the study gives them."""
        return self._build_limited(np.maximum(self.limits, self.trace.servers))

    def _build_limited(self, limits: FloatArray, rigid: BoolArray | None = None) -> Workload:
        # A job that cannot use all it asked for would have taken longer, and so would its user
        # have estimated.
        rate = self._unlimited.rate
        slower = rate(self.trace.servers) / rate(np.minimum(limits, self.trace.servers))
        return self._build(
            self.assumption.list_limited_speedups(self.drawn, limits, float(self.machine)),
            slower,
            rigid,
        )

    def _build(
        self,
        speedup: Speedup | list[Speedup],
        slower: float | FloatArray = 1.0,
        rigid: BoolArray | None = None,
    ) -> Workload:
        trace = self.trace
        has_estimate = np.isfinite(trace.estimates)
        return Workload(
            self.sizes,
            speedup,
            arrivals=trace.submit_times,
            names=trace.names,
            requested=trace.servers,
            estimates=np.where(has_estimate, trace.estimates, trace.runtimes) * slower,
            rigid=rigid,
        )

    @property
    def _unlimited(self) -> SpeedupVector:
        speedups = self.assumption.list_speedups(self.drawn)
        return Workload(np.ones(len(self.trace)), speedups).speedups


def build_jobs(
    trace: Trace,
    machine: int,
    assumption: Assumption,
    seed: int,
    is_malleable: BoolArray | None = None,
) -> StudyJobs:
    """Return the jobs of a trace for a study; ``seed`` decides which speedup each job has.

    All jobs are malleable unless ``is_malleable`` says otherwise.
    """
    drawn = assumption.draw(len(trace), seed)
    unit_jobs = Workload(np.ones(len(trace)), assumption.list_speedups(drawn))
    sizes = trace.runtimes * unit_jobs.speedups.rate(trace.servers)
    if is_malleable is None:
        is_malleable = np.ones(len(trace), dtype=np.bool_)
    return StudyJobs(trace, machine, assumption, drawn, sizes, is_malleable)
