"""Assumptions about how jobs speed up, which few traces record, and how many servers they get.

A measured curve says nothing about fewer servers than it was measured on, nor about more. Jobs of a
trace may have run on either, so a study extends curves by power laws, and says how much of the
trace depends on it.

- Beyond the last point, a curve that still rises continues as a power law from that point. Its
  exponent is the fitted p, or the exponent at the end of the curve if that is less.
- A curve that has passed its peak stays flat: more servers were measured not to help.
- Below the first point, the curve is a power law through that point, whose exponent is the fitted
  p, or the exponent at the start of the curve if that is greater. If no power law can be fitted,
  the curve is refused.

So the whole is concave, and agrees with the concave hull of the points where these were measured.

A trace shows how long a job ran on the servers that it asked for. The further a study moves from
that number, the more of the result is assumption: if p is wrong by 0.2, a job on 4 times its
servers is wrong by 4^0.2, a third; on 1,000 times, by a factor of 4. So by default no job gets more
than 4 times what it asked for, nor more than the largest request in the trace.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import FitError, FitWarning, InputError
from hesrpt.readers import Curve, read_curves
from hesrpt.speedups import Measured, PowerLaw, Speedup, fit_power_law
from hesrpt.speedups.measured import concave_hull
from hesrpt.traces import Trace
from hesrpt.units import format_count
from hesrpt.validation import is_number

# A distribution of p is represented by this many equally likely values, because simulating jobs
# with the same p together is faster.
_VALUES_OF_P = 16
_NUMBER = r"\s*(\d+\.?\d*|\.\d+)\s*"
_DISTRIBUTION = re.compile(rf"(uniform|normal)\({_NUMBER},{_NUMBER}\)")

_FACTOR = re.compile(r"(\d+\.?\d*|\.\d+)\s*x")
_OWN_FACTOR = re.compile(r"(\d+\.?\d*|\.\d+)\s*x?", re.ASCII)
_COLUMN = re.compile(r"per-job\s*=\s*(\S.*)", re.IGNORECASE)
_SERVERS = re.compile(r"\d+\.?\d*|\.\d+")


@dataclass(frozen=True)
class ServerLimit:
    """The least of up to four limits on the servers of each job; without any, all servers."""

    servers: float | None = None  # the same number for all jobs
    factor: float | None = None  # times what the job asked for
    largest: bool = False  # the largest request of any job
    column: str | None = None  # of the trace, with each job's own factor

    def __post_init__(self) -> None:
        if self.servers is not None and not 1 <= self.servers < np.inf:
            raise InputError(f"must be at least 1, got {self.servers:g}", argument="max_servers")
        if self.factor is not None and not 0 < self.factor < np.inf:
            raise InputError(
                f"must be a multiple greater than 0, got {self.factor:g}x", argument="max_servers"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that must be read as labels."""
        return () if self.column is None else (self.column,)

    def compute(self, trace: Trace, machine: float) -> FloatArray:
        """Return the limit of each job of a trace: whole numbers of at least 1."""
        limits = np.full(len(trace), machine)
        if self.servers is not None:
            limits = np.minimum(limits, self.servers)
        if self.factor is not None:
            limits = np.minimum(limits, self.factor * trace.servers)
        if self.column is not None:
            limits = np.minimum(limits, _read_factors(trace, self.column) * trace.servers)
        if self.largest:
            limits = np.minimum(limits, trace.servers.max())
        whole: FloatArray = np.maximum(np.floor(limits), 1.0)
        return whole

    @property
    def text(self) -> str:
        """The limit in words, such as "on at most 32 servers"; empty if there is none."""
        parts = []
        if self.servers is not None:
            parts.append(format_count(self.servers, "server"))
        if self.factor == 1:
            parts.append("what the job asked for")
        elif self.factor is not None:
            parts.append(f"{self.factor:g} times what the job asked for")
        if self.column is not None:
            parts.append(f"the multiple of what the job asked for in column {self.column!r}")
        if self.largest:
            parts.append("the largest request of any job")
        return f"on at most {' and '.join(parts)}" if parts else ""


#: The limit unless another one is given.
DEFAULT_LIMIT = ServerLimit(factor=4.0, largest=True)
_DEFAULT_FACTOR = f"{DEFAULT_LIMIT.factor:g}x"


