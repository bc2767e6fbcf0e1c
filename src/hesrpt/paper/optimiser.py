"""A numerical optimiser that knows nothing of the paper: the oracle that its theorems are held to.

Jobs end in a given order, and phase k is the time in which the jobs 1 … k are present (job 1 ends
last). A job that uses y server-seconds in a phase of d seconds gets at most d s(y/d) of its work
done, which is concave in d and y together. So the least flow time is a convex program:

    min Σ_k k d_k    with    Σ_k d_k s(y_ik/d_k) ≥ x_i   and   Σ_i y_ik ≤ N d_k.

It is solved by the barrier method: Newton's method on t cost − Σ log(slack) for growing t. At the
minimum of that, the cost is above the optimum by at most the number of constraints divided by t. A
search that does not come near this minimum is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.speedups import Speedup

# The gap to the optimum at which to stop, the worst to be content with, and the growth of t.
_GAP, _WORST_GAP, _GROWTH = 1e-10, 3e-7, 20.0
# Newton steps for one t, and the decrease to be had from another one that is next to nothing.
_STEPS, _NEAR_ENOUGH = 100, 0.1
#: Shares in a phase that is shorter than this part of the schedule mean nothing.
_SHORT = 1e-4


@dataclass(frozen=True)
class Optimum:
    """What the optimiser found."""

    cost: float
    durations: FloatArray  # of each phase, phase M first
    shares: list[FloatArray]  # in each of them, of the jobs 1 … k

    @property
    def telling(self) -> list[FloatArray]:
        """The shares in those phases that last long enough to matter."""
        long = self.durations > _SHORT * self.durations.sum()
        return [share for share, matters in zip(self.shares, long, strict=True) if matters]


def optimise(
    sizes: FloatArray, speedup: Speedup, servers: float, *, makespan: bool = False
) -> Optimum:
    """Return the least total flow time (or makespan) of jobs listed from the last to end."""
    program = _Program(np.asarray(sizes, dtype=np.float64), speedup, servers, makespan)
    point, t = program.start(), 1.0
    gap = np.inf
    while gap > _GAP:
        nearer = program.centre(point, t * _GROWTH)
        if nearer is None:
            break  # rounding forbids to go on
        point, t = nearer, t * _GROWTH
        gap = 2 * len(point) / t / float(program.cost @ point)  # there are fewer constraints
    if gap > _WORST_GAP:
        raise ArithmeticError(f"the optimiser is stuck {gap:.1g} from the optimum")
    scale = float(np.sum(sizes)) / program.full_speed
    durations, used = point[: program.phases], point[program.phases :]
    shares = used / durations[program.phase_of]
    return Optimum(
        float(program.cost @ point) * scale,
        durations * scale,
        np.split(shares, np.cumsum(program.present)[:-1]),
    )


class _Program:
    """The program in units of the whole system: its servers, its speed, and all work are 1."""

    def __init__(self, sizes: FloatArray, speedup: Speedup, servers: float, makespan: bool) -> None:
        jobs = len(sizes)
        self.speedup, self.servers = speedup, servers
        self.full_speed = float(speedup(servers))
        self.target = sizes / sizes.sum()
        self.present = np.arange(jobs, 0, -1)
        self.phases = len(self.present)
        # Of each pair of a phase and a job in it, where the two stand.
        self.phase_of = np.repeat(np.arange(self.phases), self.present)
        self.job_of = np.concatenate([np.arange(k) for k in self.present])
        self.pair = self.phases + np.arange(len(self.job_of))
        self.cost = np.zeros(self.phases + len(self.pair))
        self.cost[: self.phases] = 1.0 if makespan else self.present
        self.room = np.zeros((self.phases, len(self.cost)))
        self.room[:, : self.phases] = np.eye(self.phases)
        self.room[self.phase_of, self.pair] = -1.0

    def start(self) -> FloatArray:
        """Return a point within all constraints: equal shares, and some of the servers idle."""
        point = np.ones(len(self.cost))
        point[self.pair] = 1 / (self.present[self.phase_of] + 1)
        done = np.bincount(self.job_of, self._rates(point)[1])
        return point * 2 * float(np.max(self.target / done))

    def _rates(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return shares, and the rates that they give."""
        share = point[self.pair] / point[self.phase_of]
        return share, self.speedup.rate(share * self.servers) / self.full_speed

    def _slacks(self, point: FloatArray) -> FloatArray:
        work = np.bincount(self.job_of, point[self.phase_of] * self._rates(point)[1])
        return np.concatenate((work - self.target, self.room @ point, point))

    def _barrier(self, point: FloatArray, t: float) -> float:
        if not point.min() > 0:
            return np.inf
        slacks = self._slacks(point)
        if not slacks.min() > 0:
            return np.inf
        return float(t * (self.cost @ point) - np.log(slacks).sum())

    def _newton(self, point: FloatArray, t: float) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the Hessian of the barrier function."""
        share, rate = self._rates(point)
        held, jobs = share * self.servers, len(self.target)
        unit = self.servers / self.full_speed
        slope = self.speedup.slope(held) * unit
        near = 1e-5
        bend = self.speedup.slope(held * (1 + near)) - self.speedup.slope(held * (1 - near))
        curvature = bend * unit / (2 * near * share) / point[self.phase_of]

        slacks = self._slacks(point)
        work_slack, room_slack = slacks[:jobs], slacks[jobs : jobs + self.phases]
        work = np.zeros((jobs, len(point)))
        work[self.job_of, self.phase_of] = rate - share * slope
        work[self.job_of, self.pair] = slope
        rows = np.concatenate((work / work_slack[:, None], self.room / room_slack[:, None]))
        gradient = t * self.cost - rows.sum(axis=0) - 1 / point
        hessian = rows.T @ rows + np.diag(1 / point**2)
        weight = -curvature / work_slack[self.job_of]
        np.add.at(hessian, (self.phase_of, self.phase_of), weight * share**2)
        np.add.at(hessian, (self.pair, self.pair), weight)
        np.add.at(hessian, (self.pair, self.phase_of), -weight * share)
        np.add.at(hessian, (self.phase_of, self.pair), -weight * share)
        return gradient, hessian

    def centre(self, point: FloatArray, t: float) -> FloatArray | None:
        """Return the minimum of the barrier function, from a point near it; None if not found."""
        value = self._barrier(point, t)
        decrease = np.inf
        for _ in range(_STEPS):
            gradient, hessian = self._newton(point, t)
            # Slacks differ by many magnitudes, and the entries of the Hessian with them.
            unit = 1 / np.sqrt(np.diag(hessian))
            step = unit * np.linalg.solve(hessian * np.outer(unit, unit), -gradient * unit)
            decrease = -float(gradient @ step)
            if decrease < 1e-6:
                break
            length = 1.0
            while (new := self._barrier(point + length * step, t)) > value - length * decrease / 4:
                length /= 2
                if length < 1e-12:
                    break
            if length < 1e-12:
                break  # as near as rounding allows
            point, value = point + length * step, new
        return point if decrease < _NEAR_ENOUGH else None
