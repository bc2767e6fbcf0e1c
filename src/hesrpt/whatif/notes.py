"""Sentences on the options of a study and on what its results depend on."""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import BoolArray
from hesrpt.traces import Trace
from hesrpt.units import format_count
from hesrpt.whatif.selection import compute_offered_load
from hesrpt.whatif.study_jobs import StudyJobs

# With fewer jobs than this, the offered load is meaningless.
_MIN_JOBS_FOR_LOAD = 200


def describe_options(
    resize_cost: float, size_error: float, seed: int, load: float | None
) -> list[str]:
    """Return sentences on the options of a study."""
    notes = []
    if resize_cost > 0:
        notes.append(f"a resize stops a malleable job for {resize_cost:g} s")
    if size_error > 0:
        notes.append(
            f"malleable policies see sizes times exp({size_error:g} Z), Z standard normal "
            f"(seed {seed})"
        )
    if load is not None:
        notes.append(f"submission times are scaled to a load of {load:g}")
    return notes


def describe_estimates(trace: Trace, sizes: str) -> list[str]:
    """Return sentences on the users' estimates: who uses them, and how good they are."""
    known = np.isfinite(trace.estimates)
    if not known.any():
        return []
    overruns = int(np.count_nonzero(trace.runtimes[known] > trace.estimates[known]))
    ratio = float(np.median(trace.estimates[known] / trace.runtimes[known]))
    unforeseen = f", and does not foresee that {format_count(overruns, 'job')} ran longer"
    notes = [
        f"users' estimates are {ratio:.3g} times the run time in the median; EASY takes them as "
        f"they are{unforeseen if overruns else ''}"
    ]
    if sizes == "estimates":
        notes.append(
            "malleable policies see sizes that follow from the users' estimates, and what fraction "
            "of a job is done"
        )
    missing = len(trace) - int(np.count_nonzero(known))
    if missing:
        notes.append(
            f"the run times of {format_count(missing, 'job')} without an estimate count as known"
        )
    return notes


def describe_overload(trace: Trace, servers: int) -> list[str]:
    """Return a sentence if users asked for more than the machine has."""
    load = compute_offered_load(trace, servers)
    if len(trace) < _MIN_JOBS_FOR_LOAD or not 1 < load < np.inf:
        return []
    return [
        f"users asked for {load:.2f} times the capacity of {format_count(servers, 'server')} while "
        "jobs were submitted: under rigid policies the queue keeps growing, and averages depend on "
        "the length of the trace"
    ]


def describe_curves(jobs: StudyJobs) -> list[str]:
    """Return sentences on what lies beyond the data of measured curves, and on bad fits."""
    curves, trace = jobs.assumption.curves, jobs.trace
    if not curves:
        return []
    first = np.array([curve.first for curve in curves])[jobs.drawn]
    last = np.array([curve.last for curve in curves])[jobs.drawn]
    is_flat = np.array([curve.stays_flat for curve in curves])[jobs.drawn]
    is_beyond, law = trace.servers > last, "the curve is extended by the power law that fits it"
    notes = [
        *_describe_beyond(trace, is_beyond & ~is_flat, "more", law),
        *_describe_beyond(
            trace, is_beyond & is_flat, "more", "the curve stays flat: it has passed its peak"
        ),
        *_describe_beyond(trace, trace.servers < first, "fewer", law),
    ]
    bad = [curve for curve in curves if curve.problem]
    if bad:
        worst = bad[0]
        name = f" {worst.application}" if worst.application else ""
        notes.append(
            f"a power law fits {len(bad)} of {format_count(len(curves), 'measured curve')} badly, "
            f"so that extending it is uncertain; of{name}: {worst.problem}"
        )
    return notes


def _describe_beyond(trace: Trace, is_beyond: BoolArray, which: str, extension: str) -> list[str]:
    number = int(np.count_nonzero(is_beyond))
    if not number:
        return []
    used = trace.servers * trace.runtimes
    part = float(used[is_beyond].sum() / used.sum())
    hours = float(used[is_beyond].sum()) / 3600
    return [
        f"{format_count(number, 'job')} with {part:.0%} of the server-hours ({hours:,.0f}) ran on "
        f"{which} servers than {'its' if number == 1 else 'their'} curve was measured on; there, "
        f"{extension}"
    ]
