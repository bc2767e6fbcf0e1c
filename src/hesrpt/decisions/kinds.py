"""What the jobs of each kind have taught: how long items take, and how jobs speed up.

A *run of a job* is one observation: how long the items took that it did between a start of the
scheduler and its end. Each run counts half as much as the next run of the same kind, so jobs that
change are followed within a few runs, and one unusual night does not spoil the plan. Bags of items
and single commands of the same kind are kept apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from typing import Literal, TypeAlias

from hesrpt.decisions.learning import ItemDurations, WidthSums, estimate_p_error, fit_p
from hesrpt.jobs.job_spec import NOTHING_KNOWN, PRIOR_WEIGHT, JobSpec, Prior

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
        forgotten = []
        for key in self._to_forget:
            runs = self._runs[key]
            while len(runs) > _MAX_RUNS:
                forgotten.append(runs.pop(0))
        self._to_forget.clear()
        while len(self._runs) > _MAX_KINDS:
            forgotten += self._runs.pop(next(iter(self._runs)))
        return [run.number for run in forgotten]

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
    sums = _sum_bags(weighted) if latest.is_bag else [_sum_commands(weighted)]
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


def _sum_bags(weighted: Sequence[tuple[float, ItemDurations]]) -> list[WidthSums]:
    """Return the sums of each run: items may be longer in one run than in another."""
    return [
        WidthSums(weight * sums.variance, weight * sums.covariance)
        for weight, sums in ((weight, durations.sum_widths()) for weight, durations in weighted)
    ]


def _sum_commands(weighted: Sequence[tuple[float, ItemDurations]]) -> WidthSums:
    """Return the sums of all runs together: a command has one width in a run."""
    together = ItemDurations()
    for weight, durations in weighted:
        for width, count in durations.counts.items():
            together.counts[width] += _COMMAND_WEIGHT * weight * count
            together.seconds[width] += _COMMAND_WEIGHT * weight * durations.seconds[width]
    return together.sum_widths()


def _merge_widths(durations: ItemDurations) -> ItemDurations:
    """Return durations of not too many widths: neighbouring ones are merged."""
    if len(durations.counts) <= _MAX_WIDTHS:
        return durations
    merged = ItemDurations(squares=durations.squares)
    step = log(max(durations.counts)) / (_MAX_WIDTHS - 1)
    for width, count in durations.counts.items():
        nearest = max(round(exp(round(log(width) / step) * step)), 1)
        merged.counts[nearest] += count
        merged.seconds[nearest] += durations.seconds[width]
    return merged
