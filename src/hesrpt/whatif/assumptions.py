"""Assumptions about how jobs speed up, which traces do not record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.readers import read_curves
from hesrpt.speedups import PowerLaw, Speedup
from hesrpt.units import format_count
from hesrpt.whatif.extended_curves import MAX_P, MIN_P, ExtendedCurve, extend_curve
from hesrpt.whatif.request_limits import DEFAULT_LIMIT, ServerLimit, parse_limit

# A distribution of p is represented by this many equally likely values, because simulating jobs
# with the same p together is faster.
_VALUES_OF_P = 16
_NUMBER = r"\s*(\d+\.?\d*|\.\d+)\s*"
_DISTRIBUTION = re.compile(rf"(uniform|normal)\({_NUMBER},{_NUMBER}\)")


@dataclass(frozen=True)
class Assumption:
    """The speedups that jobs may have, all equally likely, and the most servers that they get."""

    text: str  # a description to print
    speedups: tuple[Speedup, ...]  # without the limit
    p: float  # of a power law that approximates them all, for policies that need one
    limit: ServerLimit = DEFAULT_LIMIT
    curves: tuple[ExtendedCurve, ...] = ()  # that the speedups come from, if they were measured

    @property
    def is_shared(self) -> bool:
        """Whether all jobs have the same speedup, apart from the limit."""
        return len(self.speedups) == 1

    def draw(self, jobs: int, seed: int) -> IntArray:
        """Return the number of the speedup that each job has."""
        if self.is_shared:
            return np.zeros(jobs, dtype=np.int64)
        return np.random.default_rng(seed).integers(len(self.speedups), size=jobs)

    def list_speedups(self, drawn: IntArray) -> Speedup | list[Speedup]:
        """Return the speedups that jobs have drawn: one if all share it, or one for each job."""
        if self.is_shared:
            return self.speedups[0]
        return [self.speedups[number] for number in drawn.tolist()]

    def list_limited_speedups(
        self, drawn: IntArray, limits: FloatArray, machine: float
    ) -> Speedup | list[Speedup]:
        """Return the same speedups for jobs that cannot use more servers than their limits."""
        if limits.min() >= machine:
            return self.list_speedups(drawn)
        if self.is_shared and limits.min() == limits.max():
            return self.speedups[0].limited(float(limits[0]))
        # Equal speedups are one object, which makes grouping them faster.
        limited: dict[tuple[int, float], Speedup] = {}
        keys = list(zip(drawn.tolist(), limits.tolist(), strict=True))
        for key in set(keys):
            limited[key] = self.speedups[key[0]].limited(key[1])
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
        (:mod:`hesrpt.whatif.extended_curves`).
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


def _parse_powers(p: float | str) -> tuple[list[float], str]:
    """Return equally likely powers, and a description of them."""
    if not isinstance(p, str):
        return [PowerLaw(p).p], f"s(k) = k^{p:g}"
    match = _DISTRIBUTION.fullmatch(p.strip().lower())
    if match is None:
        try:
            return _parse_powers(float(p))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"must be a number in (0, 1), uniform(LOW, HIGH) or normal(MEAN, DEVIATION), "
                f"got {p!r}",
                argument="p",
            ) from None
    probabilities = (np.arange(_VALUES_OF_P) + 0.5) / _VALUES_OF_P
    first, second = float(match[2]), float(match[3])
    if match[1] == "uniform":
        low, high = first, second
        if not 0 < low < high < 1:
            raise InputError(
                f"must be uniform(LOW, HIGH) with 0 < LOW < HIGH < 1, got {p!r}", argument="p"
            )
        powers = (low + (high - low) * probabilities).tolist()
        return powers, f"s(k) = k^p, p uniform on ({low:g}, {high:g}) over jobs"
    mean, deviation = first, second
    if not 0 < mean < 1 or not deviation > 0:
        raise InputError(
            f"must be normal(MEAN, DEVIATION) with 0 < MEAN < 1 and DEVIATION > 0, got {p!r}",
            argument="p",
        )
    quantiles = [NormalDist(mean, deviation).inv_cdf(q) for q in probabilities]
    powers = np.clip(quantiles, MIN_P, MAX_P).tolist()
    return powers, f"s(k) = k^p, p normal with {mean:g} ± {deviation:g} over jobs"
