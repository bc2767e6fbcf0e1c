"""The best schedule for a given completion order, as a convex program for a general solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy
import numpy as np

from hesrpt.arrays import FloatArray

#: Returns the constraints work ≤ length · s(used / length), from (used, length, work, job).
Cones = Callable[[Any, Any, Any, Any], list[Any]]


def minimise_cost(sizes: FloatArray, weights: FloatArray, servers: float, cones: Cones) -> float:
    """Return the least weighted flow time of jobs listed from the last to end to the first.

    The variables are the length of each phase, and for each phase and job the server time used and
    the work done. The first k jobs are present in phase k.
    """
    jobs = len(sizes)
    phase, job = np.tril_indices(jobs)
    lengths = cvxpy.Variable(jobs, nonneg=True)
    used, work = (cvxpy.Variable(len(phase), nonneg=True) for _ in range(2))
    in_phase = np.equal.outer(np.arange(jobs), phase).astype(float)
    of_job = np.equal.outer(np.arange(jobs), job).astype(float)
    problem = cvxpy.Problem(
        cvxpy.Minimize(np.cumsum(weights) @ lengths),
        [
            *cones(used, lengths[phase], work, job),
            in_phase @ used <= servers * lengths,
            of_job @ work >= sizes,
        ],
    )
    problem.solve(solver=cvxpy.CLARABEL)
    return float(problem.value)


def power_cones(powers: FloatArray) -> Cones:
    """Return the constraints for k^p, with a p for each job."""
    return lambda used, length, work, job: [cvxpy.PowCone3D(used, length, work, powers[job])]


def root_cones(used: Any, length: Any, work: Any, job: Any) -> list[Any]:
    """Return the constraints for k^0.5 as work² ≤ used × length, which solvers handle better."""
    return [_product_at_least_square(used, length, work)]


def amdahl_cones(parallel_fraction: float) -> Cones:
    """Return the constraints for Amdahl's law: (1 − f) work²/length + f work²/used ≤ work."""
    f = parallel_fraction

    def cones(used: Any, length: Any, work: Any, job: Any) -> list[Any]:
        serial, parallel = (cvxpy.Variable(work.size, nonneg=True) for _ in range(2))
        return [
            _product_at_least_square(serial, length, work),
            _product_at_least_square(parallel, used, work),
            (1 - f) * serial + f * parallel <= work,
        ]

    return cones


def _product_at_least_square(a: Any, b: Any, root: Any) -> Any:
    return cvxpy.SOC(a + b, cvxpy.vstack([2 * root, a - b]), axis=0)
