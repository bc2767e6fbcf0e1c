"""The options of a study, and the jobs of a trace to study, with sizes, speedups and limits.

A job that ran for r seconds on q servers has size r·s(q), where s is its speedup without any limit.
So its size does not depend on how many servers a study allows it, and a limit below q makes it
slower than it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.speedups import SpeedupVector
from hesrpt.traces import Trace
from hesrpt.units import format_count, parse_duration
from hesrpt.validation import (
    check_at_least,
    check_between,
    check_choice,
    check_flag,
    check_whole_number,
)
from hesrpt.whatif.assumptions import Assumption, ServerLimit, assume_recorded, assume_speedup
from hesrpt.whatif.malleability import Malleability, parse_malleability
from hesrpt.workload import Workload

#: The policies of a study by default.
DEFAULT_POLICIES = (
    *("fcfs", "easy", "moldable"),  # never resize jobs
    *("equi", "srpt", "adaptive", "hesrpt", "hesrpt-slowdown", "optimal"),
)
#: What malleable policies know of sizes.
SIZES = ("exact", "estimates")


Given = TypeVar("Given")
Value = TypeVar("Value")


class _Parsed(Generic[Given, Value]):
    """A field of a dataclass that is parsed when the object is created."""

    def __init__(self, parse: Callable[[Given | None], Value]) -> None:
        self._parse = parse

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object | None, owner: type) -> Value:
        """Return the value, or the default of the field."""
        return self._parse(None) if instance is None else instance.__dict__[self._name]

    def __set__(self, instance: object, given: Given | None) -> None:
        instance.__dict__[self._name] = self._parse(given)


def _parse_assumption(given: Assumption | float | str | None) -> Assumption | None:
    return given if given is None or isinstance(given, Assumption) else assume_speedup(given)


def _parse_policies(given: Sequence[str] | None) -> tuple[str, ...]:
    policies = DEFAULT_POLICIES if given is None else tuple(given)
    if not policies:
        raise InputError("must name at least one policy", argument="policies")
    return policies


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """How the jobs of a trace are replayed.

    Parameters
    ----------
    servers
        The servers of the machine; by default, the number that the trace states.
    assumption
        How jobs speed up: the p of k^p, or an assumption from :func:`assume_speedup`. By default,
        as the trace records it, or else k^0.7.
    policies
        Names of policies. The rigid ones, "fcfs" and "easy", give jobs the servers they asked for.
        With "moldable", jobs choose their servers once, when they start.
        By default all of :data:`DEFAULT_POLICIES`.
    malleable
        Which jobs are malleable, or moldable: a fraction such as 0.3 of the jobs, "0.3 of users" or
        "0.3 of server-hours", drawn at random with the seed; or a condition such as
        "servers >= 8 and user != 'ann'", or a column that says true or false. The others stay rigid
        under EASY (:mod:`hesrpt.simulator.backfilling`). By default, all jobs are malleable.
    window
        Study only the jobs submitted in this part of the trace, such as "10d..40d".
    min_runtime
        Drop jobs that ran for fewer seconds.
    load
        Stretch the submission times so that users ask for this fraction of all server-seconds.
    strict
        Raise an error if a job asked for more servers than there are, instead of dropping it.
    bound
        Also bound the mean flow time of all schedules (:func:`hesrpt.lower_bound`): takes long.
    resize_cost, size_error, seed
        As for :func:`hesrpt.simulate`.
    sizes
        What malleable policies know of sizes: "exact", or "estimates" for sizes that follow from
        the users' estimates of run times. What fraction of a job is done counts as known.
    other_limits
        Whether to replay EQUI and adaptive under other limits too, to see what the result owes to
        servers beyond those that jobs asked for.

    >>> StudyOptions(malleable="0.3 of users").malleable.counted
    'users'
    """

    servers: int | None = None
    assumption: _Parsed[Assumption | float | str, Assumption | None] = _Parsed(_parse_assumption)
    policies: _Parsed[Sequence[str], tuple[str, ...]] = _Parsed(_parse_policies)
    malleable: _Parsed[Malleability | float | str, Malleability] = _Parsed(parse_malleability)
    window: str | None = None
    min_runtime: float = 0.0
    load: float | None = None
    strict: bool = False
    bound: bool = False
    resize_cost: float = 0.0
    size_error: float = 0.0
    sizes: str = "exact"
    other_limits: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.servers is not None:
            check_whole_number("servers", self.servers, 1)
        if self.load is not None:
            check_between("load", self.load, 0.001, 100)
        check_at_least("min_runtime", self.min_runtime, 0)
        check_choice("sizes", self.sizes, SIZES)
        check_flag("bound", self.bound)

    def find_servers(self, trace: Trace) -> int:
        """Return the servers of the machine."""
        servers = trace.machine_servers if self.servers is None else int(self.servers)
        if servers is None:
            raise InputError(
                f"must be given: {trace.source} does not say how many servers the machine has",
                argument="servers",
            )
        return servers

    def find_assumption(self, trace: Trace) -> Assumption:
        """Return how jobs of this trace speed up."""
        if self.assumption is not None:
            return self.assumption
        return assume_recorded(trace) if trace.speedups else assume_speedup(0.7)

    def as_json(self) -> dict[str, Any]:
        """Return the options as JSON values, with assumptions in words."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {
            "assumption": None if self.assumption is None else self.assumption.text,
            "policies": list(self.policies),
            "malleable": self.malleable.describe(),
        }


