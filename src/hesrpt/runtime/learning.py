"""What the core learns about a running job: how long its items take, and how it speeds up.

With k items of a job in flight, an item takes d(k) seconds, so the job runs s(k) = k d(1)/d(k)
times as fast as with one item at a time. Under k^p, log d(k) = log d(1) + (1 − p) log k: a straight
line through the mean durations at each width k, fitted by least squares with a prior on p.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import exp, log

#: The prior mean of p, and its weight as a number of items.
PRIOR_P, PRIOR_WEIGHT = 0.9, 2.0
_MIN_P, _MAX_P = 0.01, 0.99


@dataclass
class ItemDurations:
    """How long finished items took, by width: the number of items in flight at the time."""

    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, width: int, seconds: float) -> None:
        """Add a finished item."""
        self.counts[width] += 1
        self.seconds[width] += max(seconds, 1e-9)

    @property
    def items(self) -> int:
        """How many items have been added."""
        return sum(self.counts.values())

    @property
    def p(self) -> float:
        """The fitted power of the speedup, rounded to two digits: more would be noise."""
        total = self.items
        if total == 0:
            return PRIOR_P
        points = [(log(k), log(self.seconds[k] / n), n) for k, n in self.counts.items()]
        x_mean = sum(x * n for x, _, n in points) / total
        y_mean = sum(y * n for _, y, n in points) / total
        covariance = sum((x - x_mean) * (y - y_mean) * n for x, y, n in points)
        variance = sum((x - x_mean) ** 2 * n for x, _, n in points)
        slope = (covariance + PRIOR_WEIGHT * (1 - PRIOR_P)) / (variance + PRIOR_WEIGHT)
        return round(min(max(1 - slope, _MIN_P), _MAX_P), 2)

    @property
    def mean_seconds(self) -> float:
        """The mean duration, whatever the width."""
        return sum(self.seconds.values()) / self.items

    def estimate_item_seconds(self, p: float) -> float | None:
        """Estimate how many seconds an item takes alone, given p; None before the first item."""
        if self.items == 0:
            return None
        alone = sum(self.seconds[k] * exp((p - 1) * log(k)) for k in self.counts)
        return alone / self.items
