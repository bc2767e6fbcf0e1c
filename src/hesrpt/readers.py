"""Reading jobs and measured speedups from files, with errors that name the file and the line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import describe_source, read_csv
from hesrpt.speedups import Measured, PowerLaw, Speedup, as_speedup
from hesrpt.validation import is_number
from hesrpt.workload import SpeedupLike, Workload


def read_jobs(path: str | Path, speedup: SpeedupLike | None = None) -> Workload:
    """Return the jobs in a CSV file.

    Its header names the columns: ``size``, and if wanted ``name``, ``weight``, ``arrival``, ``p``
    (each job's own power law, instead of ``speedup``) and ``max_servers``. A single column of sizes
    needs no header. A path of "-" reads standard input.
    """
    table = _read_table(path, _JOB_COLUMNS, required="size")
    return Workload(
        table.columns["size"],
        _speedups(table, None if speedup is None else as_speedup(speedup)),
        arrivals=table.columns.get("arrival"),
        weights=table.columns.get("weight"),
        names=table.columns.get("name"),
    )


def read_speedup(path: str | Path) -> Measured:
    """Return the measured speedup in a CSV file with the columns ``servers`` and ``speedup``."""
    table = _read_table(path, _SPEEDUP_COLUMNS, required="speedup")
    if "servers" not in table.columns:
        raise InputError(f"{table.place}:1: no column 'servers'")
    return Measured(table.columns["servers"], table.columns["speedup"])


@dataclass(frozen=True)
class Curve:
    """A measured speedup curve: of one application, on several numbers of servers."""

    application: str
    servers: tuple[float, ...]
    speedups: tuple[float, ...]

    @property
    def concave(self) -> Measured:
        """The least concave speedup above the points, flat past its peak."""
        return Measured(self.servers, self.speedups)


def read_curves(path: str | Path) -> list[Curve]:
    """Return the measured speedup curves in a CSV file, in the order of their first lines.

    Columns: ``workers`` (or ``servers``), ``speedup`` (or ``throughput``), and for several curves
    ``application``, also with ``source``; others are passed over. Throughputs are divided by the
    one on the fewest workers. If these are several, so many workers count as one server.
    """
    table = _read_table(path, _CURVE_COLUMNS, required="workers", others=True)
    workers = _one_of(table, ("workers", "servers"))
    name = _one_of(table, ("speedup", "throughput", "throughput_or_speedup"))
    kinds = [table.columns[key] for key in ("application", "source") if key in table.columns]
    curves: dict[tuple[str, ...], list[tuple[float, float, int]]] = {}
    for key, point in zip(
        zip(*kinds, strict=True) if kinds else [("",)] * len(table.lines),
        zip(table.columns[workers], table.columns[name], table.lines, strict=True),
        strict=True,
    ):
        curves.setdefault(key, []).append(point)
    return [
        _curve(", ".join(filter(None, key)), points, table.place, relative=name == "speedup")
        for key, points in curves.items()
    ]


def _one_of(table: _Table, names: tuple[str, ...]) -> str:
    found = [name for name in names if name in table.columns]
    if len(found) != 1:
        raise InputError(f"{table.place}:1: one column of {', '.join(names)} expected, got {found}")
    return found[0]


def _curve(
    application: str, points: list[tuple[float, float, int]], place: str, relative: bool
) -> Curve:
    fewest = min(points)[0]
    of_fewest = [speed for workers, speed, _ in points if workers == fewest]
    if not relative and min(of_fewest) <= 0:
        line = min(points)[2]
        raise InputError(
            f"{place}:{line}: the throughput of {application or 'the curve'} on the fewest workers "
            "must be greater than 0: all others are divided by it"
        )
    server, unit = (1.0, 1.0) if relative else (fewest, sum(of_fewest) / len(of_fewest))
    return Curve(
        application,
        tuple(workers / server for workers, _, _ in points),
        tuple(speed / unit for _, speed, _ in points),
    )


@dataclass(frozen=True)
class _Table:
    place: str
    lines: list[int]
    columns: dict[str, list[Any]]  # of what the column's parser makes of its cells


def _speedups(table: _Table, shared: Speedup | None) -> Speedup | list[Speedup]:
    """Return the speedup of all jobs, or a list with one for each where columns say so."""
    rows = len(table.lines)
    if "p" in table.columns and shared is not None:
        raise InputError(
            f"{table.place}: has a column 'p', so each job has its own speedup: none for all of "
            "them can be given"
        )
    if "p" in table.columns:
        each: list[Speedup] = [PowerLaw(p) for p in table.columns["p"]]
    elif shared is None:
        raise InputError(
            f"{table.place}: how do jobs speed up? Say it for all of them (p, Amdahl or measured), "
            "or in a column 'p'"
        )
    elif "max_servers" not in table.columns:
        return shared
    else:
        each = [shared] * rows
    limits = table.columns.get("max_servers")
    return each if limits is None else [s.limited(k) for s, k in zip(each, limits, strict=True)]


def _read_table(
    path: str | Path,
    parsers: dict[str, Callable[[str], object]],
    required: str,
    others: bool = False,  # whether columns that are not known are passed over
) -> _Table:
    place = describe_source(path)
    rows = read_csv(path)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{place}: is empty; a header or a column of numbers was expected")
    headless = len(first.cells) == 1 and is_number(first.cells[0])
    header = [required] if headless else [name.lower() for name in first.cells]
    if others:
        required, parsers = header[0], dict.fromkeys(header, str) | parsers
    _check_header(header, parsers, required, place)
    table = _Table(place, [], {name: [] for name in header})
    for line, cells in chain([first], rows) if headless else rows:
        if len(cells) != len(header):
            raise InputError(
                f"{place}:{line}: {len(header)} values expected ({', '.join(header)}), "
                f"got {len(cells)}"
            )
        table.lines.append(line)
        for name, cell in zip(header, cells, strict=True):
            try:
                table.columns[name].append(parsers[name](cell))
            except ValueError as error:
                raise InputError(f"{place}:{line}: {name} {error}, got {cell!r}") from None
    if not table.lines:
        raise InputError(f"{place}: has a header but no rows")
    return table


def _check_header(
    header: list[str], parsers: dict[str, Callable[[str], object]], required: str, place: str
) -> None:
    known = ", ".join(parsers)
    for name in header:
        if name not in parsers:
            raise InputError(f"{place}:1: unknown column {name!r}; columns are: {known}")
        if header.count(name) > 1:
            raise InputError(f"{place}:1: column {name!r} stands twice")
    if required not in header:
        raise InputError(f"{place}:1: no column {required!r}; columns are: {known}")


def _positive(text: str) -> float:
    if not is_number(text) or not isfinite(float(text)) or float(text) <= 0:
        raise ValueError("must be a number greater than 0")
    return float(text)


def _non_negative(text: str) -> float:
    if not is_number(text) or not isfinite(float(text)) or float(text) < 0:
        raise ValueError("must be a number of at least 0")
    return float(text)


def _power(text: str) -> float:
    if not is_number(text) or not 0 < float(text) < 1:
        raise ValueError("must lie in (0, 1)")
    return float(text)


_JOB_COLUMNS: dict[str, Callable[[str], object]] = {
    "size": _positive,
    "name": str,
    "weight": _positive,
    "arrival": _non_negative,
    "p": _power,
    "max_servers": _positive,
}
_CURVE_COLUMNS: dict[str, Callable[[str], object]] = {
    "workers": _positive,
    "servers": _positive,
    "speedup": _non_negative,
    "throughput": _non_negative,
    "throughput_or_speedup": _non_negative,
}
_SPEEDUP_COLUMNS: dict[str, Callable[[str], object]] = {
    "servers": _positive,
    "speedup": _non_negative,
}
