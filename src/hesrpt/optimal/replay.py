"""The replay of a plan: its timeline must be possible and lead to its completion times.

This is the part of :func:`hesrpt.verify` that concerns the schedule rather than the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import CertificateError
from hesrpt.optimal.closed_form_timeline import ClosedFormTimeline
from hesrpt.optimal.earnings import TOLERANCE
from hesrpt.schedule import Timeline
from hesrpt.speedups import PowerLaw
from hesrpt.units import format_count

if TYPE_CHECKING:
    from hesrpt.optimal.planner import Plan

# The relative precision of times, after rounding in all earlier phases.
_CLOCK_PRECISION = 1e-14
# Above this many phases × jobs, a plan in closed form is not replayed phase by phase: the work of
# all jobs is added up by formula.
_REPLAY_LIMIT = 20_000_000


def check_timeline(plan: Plan) -> None:
    """Replay the plan: its allocations must be possible and lead to its completion times."""
    jobs, timeline = len(plan.workload), plan.timeline
    ends = timeline.ends if isinstance(timeline, Timeline) else None
    if not isinstance(ends, np.ndarray) or ends.ndim != 1 or ends.dtype != np.float64:
        raise CertificateError("a plan must have a timeline, with the end of each phase")
    phases = len(ends)
    lengths = np.diff(ends, prepend=0.0)
    if not (np.all(lengths >= 0) and np.all(np.isfinite(ends))):
        raise CertificateError("the phases of the plan do not end in ascending order")
    if jobs * phases > _REPLAY_LIMIT and type(timeline) is ClosedFormTimeline:
        _check_closed_form(plan, timeline, lengths)
        return
    done, last_held = np.zeros(jobs), np.zeros(jobs)
    for phase in range(phases):
        held = timeline.servers(phase)
        _check_allocation(plan, held, phase)
        working = np.flatnonzero(held)
        rates = plan.speedups.take(working).rate(held[working])
        done[working] += rates * lengths[phase]
        last_held[working] = ends[phase]
    _check_work(plan, done, last_held)


def _check_closed_form(plan: Plan, timeline: ClosedFormTimeline, lengths: FloatArray) -> None:
    """Check the completion times of all jobs in one pass, for a power law.

    In the phase with total weight W_m, job k holds N b_k (W_k/W_m)^c servers, where b_k is
    1 − (W_{k−1}/W_k)^c; these add up to N. So its work is (N b_k)^p Σ l_m (W_k/W_m)^(c p), summed
    over the phases (of lengths l_m) until its completion.
    """
    shared, order = plan.speedups.shared, plan.first_to_last
    if len(lengths) != len(order):
        raise CertificateError(
            f"there must be one phase for each of {format_count(len(order), 'job')}, "
            f"got {len(lengths)}"
        )
    same_weights = timeline.weights is plan.weights or (
        timeline.weights is not None
        and plan.weights is not None
        and np.array_equal(timeline.weights, plan.weights)
    )
    if (
        not isinstance(shared, PowerLaw)
        or plan.objective == "makespan"
        or plan.whole
        or timeline.p != shared.p
        or timeline.total != plan.servers
        or not np.array_equal(timeline.first_to_last, order)
        or not same_weights
    ):
        raise CertificateError("the timeline is for other jobs or servers")
    p, c = shared.p, 1 / (1 - shared.p)
    weights = np.ones(len(order)) if plan.weights is None else plan.weights[order]
    present = np.cumsum(weights[::-1])[::-1]
    part, later = weights / present, np.append(present[1:], 0.0)
    with np.errstate(divide="ignore"):
        log_ratio = np.where(part > 0.5, np.log(later / present), np.log1p(-part))
        log_own = np.log(-np.expm1(c * log_ratio))  # of b_k
        log_present = np.log(present / present[0])
        log_time = np.logaddexp.accumulate(np.log(lengths) - c * p * log_present)
        work = p * (np.log(plan.servers) + log_own + c * log_present) + log_time
    sizes = plan.workload.sizes[order]
    error = np.abs(np.expm1(work - np.log(sizes)))
    rounding = 1e-14 * c * p * (1 + np.abs(log_present))
    is_wrong = ~(error <= 10 * TOLERANCE + rounding)
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        raise CertificateError(
            f"job {plan.workload.names[order[place]]} does {float(np.exp(work[place]))!r} of its "
            f"{float(sizes[place])!r} units of work in the timeline"
        )
    difference = np.abs(plan.completion_times[order] - timeline.ends)
    if not np.all(difference <= TOLERANCE * timeline.ends):
        raise CertificateError("the completion times differ from the ends of the phases")


def _check_allocation(plan: Plan, held: FloatArray, phase: int) -> None:
    if held.shape != (len(plan.workload),):
        raise CertificateError(f"phase {phase} does not allocate servers to each job")
    if not np.all(held >= 0):
        raise CertificateError(f"a job holds {float(held.min())!r} servers in phase {phase}")
    if not held.sum() <= plan.servers * (1 + TOLERANCE):
        raise CertificateError(
            f"phase {phase} allocates {float(held.sum())!r} servers of {plan.servers!r}"
        )
    if plan.whole and np.any(held != np.rint(held)):
        raise CertificateError(f"phase {phase} allocates fractions of servers")


def _check_work(plan: Plan, done: FloatArray, last_held: FloatArray) -> None:
    sizes, ends, names = plan.workload.sizes, plan.completion_times, plan.workload.names
    # A tiny job that runs late may run for less time than the clock can resolve.
    usable = plan.speedups.demand(np.zeros(len(plan.workload)), plan.servers)
    fastest = plan.speedups.rate(usable)
    tolerance = TOLERANCE * sizes + fastest * _CLOCK_PRECISION * ends
    # Holding servers for a moment longer than needed does no harm.
    does_enough = done >= sizes - tolerance
    does_not_too_much = done <= sizes * (1 + 100 * TOLERANCE) + tolerance
    if (is_wrong := ~(does_enough & does_not_too_much)).any():
        job = int(np.argmax(is_wrong))
        raise CertificateError(
            f"job {names[job]} does {float(done[job])!r} of its {float(sizes[job])!r} units of "
            "work in the timeline"
        )
    if (is_wrong := ~(np.abs(last_held - ends) <= TOLERANCE * ends)).any():
        job = int(np.argmax(is_wrong))
        raise CertificateError(
            f"job {names[job]} ends at {float(last_held[job])!r} in the timeline, not at "
            f"{float(ends[job])!r}"
        )
