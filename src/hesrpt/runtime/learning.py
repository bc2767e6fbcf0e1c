"""What is learned about a job while it runs: how long an item takes, and how it speeds up.

With k items of a job in flight, an item takes d(k) seconds, so that the job runs s(k) = k d(1)/d(k)
times as fast as one item at a time. Under k^p, log d(k) = log d(1) + (1 − p) log k: a straight line
through the means for each width k, which is fitted by least squares with a prior belief about p.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import exp, log

#: What is believed of p before anything is measured, and with the weight of how many items.
PRIOR_P, PRIOR_WEIGHT = 0.9, 2.0
_LEAST_P, _MOST_P = 0.01, 0.99


@dataclass
class Learned:
    """Durations of a job's items, by how many of them were in flight."""

    count: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, width: int, seconds: float) -> None:
        """Take note of an item."""
        self.count[width] += 1
        self.seconds[width] += max(seconds, 1e-9)

    @property
    def items(self) -> int:
        """How many items were seen."""
        return sum(self.count.values())

    @property
    def p(self) -> float:
        """The power of the speedup, to two digits: more were noise."""
        total = self.items
        if total == 0:
            return PRIOR_P
        points = [(log(k), log(self.seconds[k] / n), n) for k, n in self.count.items()]
        x_mean = sum(x * n for x, _, n in points) / total
        y_mean = sum(y * n for _, y, n in points) / total
        covariance = sum((x - x_mean) * (y - y_mean) * n for x, y, n in points)
        variance = sum((x - x_mean) ** 2 * n for x, _, n in points)
        slope = (covariance + PRIOR_WEIGHT * (1 - PRIOR_P)) / (variance + PRIOR_WEIGHT)
        return round(min(max(1 - slope, _LEAST_P), _MOST_P), 2)

    @property
    def mean_seconds(self) -> float:
        """How long items took."""
        return sum(self.seconds.values()) / self.items

    def item_seconds(self, p: float) -> float | None:
        """Return how long an item takes alone, given p; None if nothing was seen."""
        if self.items == 0:
            return None
        alone = sum(self.seconds[k] * exp((p - 1) * log(k)) for k in self.count)
        return alone / self.items
