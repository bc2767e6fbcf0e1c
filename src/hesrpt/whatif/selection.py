"""Selecting the part of a trace to study, and scaling its load."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from hesrpt.errors import InputError
from hesrpt.traces import Trace
from hesrpt.units import format_count, parse_duration
from hesrpt.validation import check_at_least, check_between


def select_jobs(
    trace: Trace,
    servers: int,
    *,
    window: str | None = None,
    min_runtime: float = 0.0,
    load: float | None = None,
    strict: bool = False,
) -> Trace:
    """Return the part of a trace to study on a machine with ``servers``; see :func:`run_study`."""
    if window is not None:
        trace = _select_window(trace, window)
    check_at_least("min_runtime", min_runtime, 0)
    if min_runtime > 0:
        trace = trace.select(trace.runtimes >= min_runtime, f"ran for less than {min_runtime:g} s")
    fits = trace.servers <= servers
    if strict and not fits.all():
        job = int(np.argmin(fits))
        raise InputError(
            f"{trace.source}: job {trace.names[job]} asked for "
            f"{format_count(trace.servers[job], 'server')}, but the machine has {servers}"
        )
    trace = trace.select(fits, f"asked for more than {format_count(servers, 'server')}")
    first = float(trace.submit_times[0])
    date = trace.start_date
    trace = replace(
        trace,
        submit_times=trace.submit_times - first,
        start_times=trace.start_times - first,
        start_date=None if date is None else date + timedelta(seconds=first),
    )
    return trace if load is None else _scale_load(trace, servers, load)


def compute_offered_load(trace: Trace, servers: int) -> float:
    """Return the jobs' server-seconds divided by those available while jobs were submitted."""
    span = float(trace.submit_times[-1] - trace.submit_times[0])
    return float(trace.servers @ trace.runtimes) / (servers * span) if span > 0 else np.inf


def _scale_load(trace: Trace, servers: int, load: float) -> Trace:
    """Stretch the submission times so that the offered load is ``load``."""
    check_between("load", load, 0.001, 100)
    stretch = compute_offered_load(trace, servers) / load
    if not 0 < stretch < np.inf:
        raise InputError("cannot be scaled: all jobs were submitted at once", argument="load")
    # Neither the recorded waits nor the dates apply at another load.
    return replace(
        trace,
        submit_times=trace.submit_times * stretch,
        start_times=np.full(len(trace), np.nan),
        start_date=None,
    )


def _select_window(trace: Trace, window: str) -> Trace:
    """Return the jobs submitted in a window FROM..TO, where FROM or TO may be omitted."""
    start, separator, end = (part.strip() for part in window.partition(".."))
    if not separator:
        raise InputError(
            f"must be FROM..TO, such as 10d..40d, 30d.. or 2024-05-01..2024-06-01, got {window!r}",
            argument="window",
        )
    low = _parse_window_time(trace, start) if start else -np.inf
    high = _parse_window_time(trace, end) if end else np.inf
    if low >= high:
        raise InputError(f"must start before it ends, got {window!r}", argument="window")
    is_inside = (low <= trace.submit_times) & (trace.submit_times < high)
    return trace.select(is_inside, "were not in the window")


def _parse_window_time(trace: Trace, text: str) -> float:
    """Convert a date, or a duration since the start of the trace, to a time in the trace."""
    try:
        if "-" not in text:
            return parse_duration(text)
        date = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"must have times such as 10d (units: s, m, h, d, w) or dates such as 2024-05-01, "
            f"got {text!r}",
            argument="window",
        ) from None
    if trace.start_date is None:
        raise InputError(
            f"cannot have dates, got {text!r}: {trace.source} does not say when it starts",
            argument="window",
        )
    start = trace.start_date if trace.start_date.tzinfo else trace.start_date.replace(tzinfo=UTC)
    date = date if date.tzinfo else date.replace(tzinfo=start.tzinfo)
    return (date - start).total_seconds()
