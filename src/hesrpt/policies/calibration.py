"""What the adaptive policy has learned from a stream of jobs, and how events advance it.

The policy predicts that, of m jobs, m (i/m)^f will be present when the i-th largest one ends. So
the f that fits best is the slope of a regression through the origin:

    ln(jobs present at the end) − ln m  =  f · ln(i/m).

Every piece of work done on a job is one observation. It counts when the job ends, because only
then is the left side known. Sums over the work of a job in the system are kept with the job:

    spread = Σ w ln²(i/m),   lean = Σ w ln(i/m),   height = Σ w ln(i/m) (ln m − u),

where w is the fraction of the job that was done, times a weight for the size of the job. When it
ends with n jobs present, ``numerator`` grows by lean · (ln n − u) − height and ``denominator`` by
spread. Here u is the usual ln m, a moving average over arrivals. It matters only while it changes:
if the number of jobs grows, it grows for small and large jobs alike, and that growth says nothing
about f. Without u, a system that fills up seems to be saturated.

With weights, sums of weights take the place of i and m. The loops of the simulator keep the same
sums, with the same functions (:mod:`hesrpt.policies.calibration_kernel`).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields
from functools import partial
from math import isfinite
from typing import Any, Self

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.policies.calibration_kernel import (
    BATCH_WEIGHT,
    ESTIMATE_SUMS,
    LEVELS,
    compare_sizes,
    count_end,
    focus_of_level,
    raise_focus,
    scale_level,
    sum_work,
    update_focus,
    weigh_size,
)

#: What is believed of f at the start if sizes are unknown, as firmly as this many jobs would show
#: it whose expectations differ by a factor of e, and the least f.
UNKNOWN_FOCUS, UNKNOWN_WEIGHT, MIN_UNKNOWN_FOCUS = 0.05, 100.0, 0.03


@dataclass(slots=True, eq=False)
class Calibration:
    """What has been learned: sums over ended jobs, and one entry for each job in the system.

    It is never changed: its methods return a new one.
    """

    level: int = LEVELS
    numerator: float = BATCH_WEIGHT
    denominator: float = BATCH_WEIGHT
    is_stream: bool = False  # whether a job has ever joined others
    jobs_seen: int = 0
    arrival_times: int = 0  # the number of times at which jobs arrived
    focus_at_arrival: float = 1.0  # chosen when jobs last arrived
    ended_since: int = 0  # jobs that have ended since then
    log_sizes: float = 0.0  # summed over the jobs seen
    usual: float = 0.0  # the usual ln m
    jobs: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # Of each job: spread, lean and height, what it counts, and its size at arrival.
    samples: FloatArray = field(default_factory=partial(np.zeros, (5, 0)))
    # Of jobs of unknown size: see :mod:`hesrpt.policies.lifetimes`.
    lifetimes: FloatArray = field(default_factory=partial(np.zeros, 0))
    # How far sizes are as given: the sums of :func:`scale_level`.
    estimates: FloatArray = field(default_factory=partial(np.zeros, ESTIMATE_SUMS))

    @property
    def focus(self) -> float:
        """The f that the policy uses: 1 for heSRPT, near 0 for almost equal shares."""
        return focus_of_level(scale_level(self.level, self.estimates))

    @property
    def focus_if_unknown(self) -> float:
        """The f for jobs of unknown size: what was learned, and what is believed at the start.

        Expectations that hardly differ teach next to nothing, and batches are not made out.
        """
        numerator = self.numerator + UNKNOWN_WEIGHT * UNKNOWN_FOCUS
        focus = numerator / (self.denominator + UNKNOWN_WEIGHT)
        return min(max(focus, MIN_UNKNOWN_FOCUS), 1.0)

    def record_work(self, fractions: FloatArray, log_ranks: FloatArray, log_jobs: float) -> Self:
        """Add the fraction of each job that was done at its rank; logarithms are ln i and ln m."""
        new = copy(self)
        new.samples = self.samples.copy()
        new.samples[:3] += sum_work(self.samples[3] * fractions, log_ranks, log_jobs, self.usual)
        return new

    def record_ends(self, ended: IntArray, log_jobs: FloatArray) -> Self:
        """Count jobs that have ended, given by their places; ``log_jobs`` is ln n at each end.

        If many have ended since jobs last arrived, the focus rises.
        """
        new = copy(self)
        for end in np.vstack((self.samples[:3, ended], log_jobs)).T.tolist():
            count_end(new, *end)
        raise_focus(new)
        return new

    def record_sizes(self, ended: IntArray, sizes: FloatArray) -> Self:
        """Compare the sizes of jobs that have ended, if they are known, with what was given."""
        new = copy(self)
        new.estimates = self.estimates.copy()
        usual = self.log_sizes / max(self.jobs_seen, 1)
        for given, size in np.log(np.stack((self.samples[4, ended], sizes), axis=1)).tolist():
            if isfinite(size):  # otherwise the job has ended early, and its size is not known
                compare_sizes(new.estimates, given, size, weigh_size(size, usual))
        return new

    def take(self, places: IntArray) -> Self:
        """Keep the entries of these jobs only."""
        new = copy(self)
        new.jobs, new.samples = self.jobs[places], self.samples[:, places]
        return new

    def without_jobs(self) -> Self:
        """Keep no entries of jobs: if they come back in a later run, they count as new ones."""
        return self.take(np.zeros(0, dtype=np.int64))

    def record_arrivals(
        self, jobs: IntArray, sizes: FloatArray, log_jobs: float, differ: bool = False
    ) -> Self:
        """Add jobs that arrived at the same time, and choose the focus.

        ``log_jobs`` is ln m, with these jobs. If speedups are not shared, jobs ``differ``.
        """
        log_sizes, none = np.log(sizes), np.zeros(len(jobs))
        new = copy(self)
        new.jobs_seen += len(jobs)
        new.log_sizes += float(log_sizes.sum())
        weights = weigh_size(log_sizes, new.log_sizes / new.jobs_seen)
        update_focus(new, len(self.jobs), len(jobs), log_jobs, differ)
        new.jobs = np.concatenate((self.jobs, jobs))
        new.samples = np.hstack((self.samples, [none, none, none, weights, sizes]))
        return new

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as JSON values.

        >>> Calibration.from_json(Calibration().as_json()).focus
        1.0
        """
        return {
            each.name: value.tolist()
            if isinstance(value := getattr(self, each.name), np.ndarray)
            else value
            for each in fields(self)
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return the calibration that :meth:`as_json` was called on."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        for name, value in known.items():
            if isinstance(value, list):
                known[name] = np.array(value, dtype=np.int64 if name == "jobs" else np.float64)
        return cls(**known)
