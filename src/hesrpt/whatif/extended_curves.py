"""Measured speedup curves, extended beyond their points by the power law fitted to them.

A curve says nothing about fewer servers than it was measured on, nor about more. Jobs of a trace
may have run on either, so a study needs an extension, and says how much of the trace depends on it.

- Beyond the last point, a curve that still rises continues as a power law from that point. Its
  exponent is the fitted p, or the exponent at the end of the curve if that is less.
- A curve that has passed its peak stays flat: more servers were measured not to help.
- Below the first point, the curve is a power law through that point, whose exponent is the fitted
  p, or the exponent at the start of the curve if that is greater. If no power law can be fitted,
  the curve is refused.

So the whole is concave, and agrees with the concave hull of the points where these were measured.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import FitError, FitWarning, InputError
from hesrpt.readers import Curve
from hesrpt.speedups import Measured, fit_power_law
from hesrpt.speedups.measured import concave_hull

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
    return ExtendedCurve(
        application=curve.application,
        speedup=speedup,
        first=float(at[0]),
        last=float(at[-1]),
        p=_approximate(speedup, at),
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


def _approximate(speedup: Measured, at: FloatArray) -> float:
    """Return the p of the power law closest to an extended curve where it was measured."""
    servers = np.unique(np.concatenate(([1.0], at)))
    p, _ = _fit(servers, speedup.rate(servers))
    return MIN_P if p is None else p


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
