"""Where heSRPT stops paying: other speedups, resizes that cost time, sizes that are not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hesrpt.traces import Log
from hesrpt.whatif.assumptions import Assumption, assumption
from hesrpt.whatif.study import WhatIf, whatif

POWERS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
RESIZE_COSTS = (0.0, 1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)  # seconds
SIZE_ERRORS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
OTHERS = ("easy", "equi")


@dataclass(frozen=True)
class Point:
    """Mean flow times under one setting."""

    what: str  # "p", "resize_cost" or "size_error"
    value: float
    flow_times: dict[str, float]  # by policy

    def gain(self, other: str) -> float:
        """Return how many times as long jobs take under another policy."""
        return self.flow_times[other] / self.flow_times["hesrpt"]


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """What is left of the advantage as one thing after the other gets worse."""

    study: WhatIf  # where all is as assumed
    points: tuple[Point, ...]

    def of(self, what: str) -> list[Point]:
        """Return the points of one sweep."""
        return [point for point in self.points if point.what == what]

    def limits(self) -> list[str]:
        """Return for each sweep and other policy up to where heSRPT pays, in words."""
        names = {"p": "p", "resize_cost": "resize cost (s)", "size_error": "size error"}
        told = []
        for what, name in names.items():
            for other in OTHERS:
                pays = [point.value for point in self.of(what) if point.gain(other) > 1]
                tried = [point.value for point in self.of(what)]
                against = f"against {other.upper()}, {name}"
                if len(pays) == len(tried):
                    told.append(f"{against} {tried[0]:g} to {tried[-1]:g}: heSRPT pays throughout")
                elif not pays:
                    told.append(f"{against} {tried[0]:g} to {tried[-1]:g}: heSRPT never pays")
                else:
                    shown = ", ".join(f"{value:g}" for value in pays)
                    told.append(f"{against}: heSRPT pays at {shown}")
        return told

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each setting."""
        return [
            {"swept": point.what, "value": point.value, **point.flow_times} for point in self.points
        ]


def sensitivity(
    log: Log,
    servers: int | None = None,
    assumed: Assumption | float | str = 0.7,
    *,
    powers: Sequence[float] = POWERS,
    resize_costs: Sequence[float] = RESIZE_COSTS,
    size_errors: Sequence[float] = SIZE_ERRORS,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Sensitivity:
    """Sweep p, the cost of a resize and the error of sizes, one at a time; see :func:`whatif`."""
    if not isinstance(assumed, Assumption):
        assumed = assumption(assumed)
    settings: list[tuple[str, float, Assumption, dict[str, float]]] = [
        *(("p", p, assumption(p, max_servers=assumed.limit), {}) for p in powers),
        *(("resize_cost", cost, assumed, {"resize_cost": cost}) for cost in resize_costs),
        *(("size_error", error, assumed, {"size_error": error}) for error in size_errors),
    ]
    study = whatif(log, servers, assumed, policies=("easy", "equi", "hesrpt"), **options)
    points = []
    for done, (what, value, speedups, changed) in enumerate(settings):
        if progress is not None:
            progress(done, len(settings))
        run = whatif(log, servers, speedups, policies=("equi", "hesrpt"), **{**options, **changed})
        flow_times = {name: one.mean_flow_time for name, one in run.runs.items()}
        # What users get depends on none of these.
        flow_times["easy"] = study.runs["easy"].mean_flow_time
        points.append(Point(what, value, {name: flow_times[name] for name in (*OTHERS, "hesrpt")}))
    return Sensitivity(study, tuple(points))
