"""The theorems of the paper in closed form, one function an equation, for s(k) = k^p.

    B. Berg, R. Vesilo, M. Harchol-Balter:
    heSRPT: Optimal Parallel Scheduling of Jobs With Known Sizes.

N servers are shared by M jobs. Job 1 is the largest and finishes last, job M is the smallest and
finishes first; when m jobs are left, these are jobs 1 … m. With c = 1/(1 − p) and b_k = 1 −
((k−1)/k)^c, the share that job k has of what it and the larger jobs hold together,

    θ*_k = (k/m)^c b_k,     1 + ω*_k = 1/b_k,     Δ(k) = k b_k^(1−p),
    s(N) T_k = b_k^(−p) x_k + Σ_{j>k} b_j^(−p) [1 − ((j−1)/j)^(c−1)] x_j.

Every term is positive, so nothing cancels, and powers like k^c, which overflow, never occur.
The same holds with weights if k is read as W_k = w_1 + … + w_k, and (k−1)/k as W_{k−1}/W_k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.speedups import PowerLaw
from hesrpt.validation import (
    check_non_negative_vector,
    check_positive,
    check_positive_vector,
    check_whole_number,
)

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

# Jobs that are worked on at a time: a handful of arrays of this length fit into the cache.
_CHUNK = 1 << 15


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
    return shares_of(_some("weights", weights), p)


def scale_free_constants(m: int, p: float) -> FloatArray:
    """Return what the larger jobs hold together for each server that job k holds, k = 1 … m.

    Theorem "Optimal Total Flow Time": ω*_k = 1 / ((k/(k−1))^c − 1), ω*_1 = 0.

    >>> scale_free_constants(3, 0.5)
    array([0.        , 0.33333333, 0.8       ])
    """
    c = _exponent(p)
    k = np.arange(1, check_whole_number("m", m, minimum=1) + 1, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        return 1 / np.expm1(-c * np.log1p(-1 / k))


def coefficients(m: int, p: float) -> FloatArray:
    """Return what a unit of work of job k costs in total flow time when s(N) = 1, k = 1 … m.

    Theorem "Optimal Total Flow Time" and its appendix:
    Δ(k) = k s(1 + ω*_k) − (k−1) s(ω*_k) = (k^c − (k−1)^c)^(1−p).

    >>> coefficients(3, 0.5)
    array([1.        , 1.73205081, 2.23606798])
    """
    k = np.arange(1, check_whole_number("m", m, minimum=1) + 1, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return k * own_part(np.log1p(-1 / k), p) ** (1 - p)


def completion_times(sizes: ArrayLike, servers: float, p: float) -> FloatArray:
    """Return when each job ends under heSRPT, in the order the jobs were given.

    From the proof of the Lemma on T^P: the phase that job k ends lasts
    [x_k s(1 + ω*_k) − x_{k+1} s(ω*_{k+1})] / s(N).

    >>> completion_times([1, 1], servers=10, p=0.5)
    array([0.36514837, 0.49880195])
    """
    first_to_last, in_order = shortest_first(_some("sizes", sizes))
    solved = solve(in_order, first_to_last, check_positive("servers", servers), p)
    return solved.completion_times


def total_flow_time(sizes: ArrayLike, servers: float, p: float) -> float:
    """Return the optimal total flow time (Theorem "Optimal Total Flow Time").

    T* = Σ_k x_k Δ(k) / s(N), where x_1 ≥ x_2 ≥ … ≥ x_M.

    >>> total_flow_time([1, 1], servers=10, p=0.5)
    0.86395032
    """
    x = -np.sort(-_some("sizes", sizes))
    return float(x @ coefficients(len(x), p) / check_positive("servers", servers) ** p)


def flow_time_of_constants(
    sizes: ArrayLike, constants: ArrayLike, servers: float, p: float
) -> float:
    """Return T^P as a function of scale-free constants ω^P, for any completion order (the Lemma).

    T^P(ω) = Σ_k x_{c_k} [k s(1 + ω_k) − (k−1) s(ω_k)] / s(N), sizes from the last job to end to
    the first. It is the total flow time of the shares that ω stands for, provided that these shares
    do complete the jobs in that order.

    >>> flow_time_of_constants([1, 1], scale_free_constants(2, 0.5), servers=10, p=0.5)
    0.86395032
    """
    _exponent(p)
    x = _some("sizes", sizes)
    omega = check_non_negative_vector("constants", constants)
    if len(omega) != len(x):
        raise InputError(f"constants must have one entry per job: {len(x)} expected, {len(omega)}")
    k = np.arange(1, len(x) + 1)
    each = k * (1 + omega) ** p - (k - 1) * omega**p
    return float(x @ each / check_positive("servers", servers) ** p)


@dataclass(frozen=True)
class OrderOptimum:
    """The best that can be done when jobs must end in a given order (see :func:`best_in_order`)."""

    shares: FloatArray
    completion_times: FloatArray
    total_flow_time: float


def best_in_order(sizes: ArrayLike, servers: float, p: float) -> OrderOptimum:
    """Return the optimum among the schedules that end jobs in a given order (Lemma on T^P).

    ``sizes`` lists the jobs from the last to end to the first, as the paper's order C does. The
    relaxed minimum of the Lemma may end a job before its turn; the constraint then binds, and a run
    of neighbours ends together. Jobs that end together share their servers as heLRPT does, and so
    behave like one job of size ‖x‖_{1/p} whose weight is their number. Pooling neighbours that
    violate the order, as in isotonic regression, therefore gives the exact optimum.

    >>> best_in_order([9, 4, 1], servers=10, p=0.5).total_flow_time   # shortest first: optimal
    5.74404691
    >>> best_in_order([1, 4, 9], servers=10, p=0.5).total_flow_time   # longest first: all together
    9.39148551
    """
    c = _exponent(p)
    x = _some("sizes", sizes)
    blocks: list[_Block] = []
    for k, log_size in enumerate(np.log(x).tolist()):
        blocks.append(_Block(log_size, k, k + 1))
        while len(blocks) > 1 and blocks[-2].end_time(c) < blocks[-1].end_time(c):
            later = blocks.pop()
            blocks[-1] = blocks[-1].joined(later, p)

    block_of = np.repeat(np.arange(len(blocks)), [block.jobs for block in blocks])
    pooled_sizes = np.exp([block.log_size for block in blocks])
    weights = np.array([block.jobs for block in blocks], dtype=np.float64)
    first_to_last = np.arange(len(blocks))[::-1]
    ends = solve(
        pooled_sizes[::-1], first_to_last, check_positive("servers", servers), p, weights[::-1]
    ).completion_times
    with np.errstate(under="ignore"):
        within_block = (x / pooled_sizes[block_of]) ** (1 / p)
    times = ends[block_of]
    return OrderOptimum(shares_of(weights, p)[block_of] * within_block, times, float(times.sum()))


@dataclass(frozen=True)
class _Block:
    """Jobs ``first`` … ``stop − 1`` of an order, which end together."""

    log_size: float
    first: int
    stop: int

    @property
    def jobs(self) -> int:
        return self.stop - self.first

    def end_time(self, c: float) -> float:
        """Return the log of R = x / (W_k^c − W_{k−1}^c)^p, which must fall along the order."""
        with np.errstate(divide="ignore"):
            own = c * np.log(self.stop) + np.log(-np.expm1(c * np.log1p(-self.jobs / self.stop)))
        return float(self.log_size - (1 - 1 / c) * own)

    def joined(self, later: _Block, p: float) -> _Block:
        log_size = p * float(np.logaddexp(self.log_size / p, later.log_size / p))
        return _Block(log_size, self.first, later.stop)


def makespan_shares(sizes: ArrayLike, p: float) -> FloatArray:
    """Return the fractions of the system that end all jobs at the same, earliest time (heLRPT).

    Theorem on the optimal makespan: γ*_i = x_i^(1/p) / Σ_j x_j^(1/p).

    >>> makespan_shares([3, 1], 0.5)
    array([0.9, 0.1])
    """
    scaled = _scaled_powers(_some("sizes", sizes), p)
    share: FloatArray = scaled / scaled.sum()
    return share


def makespan(sizes: ArrayLike, servers: float, p: float) -> float:
    """Return the least time in which all jobs can end: ‖x‖_{1/p} / s(N).

    The theorem on the optimal makespan, with the speed s(N) = N^p of the system, which its
    statement leaves out.

    >>> makespan([3, 4], servers=25, p=0.5)
    1.0
    """
    x = _some("sizes", sizes)
    norm = float(x.max()) * float(_scaled_powers(x, p).sum()) ** p
    return float(norm / check_positive("servers", servers) ** p)


@dataclass(frozen=True)
class PowerLawOptimum:
    """Everything about the optimum of a batch, for the planner."""

    first_to_last: IntArray  # the jobs in the order of their completion
    ends: FloatArray  # when they end, in that order
    values: FloatArray  # of a unit of their work, in that order
    value_of_all: float  # Σ v_i x_i
    completion_times: FloatArray  # when they end, in the order they were given
    in_order: bool  # whether the formula does end them in that order


def solve(
    sizes: FloatArray,
    first_to_last: IntArray,
    servers: float,
    p: float,
    weights: FloatArray | None = None,
) -> PowerLawOptimum:
    """Return the optimum for jobs that end in a given order, in one pass.

    ``sizes`` and ``weights`` stand in that order, the first job to end first. The pass goes by
    chunks that stay in the processor's cache: with millions of jobs it is memory that takes the
    time.
    """
    jobs = len(sizes)
    up_to = None if weights is None else np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    ends, values, completion_times = np.empty(jobs), np.empty(jobs), np.empty(jobs)
    value_of_all = delay = 0.0
    for start in range(0, jobs, _CHUNK):
        here = slice(start, min(start + _CHUNK, jobs))
        if weights is None or up_to is None:
            up_to_here = np.arange(jobs - start, jobs - here.stop, -1, dtype=np.float64)
            with np.errstate(divide="ignore"):
                log_ratio = np.log1p(-1 / up_to_here)
        else:
            up_to_here = up_to[here]
            log_ratio = log_rest(weights[here], up_to_here, up_to[here.start + 1 : here.stop + 1])
        own_time, delays, value = _terms(sizes[here], log_ratio, up_to_here, servers, p)
        values[here] = value
        value_of_all += float(value @ sizes[here])
        delayed = delay + np.cumsum(delays)
        ends[here] = own_time + (delayed - delays)
        completion_times[first_to_last[here]] = ends[here]
        delay = float(delayed[-1])

    in_order = True
    if np.any(ends[1:] < ends[:-1]):
        # Rounding may put neighbours that end together out of order by the last digit.
        times, ends = ends, np.maximum.accumulate(ends)
        completion_times[first_to_last] = ends
        in_order = bool(np.all(times >= ends * (1 - 1e-14)))
    return PowerLawOptimum(first_to_last, ends, values, value_of_all, completion_times, in_order)


def _terms(
    x: FloatArray, log_rest: FloatArray, up_to: FloatArray, servers: float, p: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the terms of T_k: its own, and the delay of all jobs that end later; and v_k.

    ``log_rest`` is log(W_{k−1}/W_k) and ``up_to`` is W_k.
    """
    own = own_part(log_rest, p)
    with np.errstate(divide="ignore", under="ignore"):
        slowness = own**-p / servers**p
        own_time = slowness * x
        delays = -np.expm1(log_rest * (p / (1 - p))) * own_time
        return own_time, delays, up_to * own * slowness