def parse_limit(limit: float | str | ServerLimit | None) -> ServerLimit:
    """Return a limit from a number, or from a text such as "32", "4x", "largest" or "none".

    "per-job=COLUMN" names a column of the trace with a multiple for each job. Several limits,
    separated by commas, apply together. None stands for the default.

    >>> parse_limit("4x,largest") == parse_limit(None) == DEFAULT_LIMIT
    True
    >>> parse_limit("none").text
    ''
    """
    if limit is None:
        return DEFAULT_LIMIT
    if isinstance(limit, ServerLimit):
        return limit
    if not isinstance(limit, str):
        return ServerLimit(servers=float(limit))
    if limit.strip().lower() == "none":
        return ServerLimit()
    servers, factor, column, largest = None, None, None, False
    for text in limit.split(","):
        part = text.strip().lower()
        if (own := _COLUMN.fullmatch(text.strip())) and column is None:
            column = own[1]
        elif part == "largest" and not largest:
            largest = True
        elif (match := _FACTOR.fullmatch(part)) and factor is None:
            factor = float(match[1])
        elif _SERVERS.fullmatch(part) and servers is None:
            servers = float(part)
        else:
            raise InputError(
                "must be a number of servers (32), a multiple of what each job asked for (4x), "
                "largest (the largest request), a column of the trace with a multiple for each job "
                "(per-job=COLUMN), several of these with commas between them, or "
                f"none; got {limit!r}",
                argument="max_servers",
            )
    return ServerLimit(servers=servers, factor=factor, largest=largest, column=column)


def _read_factors(trace: Trace, column: str) -> FloatArray:
    """Return each job's own factor; without one, that of the default."""
    if column not in trace.labels:
        raise InputError(
            f"names the column {column!r}, which was not read from {trace.source}: read the trace "
            f"with labels={[column]!r}",
            argument="max_servers",
        )
    texts = [text.strip().lower() for text in trace.labels[column].tolist()]
    matches = {text: _OWN_FACTOR.fullmatch(text or _DEFAULT_FACTOR) for text in set(texts)}
    known = {text: float(match[1]) if match else np.nan for text, match in matches.items()}
    for job, text in enumerate(texts):
        if not 0 < known[text] < np.inf:
            raise InputError(
                f"needs a multiple greater than 0 in column {column!r} for each job, such as 2 or "
                f"2x, or nothing for {_DEFAULT_FACTOR}; job {trace.names[job]} of "
                f"{trace.source} has {str(trace.labels[column][job])!r}",
                argument="max_servers",
            )
    return np.array([known[text] for text in texts])


@dataclass(frozen=True)
class Assumption:
    """The speedups that jobs may have, all equally likely, and the most servers that they get."""

    text: str  # a description to print
    speedups: tuple[Speedup, ...]  # without the limit
    p: float  # of a power law that approximates them all, for policies that need one
    limit: ServerLimit = DEFAULT_LIMIT
    curves: tuple[ExtendedCurve, ...] = ()  # that the speedups come from, if they were measured
    is_recorded: bool = False  # whether each job has its own speedup of the trace

    @property
    def is_shared(self) -> bool:
        """Whether all jobs have the same speedup, apart from the limit."""
        return len(self.speedups) == 1

    def draw(self, trace: Trace, seed: int) -> IntArray:
        """Return the number of the speedup that each job of a trace has."""
        if self.is_recorded:
            numbers = {speedup: number for number, speedup in enumerate(self.speedups)}
            return np.array([numbers[speedup] for speedup in trace.speedups])
        return np.random.default_rng(seed).integers(len(self.speedups), size=len(trace))

    def list_speedups(
        self, drawn: IntArray, limits: FloatArray, machine: float
    ) -> Speedup | list[Speedup]:
        """Return the speedups that jobs have drawn, if they cannot use more servers than a limit.

        The result is one speedup if all jobs share it, or one for each job.
        """
        if limits.min() >= machine:
            return self.speedups[0] if self.is_shared else [self.speedups[n] for n in drawn]
        if self.is_shared and limits.min() == limits.max():
            return self.speedups[0].limited(float(limits[0]))
        # Equal speedups are one object, which makes grouping them faster.
        keys = list(zip(drawn.tolist(), limits.tolist(), strict=True))
        limited = {key: self.speedups[key[0]].limited(key[1]) for key in set(keys)}
        return [limited[key] for key in keys]


