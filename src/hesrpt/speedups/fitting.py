"""Robust fits of speedups to measured points."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import FitError, FitWarning
from hesrpt.speedups.families import MIN_R_SQUARED, Amdahl, Fit, PowerLaw
from hesrpt.units import format_count
from hesrpt.validation import check_positive_vector

# The greatest p of a power law: nearly linear.
_MAX_P = 1 - 1e-9
# Points with a greater relative deviation than this are outliers and influence the fit only weakly.
_OUTLIER = 0.3
# A curve falls if it ends below this part of its peak; a smaller fall may be noise.
_FALLS_BELOW = 0.95
# A single point is wild if it differs from the fit by this factor.
_WILD = 2.0
# A speedup that never exceeds this hardly grows.
_HARDLY = 1.2
# Speedups up to this many times linear ones may be measured.
_SUPERLINEAR = 1.5
# Values that start on more servers than this are never taken for speedups over one server: a
# throughput on 128 servers is easily between 1 and 128.
_FEW = 8

_Model = Callable[[float, FloatArray], FloatArray]  # ln s(k), given the parameter and k


def fit_power_law(servers: ArrayLike, speedups: ArrayLike) -> PowerLaw:
    """Return the :class:`PowerLaw` closest to measured speedups, with its quality in ``fit``.

    The fit minimises relative deviations with a Cauchy loss, which gives outliers little weight.
    Three kinds of curve are fitted only as far as they can be:

    - Of a curve that falls past its peak, the points past the peak are left out. The fit holds up
      to ``fit.last`` servers; more do not help.
    - A curve that starts above one server is fitted relative to its own base: servers and values
      are divided by those of its first point. The exception are values that look like speedups
      over one server, on 8 servers or fewer, and fit a law as such.
    - A curve that grows faster than linearly gets the greatest valid p.

    ``fit`` has R² and the standard error of p. If R² is below 0.5, a :class:`hesrpt.FitWarning`
    says why.

    >>> fit = fit_power_law([1, 2, 4, 8], [1, 1.41, 2, 2.83])
    >>> fit.p, fit.r_squared
    (0.500, 1.000)
    >>> fallen = fit_power_law([1, 2, 4, 8, 16], [1, 1.62, 2.64, 2.1, 1.5])
    >>> fallen.p, fallen.fit.last, fallen.fit.left_out
    (0.699, 4.0, 2)
    """
    p, fit = _fit(_power_model, servers, speedups, "k^p", highest=_MAX_P)
    return PowerLaw(p, fit=fit)


def fit_amdahl(servers: ArrayLike, speedups: ArrayLike) -> Amdahl:
    """Return the :class:`Amdahl` speedup closest to measured ones, with its quality in ``fit``.

    It uses the same method as :func:`fit_power_law`.

    >>> fit_amdahl([1, 2, 4, 8], [1, 1.82, 3.08, 4.71]).parallel_fraction
    0.900
    """
    f, fit = _fit(_amdahl_model, servers, speedups, "Amdahl's law", highest=1.0)
    return Amdahl(f, fit=fit)


def _power_model(p: float, k: FloatArray) -> FloatArray:
    return p * np.log(k)


def _amdahl_model(f: float, k: FloatArray) -> FloatArray:
    return -np.log1p(f * (1 / k - 1))


class _Points(NamedTuple):
    """Measured points, sorted by servers."""

    servers: FloatArray
    speedups: FloatArray
    base: float  # servers …
    at_base: float  # … and the value there, to which the others are relative


def _fit(
    model: _Model, servers: ArrayLike, speedups: ArrayLike, law: str, highest: float
) -> tuple[float, Fit]:
    points = _check_points(servers, speedups)
    parameter, fit = _fit_points(model, points, highest)
    k = points.servers
    if fit.is_bad and points.base == 1 < k[0] < k[-1]:
        # The values may not be speedups over one server after all.
        own_parameter, own_fit = _fit_points(model, _relate_to_first(points), highest)
        if not own_fit.is_bad:
            parameter, fit = own_parameter, own_fit
    if fit.is_bad:
        warnings.warn(
            f"{law} fits {fit.points} points badly, R² = {fit.r_squared:.2f}: {fit.problem}",
            FitWarning,
            stacklevel=3,
        )
    return parameter, fit


def _fit_points(model: _Model, points: _Points, highest: float) -> tuple[float, Fit]:
    rising = _select_rising(points)
    k = points.servers[rising]
    target = np.log(points.speedups[rising]) - np.log(points.at_base)
    origin = np.array([points.base])

    def log_model(parameter: float) -> FloatArray:
        return model(parameter, k) - model(parameter, origin)

    parameter = _minimise(log_model, target, highest)
    fitted = log_model(parameter)
    r_squared = _r_squared(target, fitted)
    is_bad = r_squared < MIN_R_SQUARED
    return parameter, Fit(
        r_squared=r_squared,
        standard_error=_standard_error(log_model, parameter, target),
        first=float(k[0]),
        last=float(k[-1]),
        points=len(k),
        left_out=int(np.count_nonzero(~rising)),
        problem=_describe_problem(k, target, fitted) if is_bad else "",
    )


def _check_points(servers: ArrayLike, speedups: ArrayLike) -> _Points:
    k = check_positive_vector("servers", servers)
    measured = check_positive_vector("speedups", speedups)
    if len(k) != len(measured):
        raise FitError(
            f"servers and speedups must have the same length, got {len(k)} and {len(measured)}"
        )
    if not (k > 1).any():
        raise FitError(f"a fit needs a point on more than one server, got servers {k.tolist()}")
    order = np.argsort(k, kind="stable")
    k, measured = k[order], measured[order]
    if k[0] <= 1:
        _check_scale(k, measured)
        return _Points(k, measured, 1.0, 1.0)
    points = _relate_to_first(_Points(k, measured, 1.0, 1.0))
    is_plausible = 1 < points.at_base <= _SUPERLINEAR * k[0]
    if is_plausible and (k[0] <= _FEW or k[-1] == k[0]):
        # Speedups over one server, which was not measured itself.
        return points._replace(base=1.0, at_base=1.0)
    if k[-1] == k[0]:
        raise FitError(
            f"a fit of points that start at {k[0]:g} servers needs points on different numbers of "
            "servers: values there are relative to the first"
        )
    return points


def _relate_to_first(points: _Points) -> _Points:
    """Return points relative to the one on the fewest servers."""
    first = float(points.servers[0])
    at_first = float(np.median(points.speedups[points.servers == first]))
    return points._replace(base=first, at_base=at_first)


def _check_scale(k: FloatArray, measured: FloatArray) -> None:
    """Raise an error if points from one server on are throughputs rather than speedups."""
    is_parallel = k > 1
    if (k == 1).any():
        scale, where = float(np.median(measured[k == 1])), "on 1 server"
        # If the other points agree on a power law with s(1) = 1, only this point is wrong.
        powers = np.log(measured[is_parallel]) / np.log(k[is_parallel])
        middle = float(np.median(powers))
        agree = np.count_nonzero(np.abs(powers - middle) < 0.1) >= max(3, 0.7 * len(powers))
        if agree and 0 < middle < 1.05:
            return
    else:
        scale, where = max(float(np.median(measured / k)), 1.0), "per server"
    if not 0.5 < scale < 2:
        raise FitError(
            f"the speedup {where} must be about 1, got {scale:.6g}: divide measured throughputs "
            "by the throughput on one server"
        )


def _select_rising(points: _Points) -> BoolArray:
    """Return which points to fit: all of them, or those up to the peak if the curve falls again.

    The peak is the maximum of the median speedups for each number of servers, smoothed by a
    running median of three: a single point that was measured far too high is not a peak.
    """
    at, group = np.unique(points.servers, return_inverse=True)
    middle = np.array([np.median(points.speedups[group == place]) for place in range(len(at))])
    neighbours = np.stack((middle[:-2], middle[1:-1], middle[2:]))
    first = np.minimum(middle[:1], np.median(middle[:3]))
    smooth = np.concatenate((first, np.median(neighbours, axis=0), middle[-1:]))[: len(at)]
    peak = int(np.flatnonzero(smooth == smooth.max())[-1])
    height = middle[peak] if middle[peak] < 1.15 * smooth[peak] else smooth[peak]
    # A sharp peak is real if the points keep falling past it; past a wild point they rise again.
    top = int(np.argmax(middle))
    if 0 < len(at) - 1 - top != 1 and np.all(np.diff(middle[top:]) < 0):
        peak, height = top, middle[top]
    if middle[-1] >= _FALLS_BELOW * height:
        return group >= 0
    if peak == 0:
        raise _refuse(len(points.speedups), f"the first, {points.speedups[0]:.6g}")
    return group <= peak


def _minimise(
    log_model: Callable[[float], FloatArray], target: FloatArray, highest: float
) -> float:
    """Return the parameter in (0, highest] that minimises the Cauchy loss of log deviations."""
    from scipy.optimize import minimize_scalar

    def loss(parameter: float) -> float:
        deviation = (log_model(parameter) - target) / _OUTLIER
        return float(np.sum(np.log1p(deviation**2)))

    # With outliers the loss has several minima, and the best may be the upper end itself. A local
    # solver (scipy.optimize.least_squares) finds neither reliably. So search a grid, then the
    # interval around its best point.
    grid = np.linspace(0.0, highest, 201)
    best = int(np.argmin([loss(parameter) for parameter in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, 200)]
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    # The bounded search never evaluates the ends of the interval.
    parameter = min((float(found.x), float(grid[best])), key=loss)
    if parameter <= 1e-6:
        raise _refuse(len(target), f"{np.exp(target.max()):.6g}")
    return parameter


def _refuse(points: int, greatest: str) -> FitError:
    return FitError(
        "the speedups do not grow with the servers, so the fit fails: the greatest of "
        f"{format_count(points, 'point')} is {greatest}"
    )


def _standard_error(
    log_model: Callable[[float], FloatArray], parameter: float, target: FloatArray
) -> float:
    """Return the standard error of the parameter, from the deviations weighted as in the fit."""
    step = 1e-6 * parameter
    slope = (log_model(parameter) - log_model(parameter - step)) / step
    deviation = log_model(parameter) - target
    weight = 1 / (1 + (deviation / _OUTLIER) ** 2)
    informative = np.abs(slope) > 1e-9  # at its base, every speedup of the family is 1
    points = np.count_nonzero(informative)
    if points < 2:
        return float("nan")
    variance = float(np.sum((weight * deviation**2)[informative])) / (points - 1)
    return float(np.sqrt(variance / np.sum(weight * slope**2)))


def _r_squared(target: FloatArray, fitted: FloatArray) -> float:
    """Return the R² of speedups, given the logarithms of the measured and the fitted ones."""
    scale = max(float(target.max()), float(fitted.max()))  # avoids an overflow, and cancels
    measured, model = np.exp(target - scale), np.exp(fitted - scale)
    total = float(np.sum((measured - measured.mean()) ** 2))
    residual = float(np.sum((measured - model) ** 2))
    return 1 - residual / total if total else float("nan")  # undefined for a single point


def _describe_problem(k: FloatArray, target: FloatArray, fitted: FloatArray) -> str:
    """Return why a fit is bad, given the logarithms of the measured and the fitted speedups."""
    deviation = np.abs(fitted - target)
    worst = int(np.argmax(deviation))
    with np.errstate(over="ignore"):  # relative to a tiny base, a speedup may exceed all floats
        given, measured = np.exp(fitted[worst]), np.exp(target[worst])
    on_servers = format_count(float(k[worst]), "server")
    where = f"it gives {given:.3g} on {on_servers}, where {measured:.3g} was measured"
    others = np.arange(len(k)) != worst
    if (
        len(k) > 3
        and deviation[worst] > np.log(_WILD)
        and _r_squared(target[others], fitted[others]) >= MIN_R_SQUARED
    ):
        return f"one point is far off: {where}"
    if np.ptp(target) < np.log(_HARDLY):
        return f"the speedup hardly grows with the servers, so that noise decides; {where}"
    if np.count_nonzero(np.diff(target) < 0) >= 0.3 * len(target):
        return f"the points go up and down; {where}"
    return f"the points follow another law; {where}"