DEFAULT_OPTIONS = StudyOptions()


def select_jobs(trace: Trace, options: StudyOptions) -> Trace:
    """Return the part of a trace to study."""
    servers = options.find_servers(trace)
    if options.window is not None:
        trace = _select_window(trace, options.window)
    if (least := options.min_runtime) > 0:
        trace = trace.select(trace.runtimes >= least, f"ran for less than {least:g} s")
    if trace.speedups:  # these say how long a job takes on fewer servers than it asked for
        rate = SpeedupVector.create(trace.speedups).rate
        fewer = np.minimum(trace.servers, servers)
        runtimes = trace.runtimes * rate(trace.servers) / rate(fewer)
        trace = replace(trace, servers=fewer, runtimes=runtimes)
    fits = trace.servers <= servers
    if options.strict and not fits.all():
        job = int(np.argmin(fits))
        raise InputError(
            f"{trace.source}: job {trace.names[job]} asked for "
            f"{format_count(trace.servers[job], 'server')}, but the machine has {servers}"
        )
    trace = trace.select(fits, f"asked for more than {format_count(servers, 'server')}")
    first = float(trace.submit_times[0])
    date = trace.start_date
    trace = replace(
        trace,
        submit_times=trace.submit_times - first,
        start_times=trace.start_times - first,
        start_date=None if date is None else date + timedelta(seconds=first),
    )
    return trace if options.load is None else _scale_load(trace, servers, options.load)


def compute_offered_load(trace: Trace, servers: int) -> float:
    """Return the jobs' server-seconds divided by those available while jobs were submitted."""
    span = float(trace.submit_times[-1] - trace.submit_times[0])
    return float(trace.servers @ trace.runtimes) / (servers * span) if span > 0 else np.inf


def _scale_load(trace: Trace, servers: int, load: float) -> Trace:
    """Stretch the submission times so that the offered load is ``load``."""
    stretch = compute_offered_load(trace, servers) / load
    if not 0 < stretch < np.inf:
        raise InputError("cannot be scaled: all jobs were submitted at once", argument="load")
    # Neither the recorded waits nor the dates apply at another load.
    return replace(
        trace,
        submit_times=trace.submit_times * stretch,
        start_times=np.full(len(trace), np.nan),
        start_date=None,
    )


