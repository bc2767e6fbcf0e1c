"""What is written in the cells of tables: counts, stretches of time, and dates.

Everything becomes seconds. What a log does not say is NaN, what cannot be understood is infinite.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from hesrpt.arrays import FloatArray

NUMBER, LOCAL_DATE, DATE = 0, 1, 2  # kinds of moments; only a DATE was written with its time zone

_UNKNOWN = {"", "-", "--", "na", "n/a", "nan", "none", "null", "unknown"} | {
    "partition_limit",  # as Slurm calls the limit of a job that has none of its own
    "unlimited",
}
_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+(?::[0-9]+){0,2}(?:\.[0-9]*)?)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)


def counts(cells: Sequence[str]) -> FloatArray:
    """Return what is written in a column of plain numbers.

    >>> counts(["4", "0.5", "N/A", "many"])
    array([4. , 0.5, nan, inf])
    """
    return _column(cells, _unread)


def durations(cells: Sequence[str]) -> FloatArray:
    """Return the seconds in a column of numbers and ``[D-]HH:MM:SS``, or ``MM:SS``.

    >>> durations(["90", "01:30", "1-00:00:00.5", "UNLIMITED", "soon"])
    array([   90. ,    90. , 86400.5,     nan,     inf])
    """
    return _column(cells, _clock)


def moments(cells: Sequence[str]) -> tuple[FloatArray, NDArray[np.uint8]]:
    """Return the seconds in a column of numbers or dates, and of which kind each of them is.

    >>> moments(["12", "1970-01-01T00:01:00", "1970-01-01 01:00:00+01:00"])
    (array([12., 60.,  0.]), array([0, 1, 2], dtype=uint8))
    """
    try:
        return _all_numbers(cells), np.zeros(len(cells), np.uint8)
    except ValueError:
        found = [_moment(cell) for cell in cells]
        return np.array([time for time, _ in found]), np.array([kind for _, kind in found], "u1")


def date(seconds: float, zoned: bool) -> datetime | None:
    """Return the date so many seconds after the year 1970 began, if there is one."""
    try:
        return (_EPOCH if zoned else _LOCAL_EPOCH) + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _all_numbers(cells: Sequence[str]) -> FloatArray:
    return np.array(list(map(float, cells)))


def _column(cells: Sequence[str], otherwise: Callable[[str], float]) -> FloatArray:
    try:
        return _all_numbers(cells)  # by far the most columns, and quickly
    except ValueError:
        return np.array([_number(cell, otherwise) for cell in cells])


def _number(cell: str, otherwise: Callable[[str], float]) -> float:
    try:
        return float(cell)
    except ValueError:
        return otherwise(cell.strip())


def _unread(text: str) -> float:
    return math.nan if text.lower() in _UNKNOWN else math.inf


def _clock(text: str) -> float:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return _unread(text)
    days, clock = match.groups()
    parts = [float(part) for part in clock.split(":")]
    left_out = [0.0] * (3 - len(parts))
    # After days come hours; without them, seconds come last.
    hours, minutes, seconds = left_out + parts if days is None else parts + left_out
    return float(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def _moment(cell: str) -> tuple[float, int]:
    text = cell.strip()
    if text[4:5] == "-":
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            return math.inf, NUMBER
        if found.tzinfo is None:
            return (found - _LOCAL_EPOCH).total_seconds(), LOCAL_DATE
        return (found - _EPOCH).total_seconds(), DATE
    return _number(text, _clock), NUMBER


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(18360), duration(42.3), duration(400000), duration(0.25)
    ('5.1 h', '42 s', '4.6 d', '0.25 s')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 3 * 86400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"


def plain_number(value: float) -> str:
    """Return a number without units.

    >>> plain_number(0.3536), plain_number(27.84), plain_number(1543.2)
    ('0.354', '27.8', '1,543')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
