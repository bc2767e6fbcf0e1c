"""The closed form for s(k) = k^p, computed for whole batches of up to millions of jobs.

The formulas are those of :mod:`hesrpt.optimal.closed_form`. The functions here take arrays in
completion order and check nothing. The timeline computes its allocations on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.schedule import Timeline
from hesrpt.workload import Workload

# The number of jobs per step: a handful of arrays of this length fit into the cache.
_CHUNK = 1 << 15


@dataclass(frozen=True)
class ClosedFormOptimum:
    """The optimum of a batch whose jobs end in a given order."""

    first_to_last: IntArray  # the jobs in the order of their completion
    ends: FloatArray  # their completion times, in that order
    values: FloatArray  # the values of a unit of their work, in that order
    total_value: float  # Σ v_i x_i
    completion_times: FloatArray  # in the order in which the jobs were given
    is_in_order: bool  # whether the formula does end the jobs in that order


def solve_batch(
    sizes: FloatArray,
    first_to_last: IntArray,
    servers: float,
    p: float,
    weights: FloatArray | None = None,
) -> ClosedFormOptimum:
    """Return the optimum for jobs that end in a given order.

    ``sizes`` and ``weights`` are in that order: the first job to end comes first. With millions of
    jobs, memory access takes most of the time. So a single pass works on chunks that stay in the
    processor's cache.
    """
    jobs = len(sizes)
    up_to = None if weights is None else np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    ends, values, completion_times = np.empty(jobs), np.empty(jobs), np.empty(jobs)
    total_value = delay = 0.0
    for start in range(0, jobs, _CHUNK):
        here = slice(start, min(start + _CHUNK, jobs))
        if weights is None or up_to is None:
            up_to_here = np.arange(jobs - start, jobs - here.stop, -1, dtype=np.float64)
            with np.errstate(divide="ignore"):
                log_ratio = np.log1p(-1 / up_to_here)
        else:
            up_to_here = up_to[here]
            before = up_to[here.start + 1 : here.stop + 1]
            log_ratio = log_ratio_before(weights[here], up_to_here, before)
        own_time, delays, value = _terms(sizes[here], log_ratio, up_to_here, servers, p)
        values[here] = value
        total_value += float(value @ sizes[here])
        delayed = delay + np.cumsum(delays)
        ends[here] = own_time + (delayed - delays)
        completion_times[first_to_last[here]] = ends[here]
        delay = float(delayed[-1])

    is_in_order = True
    if np.any(ends[1:] < ends[:-1]):
        # Rounding may swap neighbours that end at the same time.
        times, ends = ends, np.maximum.accumulate(ends)
        completion_times[first_to_last] = ends
        is_in_order = bool(np.all(times >= ends * (1 - 1e-12)))
    return ClosedFormOptimum(
        first_to_last, ends, values, total_value, completion_times, is_in_order
    )


def _terms(
    x: FloatArray, log_ratio: FloatArray, up_to: FloatArray, servers: float, p: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return job k's own term of T_k, its term in the T of all jobs that end later, and v_k.

    ``log_ratio`` is log(W_{k−1}/W_k) and ``up_to`` is W_k.
    """
    own = own_share(log_ratio, p)
    with np.errstate(divide="ignore", under="ignore"):
        slowness = own**-p / servers**p
        own_time = slowness * x
        delays = -np.expm1(log_ratio * (p / (1 - p))) * own_time
        return own_time, delays, up_to * own * slowness


