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

With weights, sums of weights take the place of i and m. The compiled loop of the simulator keeps
the same sums (:mod:`hesrpt.simulator.kernel`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import exp, sqrt
from typing import Any, Self

import numpy as np

from hesrpt.arrays import FloatArray, IntArray

#: The focus f takes the values (level / LEVELS)² only, so that rows can be kept in a table.
LEVELS = 32
#: The lowest level. Near saturation, next to equal shares is safer than equal shares.
MIN_LEVEL = 4
#: Old jobs are forgotten: a job counts 1/e after this many others.
MEMORY = 30_000
#: The usual number of jobs is a mean over this many arrivals, or over all if there were fewer.
USUAL_MEMORY = 3000.0
#: Before anything is observed, f is 1, with this weight: a batch keeps it.
BATCH_WEIGHT = 1e-3
#: When the first job joins others, this is believed of f, with the weight of this many jobs.
PRIOR_FOCUS, PRIOR_WEIGHT = 0.15, 10.0
#: A job of x times the usual size (the geometric mean) weighs x to this power, but at most so much.
SIZE_POWER, MAX_SIZE_WEIGHT = 0.4, 3.0
#: If more jobs end in a row without an arrival than this, times the mean number of jobs that arrive
#: together, jobs have stopped arriving, and f rises towards 1. It is 1 after twice as many.
PATIENCE = 10.0
# Forgetting stops here, so that sums never underflow.
_MIN_DENOMINATOR = 1e-9


def _no_numbers() -> FloatArray:
    return np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What has been learned: sums over ended jobs, and one entry for each job in the system."""

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
    size_weights: FloatArray = field(default_factory=_no_numbers)
    spread: FloatArray = field(default_factory=_no_numbers)
    lean: FloatArray = field(default_factory=_no_numbers)
    height: FloatArray = field(default_factory=_no_numbers)

    @property
    def focus(self) -> float:
        """The f that the policy uses: 1 for heSRPT, near 0 for almost equal shares."""
        return focus_of_level(self.level)

    def record_work(self, fractions: FloatArray, log_ranks: FloatArray, log_jobs: float) -> Self:
        """Add the fraction of each job that was done while its rank was ``log_ranks``.

        ``log_ranks`` is ln(i/m) and ``log_jobs`` is ln m.
        """
        lean = self.size_weights * fractions * log_ranks
        return replace(
            self,
            spread=self.spread + lean * log_ranks,
            lean=self.lean + lean,
            height=self.height + lean * (log_jobs - self.usual),
        )

    def record_ends(self, ended: IntArray, log_jobs: FloatArray) -> Self:
        """Count jobs that have ended, given by their places; ``log_jobs`` is ln n at each end.

        If many have ended since jobs last arrived, the focus rises.
        """
        numerator, denominator = self.numerator, self.denominator
        decay = exp(-1 / MEMORY)
        for place, log_n in zip(ended.tolist(), log_jobs.tolist(), strict=True):
            if denominator > _MIN_DENOMINATOR:
                numerator, denominator = decay * numerator, decay * denominator
            numerator += float(self.lean[place] * (log_n - self.usual) - self.height[place])
            denominator += float(self.spread[place])
        ended_since = self.ended_since + len(ended)
        patience = PATIENCE * self.jobs_seen / max(self.arrival_times, 1)
        stopped = min(max(ended_since / max(patience, 1.0) - 1, 0.0), 1.0)
        focus = self.focus_at_arrival + (1 - self.focus_at_arrival) * stopped
        return replace(
            self,
            level=level_of_focus(focus),
            numerator=numerator,
            denominator=denominator,
            ended_since=ended_since,
        )

    def take(self, places: IntArray) -> Self:
        """Keep the entries of these jobs only."""
        return replace(
            self,
            jobs=self.jobs[places],
            size_weights=self.size_weights[places],
            spread=self.spread[places],
            lean=self.lean[places],
            height=self.height[places],
        )

    def record_arrivals(self, jobs: IntArray, sizes: FloatArray, log_jobs: float) -> Self:
        """Add jobs that arrived at the same time, and choose the focus.

        ``log_jobs`` is ln m, with these jobs.
        """
        log_sizes = np.log(sizes)
        seen, total = self.jobs_seen + len(jobs), self.log_sizes + float(log_sizes.sum())
        weights = weigh_sizes(log_sizes, total / seen)
        numerator, denominator = self.numerator, self.denominator
        is_stream = self.is_stream or len(self.jobs) > 0
        if is_stream and not self.is_stream:
            numerator += PRIOR_FOCUS * PRIOR_WEIGHT
            denominator += PRIOR_WEIGHT
        # Evidence beyond the ends of the range must not have to be undone later.
        numerator = min(max(numerator, focus_of_level(MIN_LEVEL) * denominator), denominator)
        focus = numerator / denominator
        # The jobs seen so far are a batch to the extent that they are still there.
        focus += (1 - focus) * min((len(self.jobs) + len(jobs)) / seen, 1.0)
        arrival_times = self.arrival_times + 1
        none = np.zeros(len(jobs))
        return replace(
            self,
            level=level_of_focus(focus),
            numerator=numerator,
            denominator=denominator,
            is_stream=is_stream,
            jobs_seen=seen,
            arrival_times=arrival_times,
            focus_at_arrival=focus,
            ended_since=0,
            log_sizes=total,
            usual=self.usual + (log_jobs - self.usual) / min(arrival_times, USUAL_MEMORY),
            jobs=np.concatenate((self.jobs, jobs)),
            size_weights=np.concatenate((self.size_weights, weights)),
            spread=np.concatenate((self.spread, none)),
            lean=np.concatenate((self.lean, none)),
            height=np.concatenate((self.height, none)),
        )

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
        arrays = {
            name: np.array(value, dtype=np.int64 if name == "jobs" else np.float64)
            for name, value in values.items()
            if isinstance(value, list)
        }
        return cls(**(values | arrays))


def weigh_sizes(log_sizes: FloatArray, usual: FloatArray | float) -> FloatArray:
    """Return what jobs count, given the logarithms of their sizes and of the usual size.

    >>> weigh_sizes(np.log([1.0, 32.0]), 0.0)
    array([1., 3.])
    """
    weights: FloatArray = np.exp(SIZE_POWER * (log_sizes - usual))
    return np.minimum(weights, MAX_SIZE_WEIGHT)


def focus_of_level(level: int) -> float:
    """Return f: levels are closer together near 0, where small changes matter most.

    >>> focus_of_level(LEVELS), focus_of_level(LEVELS // 2)
    (1.0, 0.25)
    """
    return (level / LEVELS) ** 2


def level_of_focus(focus: float) -> int:
    """Return the level whose focus is closest in this sense: its square root is.

    >>> level_of_focus(1.0), level_of_focus(0.26)
    (32, 16)
    """
    return int(LEVELS * sqrt(focus) + 0.5)
