"""Job values: the recursion that solves any concave speedup exactly.

Jobs are listed from the last to end to the first. Phase k is the time when jobs 1 … k are present;
it costs W_k = w_1 + … + w_k per second. Let U_k(n) be the most that n servers can earn per second
when a unit of job i's work earns v_i. The values are chosen so that each phase exactly pays its
cost:

    U_k(N) = W_k,   that is   v_k = min over n in (0, N] of (W_k − U_{k−1}(N − n)) / s_k(n).

Phase k allocates servers as U_k(N) does. All work together then earns Σ v_i x_i, and no schedule
that ends the jobs in this order can cost less. This is linear-programming duality: v is the dual
solution, and it is feasible because no phase earns more than it costs.

Given v_1 … v_{k−1}, we search for the minimum over the price λ of a server: at λ the jobs before k
demand some servers, job k takes the rest, and λ is right if it is job k's marginal value of them.
The search is compiled (:mod:`hesrpt.optimal.recursion_kernel`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.closed_form import log_ratio_before, own_share
from hesrpt.speedups import PowerLaw, SpeedupVector

if TYPE_CHECKING:
    from hesrpt.optimal.response_kernel import Batch

# At least this many jobs with one Amdahl's law are worth prefix sums of their values …
_MANY_JOBS = 32
# … if its serial part is not so small that sums lose too many digits.
_MIN_SERIAL = 1e-3


@dataclass(frozen=True)
class JobValues:
    """The value of each job's work, and the price of a server in each phase.

    Jobs are listed from the last to end to the first; ``batch`` has them in the same order. The
    ``line`` has a row for each of them, with its value and the price while no job after it is
    present.
    """

    speedups: SpeedupVector
    batch: Batch
    line: FloatArray

    @property
    def values(self) -> FloatArray:
        """The value of a unit of each job's work."""
        from hesrpt.optimal.response_kernel import VALUE

        return self.line[:, VALUE]

    @property
    def prices(self) -> FloatArray:
        """The price of a server when jobs 0 … k are present, for each k."""
        from hesrpt.optimal.response_kernel import PRICE

        return self.line[:, PRICE]

    @cached_property
    def places(self) -> IntArray:
        """The number of each row."""
        return np.arange(len(self.line))

    def allocate(self, jobs: int) -> tuple[int, FloatArray]:
        """Return the allocation when only the first ``jobs`` jobs are present.

        The result is the first job that holds servers, and the servers of all jobs from it on.
        """
        from hesrpt.optimal.execution_kernel import allocate

        held, rates = np.empty(jobs), np.empty(jobs)
        start = allocate(self.batch, self.line, self.places, jobs, held, rates)
        return start, held[start:]


def compute_job_values(
    speedups: SpeedupVector,
    servers: float,
    weights: FloatArray,
    previous: JobValues | None = None,
    known: int = 0,
) -> JobValues:
    """Return the values of jobs listed from the last to end to the first.

    The first ``known`` values do not depend on the other jobs and are copied from ``previous``.
    """
    from hesrpt.optimal.recursion_kernel import EXACT, copy_values, value_places
    from hesrpt.optimal.response_kernel import COLUMNS, Batch, create_response_sums

    jobs = len(weights)
    shared = speedups.shared
    # With one speedup, values rise along the list if weights do. Rounding must not undo that.
    is_rising = shared is not None and bool(np.all(weights[1:] >= weights[:-1]))
    # Then the jobs that get no servers are at the head of the list and can be skipped.
    max_slope = shared.max_slope() if shared is not None and is_rising else inf
    shapes = speedups.shapes(servers, tabulated=speedups.shared is None)
    nothing = np.empty(0)
    batch = Batch(shapes, nothing, weights, servers, is_rising, max_slope)
    found = JobValues(speedups, batch, np.zeros((jobs, COLUMNS)))
    # Copies, because arrays that are not contiguous would be compiled for again.
    values = nothing if previous is None else previous.values[:known].copy()
    prices = nothing if previous is None else previous.prices[:known].copy()
    if isinstance(shared, PowerLaw):  # the solution of the recursion, as U_k(n) = W_k (n/N)^p
        cost, p = np.cumsum(weights), shared.p
        own = own_share(log_ratio_before(weights, cost, np.append(0.0, cost[:-1])), p)
        values, prices = own ** (1 - p) * cost / servers**p, p * cost / servers
    copy_values(batch, found.line, found.places, values, prices)
    if len(values) < jobs:
        response_sums = create_response_sums(jobs, has_prefix=can_be_summed(batch))
        value_places(batch, found.line, found.places, len(values), jobs, EXACT, response_sums)
    return found


def can_be_summed(batch: Batch) -> bool:
    """Whether jobs can be evaluated together, from prefix sums of their values, and are many."""
    from hesrpt.speedups.shape_kernel import AMDAHL

    shape = batch.shapes.records[0]
    is_smooth = shape["family"] == AMDAHL and not shape["is_whole"] and shape["low"] == 0
    can_be_exact = batch.is_rising and is_smooth and shape["parameter"] <= 1 - _MIN_SERIAL
    return bool(can_be_exact and len(batch.weights) >= _MANY_JOBS)
