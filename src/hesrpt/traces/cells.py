"""Parsing the cells of a table's columns: numbers, durations, times, and Slurm's names of jobs.

All times become seconds. NaN stands for a missing value, infinity for one that cannot be parsed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

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


_ID = re.compile(r"(\d+)(?:_(\d+|\[[^\]]*\]?))?(?:\+(\d+))?(\..+)?", re.ASCII)
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_MAX_TASKS = 4_000_001  # the longest array that Slurm accepts


class SlurmId(NamedTuple):
    """What a JobID of sacct stands for."""

    job: str  # without the component and the step
    is_component: bool = False  # of a heterogeneous job
    is_step: bool = False
    tasks: int = 1  # more than one for the tasks of an array that have not started


def parse_id(text: str) -> SlurmId | None:
    """Return what an id stands for, or None if it is not one of Slurm's.

    >>> parse_id("123_4.batch")
    SlurmId(job='123_4', is_component=False, is_step=True, tasks=1)
    >>> parse_id("123+1")
    SlurmId(job='123', is_component=True, is_step=False, tasks=1)
    >>> parse_id("123_[1-5,9%2]").tasks  # at most two of them at a time
    6
    """
    text = text.strip()
    match = _ID.fullmatch(text)
    if match is None:
        return None
    number, task, component, step = match.groups()
    job = number if task is None else f"{number}_{task}"
    tasks = count_tasks(task.strip("[]")) if task and task[0] == "[" else 1
    return SlurmId(job, component is not None, step is not None, tasks)


def count_tasks(ranges: str) -> int:
    """Return the number of tasks in a list of ranges; 1 if it cannot be understood.

    >>> count_tasks("1-5"), count_tasks("0-10:5,12"), count_tasks("1,3,...")
    (5, 4, 1)
    """
    total = 0
    for part in ranges.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or len(part) > 30:
            return 1
        first = int(match[1])
        last, step = int(match[2] or first), int(match[3] or 1)
        if last < first or step < 1:
            return 1
        total += (last - first) // step + 1
    return total if total <= _MAX_TASKS else 1
