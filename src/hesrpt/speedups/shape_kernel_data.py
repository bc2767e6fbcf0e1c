"""Speedups as arrays for compiled code: a record for each, and the corners of all tables."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from hesrpt.arrays import FloatArray, IntArray

#: Families of speedups: k^p, Amdahl's law, and tables.
POWER, AMDAHL, TABLE = range(3)


class Shape(Protocol):
    """A speedup up to a number of servers, a record of an array: a formula, or a table.

    From 0 to ``low`` servers a formula is linear with slope 1, and from ``high`` on it is flat. On
    whole servers it is linear between whole numbers. A table never needs any of this: it has
    corners where its slope changes, the first of them at 0, and is flat past the last.
    """

    family: int
    is_whole: int  # 1 for a formula on whole servers
    parameter: float  # p of a power law, f of Amdahl's law
    log_parameter: float
    low: float  # 0, or 1 if servers are shared in time
    high: float
    high_rate: float
    usable: float  # the most servers that speed the job up
    first_corner: int
    last_corner: int


class Corners(NamedTuple):
    """The corners of all tables, one table after the other."""

    at: FloatArray
    height: FloatArray
    slope: FloatArray  # from each corner to the next; 0 after the last


class Shapes(NamedTuple):
    """The speedups of a list of jobs on a number of servers, for compiled code."""

    records: Any  # an array with a :class:`Shape` for each distinct speedup
    corners: Corners
    of_job: IntArray  # the number of each job's speedup in that array
