"""Reading traces that are tables with a header: the output of sacct, and CSV files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.files import Block, Row, parse_csv
from hesrpt.traces.building import UNFINISHED, UNREADABLE, RawJobs, TraceBuilder
from hesrpt.traces.cells import TimeKind, parse_durations, parse_numbers, parse_times
from hesrpt.traces.columns import find_columns, find_kept_columns, normalise_name
from hesrpt.traces.trace import Trace

_BATCH = 10_000  # rows that are parsed at a time
Cells = Mapping[str, Sequence[str]]  # of the columns that the table has, by our names


@dataclass(frozen=True)
class Dialect:
    """How one kind of table differs from another."""

    #: The normalised names that each of our columns may have.
    known_names: Mapping[str, Sequence[str]]
    #: Our columns for which the first known name is used if a table has several.
    ranked: Sequence[str]
    #: Options of Python's csv module, given the header line.
    csv_options: Callable[[str], Mapping[str, Any]]
    #: Seconds per unit of the durations in a column, by its normalised name.
    units: Mapping[str, float] = field(default_factory=dict)
    #: Whether the row with this name is only a part of a job; another row is the whole job.
    is_part_of_job: Callable[[str], bool] = lambda name: False
    #: Return, for each row, whether its job had not ended.
    find_unfinished: Callable[[Cells], list[bool]] | None = None
    #: Whether the table must have a column with names of jobs.
    needs_names: bool = False


@dataclass
class _Batch:
    """Rows of jobs, one entry per job in each list."""

    lines: list[int] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    is_readable: list[bool] = field(default_factory=list)

    def add(self, line: int, cells: list[str], is_readable: bool) -> None:
        self.lines.append(line)
        self.rows.append(cells)
        self.is_readable.append(is_readable)


def read_table(
    text: Iterable[Block], builder: TraceBuilder, dialect: Dialect, columns: Mapping[str, str]
) -> Trace:
    """Read the jobs in a table; ``columns`` is the user's mapping of columns.

    The header is the first line of the text that is not blank; the first block contains it.
    """
    blocks = iter(text)
    first_line, lines = next(blocks)
    blank_lines = next(n for n, line in enumerate(lines) if line.strip())
    header_line = first_line + blank_lines
    rows = parse_csv(
        chain(lines[blank_lines:], chain.from_iterable(block.lines for block in blocks)),
        builder.source,
        first_line=header_line,
        **dialect.csv_options(lines[blank_lines]),
    )
    last_header_line, names = next(rows)
    header = [name.strip() for name in names]
    place = f"{builder.source}:{header_line}"
    positions = find_columns(place, header, dialect.known_names, columns, dialect.ranked)
    if dialect.needs_names and "name" not in positions:
        raise InputError(
            f"{place}: has no column {dialect.known_names['name'][0]}, "
            "which tells jobs from job steps"
        )
    kept = find_kept_columns(place, header, builder.kept)
    parser = _RowParser(dialect, header, positions, kept)
    for batch in _batch_rows(rows, parser, last_header_line):
        builder.add(parser.parse(batch))
    has_dates = parser.time_kind not in (None, TimeKind.NUMBER)
    return builder.build(
        epoch=0.0 if has_dates else None, is_zoned=parser.time_kind == TimeKind.ZONED_DATE
    )


def _batch_rows(rows: Iterator[Row], parser: _RowParser, previous: int) -> Iterator[_Batch]:
    """Yield the rows that describe jobs, many at a time."""
    width, name_position = len(parser.header), parser.positions.get("name")
    is_part_of_job = parser.dialect.is_part_of_job
    batch = _Batch()

    def spans_lines(cells: Sequence[str]) -> bool:
        return any(
            "\n" in cells[position]
            for ours, position in parser.positions.items()
            if ours != "name"  # names may contain line breaks
        )

    for line, cells in rows:
        before, previous = previous, line
        if not any(map(str.strip, cells)) or parser.is_header(cells):
            continue  # concatenated files repeat the header
        if len(cells) < width or any(cells[width:]) or (line > before + 1 and spans_lines(cells)):
            # A stray quotation mark joins several lines into one row: each counts as unreadable.
            for lost in range(before + 1, line + 1):
                batch.add(lost, cells, is_readable=False)
        elif name_position is None or not is_part_of_job(cells[name_position]):
            batch.add(line, cells, is_readable=True)
        if len(batch.lines) >= _BATCH:
            yield batch
            batch = _Batch()
    if batch.lines:
        yield batch


class _RowParser:
    """Parses the cells of rows."""

    def __init__(
        self,
        dialect: Dialect,
        header: list[str],
        positions: Mapping[str, int],
        kept: Mapping[str, int],
    ) -> None:
        self.dialect = dialect
        self.header = header
        self.positions = positions  # of our columns in the header
        self.kept = kept  # positions of other columns
        self.time_kind: TimeKind | None = None  # of the first submission time
        self._jobs = 0

    def is_header(self, cells: Sequence[str]) -> bool:
        return cells[0].strip() == self.header[0] and [c.strip() for c in cells] == self.header

    def parse(self, batch: _Batch) -> RawJobs:
        jobs = len(batch.lines)
        cells: dict[str, list[str]] = {
            ours: [
                row[position] if is_readable else ""
                for row, is_readable in zip(batch.rows, batch.is_readable, strict=True)
            ]
            for ours, position in self.positions.items()
        }
        submit = self._parse_times(cells, "submit", jobs)
        start = self._parse_times(cells, "start", jobs)
        defects = {UNREADABLE: ~np.array(batch.is_readable)}
        if self.dialect.find_unfinished is not None:
            defects[UNFINISHED] = np.array(self.dialect.find_unfinished(cells))
        with np.errstate(invalid="ignore"):  # infinity minus infinity: both values are invalid
            wait = self._parse_durations(cells, "wait", jobs)
            start = np.where(np.isnan(start) & (wait >= 0), submit + wait, start)
            start_to_end = self._parse_times(cells, "end", jobs) - start
        runtime = self._parse_durations(cells, "runtime", jobs)

        def quote(job: int, ours: str) -> str:
            if ours == "runtime" and "runtime" not in cells:
                return " to ".join(cells[k][job] for k in ("start", "end") if k in cells)
            return cells[ours][job] if ours else ", ".join(batch.rows[job])

        return RawJobs(
            lines=batch.lines,
            names=self._get_names(cells, jobs),
            submit_times=submit,
            runtimes=np.where(np.isnan(runtime), start_to_end, runtime),
            servers=parse_numbers(cells["servers"]),
            start_times=start,
            estimates=self._parse_durations(cells, "estimate", jobs),
            defects=defects,
            quote=quote,
            labels=self._get_labels(batch),
        )

    def _get_names(self, cells: Cells, jobs: int) -> Sequence[str]:
        first = self._jobs + 1
        self._jobs += jobs
        if "name" in cells:
            return [name.strip() for name in cells["name"]]
        return [str(job) for job in range(first, first + jobs)]

    def _get_labels(self, batch: _Batch) -> dict[str, list[str]]:
        positions = dict(self.kept)
        if "user" in self.positions:
            positions["user"] = self.positions["user"]
        return {
            name: [
                row[position].strip() if is_readable else ""
                for row, is_readable in zip(batch.rows, batch.is_readable, strict=True)
            ]
            for name, position in positions.items()
        }

    def _parse_durations(self, cells: Cells, ours: str, jobs: int) -> FloatArray:
        if ours not in cells:
            return np.full(jobs, np.nan)
        name = normalise_name(self.header[self.positions[ours]])
        return parse_durations(cells[ours]) * self.dialect.units.get(name, 1.0)

    def _parse_times(self, cells: Cells, ours: str, jobs: int) -> FloatArray:
        """Return the times in a column; dates among numbers and numbers among dates are invalid."""
        if ours not in cells:
            return np.full(jobs, np.nan)
        times, kinds = parse_times(cells[ours])
        if ours == "submit" and self.time_kind is None and np.isfinite(times).any():
            self.time_kind = TimeKind(kinds[np.isfinite(times)][0])
        has_dates = self.time_kind not in (None, TimeKind.NUMBER)
        # We cannot convert between the clock of numbers and that of dates.
        is_invalid = np.isfinite(times) & ((kinds != TimeKind.NUMBER) != has_dates)
        if ours == "submit":
            is_invalid |= (kinds == TimeKind.NUMBER) & (times < 0)
        times[is_invalid] = np.inf
        return times
