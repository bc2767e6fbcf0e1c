"""Which jobs of a log can be used: the one place where that is judged, whatever the format.

Readers hand in rows as the log tells them. What is left becomes a :class:`Log`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import InputError
from hesrpt.traces.cells import date_at
from hesrpt.traces.trace import Log, told

DAMAGED = "line could not be read"
UNENDED = "had not ended"
_MOST = 1e15  # seconds or servers: more of them are a mistake


@dataclass(frozen=True, eq=False)
class Rows:
    """Some jobs as the log tells them: NaN is what it does not say, infinity is nonsense."""

    lines: Sequence[int]
    names: Sequence[str]
    submit: FloatArray
    runtime: FloatArray
    servers: FloatArray
    start: FloatArray
    estimate: FloatArray
    #: Why rows cannot be used, as far as only their reader can know.
    troubles: Mapping[str, BoolArray]
    #: What the log says, word for word, of a row: the text of one of our columns, or of all ("").
    quote: Callable[[int, str], str]


@dataclass
class Sieve:
    """Keeps the rows that can be used and counts the others; if strict, it raises instead."""

    place: str
    strict: bool = False
    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    _kept: list[tuple[FloatArray, ...]] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def add(self, rows: Rows) -> None:
        """Judge rows; each one that is of no use is counted under its first reason."""
        usable = np.ones(len(rows.names), np.bool_)
        refused: dict[str, tuple[str, BoolArray]] = {}
        for reason, column, bad in _reasons(rows):
            found = usable & bad
            if found.any():
                refused[reason] = column, found
                usable &= ~found
        if self.strict and refused:
            self._refuse(rows, refused)
        self.read += len(usable)
        for reason, (_, found) in refused.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + int(np.count_nonzero(found))
        start = np.where(_sane(rows.start) & (rows.start >= rows.submit), rows.start, np.nan)
        estimate = np.where(_sane(rows.estimate) & (rows.estimate > 0), rows.estimate, np.nan)
        columns = (rows.submit, rows.runtime, np.ceil(rows.servers), start, estimate)
        self._kept.append(tuple(column[usable] for column in columns))
        self._names += compress(rows.names, usable)

    def log(self, machine: int | None, zero: float | None, zoned: bool) -> Log:
        """Return the jobs that were kept; ``zero`` is the date of time 0, in Unix time."""
        if not self.read:
            raise InputError(f"{self.place}: holds no jobs")
        if not self._names:
            counted = told(0, self.read, self.dropped)
            raise InputError(f"{self.place}: has no job that can be used: {counted}")
        columns = [np.concatenate(parts) for parts in zip(*self._kept, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        submit, runtime, servers, start, estimate = (column[order] for column in columns)
        first = float(submit[0])
        return Log(
            place=self.place,
            submit=submit - first,
            runtime=runtime,
            servers=servers,
            start=start - first,
            estimate=estimate,
            names=tuple(self._names[job] for job in order.tolist()),
            machine=machine,
            began=None if zero is None else date_at(zero + first, zoned),
            read=self.read,
            dropped=self.dropped,
        )

    def _refuse(self, rows: Rows, refused: Mapping[str, tuple[str, BoolArray]]) -> None:
        row, reason, column = min(
            (int(np.argmax(found)), reason, column) for reason, (column, found) in refused.items()
        )
        job = "" if reason == DAMAGED else f"job {_brief(rows.names[row])} "
        raise InputError(
            f"{self.place}:{rows.lines[row]}: {job}{reason}, got {_brief(rows.quote(row, column))}"
        )


def _reasons(rows: Rows) -> Iterator[tuple[str, str, BoolArray]]:
    """Yield why rows cannot be used, which column says so, and which rows they are."""
    for reason, bad in rows.troubles.items():
        yield reason, "", bad
    yield "had no submit time", "submit", np.isnan(rows.submit)
    yield "had a submit time that makes no sense", "submit", ~_sane(rows.submit)
    yield "had no run time", "runtime", np.isnan(rows.runtime)
    yield "had run time 0", "runtime", rows.runtime == 0
    yield "had a run time that makes no sense", "runtime", ~_sane(rows.runtime) | (rows.runtime < 0)
    yield "had no servers", "servers", np.isnan(rows.servers) | (rows.servers == 0)
    yield (
        "had a number of servers that makes no sense",
        "servers",
        ~_sane(rows.servers) | (rows.servers < 0),
    )


def _sane(values: FloatArray) -> BoolArray:
    return np.abs(values) <= _MOST  # false for NaN too


def _brief(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else text[: most - 1] + "…")
