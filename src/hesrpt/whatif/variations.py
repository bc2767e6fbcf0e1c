"""Studies repeated with one thing varied, which accompany a study if they were asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import InputError
from hesrpt.policies.registry import get_title
from hesrpt.simulator.intervals import Difference
from hesrpt.traces import Trace
from hesrpt.units import format_duration
from hesrpt.whatif.assumptions import assume_speedup
from hesrpt.whatif.malleability import Malleability, measure_parts
from hesrpt.whatif.study import run_study
from hesrpt.whatif.study_jobs import DEFAULT_OPTIONS, StudyOptions
from hesrpt.whatif.study_results import Study, compare_runs

POWERS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
RESIZE_COSTS = (0.0, 1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)  # seconds
SIZE_ERRORS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
#: The policies that the adaptive one is compared with.
BASELINES = ("easy", "equi", "hesrpt")
# Of these, the ones whose flow times depend on the parameters.
_MALLEABLE = ("equi", "hesrpt", "adaptive")
_PARAMETER_LABELS = {"p": "p", "resize_cost": "resize cost (s)", "size_error": "size error"}


@dataclass(frozen=True)
class Point:
    """Mean flow times for one value of one parameter."""

    parameter: str  # "p", "resize_cost" or "size_error"
    value: float
    flow_times: dict[str, float]  # by policy

    def gain(self, other: str) -> float:
        """Return the mean flow time under another policy, relative to adaptive."""
        return self.flow_times[other] / self.flow_times["adaptive"]


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """The gain of the adaptive policy when one parameter of a study is varied at a time."""

    study: Study  # with no parameter varied
    points: tuple[Point, ...]

    def select(self, parameter: str) -> list[Point]:
        """Return the points of one parameter."""
        return [point for point in self.points if point.parameter == parameter]

    def describe_limits(self) -> list[str]:
        """Return sentences that say, for each parameter and baseline, where adaptive pays off."""
        sentences = []
        for parameter, label in _PARAMETER_LABELS.items():
            points = self.select(parameter)
            for other in BASELINES:
                tried = ", ".join(f"{point.value:g}" for point in points)
                name = "EASY" if other == "easy" else get_title(other)
                subject = f"against {name}, {label} {tried}: adaptive"
                paying = [f"{point.value:g}" for point in points if point.gain(other) > 1]
                if len(paying) == len(points):
                    sentences.append(f"{subject} always pays off")
                elif not paying:
                    sentences.append(f"{subject} never pays off")
                else:
                    sentences.append(f"{subject} pays off at {', '.join(paying)}")
        return sentences

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each point."""
        return [
            {"parameter": point.parameter, "value": point.value, **point.flow_times}
            for point in self.points
        ]


def run_sensitivity(
    trace: Trace,
    options: StudyOptions = DEFAULT_OPTIONS,
    *,
    powers: Sequence[float] = POWERS,
    resize_costs: Sequence[float] = RESIZE_COSTS,
    size_errors: Sequence[float] = SIZE_ERRORS,
    progress: Callable[[int, int], None] | None = None,
) -> Sensitivity:
    """Vary p, the cost of a resize and the error of sizes of a study, one at a time."""
    policies = ("easy", *_MALLEABLE)
    study = run_study(trace, replace(options, policies=policies, bound=False, other_limits=False))
    options, limit = study.options, study.assumption.limit
    settings = [
        *(
            ("p", p, replace(options, assumption=assume_speedup(p, max_servers=limit)))
            for p in powers
        ),
        *(("resize_cost", x, replace(options, resize_cost=x)) for x in resize_costs),
        *(("size_error", x, replace(options, size_error=x)) for x in size_errors),
    ]
    points = []
    for done, (parameter, value, used) in enumerate(settings):
        if progress is not None:
            progress(done, len(settings))
        # Rigid jobs run as they did, and are never resized.
        runs = study.runs | run_study(trace, replace(used, policies=_MALLEABLE)).runs
        flow_times = {policy: runs[policy].mean_flow_time for policy in policies}
        points.append(Point(parameter=parameter, value=value, flow_times=flow_times))
    return Sensitivity(study=study, points=tuple(points))


FRACTIONS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: The policies for the jobs that change, unless others are chosen.
POLICIES = ("moldable", "equi", "adaptive")
_BASE = "easy"


@dataclass(frozen=True)
class FractionPoint:
    """What happens if a fraction of the jobs changes; one entry per policy in each mapping."""

    fraction: float  # that was asked for
    of_jobs: float  # the fraction of the jobs that changes …
    of_server_hours: float  # … and of the server-hours
    flow_times: dict[str, float]  # means over all jobs
    changed: dict[str, float]  # mean of the jobs that change, relative to these under EASY
    unchanged: dict[str, float]  # the same for the other jobs
    differences: dict[str, Difference | None]  # from EASY; None if there are too few jobs

    def is_better(self, policy: str, base: float) -> bool:
        """Whether all jobs together are better off than under EASY, beyond doubt if possible."""
        difference = self.differences[policy]
        if difference is not None:
            return difference.is_clear and difference.percentage < 0
        return self.flow_times[policy] < base


