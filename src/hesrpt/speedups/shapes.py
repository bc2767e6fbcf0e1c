"""Speedups in the form that compiled code knows: arrays of distinct shapes, and an index per job.

Get them from :meth:`hesrpt.speedups.SpeedupVector.shapes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log
from typing import Any, NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray, scalar
from hesrpt.speedups.custom import Custom
from hesrpt.speedups.families import Amdahl, PowerLaw
from hesrpt.speedups.limits import Limited, TimeShared, WholeServers
from hesrpt.speedups.measured import PiecewiseLinear, concave_hull
from hesrpt.speedups.shape_kernel_data import AMDAHL, POWER, TABLE, Corners, Shape
from hesrpt.speedups.speedup import Speedup


class Shapes(NamedTuple):
    """The speedups of a list of jobs on a number of servers, for compiled code."""

    records: Any  # an array with a :class:`Shape` for each distinct speedup
    corners: Corners
    of_job: IntArray  # the number of each job's speedup in that array


@dataclass(frozen=True)
class FoundShape:
    """The shape of one speedup, before its table has a place among those of others."""

    family: int
    parameter: float
    high: float
    high_rate: float
    low: float = 0.0
    is_whole: bool = False
    at: FloatArray = field(default_factory=lambda: np.empty(0))
    height: FloatArray = field(default_factory=lambda: np.empty(0))


def join_shapes(speedups: Sequence[Speedup], servers: float) -> tuple[Any, Corners]:
    """Return the records of distinct speedups on [0, servers], and the corners of their tables."""
    shapes = [find_shape(speedup, servers) for speedup in speedups]
    types = {"int": np.int64, "float": np.float64}
    fields = [(name, types[kind]) for name, kind in Shape.__annotations__.items()]
    records = np.zeros(len(shapes), fields)
    corners = 0
    for record, shape in zip(records, shapes, strict=True):
        record["family"], record["is_whole"] = shape.family, shape.is_whole
        record["parameter"], record["log_parameter"] = shape.parameter, log(shape.parameter)
        record["low"], record["high"], record["high_rate"] = shape.low, shape.high, shape.high_rate
        record["usable"] = ceil(shape.high) if shape.is_whole else shape.high
        record["first_corner"] = corners
        corners += len(shape.at)
        record["last_corner"] = corners - 1
    at, height = (
        np.concatenate([getattr(shape, name) for shape in shapes]) for name in ("at", "height")
    )
    slope = np.zeros(corners)
    if corners:
        is_last = np.zeros(corners, dtype=bool)
        is_last[records["last_corner"][records["family"] == TABLE]] = True
        before = np.flatnonzero(~is_last)
        slope[before] = (height[before + 1] - height[before]) / (at[before + 1] - at[before])
    return records, Corners(at, height, slope)


def find_shape(speedup: Speedup, servers: float) -> FoundShape:
    """Return a speedup on [0, servers] in the form that compiled code knows."""
    if type(speedup) is PowerLaw:
        return _create_formula(POWER, speedup.p, speedup, servers)
    if type(speedup) is Amdahl:
        return _create_formula(AMDAHL, speedup.parallel_fraction, speedup, servers)
    if isinstance(speedup, Limited):
        return find_shape(speedup.base, min(servers, speedup.limit))
    if isinstance(speedup, TimeShared):
        base = find_shape(speedup.base, max(servers, 1.0))
        if base.family != TABLE and base.high > 1 and servers > 1:
            return base if base.is_whole else replace(base, low=1.0)
        return _create_table(speedup, np.append([0.0, 1.0], base.at[base.at > 1]), servers)
    if isinstance(speedup, WholeServers) and servers == int(servers):
        base = find_shape(speedup.base, servers)
        if base.family != TABLE:
            return replace(base, is_whole=True, low=0.0)
        # Away from corners all chords have the same slope.
        whole = np.unique(np.append(np.floor(base.at), np.ceil(base.at)))
        at, _ = concave_hull(whole.tolist(), speedup.rate(whole).tolist())
        return _create_table(speedup, at, servers)
    if isinstance(speedup, PiecewiseLinear):
        return _create_table(speedup, speedup.knots[0], servers)
    return find_shape(Custom(speedup.rate).tabulate(servers), servers)


def _create_formula(family: int, parameter: float, speedup: Speedup, servers: float) -> FoundShape:
    return FoundShape(family, parameter, servers, float(speedup.rate(scalar(servers))))


def _create_table(speedup: Speedup, at: FloatArray, servers: float) -> FoundShape:
    last = min(float(speedup.demand(scalar(0.0), servers)), float(at[-1]))
    at = np.append(at[at < last], last)
    height = speedup.rate(at)
    return FoundShape(TABLE, 1.0, last, float(height[-1]), at=at, height=height)