def assume_speedup(
    p: float | str | None = None,
    *,
    curves: str | Path | None = None,
    max_servers: float | str | ServerLimit | None = None,
) -> Assumption:
    """Return an assumption about the speedups of jobs.

    Parameters
    ----------
    p
        The power of the speedup k^p: a number, or a distribution over jobs, "uniform(0.4, 0.9)" or
        "normal(0.7, 0.1)".
    curves
        Instead of ``p``, a file of measured speedups (see :func:`hesrpt.readers.read_curves`). Each
        job gets the concave hull of one of them, extended by the power law that fits it
        (:mod:`hesrpt.whatif.assumptions`).
    max_servers
        The most servers that a job gets: a number, "4x" for 4 times what it asked for, "largest"
        for the largest request in the trace, several of these such as "4x,largest", which is the
        default, or "none". Sizes do not depend on it.

    >>> assume_speedup(0.7, max_servers="none").text
    's(k) = k^0.7'
    >>> assume_speedup("uniform(0.4, 0.9)").p
    0.65
    """
    limit = parse_limit(max_servers)
    extended: tuple[ExtendedCurve, ...] = ()
    if p is not None and curves is None:
        powers, text = _parse_powers(p)
        speedups: tuple[Speedup, ...] = tuple(PowerLaw(power) for power in powers)
        mean_p = round(float(np.mean(powers)), 6)
    elif p is None and curves is not None:
        extended = tuple(extend_curve(curve) for curve in read_curves(curves))
        count = format_count(len(extended), "measured curve")
        text = f"speedups drawn from {count}" if len(extended) > 1 else f"the speedup of {count}"
        speedups = tuple(curve.speedup for curve in extended)
        mean_p = round(float(np.mean([curve.p for curve in extended])), 3)
    else:
        raise InputError("choose either p or curves to state how jobs speed up")
    return Assumption(
        text=", ".join(filter(None, (text, limit.text))),
        speedups=speedups,
        p=mean_p,
        limit=limit,
        curves=extended,
    )


def assume_recorded(
    trace: Trace, max_servers: float | str | ServerLimit | None = None
) -> Assumption:
    """Return the assumption that jobs have the speedups that their trace records.

    Nothing is extrapolated: past its last point, a measured speedup stays flat. So by default, jobs
    get as many servers as policies like.
    """
    if not trace.speedups:
        raise InputError(f"{trace.source} does not say how jobs speed up: choose p or curves")
    limit = parse_limit("none" if max_servers is None else max_servers)
    distinct = tuple(dict.fromkeys(trace.speedups))
    powers = {each: _fit(np.array(each.servers), np.array(each.speedups))[0] for each in distinct}
    return Assumption(
        text=", ".join(filter(None, ("each job's measured speedup", limit.text))),
        speedups=distinct,
        p=round(float(np.mean([powers[each] or MIN_P for each in trace.speedups])), 3),
        limit=limit,
        is_recorded=True,
    )


def _parse_powers(p: float | str) -> tuple[list[float], str]:
    """Return equally likely powers, and a description of them."""
    if not isinstance(p, str) or is_number(p):
        law = PowerLaw(float(p) if isinstance(p, str) else p)
        return [law.p], f"s(k) = k^{law.p:g}"
    match = _DISTRIBUTION.fullmatch(p.strip().lower())
    if match is None:
        raise InputError(
            f"must be a number in (0, 1), uniform(LOW, HIGH) or normal(MEAN, DEVIATION), got {p!r}",
            argument="p",
        )
    probabilities = (np.arange(_VALUES_OF_P) + 0.5) / _VALUES_OF_P
    if match[1] == "uniform":
        low, high = float(match[2]), float(match[3])
        if not 0 < low < high < 1:
            raise InputError(
                f"must be uniform(LOW, HIGH) with 0 < LOW < HIGH < 1, got {p!r}", argument="p"
            )
        powers = (low + (high - low) * probabilities).tolist()
        return powers, f"s(k) = k^p, p uniform on ({low:g}, {high:g}) over jobs"
    mean, deviation = float(match[2]), float(match[3])
    if not 0 < mean < 1 or not deviation > 0:
        raise InputError(
            f"must be normal(MEAN, DEVIATION) with 0 < MEAN < 1 and DEVIATION > 0, got {p!r}",
            argument="p",
        )
    quantiles = [NormalDist(mean, deviation).inv_cdf(q) for q in probabilities]
    powers = np.clip(quantiles, MIN_P, MAX_P).tolist()
    return powers, f"s(k) = k^p, p normal with {mean:g} ± {deviation:g} over jobs"