@dataclass(frozen=True, eq=False)
class FractionSweep:
    """Mean flow times as more and more jobs become malleable; the others stay rigid under EASY."""

    study: Study  # with rigid jobs only
    counted: str  # what the fractions are fractions of
    points: tuple[FractionPoint, ...]

    @property
    def base(self) -> float:
        """The mean flow time if all jobs are rigid."""
        return self.study.runs[_BASE].mean_flow_time

    @property
    def policies(self) -> list[str]:
        """The policies for the jobs that change."""
        return list(self.points[0].flow_times)

    def describe(self) -> list[str]:
        """Return sentences that say, for each policy, how many must change before it pays."""
        return [
            sentence
            for policy in self.policies
            for sentence in (self._describe_gain(policy), self._describe_incentive(policy))
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each fraction and policy."""
        return [
            {
                "fraction": point.fraction,
                "of_jobs": point.of_jobs,
                "of_server_hours": point.of_server_hours,
                "policy": policy,
                "mean_flow_time": point.flow_times[policy],
                "changed_jobs_relative_to_easy": point.changed.get(policy),
                "unchanged_jobs_relative_to_easy": point.unchanged.get(policy),
            }
            for point in self.points
            for policy in self.policies
        ]

    def _describe_gain(self, policy: str) -> str:
        name, what = get_title(policy), self.counted
        last = self.points[-1]
        # From the first of these on, all larger fractions pay too.
        paying = list(
            takewhile(lambda point: point.is_better(policy, self.base), reversed(self.points))
        )
        if not paying:
            return (
                f"{name}: it does not clearly pay, not even if {last.fraction:.0%} of the {what} "
                f"change: mean flow time would be {format_duration(last.flow_times[policy])} "
                f"instead of {format_duration(self.base)}"
            )
        first = paying[-1]
        text = (
            f"{name}: it pays from {first.fraction:.0%} of the {what} on, with a mean flow time of "
            f"{format_duration(first.flow_times[policy])} instead of {format_duration(self.base)}"
        )
        gain = self.base - last.flow_times[policy]
        half = next(
            (
                point
                for point in self.points
                if gain > 0 and self.base - point.flow_times[policy] >= gain / 2
            ),
            None,
        )
        if half is None or half is last or last.fraction < 1:
            return text
        return f"{text}; {half.fraction:.0%} reach half of what all together gain"

    def _describe_incentive(self, policy: str) -> str:
        name = get_title(policy)
        worse = [
            f"{point.fraction:.0%}" for point in self.points if point.changed.get(policy, 0) > 1
        ]
        if not worse:
            return f"{name}: the jobs that change are better off at every fraction tried"
        if len(worse) == len(self.points):
            return f"{name}: the jobs that change are worse off at every fraction tried"
        return f"{name}: the jobs that change are worse off at {', '.join(worse)}"


def run_fractions(
    trace: Trace,
    options: StudyOptions = DEFAULT_OPTIONS,
    *,
    fractions: Sequence[float] = FRACTIONS,
    policies: Sequence[str] = POLICIES,
    progress: Callable[[int, int], None] | None = None,
) -> FractionSweep:
    """Replay a trace with more and more malleable jobs, and the others rigid under EASY.

    ``options.malleable`` says what the fractions are fractions of: jobs, users or server-hours. The
    jobs that change at one fraction also change at each larger one; ``policies`` are for them.
    """
    if not policies:
        raise InputError(
            "must name a policy for the jobs that change, such as equi or moldable",
            argument="policies",
        )
    counted = options.malleable.counted
    rigid = replace(options, policies=(_BASE,), malleable=None, bound=False, other_limits=False)
    study = run_study(trace, rigid)
    before = study.runs[_BASE].flow_times
    points = []
    for done, fraction in enumerate(fractions):
        if progress is not None:
            progress(done, len(fractions))
        changed = Malleability(fraction, counted)
        replayed = run_study(trace, replace(study.options, policies=policies, malleable=changed))
        flow_times = {policy: replayed.runs[policy].flow_times for policy in policies}
        is_changed = replayed.is_malleable
        points.append(
            FractionPoint(
                fraction,
                *measure_parts(study.trace, is_changed),
                flow_times={policy: float(times.mean()) for policy, times in flow_times.items()},
                changed=_relate(flow_times, before, is_changed),
                unchanged=_relate(flow_times, before, ~is_changed),
                differences={
                    policy: compare_runs(replayed.runs | study.runs, policy, _BASE)
                    for policy in policies
                },
            )
        )
    return FractionSweep(study=study, counted=counted, points=tuple(points))


def _relate(
    flow_times: dict[str, FloatArray], before: FloatArray, members: BoolArray
) -> dict[str, float]:
    """Return the mean flow time of some jobs relative to that under EASY, by policy."""
    if not members.any():
        return {}
    base = float(before[members].mean())
    return {policy: float(times[members].mean()) / base for policy, times in flow_times.items()}


@dataclass(frozen=True)
class Variations:
    """The variations of a study that were asked for."""

    sensitivity: Sensitivity | None = None
    fractions: FractionSweep | None = None

    def describe(self) -> list[str]:
        """Return what they show, in sentences."""
        sentences = [] if self.fractions is None else self.fractions.describe()
        return sentences + ([] if self.sensitivity is None else self.sensitivity.describe_limits())

    def as_json(self) -> dict[str, Any]:
        """Return them as JSON values."""
        values = {"sensitivity": self.sensitivity, "fractions": self.fractions}
        return {name: value.rows() for name, value in values.items() if value is not None}
