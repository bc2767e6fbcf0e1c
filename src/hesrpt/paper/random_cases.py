"""Random cases (jobs, servers and p) on which the theorems are checked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload


class Case:
    """Random jobs from the largest to the smallest, a random number of servers and a random p."""

    def __init__(self, rng: np.random.Generator, max_jobs: int) -> None:
        self.jobs = int(rng.integers(2, max_jobs + 1))
        self.p = float(rng.uniform(0.05, 0.9))
        self.servers = float(np.exp(rng.uniform(0, 14)))
        self.sizes: FloatArray = -np.sort(-(rng.pareto(1.5, self.jobs) + 1))

    @property
    def workload(self) -> Workload:
        """The jobs as a workload."""
        return Workload(self.sizes, PowerLaw(self.p))

    @property
    def total_flow_time(self) -> float:
        """The optimal total flow time by the paper's formula."""
        return closed_form.total_flow_time(self.sizes, self.servers, self.p)


def generate_cases(
    seed: int, count: int, max_jobs: int
) -> Iterator[tuple[Case, np.random.Generator]]:
    """Yield random cases, each with the generator that draws further random values."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield Case(rng, max_jobs), rng
