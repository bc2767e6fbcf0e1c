"""A numerical optimiser that does not use the paper's results, to check its theorems against.

Jobs end in a given order, and in phase k the jobs 1 … k are present (job 1 ends last). A job that
uses y server-seconds in a phase of d seconds does at most d s(y/d) of its work, which is jointly
concave in d and y. The least flow time is therefore a convex program:

    min Σ_k k d_k    with    Σ_k d_k s(y_ik/d_k) ≥ x_i   and   Σ_i y_ik ≤ N d_k.

The barrier method solves it: Newton's method minimises t cost − Σ log(slack) for growing t. At each
minimum, the cost exceeds the optimum by at most the number of constraints divided by t. If the
search does not come close enough to the optimum, it raises an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.speedups import PowerLaw, Speedup
from hesrpt.workload import Workload

# The relative gap to the optimum to aim at, the largest one to accept, and the growth factor of t.
_TARGET_GAP, _MAX_GAP, _GROWTH = 1e-10, 3e-7, 20.0
# Newton steps for one t, and the largest remaining decrease at which a minimum is accepted.
_MAX_STEPS, _MAX_DECREASE = 100, 0.1
# Shares in a phase that is shorter than this fraction of the schedule hardly affect the cost.
_SHORT_PHASE = 1e-4


@dataclass(frozen=True)
class Optimum:
    """An optimal schedule."""

    cost: float
    durations: FloatArray  # of each phase, phase M first
    shares: list[FloatArray]  # of the jobs 1 … k in each phase

    @property
    def long_phases(self) -> list[FloatArray]:
        """The shares in the phases that are long enough to affect the cost."""
        is_long = self.durations > _SHORT_PHASE * self.durations.sum()
        return [shares for shares, long in zip(self.shares, is_long, strict=True) if long]


def optimise(
    sizes: FloatArray, speedup: Speedup, servers: float, *, makespan: bool = False
) -> Optimum:
    """Minimise the total flow time (or makespan) of jobs, listed from the last one to end."""
    program = _Program(np.asarray(sizes, dtype=np.float64), speedup, servers, makespan)
    point, t, gap = program.start(), 1.0, np.inf
    while gap > _TARGET_GAP:
        nearer = program.centre(point, t * _GROWTH)
        if nearer is None:
            break  # rounding errors prevent further progress
        point, t = nearer, t * _GROWTH
        # There are at most 2 len(point) constraints.
        gap = 2 * len(point) / t / float(program.cost @ point)
    if gap > _MAX_GAP:
        raise ArithmeticError(f"the optimiser is stuck {gap:.1g} from the optimum")
    scale = float(np.sum(sizes)) / program.full_speed
    shares = point[program.pair] / point[program.phase_of]
    return Optimum(
        cost=float(program.cost @ point) * scale,
        durations=point[: len(sizes)] * scale,
        shares=np.split(shares, np.cumsum(program.present)[:-1]),
    )


class _Program:
    """The convex program, in units in which all servers, their speed and all work are 1."""

    def __init__(self, sizes: FloatArray, speedup: Speedup, servers: float, makespan: bool) -> None:
        jobs = len(sizes)
        self.speedup, self.servers = speedup, servers
        self.full_speed = float(speedup(servers))
        self.target = sizes / sizes.sum()
        self.present = np.arange(jobs, 0, -1)  # in each phase
        # Each pair of a phase and a job in it: indices of the phase, the job and the variable y.
        self.phase_of = np.repeat(np.arange(jobs), self.present)
        self.job_of = np.concatenate([np.arange(k) for k in self.present])
        self.pair = jobs + np.arange(len(self.job_of))
        variables = jobs + len(self.pair)
        self.cost = np.zeros(variables)
        self.cost[:jobs] = 1.0 if makespan else self.present
        # Linear constraints: each phase has enough servers, and no variable is negative.
        self.linear = np.concatenate((np.eye(jobs, variables), np.eye(variables)))
        self.linear[self.phase_of, self.pair] = -1.0

    def start(self) -> FloatArray:
        """Return a feasible point: equal shares, with some of the servers idle."""
        point = np.ones(len(self.cost))
        point[self.pair] = 1 / (self.present[self.phase_of] + 1)
        done = np.bincount(self.job_of, self._rates(point)[1])
        return point * 2 * float(np.max(self.target / done))

    def _rates(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the share and the rate of each pair."""
        share = point[self.pair] / point[self.phase_of]
        return share, self.speedup.rate(share * self.servers) / self.full_speed

    def _slacks(self, point: FloatArray) -> FloatArray:
        """Return the slacks of all constraints, those of the jobs' work first."""
        work = np.bincount(self.job_of, point[self.phase_of] * self._rates(point)[1])
        return np.concatenate((work - self.target, self.linear @ point))

    def _barrier(self, point: FloatArray, t: float) -> float:
        slacks = self._slacks(point) if point.min() > 0 else point
        return float(t * (self.cost @ point) - np.log(slacks).sum()) if slacks.min() > 0 else np.inf

    def _newton(self, point: FloatArray, t: float) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the Hessian of the barrier function."""
        share, rate = self._rates(point)
        held, unit = share * self.servers, self.servers / self.full_speed
        slope = self.speedup.slope(held) * unit
        near = 1e-5
        bend = self.speedup.slope(held * (1 + near)) - self.speedup.slope(held * (1 - near))
        curvature = bend * unit / (2 * near * share) / point[self.phase_of]

        slacks = self._slacks(point)
        work = np.zeros((len(self.target), len(point)))
        work[self.job_of, self.phase_of] = rate - share * slope
        work[self.job_of, self.pair] = slope
        rows = np.concatenate((work, self.linear)) / slacks[:, None]
        # The work of a pair is curved only in the direction in which its share changes.
        change = np.eye(len(point))[self.pair]
        change[np.arange(len(share)), self.phase_of] = -share
        weight = -curvature / slacks[self.job_of]
        hessian = rows.T @ rows + (change.T * weight) @ change
        return t * self.cost - rows.sum(axis=0), hessian

    def centre(self, point: FloatArray, t: float) -> FloatArray | None:
        """Return the minimum of the barrier function near a point, or None if it is not found."""
        value = self._barrier(point, t)
        decrease = np.inf
        for _ in range(_MAX_STEPS):
            gradient, hessian = self._newton(point, t)
            # Scale the Hessian, whose entries differ by many orders of magnitude.
            unit = 1 / np.sqrt(np.diag(hessian))
            step = unit * np.linalg.solve(hessian * np.outer(unit, unit), -gradient * unit)
            decrease = -float(gradient @ step)
            if decrease < 1e-6:
                break
            for length in 0.5 ** np.arange(40):
                new = self._barrier(point + length * step, t)
                if new <= value - length * decrease / 4:
                    break
            else:
                break  # as close as rounding errors allow
            point, value = point + length * step, new
        return point if decrease < _MAX_DECREASE else None


class Case:
    """Random jobs from the largest to the smallest, a random number of servers and a random p.

    ``rng`` draws further random values.
    """

    def __init__(self, rng: np.random.Generator, max_jobs: int) -> None:
        self.rng = rng
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


def generate_cases(seed: int, count: int, max_jobs: int) -> Iterator[Case]:
    """Yield random cases, which share one generator of random values."""
    rng = np.random.default_rng(seed)
    return (Case(rng, max_jobs) for _ in range(count))
