"""Means over replications, and differences between policies that served the same jobs.

All policies serve the same replications, so their metrics rise and fall together. The difference of
two policies on the same jobs varies much less than the metrics of either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hesrpt.arrays import FloatArray


class Interval(NamedTuple):
    """A mean over replications and the half width of its confidence interval."""

    mean: float
    half_width: float  # NaN for a single replication


def estimate_mean(values: FloatArray, confidence: float) -> Interval:
    """Return the mean of independent values, with Student's confidence interval.

    >>> import numpy as np
    >>> estimate_mean(np.array([1.0, 2.0, 3.0]), 0.95)
    Interval(mean=2.0, half_width=2.48414)
    """
    mean = float(values.mean())
    if len(values) == 1:
        return Interval(mean, float("nan"))
    from scipy.stats import t

    error = float(values.std(ddof=1)) / len(values) ** 0.5
    return Interval(mean, float(t.ppf((1 + confidence) / 2, len(values) - 1)) * error)


@dataclass(frozen=True, repr=False)
class Difference:
    """The difference between two policies in one metric, on the same replications.

    ``mean`` is the metric of ``policy`` less that of ``other``, averaged over the replications, and
    ``percentage`` is what that is of the mean of ``other``: −4.1 if the metric is 4.1% lower. The
    half widths of both are NaN for a single replication.
    """

    policy: str
    other: str
    metric: str
    mean: float
    half_width: float
    percentage: float
    percentage_half_width: float
    replications: int

    @property
    def is_clear(self) -> bool:
        """Whether the confidence interval of the percentage leaves out 0."""
        return abs(self.percentage) > self.percentage_half_width

    def __repr__(self) -> str:
        return f"<Difference: {self}>"

    def __str__(self) -> str:
        amount, direction = self._format_percentage(), self._describe_direction()
        subject, reference = self.policy, self.other
        if self.metric != "mean_flow_time":
            name = self.metric.replace("_", " ")
            subject, reference = f"the {name} of {self.policy}", f"that of {self.other}"
        if self.percentage == 0 and not self.percentage_half_width > 0:
            return f"no difference between {subject} and {reference}"
        if self.replications > 1 and not self.is_clear:
            return f"no clear difference between {subject} and {reference} ({amount} {direction})"
        note = " (one replication: no interval)" if self.replications == 1 else ""
        return f"{subject} is {amount} {direction} than {reference}{note}"

    def _format_percentage(self) -> str:
        """Return the percentage and its half width with as many digits as tell them apart."""
        amount, half_width = abs(self.percentage), self.percentage_half_width
        if self.replications == 1:
            return f"{amount:.1f}%"
        digits = 1
        while digits < 4 and (round(amount, digits) > round(half_width, digits)) != self.is_clear:
            digits += 1
        return f"{amount:.{digits}f}% ± {half_width:.{digits}f}%"

    def _describe_direction(self) -> str:
        if self.metric == "mean_flow_time":
            return "better" if self.percentage <= 0 else "worse"
        return "lower" if self.percentage <= 0 else "higher"


def estimate_difference(
    policy: str,
    other: str,
    metric: str,
    values: FloatArray,
    other_values: FloatArray,
    confidence: float,
) -> Difference:
    """Return the difference between two policies, given their metric in each replication.

    The percentage compares the two means. Its interval follows from how far each replication is
    from the common ratio, values − ratio · other_values: the usual interval of a ratio of means.
    """
    mean, half_width = estimate_mean(values - other_values, confidence)
    scale = float(other_values.mean())
    ratio = float(values.mean()) / scale
    residuals = estimate_mean(values - ratio * other_values, confidence)
    return Difference(
        policy=policy,
        other=other,
        metric=metric,
        mean=mean,
        half_width=half_width,
        percentage=100 * mean / scale,
        percentage_half_width=100 * residuals.half_width / scale,
        replications=len(values),
    )
