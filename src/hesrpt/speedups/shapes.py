"""Speedups in the form that compiled code knows: arrays of distinct shapes, and an index per job.

Get them from :meth:`hesrpt.speedups.SpeedupVector.shapes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, scalar
from hesrpt.speedups.custom import Custom
from hesrpt.speedups.families import Amdahl, PowerLaw
from hesrpt.speedups.limits import Limited, TimeShared, WholeServers
from hesrpt.speedups.measured import PiecewiseLinear, concave_hull
from hesrpt.speedups.shape_kernel_data import AMDAHL, POWER, TABLE, Corners, Shape
from hesrpt.speedups.speedup import Speedup

_NO_CORNERS: FloatArray = np.empty(0)


class FoundShape(NamedTuple):
    """The shape of one speedup, before its table has a place among those of others."""

    family: int
    parameter: float
    high: float
    high_rate: float
    low: float = 0.0
    is_whole: bool = False
    at: FloatArray = _NO_CORNERS
    height: FloatArray = _NO_CORNERS


def join_shapes(speedups: Sequence[Speedup], servers: float) -> tuple[Any, Corners]:
    """Return the records of distinct speedups on [0, servers], and the corners of their tables."""
    shapes = [find_shape(speedup, servers) for speedup in speedups]
    types = {"int": np.int64, "float": np.float64}
    fields = [(name, types[kind]) for name, kind in Shape.__annotations__.items()]
    records = np.zeros(len(shapes), fields)
    # There may be very many, so all entries of a field are set together.
    family, parameter, high, high_rate, low, is_whole, at_of_each, height_of_each = zip(
        *shapes, strict=True
    )
    records["family"], records["is_whole"] = family, is_whole
    records["parameter"], records["log_parameter"] = parameter, np.log(parameter)
    records["low"], records["high"], records["high_rate"] = low, high, high_rate
    records["usable"] = np.where(records["is_whole"], np.ceil(high), high)
    ends = np.cumsum([len(at) for at in at_of_each])
    corners = int(ends[-1])
    records["last_corner"] = ends - 1
    records["first_corner"][1:] = ends[:-1]
    at, height = np.concatenate(at_of_each), np.concatenate(height_of_each)
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
            return base if base.is_whole else base._replace(low=1.0)
        return _create_table(speedup, np.append([0.0, 1.0], base.at[base.at > 1]), servers)
    if isinstance(speedup, WholeServers) and servers == int(servers):
        base = find_shape(speedup.base, servers)
        if base.family != TABLE:
            return base._replace(is_whole=True, low=0.0)
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
