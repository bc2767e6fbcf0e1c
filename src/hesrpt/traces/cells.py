"""Parsing the cells of a table's columns: numbers, durations, and times.

All times become seconds. NaN stands for a missing value, infinity for one that cannot be parsed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hesrpt.arrays import FloatArray
from hesrpt.units import parse_duration


class TimeKind(IntEnum):
    """How a time is written."""

    NUMBER = 0
    LOCAL_DATE = 1  # without a time zone
    ZONED_DATE = 2


_MISSING = {"", "-", "--", "na", "n/a", "nan", "none", "null", "unknown"} | {
    "partition_limit",  # Slurm prints this for a job without its own limit
    "unlimited",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)


def parse_numbers(cells: Sequence[str]) -> FloatArray:
    """Return the numbers in a column.

    >>> parse_numbers(["4", "0.5", "N/A", "many"])
    array([4. , 0.5, nan, inf])
    """
    return _parse_column(cells, _parse_missing)


def parse_durations(cells: Sequence[str]) -> FloatArray:
    """Return the seconds in a column of durations (see :func:`hesrpt.units.parse_duration`).

    >>> parse_durations(["90", "01:30", "1-00:00:00.5", "UNLIMITED", "soon"])
    array([   90. ,    90. , 86400.5,     nan,     inf])
    """
    return _parse_column(cells, _parse_duration)


def parse_times(cells: Sequence[str]) -> tuple[FloatArray, NDArray[np.uint8]]:
    """Return the seconds in a column of numbers or dates, and the :class:`TimeKind` of each.

    >>> parse_times(["12", "1970-01-01T00:01:00", "1970-01-01 01:00:00+01:00"])
    (array([12., 60.,  0.]), array([0, 1, 2], dtype=uint8))
    """
    try:
        return _parse_floats(cells), np.zeros(len(cells), np.uint8)
    except ValueError:
        times, kinds = zip(*map(_parse_time, cells), strict=True)
        return np.array(times), np.array(kinds, np.uint8)


def convert_to_date(seconds: float, is_zoned: bool) -> datetime | None:
    """Return the date at this many seconds since 1970, or None if it is out of range."""
    try:
        return (_EPOCH if is_zoned else _LOCAL_EPOCH) + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _parse_floats(cells: Sequence[str]) -> FloatArray:
    return np.array(list(map(float, cells)))


def _parse_column(cells: Sequence[str], fallback: Callable[[str], float]) -> FloatArray:
    try:
        return _parse_floats(cells)  # fast, and enough for most columns
    except ValueError:
        known = {cell: _parse_cell(cell, fallback) for cell in set(cells)}  # many are the same
        return np.array([known[cell] for cell in cells])


def _parse_cell(cell: str, fallback: Callable[[str], float]) -> float:
    try:
        return float(cell)
    except ValueError:
        return fallback(cell.strip())


def _parse_missing(text: str) -> float:
    """Return NaN for a text that marks a missing value, and infinity for any other text."""
    return math.nan if text.lower() in _MISSING else math.inf


def _parse_duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        return _parse_missing(text)


def _parse_time(cell: str) -> tuple[float, TimeKind]:
    text = cell.strip()
    if text[4:5] == "-":
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            return math.inf, TimeKind.NUMBER
        if date.tzinfo is None:
            return (date - _LOCAL_EPOCH).total_seconds(), TimeKind.LOCAL_DATE
        return (date - _EPOCH).total_seconds(), TimeKind.ZONED_DATE
    return _parse_cell(text, _parse_duration), TimeKind.NUMBER
