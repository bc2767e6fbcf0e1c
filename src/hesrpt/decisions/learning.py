"""What is learned about a job: how long its items take, and how it speeds up.

With k items of a job in flight, an item takes d(k) seconds, so the job runs s(k) = k d(1)/d(k)
times as fast as with one item at a time. Under k^p, log d(k) = log d(1) + (1 − p) log k: a straight
line through the mean durations at each width k, fitted by least squares with a prior on p.

A command that runs on k servers for t seconds is held to the same law: it costs k·t seconds of
servers, and under k^p, log(k·t) = log x + (1 − p) log k, where x is its size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from operator import mul
from typing import NamedTuple

import numpy as np

from hesrpt.jobs.job_spec import NOTHING_KNOWN, PRIOR_WEIGHT, Prior

_MIN_P, _MAX_P = 0.01, 0.99
# Durations are taken to scatter at least this much, relative to their mean.
_MIN_SPREAD = 0.02
# This many durations at least are summed by NumPy.
_MANY = 64


class WidthSums(NamedTuple):
    """Sums over items for a line through log durations against log widths."""

    variance: float  # Σ (x − x̄)², where x is the logarithm of a width
    covariance: float  # Σ (x − x̄)(y − ȳ), where y is the logarithm of a mean duration


class DurationSums(NamedTuple):
    """Sums over the durations of items."""

    items: int
    total: float
    squares: float  # the sum of the squared durations


def sum_durations(seconds: Sequence[float]) -> DurationSums:
    """Return the sums over the durations of items; there may be many."""
    if len(seconds) < _MANY:
        return DurationSums(len(seconds), sum(seconds), sum(map(mul, seconds, seconds)))
    array = np.asarray(seconds)
    # A scalar product would start the threads of BLAS, which take the cores from the items.
    return DurationSums(len(seconds), float(array.sum()), float((array * array).sum()))


@dataclass
class ItemDurations:
    """How long finished items took, by width: the number of items in flight at the time.

    Of commands, how many seconds of servers they took, by their numbers of servers.
    """

    counts: dict[int, float] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    squares: float = 0.0  # the sum of the squared durations
    prior: Prior = NOTHING_KNOWN
    _fitted_p: float | None = field(default=None, repr=False, compare=False)
    # The last p for which the duration of an item alone was asked, and that duration.
    _alone: tuple[float, float] | None = field(default=None, repr=False, compare=False)

    def add(self, width: int, seconds: float) -> None:
        """Add a finished item."""
        self.add_all(width, (seconds,))

    def add_all(self, width: int, seconds: Sequence[float]) -> None:
        """Add finished items of one width."""
        self.add_sums(width, sum_durations(seconds))

    def add_sums(self, width: int, sums: DurationSums) -> None:
        """Add finished items of one width, of which only the sums are known."""
        self.counts[width] += sums.items
        self.seconds[width] += max(sums.total, 1e-9 * sums.items)
        self.squares += sums.squares
        self._fitted_p = self._alone = None

    @property
    def items(self) -> float:
        """How many items have been added."""
        return sum(self.counts.values())

    @property
    def is_anything_known(self) -> bool:
        """Whether the duration of an item can be estimated."""
        return bool(self.counts) or self.prior.item_seconds is not None

    @property
    def p(self) -> float:
        """The fitted power of the speedup, rounded to two digits: more would be noise."""
        if self._fitted_p is None:
            self._fitted_p = fit_p([self.sum_widths()] if self.counts else [], self.prior)
        return self._fitted_p

    @property
    def p_error(self) -> float:
        """The standard error of p: of the fit, and of the prior as far as it counts."""
        if not self.counts:
            return self.prior.p_error
        return estimate_p_error([self.sum_widths()], self.relative_spread, self.prior)

    def sum_widths(self) -> WidthSums:
        """Return the sums from which p is fitted."""
        total = self.items
        points = [(log(k), log(self.seconds[k] / n), n) for k, n in self.counts.items()]
        x_mean = sum(x * n for x, _, n in points) / total
        y_mean = sum(y * n for _, y, n in points) / total
        covariance = sum((x - x_mean) * (y - y_mean) * n for x, y, n in points)
        variance = sum((x - x_mean) ** 2 * n for x, _, n in points)
        return WidthSums(variance, covariance)

    @property
    def mean_seconds(self) -> float:
        """The mean duration, whatever the width."""
        return sum(self.seconds.values()) / self.items

    @property
    def relative_spread(self) -> float:
        """The standard deviation of the durations, divided by their mean."""
        mean = self.mean_seconds
        return sqrt(max(self.squares / self.items - mean * mean, 0.0)) / mean

    def measure_item_seconds(self, p: float) -> float | None:
        """Return how many seconds an item takes alone, given p; None before the first item."""
        if not self.counts:
            return None
        if self._alone is None or self._alone[0] != p:
            alone = sum(self.seconds[k] * exp((p - 1) * log(k)) for k in self.counts)
            self._alone = p, alone / self.items
        return self._alone[1]

    def estimate_item_seconds(self, p: float) -> float | None:
        """Estimate how many seconds an item takes alone, given p; None if nothing is known.

        What was known before the first item counts as much as a few items.
        """
        measured, known = self.measure_item_seconds(p), self.prior.item_seconds
        if measured is None or known is None:
            return known if measured is None else measured
        items = self.items
        return (measured * items + known * PRIOR_WEIGHT) / (items + PRIOR_WEIGHT)


def fit_p(sums: Iterable[WidthSums], prior: Prior) -> float:
    """Return the p of k^p that fits jobs with the same speedup, rounded to two digits."""
    covariance, variance = prior.p_weight * (1 - prior.p), prior.p_weight
    for each in sums:
        covariance += each.covariance
        variance += each.variance
    return round(min(max(1 - covariance / variance, _MIN_P), _MAX_P), 2)


def estimate_p_error(sums: Iterable[WidthSums], relative_spread: float, prior: Prior) -> float:
    """Return the standard error of :func:`fit_p`.

    The items add the scatter of their durations, and the prior its own error, each as far as it
    counts. Without different widths, nothing is learned about p, and the prior's error remains.
    """
    variance = sum(each.variance for each in sums)
    own_share = variance / (variance + prior.p_weight)
    own_error = max(relative_spread, _MIN_SPREAD) / sqrt(variance) if variance > 0 else 0.0
    return sqrt((own_share * own_error) ** 2 + ((1 - own_share) * prior.p_error) ** 2)
