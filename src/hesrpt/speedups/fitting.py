"""Robust fits of speedups to measured points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import FloatArray
from hesrpt.errors import FitError
from hesrpt.speedups.families import Amdahl, PowerLaw
from hesrpt.validation import check_positive_vector

# The greatest p of a power law: nearly linear.
_MAX_P = 1 - 1e-9
# Points with a greater relative deviation than this are outliers and influence the fit only weakly.
_OUTLIER = 0.3


def fit_power_law(servers: ArrayLike, speedups: ArrayLike) -> PowerLaw:
    """Return the :class:`PowerLaw` closest to measured speedups, with its ``r_squared``.

    The fit minimises relative deviations with a Cauchy loss, which gives outliers little weight.
    The curve is first made flat past its peak: a job need not use servers that slow it down. A
    curve that grows faster than linearly gets the greatest valid p. R² compares the fit with the
    points as measured.

    >>> fit = fit_power_law([1, 2, 4, 8], [1, 1.41, 2, 2.83])
    >>> fit.p, fit.r_squared
    (0.500, 1.000)
    """
    k, measured = _check_points(servers, speedups)
    p = _fit(lambda p: p * np.log(k), _flatten_past_peak(k, measured), highest=_MAX_P)
    return PowerLaw(p, r_squared=_r_squared(measured, k**p))


def fit_amdahl(servers: ArrayLike, speedups: ArrayLike) -> Amdahl:
    """Return the :class:`Amdahl` speedup closest to measured ones, with its ``r_squared``.

    It uses the same method as :func:`fit_power_law`.

    >>> fit_amdahl([1, 2, 4, 8], [1, 1.82, 3.08, 4.71]).parallel_fraction
    0.900
    """
    k, measured = _check_points(servers, speedups)
    f = _fit(lambda f: -np.log1p(f * (1 / k - 1)), _flatten_past_peak(k, measured), highest=1.0)
    return Amdahl(f, r_squared=_r_squared(measured, Amdahl(f).rate(k)))


def _check_points(servers: ArrayLike, speedups: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the points sorted by servers."""
    k = check_positive_vector("servers", servers)
    measured = check_positive_vector("speedups", speedups)
    if len(k) != len(measured):
        raise FitError(
            f"servers and speedups must have the same length, got {len(k)} and {len(measured)}"
        )
    if not (k > 1).any():
        raise FitError(f"a fit needs a point on more than one server, got servers {k.tolist()}")
    _check_scale(k, measured)
    order = np.argsort(k, kind="stable")
    return k[order], measured[order]


def _check_scale(k: FloatArray, measured: FloatArray) -> None:
    """Raise an error if the points are throughputs rather than speedups, with s(1) = 1."""
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


def _flatten_past_peak(k: FloatArray, measured: FloatArray) -> FloatArray:
    """Return the speedups, with those past the peak raised to the height of the peak.

    The peak is the maximum of the median speedups for each number of servers, smoothed by a
    running median of three: a single point that was measured far too high is not a peak.
    """
    at, group = np.unique(k, return_inverse=True)
    middle = np.array([np.median(measured[group == place]) for place in range(len(at))])
    neighbours = np.stack((middle[:-2], middle[1:-1], middle[2:]))
    first = np.minimum(middle[:1], np.median(middle[:3]))
    smooth = np.concatenate((first, np.median(neighbours, axis=0), middle[-1:]))[: len(at)]
    peak = int(np.argmax(smooth))
    height = middle[peak] if middle[peak] < 1.15 * smooth[peak] else smooth[peak]
    return np.where(group > peak, np.maximum(height, measured), measured)


def _fit(log_model: Callable[[float], FloatArray], measured: FloatArray, highest: float) -> float:
    """Return the parameter in (0, highest] that minimises the Cauchy loss of log deviations."""
    from scipy.optimize import minimize_scalar

    target = np.log(measured)

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
        raise FitError(
            "the speedups do not grow with the servers, so the fit fails: the greatest of "
            f"{len(measured)} points is {measured.max():.6g}"
        )
    return parameter


def _r_squared(measured: FloatArray, fitted: FloatArray) -> float:
    total = float(np.sum((measured - measured.mean()) ** 2))
    residual = float(np.sum((measured - fitted) ** 2))
    return 1 - residual / total if total else float("nan")  # undefined for a single point
