"""The arrays that the compiled search for the cheapest way to serve each job works on."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hesrpt.arrays import FloatArray, IntArray

#: Families of speedups: k^p, Amdahl's law, and tables.
POWER, AMDAHL, TABLE = range(3)
#: The most local minima that are kept for a job.
MAX_MINIMA = 12


class Kind(Protocol):
    """A kind of jobs, which have the same speedup and the same weight: a record of an array."""

    family: int
    parameter: float  # p of a power law, f of Amdahl's law
    log_parameter: float
    low: float  # a formula is linear up to this number of servers, which is 0 or 1 …
    high: float  # … and flat from this one on
    high_rate: float
    weight: float
    first_corner: int  # of a table
    last_corner: int
    first_job: int  # jobs are sorted by kind, those of one kind by arrival
    end_job: int


class Corners(NamedTuple):
    """The corners of all tables, one table after the other."""

    at: FloatArray
    height: FloatArray


class Minima(NamedTuple):
    """The local minima of each job's cost over the time at which it ends."""

    found: IntArray  # how many
    cost: FloatArray
    interval: IntArray  # in which, or at the start of which, the job ends
    value: FloatArray  # ψ
    is_corner: IntArray  # whether the job ends at the start of the interval
