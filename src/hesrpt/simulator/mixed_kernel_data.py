"""The data of the compiled event loop for jobs that differ."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.simulator.calibration_kernel_data import CalibrationData
from hesrpt.speedups.shape_kernel_data import Shapes

#: Kinds of rules, as in :class:`hesrpt.policies.RuleKind`.
EQUAL, FIRST_COME, SMALLEST_FIRST, CLOSED_FORM, PRICE, VALUE = range(6)


class RuleSettings(Protocol):
    """The rule of the policy (:class:`hesrpt.policies.Rule`), and the system that it shares."""

    kind: int
    is_whole: bool
    is_calibrated: bool  # whether the focus follows from a calibration
    shares_speedup: bool  # whether all jobs have the same speedup
    max_valued: int  # with more jobs than this, values take too long
    exponent: float  # of the closed form
    focus: float  # of the closed form or the price, if it is not calibrated
    servers: float
    max_slope: float  # of the speedup that all jobs share
    close: float  # how exact values are: see :mod:`hesrpt.optimal.recursion`
    exact: float


class MixedJobs(NamedTuple):
    """What rules know of each job, and what they decide."""

    usable: FloatArray  # servers that speed it up
    weight: FloatArray
    gain: FloatArray  # p/(1 − p) of the power law closest to its speedup
    fastest: FloatArray  # its rate on all servers
    arrival_rank: IntArray  # its place in the order of arrivals
    key: FloatArray  # by which jobs are ordered
    held: FloatArray  # the servers that the rule decides on
    order: IntArray  # the jobs in the system, from the first expected to end to the last
    planned: IntArray  # the same, as the planner expects it


class Workspace(NamedTuple):
    """Arrays for intermediate results, with an entry for each job or each place of a list."""

    keys: FloatArray
    sums: FloatArray
    entries: IntArray
    scratch: IntArray


class PriceSearch(NamedTuple):
    """The search for the price of a server, with an entry for each place of a list of jobs."""

    last: FloatArray  # the price that was found last, and Σ w p/(1 − p) of the jobs at that time
    relative: FloatArray  # the price when the job is expected to end, relative to the price now
    below: FloatArray  # demand at a price that is too low …
    above: FloatArray  # … at one that is too high …
    tried: FloatArray  # … and at the one that is tried
    undecided: IntArray  # the places where the first two differ


class Values(NamedTuple):
    """The values of the jobs in the system, from the last to end to the first."""

    line: FloatArray  # see :mod:`hesrpt.optimal.response_kernel`
    listed: IntArray  # the jobs whose values the line has …
    known: IntArray  # … and how many: one entry
    price_by_weight: FloatArray  # of each job, when it was listed last; 0 at first
    held: FloatArray
    rates: FloatArray


class Decisions(NamedTuple):
    """All that decisions need apart from the state of the loop."""

    jobs: MixedJobs
    shapes: Shapes
    deciding: Shapes  # the same speedups, but on whole servers if only those are assigned
    work: Workspace
    search: PriceSearch
    values: Values
    calibration: CalibrationData
    rule: Any  # an array with one record: see :class:`RuleSettings`
