"""The replay of a plan: its timeline must be possible and lead to its completion times.

This is the part of :func:`hesrpt.verify` that concerns the schedule rather than the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import CertificateError
from hesrpt.optimal.earnings import TOLERANCE
from hesrpt.speedups import PowerLaw
from hesrpt.units import format_count

if TYPE_CHECKING:
    from hesrpt.optimal.planner import Plan

# The relative precision of times, after rounding in all earlier phases.
_CLOCK_PRECISION = 1e-14
# If phases × jobs exceed this, only a sample of the phases and jobs is replayed. Under a power law,
# the work of all jobs is then added up in closed form.
_REPLAY_LIMIT = 1_000_000_000
_REPLAY_LIMIT_POWER_LAW = 20_000_000
# The sample has up to 20 phases and jobs, but fewer if times all jobs they would exceed this.
_SAMPLE_LIMIT = 10_000_000


def check_timeline(plan: Plan) -> None:
    """Replay the plan: its allocations must be possible and lead to its completion times."""
    jobs, phases = len(plan.workload), len(plan.timeline.ends)
    ends = plan.timeline.ends
    lengths = np.diff(ends, prepend=0.0)
    if np.any(lengths < 0):
        raise CertificateError("the phases of the plan do not end in ascending order")
    if not np.all(np.isfinite(plan.completion_times)):
        raise CertificateError("completion times must be finite")
    is_power_law = isinstance(plan.speedups.shared, PowerLaw)
    if jobs * phases > (_REPLAY_LIMIT_POWER_LAW if is_power_law else _REPLAY_LIMIT):
        _check_sample(plan, lengths)
        return
    done, last_held = np.zeros(jobs), np.zeros(jobs)
    for phase in range(phases):
        held = plan.timeline.servers(phase)
        _check_allocation(plan, held, phase)
        working = np.flatnonzero(held)
        rates = plan.speedups.take(working).rate(held[working])
        done[working] += rates * lengths[phase]
        last_held[working] = ends[phase]
    _check_work(plan, np.arange(jobs), done, last_held)


def _check_sample(plan: Plan, lengths: FloatArray) -> None:
    rng = np.random.default_rng(0)
    jobs, phases = len(plan.workload), len(lengths)
    size = min(max(_SAMPLE_LIMIT // jobs, 1), 20)
    extremes = plan.certificate.first_to_last[[0, -1]]
    held_at_start = plan.timeline.servers(0)
    _check_allocation(plan, held_at_start, 0)
    for phase in np.append(rng.integers(phases, size=size), [phases - 1]):
        _check_allocation(plan, plan.timeline.servers(int(phase)), int(phase))
    sample = np.append(rng.integers(jobs, size=size), extremes)
    done, last_held = np.empty(len(sample)), np.empty(len(sample))
    for place, job in enumerate(sample):
        held = plan.timeline.servers_of(int(job))
        done[place] = plan.speedups[int(job)].rate(held) @ lengths
        last_held[place] = plan.timeline.ends[np.flatnonzero(held)[-1]] if held.any() else 0.0
    _check_work(plan, sample, done, last_held)
    if isinstance(shared := plan.speedups.shared, PowerLaw) and plan.objective != "makespan":
        _check_all_work(plan, shared.p, lengths, held_at_start)


def _check_all_work(plan: Plan, p: float, lengths: FloatArray, held_at_start: FloatArray) -> None:
    """Check the completion times of all jobs in one pass, after a sample of the shares.

    In the phase with total weight W_m, job k holds N b_k (W_k/W_m)^c servers. So its work is
    (N b_k)^p Σ l_m (W_k/W_m)^(c p), summed over the phases (of lengths l_m) until its completion.
    """
    order = plan.certificate.first_to_last
    if len(lengths) != len(order):
        raise CertificateError(
            f"there must be one phase for each of {format_count(len(order), 'job')}, "
            f"got {len(lengths)}"
        )
    weights = np.ones(len(order)) if plan.weights is None else plan.weights[order]
    present = np.cumsum(weights[::-1])[::-1]
    c = 1 / (1 - p)
    own = held_at_start[order] / plan.servers  # b_k (W_k/W_M)^c
    with np.errstate(divide="ignore"):
        log_present = np.log(present / present[0])
        log_time = np.logaddexp.accumulate(np.log(lengths) - c * p * log_present)
        done = np.exp(p * np.log(plan.servers * own) + log_time)
    rounding = 1e-14 * c * p * (1 + np.abs(log_present))
    sizes = plan.workload.sizes[order]
    is_exact = own > 1e-290  # smaller numbers have lost digits
    is_wrong = is_exact & ~(np.abs(done / sizes - 1) <= 10 * TOLERANCE + rounding)
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        raise CertificateError(
            f"job {plan.workload.names[order[place]]} does {float(done[place])!r} of its "
            f"{float(sizes[place])!r} units of work in the timeline"
        )
    difference = np.abs(plan.completion_times[order] - plan.timeline.ends)
    if np.any(difference > TOLERANCE * plan.timeline.ends):
        raise CertificateError("the completion times differ from the ends of the phases")


def _check_allocation(plan: Plan, held: FloatArray, phase: int) -> None:
    if not np.all(held >= 0):
        raise CertificateError(f"a job holds {float(held.min())!r} servers in phase {phase}")
    if held.sum() > plan.servers * (1 + TOLERANCE):
        raise CertificateError(
            f"phase {phase} allocates {float(held.sum())!r} servers of {plan.servers!r}"
        )
    if plan.whole and np.any(held != np.rint(held)):
        raise CertificateError(f"phase {phase} allocates fractions of servers")


def _check_work(plan: Plan, jobs: IntArray, done: FloatArray, last_held: FloatArray) -> None:
    sizes, ends = plan.workload.sizes[jobs], plan.completion_times[jobs]
    # A tiny job that runs late may run for less time than the clock can resolve.
    usable = plan.speedups.demand(np.zeros(len(plan.workload)), plan.servers)
    fastest = plan.speedups.rate(usable)[jobs]
    tolerance = TOLERANCE * sizes + fastest * _CLOCK_PRECISION * ends
    # Holding servers for a moment longer than needed does no harm.
    does_too_little = done < sizes - tolerance
    does_too_much = done > sizes * (1 + 100 * TOLERANCE) + tolerance
    if (is_wrong := does_too_little | does_too_much).any():
        place = int(np.argmax(is_wrong))
        raise CertificateError(
            f"job {plan.workload.names[jobs[place]]} does {float(done[place])!r} of its "
            f"{float(sizes[place])!r} units of work in the timeline"
        )
    if (is_wrong := np.abs(last_held - ends) > TOLERANCE * ends).any():
        place = int(np.argmax(is_wrong))
        raise CertificateError(
            f"job {plan.workload.names[jobs[place]]} ends at {float(last_held[place])!r} in the "
            f"timeline, not at {float(ends[place])!r}"
        )
