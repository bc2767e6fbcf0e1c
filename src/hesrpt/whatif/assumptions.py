"""How jobs speed up, which a log does not say: it is assumed, for all jobs or for each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hesrpt.errors import FitError, InputError
from hesrpt.readers import Curve, read_curves
from hesrpt.speedups import PowerLaw, Speedup, fit_power_law

# Powers outside of these are next to none and next to perfect scaling.
_LEAST, _MOST = 0.02, 0.98
# Powers are drawn as so many different ones, evenly: jobs with the same p are dealt with at once.
_KINDS = 16
_NUMBER = r"\s*(\d+\.?\d*|\.\d+)\s*"
_DRAWN = re.compile(rf"(uniform|normal)\({_NUMBER},{_NUMBER}\)")


@dataclass(frozen=True)
class Assumption:
    """A speedup for each job: one of some kinds, all equally likely."""

    text: str  # for people
    kinds: tuple[Speedup, ...]
    p: float  # a power law that is close to all of them, for policies that need one
    limit: float | None = None  # no job can use more servers
    _limited: tuple[Speedup, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        limited = self.kinds
        if self.limit is not None:
            limited = tuple(kind.limited(self.limit) for kind in self.kinds)
        object.__setattr__(self, "_limited", limited)

    @property
    def shared(self) -> bool:
        """Whether all jobs speed up alike."""
        return len(self.kinds) == 1

    def drawn(self, jobs: int, seed: int) -> Speedup | list[Speedup]:
        """Return the speedup of all jobs, or of each."""
        if self.shared:
            return self._limited[0]
        which = np.random.default_rng(seed).integers(len(self.kinds), size=jobs)
        return [self._limited[kind] for kind in which]


def assumption(
    p: float | str | None = None,
    curves: str | Path | None = None,
    max_servers: float | None = None,
) -> Assumption:
    """Return what is assumed of speedups.

    ``p`` is a number, or a distribution over jobs: "uniform(0.4, 0.9)" or "normal(0.7, 0.1)";
    ``curves`` is a file of measured speedups (see :func:`hesrpt.readers.read_curves`). Each job
    gets one of them, made concave.

    >>> assumption(0.7).text
    's(k) = k^0.7'
    >>> assumption("uniform(0.4, 0.9)").p
    0.65
    """
    if (p is None) == (curves is None):
        raise InputError(
            "how do jobs speed up? Give either p (a number, or a distribution as in "
            "uniform(0.4, 0.9)) or measured speedups"
        )
    if max_servers is not None and not max_servers >= 1:
        raise InputError(f"must be at least 1, got {max_servers!r}", argument="max_servers")
    tail = "" if max_servers is None else f", on at most {max_servers:g} servers"
    if curves is not None:
        found = read_curves(curves)
        powers = [_power(curve) for curve in found]
        text = f"speedups drawn from {len(found)} measured curves{tail}"
        measured = tuple(curve.concave for curve in found)
        return Assumption(text, measured, round(float(np.mean(powers)), 3), max_servers)
    powers, text = _powers(p)
    laws = tuple(PowerLaw(power) for power in powers)
    return Assumption(text + tail, laws, round(float(np.mean(powers)), 6), max_servers)


def _powers(p: float | str | None) -> tuple[list[float], str]:
    """Return equally likely powers, and what was assumed."""
    if isinstance(p, str):
        middles = (np.arange(_KINDS) + 0.5) / _KINDS
        found = _DRAWN.fullmatch(p.strip().lower())
        if found and found.group(1) == "uniform":
            low, high = map(float, found.groups()[1:])
            if not 0 < low < high < 1:
                raise InputError(f"p: {p!r}: 0 < lowest < highest < 1 is wanted")
            powers = (low + (high - low) * middles).tolist()
            return powers, f"s(k) = k^p, p uniform on ({low:g}, {high:g}) over jobs"
        if found:
            from statistics import NormalDist

            mean, deviation = map(float, found.groups()[1:])
            if not 0 < mean < 1 or not deviation > 0:
                raise InputError(f"p: {p!r}: a mean in (0, 1) and a deviation > 0 are wanted")
            normal = NormalDist(mean, deviation)
            powers = [min(max(normal.inv_cdf(q), _LEAST), _MOST) for q in middles]
            return powers, f"s(k) = k^p, p normal with {mean:g} ± {deviation:g} over jobs"
        try:
            p = float(p)
        except ValueError:
            raise InputError(
                f"p must be a number in (0, 1), uniform(a, b) or normal(mean, deviation), got {p!r}"
            ) from None
    assert p is not None
    power = PowerLaw(p).p
    return [power], f"s(k) = k^{power:g}"


def _power(curve: Curve) -> float:
    """Return the p of the power law closest to a curve."""
    try:
        return float(np.clip(fit_power_law(curve.servers, curve.speedups).p, _LEAST, _MOST))
    except FitError:  # it does not grow with the servers
        return _LEAST
