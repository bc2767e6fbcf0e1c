"""Which jobs of a trace are malleable: all, a fraction, or those that meet a condition.

Jobs or users are put into a random order, and the first ones are malleable. So a larger fraction
contains the jobs of a smaller one, and both can be compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import InputError
from hesrpt.traces import Trace
from hesrpt.whatif.job_conditions import JobCondition, parse_condition, refuse

#: What a fraction can be a fraction of.
COUNTED = ("jobs", "users", "server-hours")
_FRACTION = re.compile(r"(\d+\.?\d*|\.\d+)(%?)(?:\s+of\s+([a-z-]+))?")


@dataclass(frozen=True)
class Malleability:
    """Which jobs are malleable: a random fraction, or those that meet a condition."""

    fraction: float = 1.0
    counted: str = "jobs"  # one of COUNTED
    condition: JobCondition | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise InputError(
                f"must be a fraction between 0 and 1, got {self.fraction:g}", argument="malleable"
            )
        if self.counted not in COUNTED:
            raise InputError(
                f"must be a fraction of {', '.join(COUNTED[:-1])} or {COUNTED[-1]}, "
                f"got {self.counted!r}",
                argument="malleable",
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of the trace, other than the usual ones, that must be read."""
        return () if self.condition is None else self.condition.labels

    @property
    def is_everything(self) -> bool:
        """Whether all jobs are malleable."""
        return self.condition is None and self.fraction == 1

    def select(self, trace: Trace, seed: int) -> BoolArray:
        """Return which jobs are malleable."""
        if self.condition is not None:
            return self.condition.test(trace)
        rng = np.random.default_rng(seed)
        if self.counted != "users":
            order = rng.permutation(len(trace))
            amounts = np.ones(len(trace)) if self.counted == "jobs" else _server_hours(trace)
            chosen = order[: _count_first(amounts[order], self.fraction)]
            is_malleable = np.zeros(len(trace), dtype=np.bool_)
            is_malleable[chosen] = True
            return is_malleable
        if "user" not in trace.labels:
            raise InputError(
                f"cannot be a fraction of users: {trace.source} does not say whose jobs they are",
                argument="malleable",
            )
        users, user_of_job = np.unique(trace.labels["user"], return_inverse=True)
        order = rng.permutation(len(users))
        chosen = order[: _count_first(np.ones(len(users)), self.fraction)]
        return np.isin(user_of_job, chosen)

    def describe(self) -> str:
        """Return which jobs are malleable, as the subject of a sentence."""
        if self.condition is not None:
            return f"the jobs with {self.condition.text}"
        if self.is_everything:
            return "all jobs"
        what = {"jobs": "the jobs", "users": "the users", "server-hours": "the server-hours"}
        return f"{self.fraction:.3g} of {what[self.counted]}, drawn at random"


def parse_malleability(value: float | str | Malleability | None) -> Malleability:
    """Return which jobs are malleable: None for all, a fraction, or a text.

    >>> parse_malleability("0.3").fraction, parse_malleability("30% of users").counted
    (0.3, 'users')
    >>> parse_malleability("servers >= 8").condition.text
    'servers >= 8'
    """
    if value is None:
        return Malleability()
    if isinstance(value, Malleability):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        refuse(str(value))
    if not isinstance(value, str):
        return Malleability(float(value))
    match = _FRACTION.fullmatch(value.strip().lower())
    if match is None:
        return Malleability(condition=parse_condition(value))
    fraction = float(match[1]) / (100 if match[2] else 1)
    return Malleability(fraction, match[3] or "jobs")


def measure_parts(trace: Trace, is_malleable: BoolArray) -> tuple[float, float]:
    """Return the malleable part of the jobs, and of the server-hours."""
    hours = _server_hours(trace)
    return float(is_malleable.mean()), float(hours[is_malleable].sum() / hours.sum())


def describe_malleable_jobs(
    trace: Trace, malleability: Malleability, is_malleable: BoolArray, seed: int
) -> list[str]:
    """Return sentences on which jobs are malleable, and what happens to the others."""
    if malleability.is_everything:
        return []
    jobs, hours = measure_parts(trace, is_malleable)
    seeded = f" (seed {seed})" if malleability.condition is None else ""
    return [
        f"malleable or moldable: {malleability.describe()}{seeded}; these are "
        f"{int(is_malleable.sum()):,} of {len(trace):,} jobs ({jobs:.0%}), with {hours:.0%} of the "
        "server-hours",
        "the others stay rigid under EASY, which treats them as if they were alone: malleable jobs "
        "give back at once whatever a rigid job needs",
    ]


def _server_hours(trace: Trace) -> FloatArray:
    return trace.servers * trace.runtimes / 3600


def _count_first(amounts: FloatArray, fraction: float) -> int:
    """Return how many amounts, from the first on, have the sum nearest to a fraction of all."""
    sums = np.concatenate(([0.0], np.cumsum(amounts)))
    return int(np.argmin(np.abs(sums - fraction * sums[-1])))
