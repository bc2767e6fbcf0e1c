"""Speedups in the form that compiled code knows: arrays of distinct shapes, and an index per job.

Get them from :meth:`hesrpt.speedups.SpeedupVector.shapes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, IntArray, scalar
from hesrpt.compiled import create_records
from hesrpt.speedups.custom import Custom
from hesrpt.speedups.families import Amdahl, PowerLaw
from hesrpt.speedups.limits import Limited, TimeShared, WholeServers
from hesrpt.speedups.measured import PiecewiseLinear, concave_hull
from hesrpt.speedups.shape_kernel import AMDAHL, POWER, TABLE, Corners, Shape
from hesrpt.speedups.speedup import Speedup

_NO_CORNERS: FloatArray = np.empty(0)
# A table of all whole numbers of servers is faster than a formula, if all tables together have no
# more corners than this.
_MAX_CORNERS = 4_000_000
_FORMULAS: dict[int, type[Speedup]] = {POWER: PowerLaw, AMDAHL: Amdahl}


class FoundShape(NamedTuple):
    """The shape of one speedup, before its table has a place among those of others."""

    family: int
    parameter: float
    high: float
    low: float = 0.0
    is_whole: bool = False
    at: FloatArray = _NO_CORNERS
    height: FloatArray = _NO_CORNERS


def join_shapes(
    speedups: Sequence[Speedup], servers: float, tabulated: bool = False
) -> tuple[Any, Corners]:
    """Return the records of distinct speedups on [0, servers], and the corners of their tables.

    If ``tabulated``, formulas on whole servers become tables too, unless these would be too large.
    """
    # There may be very many, so frequent ones are found without a call, and all entries of a field
    # are set together.
    shapes = [
        (POWER, each.p, servers, 0.0, False)
        if type(each) is PowerLaw
        else find_shape(each, servers)
        for each in speedups
    ]
    tables = [shape for shape in shapes if isinstance(shape, FoundShape) and len(shape.at)]
    records = create_records(Shape, len(shapes))
    family, parameter, high, low, is_whole = zip(*(shape[:5] for shape in shapes), strict=True)
    records["family"], records["is_whole"] = family, is_whole
    records["parameter"], records["log_parameter"] = parameter, np.log(parameter)
    records["low"], records["high"] = low, high
    with np.errstate(divide="ignore"):
        records["c"] = 1 / (1 - records["parameter"])
    records["has_kinks"] = (records["low"] > 0) | records["is_whole"] | (records["c"] == np.inf)
    records["usable"] = np.where(records["is_whole"], np.ceil(high), high)
    for each, formula in _FORMULAS.items():
        members = records["family"] == each
        formulas = formula.with_arrays(records["parameter"][members])
        records["high_rate"][members] = formulas.rate(records["high"][members])
    is_table = records["family"] == TABLE
    _place_corners(records, is_table, np.array([len(table.at) for table in tables], np.int64))
    corners = _join_corners(records["last_corner"][is_table], tables)
    records["high_rate"][is_table] = corners.height[records["last_corner"][is_table]]
    if tabulated and records["usable"][records["is_whole"] == 1].sum() <= _MAX_CORNERS:
        corners = _tabulate_whole_servers(records, corners)
    return records, corners


def _place_corners(records: Any, which: BoolArray, lengths: IntArray, first: int = 0) -> None:
    """Give some records tables of these lengths, one after the other."""
    ends = first + np.cumsum(lengths)
    records["last_corner"][which] = ends - 1
    records["first_corner"][which] = ends - lengths


def _join_corners(last: IntArray, tables: Sequence[FoundShape]) -> Corners:
    """Return the corners of all tables, given the last corner of each."""
    at = np.concatenate([_NO_CORNERS, *(table.at for table in tables)])
    height = np.concatenate([_NO_CORNERS, *(table.height for table in tables)])
    slope = np.zeros(len(at))
    is_last = np.zeros(len(at), dtype=bool)
    is_last[last] = True
    before = np.flatnonzero(~is_last)
    slope[before] = (height[before + 1] - height[before]) / (at[before + 1] - at[before])
    return Corners(at, height, slope)


def _tabulate_whole_servers(records: Any, corners: Corners) -> Corners:
    """Turn formulas on whole servers into tables, and return the corners with theirs added."""
    for family, formula in _FORMULAS.items():
        members = (records["family"] == family) & (records["is_whole"] == 1)
        lengths = records["usable"][members].astype(np.int64) + 1
        first = len(corners.at)
        _place_corners(records, members, lengths, first)
        chosen = records[members]
        at = np.arange(lengths.sum()) - np.repeat(chosen["first_corner"] - first, lengths)
        high = np.repeat(chosen["high"], lengths)
        formulas = formula.with_arrays(np.repeat(chosen["parameter"], lengths))
        height = formulas.rate(np.minimum(at, high))
        # The difference of two heights would lose digits.
        slope = np.where(at + 1 <= high, formulas.gain(at), np.append(np.diff(height), 0.0))
        slope[chosen["last_corner"] - first] = 0.0
        records["family"][members], records["is_whole"][members] = TABLE, 0
        records["high"][members] = records["usable"][members]
        joined = zip(corners, (at, height, slope), strict=True)
        corners = Corners(*(np.concatenate(pair) for pair in joined))
    return corners


def find_shape(speedup: Speedup, servers: float) -> FoundShape:
    """Return a speedup on [0, servers] in the form that compiled code knows."""
    if type(speedup) is PowerLaw:  # not a subclass, which may have rates of its own
        return FoundShape(POWER, speedup.p, servers)
    if type(speedup) is Amdahl:
        return FoundShape(AMDAHL, speedup.parallel_fraction, servers)
    if type(speedup) is Limited:
        return find_shape(speedup.base, min(servers, speedup.limit))
    if type(speedup) is TimeShared:
        base = find_shape(speedup.base, max(servers, 1.0))
        if base.family != TABLE and base.high > 1 and servers > 1:
            return base if base.is_whole else base._replace(low=1.0)
        return _create_table(speedup, np.append([0.0, 1.0], base.at[base.at > 1]), servers)
    if type(speedup) is WholeServers and servers == int(servers):
        base = find_shape(speedup.base, servers)
        if base.family != TABLE:
            return base._replace(is_whole=True, low=0.0)
        # Away from corners all chords have the same slope.
        whole = np.unique(np.append(np.floor(base.at), np.ceil(base.at)))
        at, _ = concave_hull(whole.tolist(), speedup.rate(whole).tolist())
        return _create_table(speedup, at, servers)
    if isinstance(speedup, PiecewiseLinear) and type(speedup).rate is PiecewiseLinear.rate:
        return _create_table(speedup, speedup.knots[0], servers)
    return find_shape(Custom(speedup.rate).tabulate(servers), servers)


def _create_table(speedup: Speedup, at: FloatArray, servers: float) -> FoundShape:
    last = min(float(speedup.demand(scalar(0.0), servers)), float(at[-1]))
    at = np.append(at[at < last], last)
    return FoundShape(TABLE, 1.0, last, at=at, height=speedup.rate(at))
