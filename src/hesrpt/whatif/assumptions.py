"""Assumptions about how jobs speed up, which traces do not record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from hesrpt.errors import FitError, InputError
from hesrpt.readers import Curve, read_curves
from hesrpt.speedups import PowerLaw, Speedup, fit_power_law
from hesrpt.validation import check_at_least

# Powers are clipped to this range: outside it, jobs scale hardly at all or almost perfectly.
_MIN_P, _MAX_P = 0.02, 0.98
# A distribution of p is represented by this many equally likely values, because simulating jobs
# with the same p together is faster.
_VALUES_OF_P = 16
_NUMBER = r"\s*(\d+\.?\d*|\.\d+)\s*"
_DISTRIBUTION = re.compile(rf"(uniform|normal)\({_NUMBER},{_NUMBER}\)")


@dataclass(frozen=True)
class Assumption:
    """The speedups that jobs may have, all equally likely."""

    text: str  # a description to print
    speedups: tuple[Speedup, ...]
    p: float  # of a power law that approximates them all, for policies that need one
    max_servers: float | None = None  # the most servers that a job can use

    @property
    def is_shared(self) -> bool:
        """Whether all jobs have the same speedup."""
        return len(self.speedups) == 1

    def draw(self, jobs: int, seed: int) -> Speedup | list[Speedup]:
        """Return the speedup that all jobs share, or a list with one for each."""
        if self.is_shared:
            return self.speedups[0]
        drawn = np.random.default_rng(seed).integers(len(self.speedups), size=jobs)
        return [self.speedups[kind] for kind in drawn]


def assume_speedup(
    p: float | str | None = None,
    *,
    curves: str | Path | None = None,
    max_servers: float | None = None,
) -> Assumption:
    """Return an assumption about the speedups of jobs.

    Parameters
    ----------
    p
        The power of the speedup k^p: a number, or a distribution over jobs, "uniform(0.4, 0.9)" or
        "normal(0.7, 0.1)".
    curves
        Instead of ``p``, a file of measured speedups (see :func:`hesrpt.readers.read_curves`). Each
        job gets the concave hull of one of them.
    max_servers
        The most servers that a job can use.

    >>> assume_speedup(0.7).text
    's(k) = k^0.7'
    >>> assume_speedup("uniform(0.4, 0.9)").p
    0.65
    """
    if max_servers is not None:
        check_at_least("max_servers", max_servers, 1)
    if p is not None and curves is None:
        powers, text = _parse_powers(p)
        speedups: tuple[Speedup, ...] = tuple(PowerLaw(power) for power in powers)
        mean_p = round(float(np.mean(powers)), 6)
    elif p is None and curves is not None:
        measured = read_curves(curves)
        text = f"speedups drawn from {len(measured)} measured curves"
        speedups = tuple(curve.concave for curve in measured)
        mean_p = round(float(np.mean([_fit_power(curve) for curve in measured])), 3)
    else:
        raise InputError("choose either p or curves to state how jobs speed up")
    if max_servers is not None:
        text += f", on at most {max_servers:g} servers"
        speedups = tuple(speedup.limited(max_servers) for speedup in speedups)
    return Assumption(text=text, speedups=speedups, p=mean_p, max_servers=max_servers)


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
    powers = np.clip(quantiles, _MIN_P, _MAX_P).tolist()
    return powers, f"s(k) = k^p, p normal with {mean:g} ± {deviation:g} over jobs"


def _fit_power(curve: Curve) -> float:
    """Return the p of the power law closest to a curve."""
    try:
        return float(np.clip(fit_power_law(curve.servers, curve.speedups).p, _MIN_P, _MAX_P))
    except FitError:  # the curve does not grow with the servers
        return _MIN_P