# Extensions have corners at distances of this factor, up to this many servers: between them they
# are straight, and less than 0.4% below the power law.
_STEP = 2**0.5
_MAX_SERVERS = 2.0**22
# Exponents are clipped to this range: outside it, jobs hardly scale at all or almost perfectly.
MIN_P, MAX_P = 0.02, 0.98


@dataclass(frozen=True)
class ExtendedCurve:
    """A measured curve, extended to any number of servers, with a speedup of 1 on one server."""

    application: str
    speedup: Measured
    first: float  # the fewest servers that were measured …
    last: float  # … and the most
    p: float  # of the power law closest to it
    stays_flat: bool  # beyond its last point, because more servers did not help
    problem: str = ""  # why no power law fits it well; empty if one does


def extend_curve(curve: Curve) -> ExtendedCurve:
    """Return a curve extended to fewer and more servers than it was measured on.

    >>> halves = extend_curve(Curve("sort", (2.0, 8.0), (1.0, 2.0)))
    >>> halves.speedup([1, 2, 8, 32]).round(3)  # the square root, below and beyond its points
    array([1.   , 1.414, 2.828, 5.657])
    """
    order = np.argsort(curve.servers, kind="stable")
    at = np.array(curve.servers)[order] * curve.base
    height = np.array(curve.speedups)[order]
    if not height.any():
        raise InputError(f"the curve of {curve.application} has no speedup greater than 0")
    p, problem = _fit(at, height)
    if p is None and at[0] > 1:
        raise InputError(
            f"the curve of {curve.application or 'the jobs'} starts at {at[0]:g} servers and says "
            f"nothing about fewer: {problem}; leave it out, or measure it on 1 server"
        )
    corners, heights = concave_hull(at.tolist(), height.tolist())
    fewer, more = np.empty(0), np.empty(0)
    below = beyond = 0.0
    if p is not None and corners[0] > 1:
        fewer = np.geomspace(1.0, corners[0], _count_steps(corners[0]) + 1)[:-1]
        below = min(max(p, _find_exponent(corners, heights, 0)), 1.0)
    if p is not None and corners[-1] == at[-1]:
        steps = _count_steps(_MAX_SERVERS / corners[-1])
        more = np.geomspace(corners[-1], max(_MAX_SERVERS, corners[-1]), steps + 1)[1:]
        beyond = min(p, _find_exponent(corners, heights, -1))
    servers = np.concatenate((fewer, corners, more))
    speedups = np.concatenate(
        (
            heights[0] * (fewer / corners[0]) ** below,
            heights,
            heights[-1] * (more / corners[-1]) ** beyond,
        )
    )
    on_one_server = float(Measured(servers, speedups)(1.0))
    speedup = Measured(servers, speedups / on_one_server)
    measured_at = np.unique(np.concatenate(([1.0], at)))
    closest_p, _ = _fit(measured_at, speedup.rate(measured_at))
    return ExtendedCurve(
        application=curve.application,
        speedup=speedup,
        first=float(at[0]),
        last=float(at[-1]),
        p=MIN_P if closest_p is None else closest_p,
        stays_flat=not len(more),
        problem=problem,
    )


def _fit(at: FloatArray, height: FloatArray) -> tuple[float | None, str]:
    """Return the p of a power law fitted to points, None if they do not grow, and the problem."""
    is_usable = height > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the study has a note on it
        try:
            law = fit_power_law(at[is_usable], height[is_usable])
        except FitError as error:
            return None, str(error)
    assert law.fit is not None
    return float(np.clip(law.p, MIN_P, MAX_P)), law.fit.problem


def _find_exponent(at: FloatArray, height: FloatArray, end: int) -> float:
    """Return the exponent k s′(k)/s(k) at the first or the last corner of a curve."""
    if len(at) == 1:
        return 1.0
    piece = slice(0, 2) if end == 0 else slice(-2, None)
    slope = float(np.diff(height[piece])[0] / np.diff(at[piece])[0])
    return slope * float(at[end]) / float(height[end])


def _count_steps(ratio: float) -> int:
    """Return how many corners an extension by this ratio needs."""
    return max(int(np.ceil(np.log(ratio) / np.log(_STEP))), 0)