def shortest_first(sizes: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the jobs by size, equal sizes in the order they were given; and their sizes so."""
    order = np.argsort(sizes)
    in_order = sizes[order]
    # The unstable sort is the fast one. Equal sizes are then put right by a sort of integers.
    differs = in_order[1:] != in_order[:-1]
    if not differs.all():
        run = np.zeros(len(sizes), dtype=np.int64)
        np.cumsum(differs, out=run[1:])
        run *= len(sizes)
        order += run
        order.sort()
        order -= run
    return order, in_order


def smallest_first_shares(m: int, p: float) -> FloatArray:
    """Return :func:`shares` from the smallest job up, without those too small for a float."""
    c = _exponent(p)
    # Those after the smallest n hold ((m − n)/m)^c together.
    some = min(m, int(m * -np.expm1(-690 / c)) + 2)
    rank = np.arange(m, m - some, -1, dtype=np.float64)
    with np.errstate(divide="ignore", under="ignore"):
        share: FloatArray = np.exp(c * np.log1p((rank - m) / m)) * own_part(np.log1p(-1 / rank), p)
    return share


def shares_of(weights: FloatArray, p: float) -> FloatArray:
    """Return :func:`weighted_shares`, unchecked."""
    up_to = np.cumsum(weights)
    own = own_part(log_rest(weights, up_to, np.concatenate(([0.0], up_to[:-1]))), p)
    share: FloatArray = power_of_ratio(up_to, up_to[-1:], _exponent(p)) * own
    return share


def power_of_ratio(part: FloatArray, whole: FloatArray, c: float) -> FloatArray:
    """Return (part / whole)^c, exactly for large c near 1 as well as for tiny parts."""
    near = part > whole / 2
    with np.errstate(under="ignore"):
        log_ratio = np.where(near, np.log1p((part - whole) / whole * near), np.log(part / whole))
        power: FloatArray = np.exp(c * log_ratio)
    return power


def own_part(log_rest: FloatArray, p: float) -> FloatArray:
    """Return b_k = 1 − (W_{k−1}/W_k)^c, given the logarithm of that ratio."""
    with np.errstate(under="ignore"):
        return -np.expm1(_exponent(p) * log_rest)


def log_rest(weights: FloatArray, up_to: FloatArray, rest: FloatArray) -> FloatArray:
    """Return log(W_{k−1}/W_k), exactly for weights that are tiny beside the others, or huge."""
    part = weights / up_to
    large = np.flatnonzero(part > 0.5)
    with np.errstate(divide="ignore"):
        log_ratio: FloatArray = np.log1p(-part)
        log_ratio[large] = np.log(rest[large] / up_to[large])
    return log_ratio


def _scaled_powers(x: FloatArray, p: float) -> FloatArray:
    _exponent(p)
    with np.errstate(under="ignore"):
        powers: FloatArray = (x / x.max()) ** (1 / p)
    return powers


def _exponent(p: float) -> float:
    return 1 / (1 - PowerLaw(p).p)


def _some(name: str, values: ArrayLike) -> FloatArray:
    vector = check_positive_vector(name, values)
    if len(vector) == 0:
        raise InputError(f"{name} must have at least one entry, got an empty list")
    return vector
