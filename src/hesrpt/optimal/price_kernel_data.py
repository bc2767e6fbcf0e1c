"""The arrays that the compiled search for the cheapest way to serve each job works on."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hesrpt.arrays import FloatArray, IntArray

#: The most local minima that are kept for a job.
MAX_MINIMA = 12


class Kind(Protocol):
    """A kind of jobs, which have the same speedup and the same weight: a record of an array."""

    speedup: int  # the number of its speedup
    weight: float
    first_job: int  # jobs are sorted by kind, those of one kind by arrival
    end_job: int


class Minima(NamedTuple):
    """The local minima of each job's cost over the time at which it ends."""

    found: IntArray  # how many
    cost: FloatArray
    interval: IntArray  # in which, or at the start of which, the job ends
    value: FloatArray  # ψ
    is_corner: IntArray  # whether the job ends at the start of the interval
