"""Reading jobs and measured speedups from CSV files, with errors that name the file and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import describe_source, read_csv
from hesrpt.speedups import Measured, PowerLaw, Speedup, as_speedup
from hesrpt.units import format_count
from hesrpt.validation import is_number
from hesrpt.workload import SpeedupLike, Workload


def read_jobs(path: str | Path, speedup: SpeedupLike | None = None) -> Workload:
    """Read the jobs in a CSV file.

    Parameters
    ----------
    path
        The file. Its header names the columns: ``size``, and optionally ``name``, ``weight``,
        ``arrival``, ``p`` (the power law of each job), ``max_servers`` and ``requested`` (the
        servers that rigid policies give the job). A single column of sizes needs no header. "-"
        reads standard input.
    speedup
        The speedup of all jobs; required unless the file has a column ``p``.
    """
    table = _read_table(path, _JOB_COLUMNS, required="size")
    return Workload(
        table.columns["size"],
        _build_speedups(table, None if speedup is None else as_speedup(speedup)),
        arrivals=table.columns.get("arrival"),
        weights=table.columns.get("weight"),
        names=table.columns.get("name"),
        requested=table.columns.get("requested"),
    )


def read_speedup(path: str | Path) -> Measured:
    """Read a measured speedup from a CSV file with the columns ``servers`` and ``speedup``."""
    table = _read_table(path, _SPEEDUP_COLUMNS, required="speedup")
    if "servers" not in table.columns:
        raise InputError(f"{table.source}:1: no column 'servers'")
    if not any(table.columns["speedup"]):
        raise InputError(f"{table.source}: has no speedup greater than 0")
    return Measured(table.columns["servers"], table.columns["speedup"])


@dataclass(frozen=True)
class Curve:
    """Measured speedups of one application on several numbers of servers."""

    application: str
    servers: tuple[float, ...]
    speedups: tuple[float, ...]
    base: float = 1.0  # the workers that count as one server

    @property
    def concave(self) -> Measured:
        """The least concave speedup above the points, flat beyond its peak."""
        return Measured(self.servers, self.speedups)


def read_curves(path: str | Path) -> list[Curve]:
    """Read the measured speedup curves in a CSV file, in the order in which they first appear.

    The columns are ``workers`` (or ``servers``), ``speedup`` (or ``throughput``), and for several
    curves ``application`` and ``source``; other columns are ignored. Throughputs become speedups:
    the fewest workers of a curve count as one server, and its throughput there as speedup 1.
    :attr:`Curve.base` is how many workers that are.
    """
    table = _read_table(path, _CURVE_COLUMNS, required="workers", ignore_unknown=True)
    workers = _find_one_column(table, ("workers", "servers"))
    values = _find_one_column(table, ("speedup", "throughput", "throughput_or_speedup"))
    points = zip(table.columns[workers], table.columns[values], table.lines, strict=True)
    curves: dict[str, list[tuple[float, float, int]]] = {}
    for label, point in zip(_label_rows(table), points, strict=True):
        curves.setdefault(label, []).append(point)
    read = []
    for label, rows in curves.items():
        base = unit = 1.0
        if values != "speedup":
            base, lowest, line = min(rows)
            if lowest <= 0:
                raise InputError(
                    f"{table.source}:{line}: the throughput of {label or 'the curve'} on the "
                    "fewest workers must be greater than 0, because the others are divided by it"
                )
            unit = fmean(value for at, value, _ in rows if at == base)
        servers = tuple(at / base for at, _, _ in rows)
        read.append(Curve(label, servers, tuple(value / unit for _, value, _ in rows), base))
    return read


@dataclass(frozen=True)
class _Table:
    source: str
    lines: list[int]  # the line of each row
    columns: dict[str, list[Any]]  # parsed cells, by name of the column


_Parsers = Mapping[str, Callable[[str], object]]


def _find_one_column(table: _Table, names: tuple[str, ...]) -> str:
    found = [name for name in names if name in table.columns]
    if len(found) != 1:
        raise InputError(
            f"{table.source}:1: needs exactly one of the columns {', '.join(names)}, "
            f"got {', '.join(found) or 'none'}"
        )
    return found[0]


def _label_rows(table: _Table) -> list[str]:
    """Return the application of each row, with its source, if the table has these columns."""
    columns = [table.columns[name] for name in ("application", "source") if name in table.columns]
    if not columns:
        return [""] * len(table.lines)
    return [", ".join(filter(None, cells)) for cells in zip(*columns, strict=True)]


def _build_speedups(table: _Table, shared: Speedup | None) -> Speedup | list[Speedup]:
    """Return the speedup of all jobs, or a list with one for each if columns specify them."""
    powers, limits = table.columns.get("p"), table.columns.get("max_servers")
    if powers is not None and shared is not None:
        raise InputError(
            f"must be left out: {table.source} has a column 'p', so each job has its own",
            argument="speedup",
        )
    if powers is not None:
        speedups: list[Speedup] = [PowerLaw(p) for p in powers]
    elif shared is None:
        raise InputError(f"is missing, and {table.source} has no column 'p'", argument="speedup")
    elif limits is None:
        return shared
    else:
        speedups = [shared] * len(limits)
    if limits is None:
        return speedups
    return [speedup.limited(limit) for speedup, limit in zip(speedups, limits, strict=True)]


def _read_table(
    path: str | Path, parsers: _Parsers, *, required: str, ignore_unknown: bool = False
) -> _Table:
    source = describe_source(path)
    rows = read_csv(path)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{source}: is empty; a header or a column of numbers was expected")
    _, names = first
    has_header = len(names) > 1 or not is_number(names[0])
    header = [name.lower() for name in names] if has_header else [required]
    if ignore_unknown:
        required, parsers = header[0], {**dict.fromkeys(header, str), **parsers}
    known = ", ".join(parsers)
    for name in header:
        if name not in parsers:
            raise InputError(f"{source}:1: unknown column {name!r}; columns are: {known}")
        if header.count(name) > 1:
            raise InputError(f"{source}:1: column {name!r} appears more than once")
    if required not in header:
        raise InputError(f"{source}:1: no column {required!r}; columns are: {known}")
    table = _Table(source, [], {name: [] for name in header})
    for line, cells in rows if has_header else chain([first], rows):
        if len(cells) != len(header):
            raise InputError(
                f"{source}:{line}: expected {format_count(len(header), 'value')} "
                f"({', '.join(header)}), got {len(cells)}"
            )
        table.lines.append(line)
        for name, cell in zip(header, cells, strict=True):
            try:
                table.columns[name].append(parsers[name](cell))
            except ValueError as error:
                raise InputError(f"{source}:{line}: {name} {error}, got {cell!r}") from None
    if not table.lines:
        raise InputError(f"{source}: has a header but no rows")
    return table


def _create_parser(expected: str, is_valid: Callable[[float], bool]) -> Callable[[str], float]:
    """Return a parser of the numbers in a column."""

    def parse(text: str) -> float:
        if not is_number(text) or not is_valid(float(text)):
            raise ValueError(f"must {expected}")
        return float(text)

    return parse


_parse_positive = _create_parser("be a number greater than 0", lambda value: 0 < value < inf)
_parse_non_negative = _create_parser("be a number of at least 0", lambda value: 0 <= value < inf)
_parse_power = _create_parser("lie in (0, 1)", lambda value: 0 < value < 1)

_JOB_COLUMNS: _Parsers = {
    "size": _parse_positive,
    "name": str,
    "weight": _parse_positive,
    "arrival": _parse_non_negative,
    "p": _parse_power,
    "max_servers": _parse_positive,
    "requested": _parse_positive,
}
_SPEEDUP_COLUMNS: _Parsers = {"servers": _parse_positive, "speedup": _parse_non_negative}
_CURVE_COLUMNS: _Parsers = {
    "workers": _parse_positive,
    "servers": _parse_positive,
    "speedup": _parse_non_negative,
    "throughput": _parse_non_negative,
    "throughput_or_speedup": _parse_non_negative,
}
