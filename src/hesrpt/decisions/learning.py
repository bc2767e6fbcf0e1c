"""What is learned about a job, and from the jobs of each kind: how long items take, and speedups.

With k items of a job in flight, an item takes d(k) seconds, so the job runs s(k) = k d(1)/d(k)
times as fast as with one item at a time. Under k^p, log d(k) = log d(1) + (1 − p) log k: a straight
line through the mean durations at each width k, fitted by least squares with a prior on p.

A command that runs on k servers for t seconds is held to the same law: it costs k·t seconds of
servers, and under k^p, log(k·t) = log x + (1 − p) log k, where x is its size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from operator import mul
from typing import Literal, NamedTuple, TypeAlias

from hesrpt.jobs.job_spec import NOTHING_KNOWN, PRIOR_WEIGHT, JobSpec, Prior

_MIN_P, _MAX_P = 0.01, 0.99
# Durations are taken to scatter at least this much, relative to their mean.
_MIN_SPREAD = 0.02


class WidthSums(NamedTuple):
    """Sums over items for a line through log durations against log widths."""

    variance: float  # Σ (x − x̄)², where x is the logarithm of a width
    covariance: float  # Σ (x − x̄)(y − ȳ), where y is the logarithm of a mean duration


class DurationSums(NamedTuple):
    """Sums over the durations of items."""

    items: float  # how many there are; a fraction, if they count less than others
    total: float
    squares: float  # the sum of the squared durations


def sum_durations(seconds: Sequence[float]) -> DurationSums:
    """Return the sums over the durations of items."""
    return DurationSums(len(seconds), sum(seconds), sum(map(mul, seconds, seconds)))


@dataclass
class ItemDurations:
    """How long finished items took, by width: the number of items in flight at the time.

    Of commands, how many seconds of servers they took, by their numbers of servers.
    """

    counts: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    squares: float = 0.0  # the sum of the squared durations
    prior: Prior = NOTHING_KNOWN
    _fitted_p: float | None = field(default=None, repr=False, compare=False)
    # The last p for which the duration of an item alone was asked, and that duration.
    _alone: tuple[float, float] | None = field(default=None, repr=False, compare=False)

    def add(self, width: int, *seconds: float) -> None:
        """Add finished items of one width."""
        self.add_sums(width, sum_durations(seconds))

    def add_sums(self, width: int, sums: DurationSums) -> None:
        """Add finished items of one width, of which only the sums are known."""
        self.counts[width] = self.counts.get(width, 0) + sums.items
        total = max(sums.total, 1e-9 * sums.items)
        self.seconds[width] = self.seconds.get(width, 0.0) + total
        self.squares += sums.squares
        self._fitted_p = self._alone = None

    @property
    def items(self) -> float:
        """How many items have been added."""
        return sum(self.counts.values())

    @property
    def p(self) -> float:
        """The fitted power of the speedup, rounded to two digits: more would be noise."""
        if self._fitted_p is None:
            # Items of one width say nothing about p.
            sums = [self.sum_widths()] if len(self.counts) > 1 else []
            self._fitted_p = fit_p(sums, self.prior)
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


# --- what the jobs of each kind have taught -----------------------------------------------------
#
# A *run of a job* is one observation: how long the items took that it did between a start of the
# scheduler and its end. Each run counts half as much as the next run of the same kind, so jobs that
# change are followed within a few runs, and one unusual night does not spoil the plan. Bags of
# items and single commands of the same kind are kept apart.

# How much a run counts, compared with the next one.
_FORGETTING = 0.5
# How many runs of a kind to keep: the next one would count less than half a percent.
_MAX_RUNS = 8
# How many kinds to keep: those that ran last.
_MAX_KINDS = 1000
# How many widths of a run to keep: with more, neighbours are merged.
_MAX_WIDTHS = 32
# The weight of what is known about p, at most: a job must be able to prove to be different.
_MAX_P_WEIGHT = 20.0
# How many items a command counts for, when p is fitted: it is long, so chance matters less.
_COMMAND_WEIGHT = 4.0

#: Where the p of a kind comes from: the user, items at different widths, or nowhere.
Origin: TypeAlias = Literal["given", "learned", "prior"]


@dataclass(frozen=True, kw_only=True)
class LearnedRun:
    """How long the items of one job took in one run."""

    number: int  # in the order in which the runs began
    kind: str
    is_bag: bool
    durations: ItemDurations
    given_p: float | None = None  # the p that the user gave, or one close to the speedup given

    def to_json(self) -> str:
        """Return what was learned as JSON, without the number and the kind."""
        durations = _merge_widths(self.durations)
        widths = {k: [n, durations.seconds[k]] for k, n in durations.counts.items()}
        values = {
            "is_bag": self.is_bag,
            "given_p": self.given_p,
            "widths": widths,
            "squares": durations.squares,
        }
        return json.dumps(values)

    @classmethod
    def from_json(cls, number: int, kind: str, text: str) -> LearnedRun:
        """Return the run that :meth:`to_json` wrote."""
        values = json.loads(text)
        durations = ItemDurations(squares=values["squares"])
        for width, (count, seconds) in values["widths"].items():
            durations.counts[int(width)] = count
            durations.seconds[int(width)] = seconds
        return cls(
            number=number,
            kind=kind,
            is_bag=values["is_bag"],
            durations=durations,
            given_p=values["given_p"],
        )


@dataclass(frozen=True, kw_only=True)
class LearnedKind:
    """What the runs of a kind have taught. The latest run counts most."""

    kind: str
    is_bag: bool
    runs: int
    items: int
    item_seconds: float  # of an item alone; of a command, its size
    spread: float  # the standard deviation of these seconds
    p: float
    p_error: float  # its standard error; 0 if the user gave p
    p_origin: Origin
    prior: Prior = field(repr=False)  # for the next job of this kind


class KindMemory:
    """The latest runs of each kind."""

    def __init__(self, runs: Iterable[LearnedRun] = ()) -> None:
        # By kind and whether they are bags; what was learned last comes last.
        self._runs: dict[tuple[str, bool], list[LearnedRun]] = {}
        self._last_number = 0
        self._to_forget: set[tuple[str, bool]] = set()  # may have too many runs
        for run in sorted(runs, key=lambda run: run.number):
            self._add(run)

    @property
    def runs(self) -> list[LearnedRun]:
        """All runs."""
        return [run for runs in self._runs.values() for run in runs]

    def begin_run(self, spec: JobSpec, durations: ItemDurations) -> LearnedRun:
        """Remember the durations of a job; those that are added to them later count too."""
        run = LearnedRun(
            number=self._last_number + 1,
            kind=spec.kind,
            is_bag=spec.is_bag,
            durations=durations,
            given_p=None if spec.speedup is None else spec.speedup.closest_exponent,
        )
        self._add(run)
        return run

    def _add(self, run: LearnedRun) -> None:
        key = run.kind, run.is_bag
        self._runs[key] = [*self._runs.pop(key, ()), run]
        self._to_forget.add(key)
        self._last_number = run.number

    def forget(self) -> list[int]:
        """Forget runs that hardly count any more; return their numbers."""
        forgotten: list[int] = []
        for key in self._to_forget:
            runs = self._runs[key]
            while len(runs) > _MAX_RUNS:
                forgotten.append(runs.pop(0).number)
        self._to_forget.clear()
        while len(self._runs) > _MAX_KINDS:
            oldest = self._runs.pop(next(iter(self._runs)))
            forgotten += [run.number for run in oldest]
        return forgotten

    def get_prior(self, spec: JobSpec) -> Prior:
        """Return what is known about a job before its first item has ended."""
        runs = self._runs.get((spec.kind, spec.is_bag))
        return NOTHING_KNOWN if runs is None else summarise_runs(runs).prior

    def summarise(self) -> list[LearnedKind]:
        """Return what was learned about each kind, in alphabetical order."""
        return [summarise_runs(runs) for _, runs in sorted(self._runs.items())]


def summarise_runs(runs: Sequence[LearnedRun]) -> LearnedKind:
    """Return what the runs of one kind have taught, the oldest first."""
    latest = runs[-1]
    ages = reversed(range(len(runs)))
    weighted = [(_FORGETTING**age, run.durations) for age, run in zip(ages, runs, strict=True)]
    if latest.is_bag:  # items may be longer in one run than in another
        each_run = [(weight, durations.sum_widths()) for weight, durations in weighted]
        sums = [WidthSums(weight * v, weight * c) for weight, (v, c) in each_run]
    else:
        sums = [_sum_commands(weighted)]
    p = fit_p(sums, NOTHING_KNOWN) if latest.given_p is None else latest.given_p
    # A run of a few items says less about their mean than a run of many.
    shares = [
        weight * durations.items / (durations.items + PRIOR_WEIGHT)
        for weight, durations in weighted
    ]
    total = sum(shares)
    means = [durations.measure_item_seconds(p) or 0.0 for _, durations in weighted]
    mean = sum(share * each for share, each in zip(shares, means, strict=True)) / total
    variance = sum(
        share * ((durations.relative_spread * each) ** 2 + (each - mean) ** 2)
        for share, (_, durations), each in zip(shares, weighted, means, strict=True)
    )
    spread = sqrt(variance / total)
    width_variance = sum(each.variance for each in sums)
    # Items of different runs are not compared, so only their spread within a run matters.
    relative_spread = max(each.relative_spread for _, each in weighted)
    error = estimate_p_error(
        sums, relative_spread if latest.is_bag else spread / mean, NOTHING_KNOWN
    )
    origin: Origin = "learned" if width_variance > 0 else "prior"
    if latest.given_p is not None:
        origin, error = "given", 0.0
    return LearnedKind(
        kind=latest.kind,
        is_bag=latest.is_bag,
        runs=len(runs),
        items=round(sum(run.durations.items for run in runs)),
        item_seconds=mean,
        spread=spread,
        p=p,
        p_error=error,
        p_origin=origin,
        prior=Prior(
            item_seconds=mean,
            p=p,
            p_weight=min(PRIOR_WEIGHT + width_variance, _MAX_P_WEIGHT),
            p_error=error,
        ),
    )


def _sum_commands(weighted: Sequence[tuple[float, ItemDurations]]) -> WidthSums:
    """Return the sums of all runs together: a command has one width in a run."""
    together = ItemDurations()
    for weight, durations in weighted:
        for width, count in durations.counts.items():
            factor = _COMMAND_WEIGHT * weight
            seconds = factor * durations.seconds[width]
            together.add_sums(width, DurationSums(factor * count, seconds, 0.0))
    return together.sum_widths()


def _merge_widths(durations: ItemDurations) -> ItemDurations:
    """Return durations of not too many widths: neighbouring ones are merged."""
    if len(durations.counts) <= _MAX_WIDTHS:
        return durations
    merged = ItemDurations(squares=durations.squares)
    step = log(max(durations.counts)) / (_MAX_WIDTHS - 1)
    for width, count in durations.counts.items():
        nearest = max(round(exp(round(log(width) / step) * step)), 1)
        merged.add_sums(nearest, DurationSums(count, durations.seconds[width], 0.0))
    return merged
