"""Logs that are tables with a header: what sacct and CSV have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.files import Block, Row, parse_csv
from hesrpt.traces.cells import TimeKind, parse_durations, parse_numbers, parse_times
from hesrpt.traces.cleaning import DAMAGED, UNENDED, Rows, Sieve
from hesrpt.traces.columns import find_columns, plain
from hesrpt.traces.trace import Log

_BATCH = 10_000  # rows that are turned into numbers at a time
Cells = Mapping[str, Sequence[str]]  # of our columns, as far as there are any


@dataclass(frozen=True)
class Dialect:
    """What tells one kind of table from another."""

    #: The names that our columns may have there, plainly spelled.
    known: Mapping[str, Sequence[str]]
    #: Those of ours of which the first in ``known`` is taken if there are several.
    ranked: Sequence[str]
    #: Of the format, for Python's csv module; given the header's line.
    options: Callable[[str], Mapping[str, Any]]
    #: By what the numbers in a column are multiplied, given its plain name.
    units: Mapping[str, float]
    #: Whether a row that bears this name is no job.
    is_part: Callable[[str], bool]
    #: Which rows are of jobs that had not ended.
    is_unended: Callable[[Cells], list[bool]] | None = None
    #: Whether jobs must have names.
    named: bool = False


def read_table(
    text: Iterable[Block], sieve: Sieve, dialect: Dialect, columns: Mapping[str, str]
) -> Log:
    """Return the jobs in a table; ``columns`` are the names of columns that the user gives."""
    lines = ((n, line) for first, block in text for n, line in enumerate(block, first))
    top, header_line = next(((n, line) for n, line in lines if line.strip()), (1, ""))
    rows = parse_csv(
        chain([header_line], (line for _, line in lines)),
        sieve.place,
        first_line=top,
        **dialect.options(header_line),
    )
    last, names = next(rows)  # the header's line is not blank
    header = [name.strip() for name in names]
    place = f"{sieve.place}:{top}"
    found = find_columns(place, header, dialect.known, columns, dialect.ranked)
    if dialect.named and "name" not in found:
        raise InputError(
            f"{place}: no column {dialect.known['name'][0]}, which tells job steps apart"
        )
    table = _Table(dialect, header, found)
    for batch in _batches(rows, table, last):
        sieve.add(table.rows(batch))
    zoned = table.kind == TimeKind.ZONED_DATE
    return sieve.log(None, None if table.kind in (None, TimeKind.NUMBER) else 0.0, zoned)


Batch = list[tuple[int, list[str], bool]]  # line, cells, and whether they are fit for use


def _batches(rows: Iterator[Row], table: _Table, previous: int) -> Iterator[Batch]:
    """Yield the rows that are about jobs, many at a time."""
    width, named = len(table.header), table.found.get("name")
    batch: Batch = []

    def torn(cells: Sequence[str]) -> bool:  # only names may have several lines
        return any("\n" in cells[k] for ours, k in table.found.items() if ours != "name")

    for line, cells in rows:
        before, previous = previous, line
        if not any(map(str.strip, cells)) or table.is_header(cells):
            continue  # the header may be that of a second file, appended to the first
        if len(cells) < width or any(cells[width:]) or (line > before + 1 and torn(cells)):
            # A stray quotation mark makes one row of several lines: as many jobs are lost.
            batch += [(n, cells, False) for n in range(before + 1, line + 1)]
        elif named is None or not table.dialect.is_part(cells[named]):
            batch.append((line, cells, True))
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


class _Table:
    """Turns the cells of rows into numbers."""

    def __init__(self, dialect: Dialect, header: list[str], found: Mapping[str, int]) -> None:
        self.dialect = dialect
        self.header = header
        self.found = found
        self.kind: int | None = None  # of the first submission: of a number or a date
        self._jobs = 0

    def is_header(self, cells: Sequence[str]) -> bool:
        return cells[0].strip() == self.header[0] and [c.strip() for c in cells] == self.header

    def rows(self, batch: Batch) -> Rows:
        cells: dict[str, list[str]] = {
            ours: [row[column] if fit else "" for _, row, fit in batch]
            for ours, column in self.found.items()
        }
        fit = np.array([fit for _, _, fit in batch])
        submit = self._moments(cells, "submit", len(batch))
        start = self._moments(cells, "start", len(batch))
        troubles = {DAMAGED: ~fit}
        if self.dialect.is_unended is not None:
            troubles[UNENDED] = np.array(self.dialect.is_unended(cells))
        with np.errstate(invalid="ignore"):  # infinite less infinite: both are nonsense
            wait = self._durations(cells, "wait", len(batch))
            start = np.where(np.isnan(start) & (wait >= 0), submit + wait, start)
            ran = self._moments(cells, "end", len(batch)) - start
        runtime = self._durations(cells, "runtime", len(batch))

        def quote(row: int, ours: str) -> str:
            if ours == "runtime" and "runtime" not in cells:
                return " to ".join(cells[k][row] for k in ("start", "end") if k in cells)
            return cells[ours][row] if ours else ", ".join(batch[row][1])

        return Rows(
            lines=[line for line, _, _ in batch],
            names=self._names(cells, len(batch)),
            submit=submit,
            runtime=np.where(np.isnan(runtime), ran, runtime),
            servers=parse_numbers(cells["servers"]),
            start=start,
            estimate=self._durations(cells, "estimate", len(batch)),
            troubles=troubles,
            quote=quote,
        )

    def _names(self, cells: Cells, jobs: int) -> Sequence[str]:
        self._jobs += jobs
        if "name" in cells:
            return [name.strip() for name in cells["name"]]
        return [str(job) for job in range(self._jobs - jobs + 1, self._jobs + 1)]

    def _durations(self, cells: Cells, ours: str, jobs: int) -> FloatArray:
        if ours not in cells:
            return np.full(jobs, np.nan)
        unit = self.dialect.units.get(plain(self.header[self.found[ours]]), 1.0)
        return parse_durations(cells[ours]) * unit

    def _moments(self, cells: Cells, ours: str, jobs: int) -> FloatArray:
        """Return when jobs were submitted, began or ended: all as numbers or all as dates."""
        if ours not in cells:
            return np.full(jobs, np.nan)
        times, kinds = parse_times(cells[ours])
        if ours == "submit" and self.kind is None and np.isfinite(times).any():
            self.kind = int(kinds[np.isfinite(times)][0])
        dated = self.kind not in (None, TimeKind.NUMBER)
        # Numbers among dates, or the reverse, are on a clock that we do not know.
        strange = np.isfinite(times) & ((kinds != TimeKind.NUMBER) != dated)
        if ours == "submit":
            strange |= (kinds == TimeKind.NUMBER) & (times < 0)
        times[strange] = np.inf
        return times