def sort_by_size(sizes: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the jobs from the smallest to the largest, and their sizes in that order.

    Jobs of equal size stay in the order in which they were given.
    """
    order = np.argsort(sizes)
    sizes_in_order = sizes[order]
    # The unstable sort is the fastest. A sort of integers then restores the order of equal sizes.
    differs = sizes_in_order[1:] != sizes_in_order[:-1]
    if not differs.all():
        run = np.zeros(len(sizes), dtype=np.int64)
        np.cumsum(differs, out=run[1:])
        run *= len(sizes)
        order += run
        order.sort()
        order -= run
    return order, sizes_in_order


def compute_shares(weights: FloatArray, p: float) -> FloatArray:
    """Return the optimal fractions of the system, last job to end first.

    (W_i/W_m)^c − (W_{i−1}/W_m)^c, where W_i = w_1 + … + w_i.
    """
    up_to = np.cumsum(weights)
    before = np.concatenate(([0.0], up_to[:-1]))
    own = own_share(log_ratio_before(weights, up_to, before), p)
    shares: FloatArray = power_of_ratio(up_to, up_to[-1:], 1 / (1 - p)) * own
    return shares


def compute_shares_smallest_first(m: int, p: float) -> FloatArray:
    """Return the optimal fractions for ``m`` jobs of equal weight, smallest job first.

    The fractions of the largest jobs are left out if they are too small for a float.
    """
    c = 1 / (1 - p)
    # All but the smallest n jobs together hold ((m − n)/m)^c.
    count = min(m, int(m * -np.expm1(-690 / c)) + 2)
    rank = np.arange(m, m - count, -1, dtype=np.float64)
    with np.errstate(divide="ignore", under="ignore"):
        shares: FloatArray = np.exp(c * np.log1p((rank - m) / m)) * own_share(
            np.log1p(-1 / rank), p
        )
    return shares


def power_of_ratio(part: FloatArray, total: FloatArray, c: float) -> FloatArray:
    """Return (part / total)^c, exact both for ratios near 1 with large c and for tiny ratios."""
    is_near = part > total / 2
    with np.errstate(under="ignore"):
        near = np.log1p((part - total) / total * is_near)
        power: FloatArray = np.exp(c * np.where(is_near, near, np.log(part / total)))
    return power


def own_share(log_ratio: FloatArray, p: float) -> FloatArray:
    """Return b_k = 1 − (W_{k−1}/W_k)^c, given the logarithm of that ratio."""
    with np.errstate(under="ignore"):
        return -np.expm1(1 / (1 - p) * log_ratio)


def log_ratio_before(weights: FloatArray, up_to: FloatArray, before: FloatArray) -> FloatArray:
    """Return log(W_{k−1}/W_k), exact for tiny and for huge weights w_k.

    ``up_to`` is W_k and ``before`` is W_{k−1}.
    """
    part = weights / up_to
    large = np.flatnonzero(part > 0.5)
    with np.errstate(divide="ignore"):
        log_ratio: FloatArray = np.log1p(-part)
        log_ratio[large] = np.log(before[large] / up_to[large])
    return log_ratio


class ClosedFormTimeline(Timeline):
    """The timeline of heSRPT. Phase j starts when j jobs have ended; shares depend on j alone."""

    def __init__(
        self, servers: float, p: float, weights: FloatArray | None, optimum: ClosedFormOptimum
    ) -> None:
        self.total, self.p, self.weights = servers, p, weights
        self.first_to_last, self.ends = optimum.first_to_last, optimum.ends

    def _weights_present(self, phase: int) -> FloatArray:
        """Return the weights of the jobs of a phase, from the last to end to the first."""
        present = self.first_to_last[phase:][::-1]
        return np.ones(len(present)) if self.weights is None else self.weights[present]

    @property
    def prices(self) -> FloatArray:
        """The price of a server in each phase, p W/N, where W is the weight of the jobs present."""
        return self.p / self.total * np.cumsum(self._weights_present(0))[::-1]

    def servers(self, phase: int) -> FloatArray:
        held = self.total * compute_shares(self._weights_present(phase), self.p)
        return self._in_given_order(phase, held[::-1])

    def _in_given_order(self, phase: int, values: FloatArray) -> FloatArray:
        result = np.zeros(len(self.ends))
        result[self.first_to_last[phase:]] = values
        return result

    def server_seconds(self) -> float:
        return self.total * float(self.ends[-1])

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        for time in times:
            phase = int(np.searchsorted(self.ends, time, side="right"))
            if phase == len(self.ends):
                yield np.zeros(len(self.ends))
                continue
            shares = compute_shares(self._weights_present(phase), self.p)[::-1]
            start, done = 0.0, np.zeros(len(shares))
            if phase:
                # The ratio of two jobs' rates is constant while both run. So the size of the job
                # that ended last gives the work that the others had done by then.
                start = float(self.ends[phase - 1])
                before = compute_shares(self._weights_present(phase - 1), self.p)[::-1]
                last_ended = workload.sizes[self.first_to_last[phase - 1]]
                done = last_ended * (before[1:] / before[0]) ** self.p
            done += (time - start) * (self.total * shares) ** self.p
            remaining = workload.sizes[self.first_to_last[phase:]] - done
            yield self._in_given_order(phase, np.maximum(remaining, 0.0))
