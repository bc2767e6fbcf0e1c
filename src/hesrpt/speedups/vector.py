"""A different speedup for each job, evaluated together in a few vector passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.speedups.families import Amdahl, PowerLaw
from hesrpt.speedups.limits import Limited, TimeShared, WholeServers
from hesrpt.speedups.measured import MeasuredStack, PiecewiseLinear
from hesrpt.speedups.speedup import Speedup


class Mixed(Speedup):
    """The speedups of a list of jobs; its arrays have one entry for each job.

    >>> Mixed([PowerLaw(0.5), Amdahl(0.9), PowerLaw(0.25)])([16, 10, 16])
    array([4.        , 5.26315789, 2.        ])
    """

    def __init__(self, members: Sequence[Speedup]) -> None:
        self.members = tuple(members)

    def __repr__(self) -> str:
        kinds = sorted({type(member).__name__ for member in self.members})
        return f"Mixed({len(self.members)} of {', '.join(kinds)})"

    @cached_property
    def parts(self) -> list[tuple[IntArray, Speedup]]:
        """The jobs of each kind of speedup, and that speedup with arrays for its parameters."""
        by_shape: dict[object, list[int]] = {}
        for job, speedup in enumerate(self.members):
            by_shape.setdefault(_shape(speedup), []).append(job)
        return [
            (np.array(jobs), _stack([self.members[job] for job in jobs]))
            for jobs in by_shape.values()
        ]

    def _each(
        self, values: FloatArray, method: Callable[[Speedup, FloatArray], FloatArray]
    ) -> FloatArray:
        result = np.empty_like(values)
        for jobs, speedup in self.parts:
            result[jobs] = method(speedup, values[jobs])
        return result

    @property
    def kinds(self) -> int:
        """How many vector passes an evaluation takes: one for each kind of speedup."""
        return len(self.parts)

    @property
    def precision(self) -> float:  # type: ignore[override]
        return max(speedup.precision for _, speedup in self.parts)

    def rate(self, servers: FloatArray) -> FloatArray:
        return self._each(servers, lambda speedup, n: speedup.rate(n))

    def slope(self, servers: FloatArray) -> FloatArray:
        return self._each(servers, lambda speedup, n: speedup.slope(n))

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return self._each(servers, lambda speedup, n: speedup.slope_before(n))

    def demand(self, price: FloatArray, most: float) -> FloatArray:
        return self._each(price, lambda speedup, each: speedup.demand(each, most))

    def inverse(self, rate: FloatArray, most: float) -> FloatArray:
        return self._each(rate, lambda speedup, each: speedup.inverse(each, most))

    def check(self, servers: float) -> None:
        for speedup in set(self.members):
            speedup.check(servers)

    def known_on(self, servers: float) -> Mixed:
        known = {speedup: speedup.known_on(servers) for speedup in set(self.members)}
        if all(speedup is one for speedup, one in known.items()):
            return self
        return Mixed([known[speedup] for speedup in self.members])

    def of(self, job: int) -> Speedup:
        return self.members[job]

    def first(self, jobs: int) -> Mixed:
        part = Mixed(self.members[:jobs])
        groups = []
        for members, speedup in self.parts:
            count = int(np.searchsorted(members, jobs))
            if count:
                groups.append((members[:count], _first(speedup, count)))
        part.__dict__["parts"] = groups  # cut from these, rather than stacked again
        return part

    def reordered(self, order: IntArray) -> Mixed:
        return Mixed([self.members[job] for job in order])

    def on_whole_servers(self) -> Mixed:
        return Mixed([speedup.on_whole_servers() for speedup in self.members])


_MOST_CORNERS = 64
_DERIVED = Limited, TimeShared, WholeServers
_STACKABLE = Amdahl, MeasuredStack, PowerLaw, *_DERIVED


def _shape(speedup: Speedup) -> tuple[object, ...]:
    """Return what speedups must have in common to be one formula with arrays for parameters."""
    if isinstance(speedup, _DERIVED):
        return type(speedup), *_shape(speedup.base)
    # What has no numbers for parameters can only be stacked with its equals.
    # Large tables take longer side by side than one after the other.
    small = isinstance(speedup, PiecewiseLinear) and len(speedup.knots[0]) <= _MOST_CORNERS
    if small:
        return (PiecewiseLinear,)
    stackable = isinstance(speedup, Amdahl | PowerLaw)
    return (type(speedup),) if stackable else (speedup,)


def _stack(speedups: Sequence[Speedup]) -> Speedup:
    return _combine(speedups, lambda parameters: np.array(parameters, dtype=np.float64))


def _first(stacked: Speedup, count: int) -> Speedup:
    return _combine([stacked], lambda parameters: parameters[0][:count])


def _combine(speedups: Sequence[Speedup], join: Callable[[Sequence[Any]], Any]) -> Speedup:
    model = speedups[0]
    if isinstance(model, PiecewiseLinear):
        if len(model.knots[0]) > _MOST_CORNERS:
            return model
        return MeasuredStack.of_all(one for one in speedups if isinstance(one, PiecewiseLinear))
    if not isinstance(model, _STACKABLE):
        return model
    combined: Speedup = object.__new__(type(model))
    for parameter in fields(model):
        values = [getattr(speedup, parameter.name) for speedup in speedups]
        joined = _combine(values, join) if isinstance(values[0], Speedup) else join(values)
        object.__setattr__(combined, parameter.name, joined)  # unchecked: the members were
    return combined