def _select_window(trace: Trace, window: str) -> Trace:
    """Return the jobs submitted in a window FROM..TO, where FROM or TO may be omitted."""
    start, separator, end = (part.strip() for part in window.partition(".."))
    if not separator:
        raise InputError(
            f"must be FROM..TO, such as 10d..40d, 30d.. or 2024-05-01..2024-06-01, got {window!r}",
            argument="window",
        )
    low = _parse_window_time(trace, start) if start else -np.inf
    high = _parse_window_time(trace, end) if end else np.inf
    if low >= high:
        raise InputError(f"must start before it ends, got {window!r}", argument="window")
    is_inside = (low <= trace.submit_times) & (trace.submit_times < high)
    return trace.select(is_inside, "were not in the window")


def _parse_window_time(trace: Trace, text: str) -> float:
    """Convert a date, or a duration since the start of the trace, to a time in the trace."""
    try:
        if "-" not in text:
            return parse_duration(text)
        date = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"must have times such as 10d (units: s, m, h, d, w) or dates such as 2024-05-01, "
            f"got {text!r}",
            argument="window",
        ) from None
    if trace.start_date is None:
        raise InputError(
            f"cannot have dates, got {text!r}: {trace.source} does not say when it starts",
            argument="window",
        )
    start = trace.start_date if trace.start_date.tzinfo else trace.start_date.replace(tzinfo=UTC)
    date = date if date.tzinfo else date.replace(tzinfo=start.tzinfo)
    return (date - start).total_seconds()


@dataclass(frozen=True, eq=False)
class StudyJobs:
    """The jobs of a trace, and what a study assumes about each."""

    trace: Trace
    machine: int
    assumption: Assumption
    seed: int  # decides which speedup each job has
    is_malleable: BoolArray  # the others are rigid

    @cached_property
    def drawn(self) -> IntArray:
        """The number of each job's speedup among those of the assumption."""
        return self.assumption.draw(self.trace, self.seed)

    @cached_property
    def _unlimited(self) -> SpeedupVector:
        jobs = len(self.trace)
        speedups = self.assumption.list_speedups(self.drawn, np.full(jobs, np.inf), np.inf)
        return Workload(np.ones(jobs), speedups).speedups

    @property
    def limits(self) -> FloatArray:
        """The most servers that each job gets."""
        return self.assumption.limit.compute(self.trace, float(self.machine))

    def build_rigid(self) -> Workload:
        """Return the jobs for disciplines that give all of them what they asked for."""
        return self._build(np.full(len(self.trace), np.inf))

    def build_malleable(self, limit: ServerLimit | None = None) -> Workload:
        """Return the jobs for malleable policies, with the limit of the study or another one."""
        limits = (limit or self.assumption.limit).compute(self.trace, float(self.machine))
        # Rigid jobs run on what they asked for.
        limits = np.where(self.is_malleable, limits, np.maximum(limits, self.trace.servers))
        return self._build(limits, rigid=~self.is_malleable)

    def build_least_limited(self) -> Workload:
        """Return jobs that can use all that any schedule of the study gives them."""
        return self._build(np.maximum(self.limits, self.trace.servers))

    def _build(self, limits: FloatArray, rigid: BoolArray | None = None) -> Workload:
        trace, rate = self.trace, self._unlimited.rate
        # A job that cannot use all it asked for would have taken longer, and so would its user
        # have estimated.
        slower = rate(trace.servers) / rate(np.minimum(limits, trace.servers))
        has_estimate = np.isfinite(trace.estimates)
        return Workload(
            trace.runtimes * rate(trace.servers),
            self.assumption.list_speedups(self.drawn, limits, float(self.machine)),
            arrivals=trace.submit_times,
            names=trace.names,
            requested=trace.servers,
            estimates=np.where(has_estimate, trace.estimates, trace.runtimes) * slower,
            rigid=rigid,
        )
