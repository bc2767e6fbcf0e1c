"""The theorems of the paper in closed form for s(k) = k^p: one function for each equation.

    B. Berg, R. Vesilo, M. Harchol-Balter:
    heSRPT: Optimal Parallel Scheduling of Jobs With Known Sizes.

N servers are shared by M jobs. Job 1 is the largest and finishes last, job M is the smallest and
finishes first; when m jobs remain, they are jobs 1 … m. Let c = 1/(1 − p), and let
b_k = 1 − ((k−1)/k)^c be job k's share of the servers that it and the larger jobs hold. Then

    θ*_k = (k/m)^c b_k,     1 + ω*_k = 1/b_k,     Δ(k) = k b_k^(1−p),
    s(N) T_k = b_k^(−p) x_k + Σ_{j>k} b_j^(−p) [1 − ((j−1)/j)^(c−1)] x_j.

Every term is positive, so nothing cancels. Powers such as k^c, which overflow, never occur. With
weights, replace k by W_k = w_1 + … + w_k and (k−1)/k by W_{k−1}/W_k.

The functions for whole batches of up to millions of jobs take arrays in completion order and check
nothing. The timeline computes its allocations on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.schedule import Timeline
from hesrpt.speedups import PowerLaw
from hesrpt.validation import (
    check_non_negative_vector,
    check_positive,
    check_positive_vector,
    check_same_length,
    check_whole_number,
)
from hesrpt.workload import Workload

__all__ = [
    "OrderOptimum",
    "best_in_order",
    "coefficients",
    "completion_times",
    "flow_time_of_constants",
    "makespan",
    "makespan_shares",
    "scale_free_constants",
    "shares",
    "total_flow_time",
    "weighted_shares",
]


def shares(m: int, p: float) -> FloatArray:
    """Return the optimal fractions of the system for ``m`` jobs, largest job first.

    Theorem "Optimal Allocation Function": θ*_i = (i/m)^c − ((i−1)/m)^c.

    >>> shares(2, 0.5)
    array([0.25, 0.75])
    """
    return weighted_shares(np.ones(check_whole_number("m", m, minimum=1)), p)


def weighted_shares(weights: ArrayLike, p: float) -> FloatArray:
    """Return the fractions that minimise the weighted flow time, last job to finish first.

    (W_i/W_m)^c − (W_{i−1}/W_m)^c, where W_i = w_1 + … + w_i; equal weights give :func:`shares`.

    >>> weighted_shares([1, 3], 0.5)
    array([0.0625, 0.9375])
    """
    p = _check_p(p)
    return compute_shares(_check_entries("weights", weights), p)


def scale_free_constants(m: int, p: float) -> FloatArray:
    """Return the servers of all larger jobs per server of job k, for k = 1 … m.

    Theorem "Optimal Total Flow Time": ω*_k = 1 / ((k/(k−1))^c − 1), ω*_1 = 0.

    >>> scale_free_constants(3, 0.5)
    array([0.        , 0.33333333, 0.8       ])
    """
    c = 1 / (1 - _check_p(p))
    k = np.arange(1, check_whole_number("m", m, minimum=1) + 1, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        return 1 / np.expm1(-c * np.log1p(-1 / k))


def coefficients(m: int, p: float) -> FloatArray:
    """Return the total flow time that a unit of job k's work costs if s(N) = 1, for k = 1 … m.

    Theorem "Optimal Total Flow Time" and its appendix:
    Δ(k) = k s(1 + ω*_k) − (k−1) s(ω*_k) = (k^c − (k−1)^c)^(1−p).

    >>> coefficients(3, 0.5)
    array([1.        , 1.73205081, 2.23606798])
    """
    p = _check_p(p)
    k = np.arange(1, check_whole_number("m", m, minimum=1) + 1, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return k * own_share(np.log1p(-1 / k), p) ** (1 - p)


def completion_times(sizes: ArrayLike, servers: float, p: float) -> FloatArray:
    """Return the completion times under heSRPT, in the order in which the jobs were given.

    From the proof of the Lemma on T^P: the phase that ends with job k's completion lasts
    [x_k s(1 + ω*_k) − x_{k+1} s(ω*_{k+1})] / s(N).

    >>> completion_times([1, 1], servers=10, p=0.5)
    array([0.36514837, 0.49880195])
    """
    p = _check_p(p)
    first_to_last, sizes_in_order = sort_by_size(_check_entries("sizes", sizes))
    optimum = solve_batch(sizes_in_order, first_to_last, check_positive("servers", servers), p)
    return optimum.completion_times


def total_flow_time(sizes: ArrayLike, servers: float, p: float) -> float:
    """Return the optimal total flow time (Theorem "Optimal Total Flow Time").

    T* = Σ_k x_k Δ(k) / s(N), where x_1 ≥ x_2 ≥ … ≥ x_M.

    >>> total_flow_time([1, 1], servers=10, p=0.5)
    0.86395032
    """
    x = -np.sort(-_check_entries("sizes", sizes))
    return float(x @ coefficients(len(x), p) / check_positive("servers", servers) ** p)


def flow_time_of_constants(
    sizes: ArrayLike, constants: ArrayLike, servers: float, p: float
) -> float:
    """Return T^P as a function of scale-free constants ω^P, for any completion order (the Lemma).

    T^P(ω) = Σ_k x_{c_k} [k s(1 + ω_k) − (k−1) s(ω_k)] / s(N), with sizes from the last job to end
    to the first. It is the total flow time under the shares that belong to ω, if these shares do
    complete the jobs in that order.

    >>> flow_time_of_constants([1, 1], scale_free_constants(2, 0.5), servers=10, p=0.5)
    0.86395032
    """
    p = _check_p(p)
    x = _check_entries("sizes", sizes)
    omega = check_non_negative_vector("constants", constants)
    check_same_length("constants", omega, len(x))
    k = np.arange(1, len(x) + 1)
    each = k * (1 + omega) ** p - (k - 1) * omega**p
    return float(x @ each / check_positive("servers", servers) ** p)


@dataclass(frozen=True)
class OrderOptimum:
    """The optimum if jobs must end in a given order (see :func:`best_in_order`)."""

    shares: FloatArray
    completion_times: FloatArray
    total_flow_time: float


def best_in_order(sizes: ArrayLike, servers: float, p: float) -> OrderOptimum:
    """Return the optimum of all schedules that end the jobs in a given order (Lemma on T^P).

    ``sizes`` lists the jobs from the last to end to the first, like the paper's order C. The
    minimum of the Lemma may end a job before its turn. The order is then a binding constraint, and
    some neighbours end at the same time. Jobs that end at the same time share their servers as in
    heLRPT, so they behave like one job of size ‖x‖_{1/p} whose weight is their number. Pooling
    neighbours that violate the order, as in isotonic regression, therefore gives the exact optimum.

    >>> best_in_order([9, 4, 1], servers=10, p=0.5).total_flow_time   # shortest first: optimal
    5.74404691
    >>> best_in_order([1, 4, 9], servers=10, p=0.5).total_flow_time   # longest first: all at once
    9.39148551
    """
    c = 1 / (1 - _check_p(p))
    x = _check_entries("sizes", sizes)
    blocks: list[_Block] = []
    for k, log_size in enumerate(np.log(x).tolist()):
        blocks.append(_Block(log_size, k, k + 1))
        while len(blocks) > 1 and blocks[-2].log_end_time(c) < blocks[-1].log_end_time(c):
            later = blocks.pop()
            blocks[-1] = blocks[-1].pool(later, p)

    block_of = np.repeat(np.arange(len(blocks)), [block.jobs for block in blocks])
    pooled_sizes = np.exp([block.log_size for block in blocks])
    weights = np.array([block.jobs for block in blocks], dtype=np.float64)
    first_to_last = np.arange(len(blocks))[::-1]
    ends = solve_batch(
        pooled_sizes[::-1], first_to_last, check_positive("servers", servers), p, weights[::-1]
    ).completion_times
    with np.errstate(under="ignore"):
        within_block = (x / pooled_sizes[block_of]) ** (1 / p)
    times = ends[block_of]
    shares = compute_shares(weights, p)[block_of] * within_block
    return OrderOptimum(shares, times, float(times.sum()))


@dataclass(frozen=True)
class _Block:
    """Jobs ``first`` … ``stop − 1`` of an order, which end at the same time."""

    log_size: float
    first: int
    stop: int

    @property
    def jobs(self) -> int:
        return self.stop - self.first

    def log_end_time(self, c: float) -> float:
        """Return the log of R = x / (W_k^c − W_{k−1}^c)^p, which must fall along the order."""
        with np.errstate(divide="ignore"):
            own = c * np.log(self.stop) + np.log(-np.expm1(c * np.log1p(-self.jobs / self.stop)))
        return float(self.log_size - (1 - 1 / c) * own)

    def pool(self, later: _Block, p: float) -> _Block:
        """Return this block merged with the next one in the list."""
        log_size = p * float(np.logaddexp(self.log_size / p, later.log_size / p))
        return _Block(log_size, self.first, later.stop)


def makespan_shares(sizes: ArrayLike, p: float) -> FloatArray:
    """Return the fractions of the system that end all jobs at the same, earliest time (heLRPT).

    Theorem on the optimal makespan: γ*_i = x_i^(1/p) / Σ_j x_j^(1/p).

    >>> makespan_shares([3, 1], 0.5)
    array([0.9, 0.1])
    """
    scaled = _scaled_powers(_check_entries("sizes", sizes), p)
    share: FloatArray = scaled / scaled.sum()
    return share


def makespan(sizes: ArrayLike, servers: float, p: float) -> float:
    """Return the least time in which all jobs can end: ‖x‖_{1/p} / s(N).

    This is the theorem on the optimal makespan. Its statement omits s(N) = N^p, the speed of the
    system.

    >>> makespan([3, 4], servers=25, p=0.5)
    1.0
    """
    x = _check_entries("sizes", sizes)
    norm = float(x.max()) * float(_scaled_powers(x, p).sum()) ** p
    return float(norm / check_positive("servers", servers) ** p)


def _scaled_powers(x: FloatArray, p: float) -> FloatArray:
    p = _check_p(p)
    with np.errstate(under="ignore"):
        powers: FloatArray = (x / x.max()) ** (1 / p)
    return powers


def _check_p(p: float) -> float:
    return PowerLaw(p).p


def _check_entries(name: str, values: ArrayLike) -> FloatArray:
    vector = check_positive_vector(name, values)
    if len(vector) == 0:
        raise InputError(f"{name} must have at least one entry, got an empty list")
    return vector


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
        own = own_share(log_ratio, p)
        with np.errstate(divide="ignore", under="ignore"):
            slowness = own**-p / servers**p
            own_time = slowness * sizes[here]  # job k's own term of T_k
            # Its term in the T of all jobs that end later.
            delays = -np.expm1(log_ratio * (p / (1 - p))) * own_time
            values[here] = up_to_here * own * slowness
        total_value += float(values[here] @ sizes[here])
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
