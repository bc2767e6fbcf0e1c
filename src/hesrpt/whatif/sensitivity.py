"""Where the adaptive policy pays off: at other speedups, with costly resizes, or inexact sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hesrpt.policies.registry import get_title
from hesrpt.traces import Trace
from hesrpt.whatif.assumptions import Assumption, assume_speedup
from hesrpt.whatif.study import run_study
from hesrpt.whatif.study_results import Study

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
                subject = f"against {_name(other)}, {label} {tried}: adaptive"
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


def _name(policy: str) -> str:
    return policy.upper() if policy == "easy" else get_title(policy)


class _Setting(NamedTuple):
    parameter: str
    value: float
    assumption: Assumption
    options: dict[str, float]


def run_sensitivity(
    trace: Trace,
    servers: int | None = None,
    assumption: Assumption | float | str = 0.7,
    *,
    powers: Sequence[float] = POWERS,
    resize_costs: Sequence[float] = RESIZE_COSTS,
    size_errors: Sequence[float] = SIZE_ERRORS,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Sensitivity:
    """Vary p, the cost of a resize and the error of sizes, one at a time.

    The other arguments are those of :func:`run_study`.
    """
    if not isinstance(assumption, Assumption):
        assumption = assume_speedup(assumption)
    settings = [
        *(_Setting("p", p, assume_speedup(p, max_servers=assumption.limit), {}) for p in powers),
        *(_Setting("resize_cost", x, assumption, {"resize_cost": x}) for x in resize_costs),
        *(_Setting("size_error", x, assumption, {"size_error": x}) for x in size_errors),
    ]
    options["other_limits"] = False
    study = run_study(trace, servers, assumption, policies=("easy", *_MALLEABLE), **options)
    means: dict[tuple[object, ...], float] = {}

    def keep(found: Study, assumed: Assumption, used: dict[str, Any]) -> None:
        for policy, run in found.runs.items():
            means[_identify(policy, assumed, used)] = run.mean_flow_time

    keep(study, assumption, options)
    points = []
    for done, (parameter, value, assumed, changes) in enumerate(settings):
        if progress is not None:
            progress(done, len(settings))
        used = {**options, **changes}
        keys = {policy: _identify(policy, assumed, used) for policy in ("easy", *_MALLEABLE)}
        if missing := [policy for policy, key in keys.items() if key not in means]:
            keep(run_study(trace, servers, assumed, policies=missing, **used), assumed, used)
        flow_times = {policy: means[key] for policy, key in keys.items()}
        points.append(Point(parameter=parameter, value=value, flow_times=flow_times))
    return Sensitivity(study=study, points=tuple(points))


def _identify(policy: str, assumption: Assumption, options: dict[str, Any]) -> tuple[object, ...]:
    """Return what the flow times of a policy depend on, of all that changes."""
    if policy not in _MALLEABLE:
        return (policy,)  # rigid jobs run as they did, and are never resized
    # Equal shares depend on no sizes.
    size_error = 0.0 if policy == "equi" else options.get("size_error", 0.0)
    return policy, assumption.text, options.get("resize_cost", 0.0), size_error
