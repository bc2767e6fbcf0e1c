"""Random cases, for sweeps over jobs, servers and p."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload


class Case:
    """Jobs from the largest to the smallest, servers and p, drawn at random."""

    def __init__(self, rng: np.random.Generator, most_jobs: int) -> None:
        self.jobs = int(rng.integers(2, most_jobs + 1))
        self.p = float(rng.uniform(0.05, 0.9))
        self.servers = float(np.exp(rng.uniform(0, 14)))
        self.sizes: FloatArray = -np.sort(-(rng.pareto(1.5, self.jobs) + 1))

    @property
    def workload(self) -> Workload:
        return Workload(self.sizes, PowerLaw(self.p))

    @property
    def total(self) -> float:
        """The optimal total flow time, by the formula."""
        return closed_form.total_flow_time(self.sizes, self.servers, self.p)


def cases(seed: int, count: int, most_jobs: int) -> Iterator[tuple[Case, np.random.Generator]]:
    """Yield random cases, each with a generator for what else must be drawn."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield Case(rng, most_jobs), rng
