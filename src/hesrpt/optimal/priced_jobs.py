"""The jobs of a workload as arrays for the compiled kernel, and the total cost at given prices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray, scalar
from hesrpt.optimal.price_kernel import add_usage, find_minima
from hesrpt.optimal.price_kernel_data import (
    AMDAHL,
    MAX_MINIMA,
    POWER,
    TABLE,
    Corners,
    Kind,
    Minima,
)
from hesrpt.speedups import Amdahl, Custom, PowerLaw, Speedup, SpeedupVector
from hesrpt.speedups.limits import Limited, TimeShared, WholeServers
from hesrpt.speedups.measured import PiecewiseLinear

# With more corners than this, whole servers are bounded as if they could be divided.
MAX_CORNERS = 100_000


@dataclass(frozen=True)
class Shape:
    """A speedup in the form that the kernel knows: a formula between two limits, or a table."""

    family: int
    parameter: float
    low: float
    high: float
    high_rate: float
    at: FloatArray
    height: FloatArray


_NO_TABLE = np.empty(0)


def find_shape(speedup: Speedup, servers: float) -> Shape:
    """Return a speedup on [0, servers] in the form that the kernel knows."""
    if type(speedup) is PowerLaw:
        return _create_formula(POWER, speedup.p, speedup, servers)
    if type(speedup) is Amdahl:
        return _create_formula(AMDAHL, speedup.parallel_fraction, speedup, servers)
    if isinstance(speedup, Limited):
        return find_shape(speedup.base, min(servers, speedup.limit))
    if isinstance(speedup, TimeShared):
        base = find_shape(speedup.base, max(servers, 1.0))
        if base.family != TABLE and base.high > 1 and servers > 1:
            return replace(base, low=1.0)
        corners = np.concatenate(([0.0, 1.0], base.at[base.at > 1]))
        return _create_table(speedup, corners, servers)
    if isinstance(speedup, WholeServers):
        useful = np.ceil(speedup.base.demand(scalar(0.0), servers))
        most = int(min(np.floor(servers), useful))
        if most > MAX_CORNERS:
            return find_shape(speedup.base, servers)
        return _create_table(speedup.base, np.arange(most + 1.0), servers)
    if isinstance(speedup, PiecewiseLinear):
        return _create_table(speedup, speedup.knots[0], servers)
    return find_shape(Custom(speedup.rate).tabulate(servers), servers)


def _create_formula(family: int, parameter: float, speedup: Speedup, servers: float) -> Shape:
    rate = float(speedup.rate(scalar(servers)))
    return Shape(family, parameter, 0.0, servers, rate, _NO_TABLE, _NO_TABLE)


def _create_table(speedup: Speedup, at: FloatArray, servers: float) -> Shape:
    last = min(servers, float(at[-1]))
    at = np.append(at[at < last], last)
    height = speedup.rate(at)
    return Shape(TABLE, 1.0, 0.0, float(at[-1]), float(height[-1]), at, height)


class PricedJobs:
    """Jobs that pay for servers, sorted by kind and arrival as the kernel needs them."""

    def __init__(
        self,
        sizes: FloatArray,
        arrivals: FloatArray,
        weights: FloatArray,
        speedups: SpeedupVector,
        servers: float,
    ) -> None:
        self.servers = servers
        shapes: dict[Speedup, tuple[int, Shape]] = {}
        shape_of_job = np.empty(len(sizes), dtype=np.int64)
        for job, speedup in enumerate(speedups):
            if speedup not in shapes:
                shapes[speedup] = len(shapes), find_shape(speedup, servers)
            shape_of_job[job] = shapes[speedup][0]
        #: The jobs as they were given, in the order of all other arrays.
        self.order = np.lexsort((sizes, arrivals, weights, shape_of_job))
        self.sizes, self.arrivals = sizes[self.order], arrivals[self.order]
        self.weights = weights[self.order]
        self.kinds, self.corners = _create_kinds(
            [shape for _, shape in shapes.values()], shape_of_job[self.order], self.weights
        )
        jobs = len(sizes)
        self._minima = Minima(
            np.zeros(jobs, dtype=np.int64),
            np.empty((jobs, MAX_MINIMA)),
            np.empty((jobs, MAX_MINIMA), dtype=np.int64),
            np.empty((jobs, MAX_MINIMA)),
            np.empty((jobs, MAX_MINIMA), dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def evaluate(
        self,
        times: FloatArray,
        prices: FloatArray,
        smoothing: float,
        *,
        max_steps: int = 6,
        for_each: bool = False,
    ) -> PricedCosts:
        """Return the costs of the jobs if the price of a server is constant between ``times``.

        Every arrival must be one of the times. After the last time the price is 0. Costs are
        bounded from below; the more steps, the closer. The usage is that of all jobs together, or
        ``for_each`` of them.
        """
        arrivals = np.searchsorted(times, self.arrivals)
        least, ends = np.empty(len(self)), np.empty(len(self))
        usage = np.zeros((len(self) if for_each else 1, len(prices)))
        jobs = self.kinds, self.corners, self.sizes, arrivals, times, prices
        steps = find_minima(*jobs, _NEGLIGIBLE * smoothing, max_steps, least, self._minima)
        smoothed = add_usage(*jobs, least, self._minima, smoothing, usage, ends)
        return PricedCosts(least, smoothed, usage, ends, steps)


# Local minima this many times the smoothing above the least cost have no weight.
_NEGLIGIBLE = 10.0


@dataclass(frozen=True)
class PricedCosts:
    """What each job costs at given prices, and what it uses."""

    costs: FloatArray
    smoothed_total: float  # with the minimum over completion times smoothed
    usage: FloatArray  # a row with the server time in each interval: the gradient of the cost
    ends: FloatArray
    steps: int  # of the computation


def _create_kinds(
    shapes: list[Shape], shape_of_job: IntArray, weights: FloatArray
) -> tuple[Any, Corners]:
    """Return the kinds of jobs that are sorted by shape and weight, as an array of records."""
    is_first = np.ones(len(weights), dtype=bool)
    is_first[1:] = (np.diff(shape_of_job) != 0) | (np.diff(weights) != 0)
    first_job = np.flatnonzero(is_first)
    ends_of_tables = np.cumsum([len(shape.at) for shape in shapes])
    types = {"int": np.int64, "float": np.float64}
    kinds = np.zeros(len(first_job), [(name, types[t]) for name, t in Kind.__annotations__.items()])
    for number, first in enumerate(first_job):
        which = shape_of_job[first]
        shape = shapes[which]
        kind = kinds[number]
        kind["family"], kind["low"], kind["high"] = shape.family, shape.low, shape.high
        kind["high_rate"], kind["weight"] = shape.high_rate, weights[first]
        kind["parameter"], kind["log_parameter"] = shape.parameter, log(shape.parameter)
        kind["first_corner"] = ends_of_tables[which] - len(shape.at)
        kind["last_corner"] = ends_of_tables[which] - 1
    kinds["first_job"] = first_job
    kinds["end_job"] = np.append(first_job[1:], len(weights))
    at, height = (
        np.concatenate([getattr(shape, name) for shape in shapes]) for name in ("at", "height")
    )
    return kinds, Corners(at, height)
