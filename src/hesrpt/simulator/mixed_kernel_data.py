"""The data of the compiled event loop for jobs that differ."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hesrpt.arrays import FloatArray, IntArray

#: Kinds of rules, as in :class:`hesrpt.policies.RuleKind`.
EQUAL, FIRST_COME, SMALLEST_FIRST, CLOSED_FORM, PRICE, VALUE = range(6)


class RuleSettings(Protocol):
    """The rule of the policy (:class:`hesrpt.policies.Rule`), and the system that it shares."""

    kind: int
    is_whole: bool
    exponent: float  # of the closed form
    servers: float


class MixedJobs(NamedTuple):
    """What rules know of each job, and what they decide."""

    usable: FloatArray  # servers that speed it up
    weight: FloatArray
    arrival_rank: IntArray  # its place in the order of arrivals
    key: FloatArray  # by which jobs are ordered
    held: FloatArray  # the servers that the rule decides on
    order: IntArray  # the jobs in the system, from the first expected to end to the last


class Workspace(NamedTuple):
    """Arrays for intermediate results, with an entry for each job or each place of a list."""

    keys: FloatArray
    sums: FloatArray
    entries: IntArray
    scratch: IntArray
