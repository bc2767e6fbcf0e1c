"""What is learned about a job, and from the jobs of each kind: how long items take, and speedups.

With k items of a job in flight, an item takes d(k) seconds, so the job runs s(k) = k d(1)/d(k)
times as fast as with one item at a time. Under k^p, log d(k) = log d(1) + (1 − p) log k: a straight
line through the mean durations at each width k, fitted by least squares with a prior on p.

A command that runs on k servers for t seconds is held to the same law: it costs k·t seconds of
servers, and under k^p, log(k·t) = log x + (1 − p) log k, where x is its size.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, hypot, log, sqrt
from operator import mul
from typing import Literal, NamedTuple, TypeAlias

from hesrpt.jobs.job_spec import NOTHING_KNOWN, PRIOR_WEIGHT, JobSpec, Prior

_MIN_P, _MAX_P = 0.01, 0.99
# How much durations scatter, relative to their mean, and as how many items that counts.
_SPREAD, _SPREAD_WEIGHT = 0.3, 5.0
# How much a wide item counts: p should fit best where decisions matter, so by width to this power.
_WIDTH_POWER = 2.0
# No speedup is a power law. Its p is off by this much, divided by the log of the range of widths.
_MISFIT = 0.15
# How many standard errors to stay below the likeliest p: believing too much costs more.
_CAUTION = 1.5
#: How much the p of jobs differ, as a standard deviation; those of one kind differ by less.
JOB_SPREAD, KIND_SPREAD = 0.1, 0.05
# By how many of the latest jobs others are judged.
_MAX_JOBS = 100


class Evidence(NamedTuple):
    """What is known about a p, as a normal distribution; pieces of evidence add up."""

    weight: float = 0.0  # 1 / variance
    total: float = 0.0  # the weight times the mean

    @classmethod
    def of(cls, p: float, error: float) -> Evidence:
        """Return the evidence that p is known with a standard error."""
        return cls(error**-2, p * error**-2)

    def plus(self, other: Evidence, factor: float = 1.0) -> Evidence:
        """Return both together, the other one as often as the factor says."""
        weight, total = self.weight + factor * other.weight, self.total + factor * other.total
        return Evidence(weight, total) if weight > 0 else Evidence()

    def widen(self, spread: float) -> Evidence:
        """Return what this says of another p that differs by this standard deviation."""
        scale = 1 / (1 + self.weight * spread**2)
        return Evidence(self.weight * scale, self.total * scale)

    @property
    def p(self) -> float:
        """The likeliest p."""
        return _limit_p(self.total / self.weight)

    @property
    def cautious_p(self) -> float:
        """The p to plan with."""
        return _limit_p(self.total / self.weight - _CAUTION * self.error)

    @property
    def error(self) -> float:
        """The standard error of p."""
        return 1 / sqrt(self.weight)


def _limit_p(p: float) -> float:
    """Return a p that a power law can have, rounded to two digits: more would be noise."""
    return round(min(max(p, _MIN_P), _MAX_P), 2)


class SharedEvidence:
    """What the latest jobs of a run say about the p of another one."""

    def __init__(self) -> None:
        self._jobs: deque[ItemDurations] = deque()
        self._total = Evidence()

    def update(self, job: ItemDurations) -> None:
        """Learn what a job says now."""
        if job.told is None:
            self._jobs.append(job)
            if len(self._jobs) > _MAX_JOBS:
                self._replace(self._jobs.popleft(), None)
        self._replace(job, job.measure_p().widen(JOB_SPREAD))

    def _replace(self, job: ItemDurations, told: Evidence | None) -> None:
        self._total = self._total.plus(job.told or Evidence(), -1.0).plus(told or Evidence())
        job.told = told

    def predict(self, job: ItemDurations | None = None) -> Evidence:
        """Return what others say about the p of a job."""
        told = None if job is None else job.told
        return self._total.plus(told or Evidence(), -1.0).widen(JOB_SPREAD)


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
    shared: SharedEvidence | None = field(default=None, repr=False, compare=False)
    told: Evidence | None = field(default=None, repr=False, compare=False)  # what it told others
    # The last p for which the duration of an item alone was asked, and that duration.
    _alone: tuple[float, float] | None = field(default=None, repr=False, compare=False)

    def add(self, width: float, *seconds: float) -> None:
        """Add finished items of one width."""
        self.add_sums(width, sum_durations(seconds))

    def add_sums(self, mean_width: float, sums: DurationSums) -> None:
        """Add finished items of one width, of which only the sums are known."""
        # Wide ones in steps of 10%, or there were too many widths.
        steps = round(log(mean_width) * 10)
        width = round(mean_width) if mean_width < 10 else round(exp(steps / 10))
        self.counts[width] = self.counts.get(width, 0) + sums.items
        total = max(sums.total, 1e-9 * sums.items)
        self.seconds[width] = self.seconds.get(width, 0.0) + total
        self.squares += sums.squares
        self._alone = None
        if self.shared is not None:
            self.shared.update(self)

    @property
    def items(self) -> float:
        """How many items have been added."""
        return sum(self.counts.values())

    @property
    def p(self) -> float:
        """The likeliest power of the speedup."""
        return self.believe().p

    def believe(self) -> Evidence:
        """Return what is known about p: from items, other jobs, and before the first item."""
        known = self.measure_p().plus(Evidence.of(self.prior.p, self.prior.p_error))
        return known if self.shared is None else known.plus(self.shared.predict(self))

    def measure_p(self) -> Evidence:
        """Return what the items alone say about p: nothing, if they had one width."""
        if len(self.counts) < 2:
            return Evidence()
        points = [(k, n, self.seconds[k] / n) for k, n in self.counts.items()]
        logs = [(n * k**_WIDTH_POWER, log(k), log(mean)) for k, n, mean in points]
        weights = sum(weight for weight, _, _ in logs)
        x_mean = sum(weight * x for weight, x, _ in logs) / weights
        y_mean = sum(weight * y for weight, _, y in logs) / weights
        variance = sum(weight * (x - x_mean) ** 2 for weight, x, _ in logs)
        covariance = sum(weight * (x - x_mean) * (y - y_mean) for weight, x, y in logs)
        slope = covariance / variance
        unexplained = sum(n * (y - y_mean - slope * (x - x_mean)) ** 2 for n, x, y in logs)
        within = max(self.squares / sum(n * mean**2 for _, n, mean in points) - 1, 0.0)
        items, known = self.items, _SPREAD_WEIGHT * _SPREAD**2
        spread = (items * (unexplained / weights + within) + known) / (items + _SPREAD_WEIGHT)
        # As if all had the weight of the widest, at most.
        noise = spread * max(self.counts) ** _WIDTH_POWER
        fit = Evidence.of(1 - slope, sqrt(noise / variance))
        return fit.widen(_MISFIT / log(max(self.counts) / min(self.counts)))

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
        widths = {k: [n, self.durations.seconds[k]] for k, n in self.durations.counts.items()}
        values = {
            "is_bag": self.is_bag,
            "given_p": self.given_p,
            "widths": widths,
            "squares": self.durations.squares,
        }
        return json.dumps(values)

    @classmethod
    def from_json(cls, number: int, kind: str, text: str) -> LearnedRun:
        """Return the run that :meth:`to_json` wrote."""
        values = json.loads(text)
        durations = ItemDurations(squares=values["squares"])
        for width, (count, seconds) in values["widths"].items():
            durations.add_sums(int(width), DurationSums(count, seconds, 0.0))
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
        # What is known about the p of other kinds; the core adds what the jobs of this run teach.
        known = Evidence.of(NOTHING_KNOWN.p, NOTHING_KNOWN.p_error)
        for each in self._runs.values():
            known = known.plus(_measure_runs(each).widen(JOB_SPREAD))
        error = hypot(known.error, JOB_SPREAD)
        self._base = Prior(p=known.p, p_error=error) if self._runs else NOTHING_KNOWN

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
        return self._base if runs is None else summarise_runs(runs, self._base).prior

    def summarise(self) -> list[LearnedKind]:
        """Return what was learned about each kind, in alphabetical order."""
        return [summarise_runs(runs, self._base) for _, runs in sorted(self._runs.items())]


def summarise_runs(runs: Sequence[LearnedRun], base: Prior) -> LearnedKind:
    """Return what the runs of one kind have taught, the oldest first, and other kinds before."""
    latest = runs[-1]
    ages = reversed(range(len(runs)))
    weighted = [(_FORGETTING**age, run.durations) for age, run in zip(ages, runs, strict=True)]
    learned = _measure_runs(runs)
    belief = learned.plus(Evidence.of(base.p, base.p_error))
    p = belief.p if latest.given_p is None else latest.given_p
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
    error = belief.error
    origin: Origin = "learned" if learned.weight > 0 else "prior"
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
        prior=Prior(item_seconds=mean, p=p, p_error=hypot(error, KIND_SPREAD)),
    )


def _measure_runs(runs: Sequence[LearnedRun]) -> Evidence:
    """Return what the runs of one kind say about p, the oldest first."""
    learned, commands = Evidence(), ItemDurations()
    for age, run in enumerate(reversed(runs)):
        weight = _FORGETTING**age
        if run.is_bag:  # items may be longer in one run than in another
            learned = learned.plus(run.durations.measure_p(), weight)
            continue
        for width, count in run.durations.counts.items():  # a command has one width in a run
            factor = _COMMAND_WEIGHT * weight
            seconds = factor * run.durations.seconds[width]
            commands.add_sums(width, DurationSums(factor * count, seconds, 0.0))
    return learned.plus(commands.measure_p())
