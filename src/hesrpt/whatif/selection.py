"""Which part of a log to look at, and with how much load."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from hesrpt.errors import InputError
from hesrpt.traces import Log
from hesrpt.units import parse_duration
from hesrpt.validation import check_at_least, check_between


def selected(
    log: Log,
    servers: int,
    *,
    window: str | None = None,
    min_runtime: float = 0.0,
    load: float | None = None,
    strict: bool = False,
) -> Log:
    """Return the part of a log that is to be looked at, on a machine with so many servers."""
    if window is not None:
        log = _within(log, window)
    check_at_least("min_runtime", min_runtime, 0)
    if min_runtime > 0:
        log = log.select(log.runtime >= min_runtime, f"ran for less than {min_runtime:g} s")
    fits = log.servers <= servers
    if strict and not fits.all():
        job = int(np.argmin(fits))
        raise InputError(
            f"{log.place}: job {log.names[job]} asked for {log.servers[job]:g} servers, and there "
            f"are {servers}"
        )
    log = log.select(fits, f"asked for more than {servers} servers")
    log = replace(log, submit=log.submit - log.submit[0], start=log.start - log.submit[0])
    if load is not None:
        check_between("load", load, 0.001, 100)
        stretch = offered_load(log, servers) / load
        if not 0 < stretch < np.inf:
            raise InputError("load: all jobs were submitted at once, so that there is no load")
        # Waiting times of another load are not those of the log.
        unknown = np.full(len(log), np.nan)
        log = replace(log, submit=log.submit * stretch, start=unknown)
    return log


def offered_load(log: Log, servers: int) -> float:
    """Return the server-seconds that were submitted, for each that there was."""
    span = float(log.submit[-1] - log.submit[0])
    return float(log.servers @ log.runtime) / (servers * span) if span > 0 else np.inf


def _within(log: Log, window: str) -> Log:
    """Return the jobs submitted in a window: from..to, each like 10d or 2024-05-01, or nothing."""
    first, found, last = (part.strip() for part in window.partition(".."))
    if not found:
        raise InputError(
            f"window {window!r}: FROM..TO is wanted, as in 10d..40d, 30d.. or "
            "2024-05-01..2024-06-01"
        )
    low = _moment(log, first, window) if first else -np.inf
    high = _moment(log, last, window) if last else np.inf
    if low >= high:
        raise InputError(f"window {window!r}: ends before it begins")
    return log.select((low <= log.submit) & (log.submit < high), "were not in the window")


def _moment(log: Log, text: str, window: str) -> float:
    """Return a time of the log's clock: after so long, or at a date."""
    try:
        if "-" not in text:
            return parse_duration(text)
        date = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"window {window!r}: {text!r} is neither like 10d (s, m, h, d, w) nor a date"
        ) from None
    if log.began is None:
        raise InputError(f"window {window!r}: the log does not say at what date it began")
    began = log.began if log.began.tzinfo else log.began.replace(tzinfo=UTC)
    date = date if date.tzinfo else date.replace(tzinfo=began.tzinfo)
    return (date - began).total_seconds()
