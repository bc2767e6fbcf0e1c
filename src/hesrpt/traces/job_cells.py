"""Jobs as texts, one for each of our columns, and the numbers that these stand for.

Tables and JSON files both become such texts, so that values are understood and quoted in the same
way wherever they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.traces.building import UNFINISHED, UNREADABLE, RawJobs, TraceBuilder
from hesrpt.traces.cells import TimeKind, parse_durations, parse_numbers, parse_times
from hesrpt.traces.trace import Trace

#: By our names of columns; "state" is another one, for formats that have states.
Cells = Mapping[str, Sequence[str]]


@dataclass
class JobTexts:
    """Jobs as they are written in a file, one entry per job in each list."""

    places: list[int | str] = field(default_factory=list)
    #: The cells of each row, in the order of the columns.
    rows: list[Sequence[str]] = field(default_factory=list)
    is_readable: list[bool] = field(default_factory=list)
    #: How many jobs each row stands for.
    counts: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.places)

    def add(
        self, place: int | str, row: Sequence[str], *, is_readable: bool = True, count: int = 1
    ) -> None:
        """Add a row."""
        self.places.append(place)
        self.rows.append(row)
        self.is_readable.append(is_readable)
        self.counts.append(count)

    def list_column(self, position: int) -> list[str]:
        """Return the cells of a column; those of unreadable rows are empty."""
        return [
            row[position] if is_readable else ""
            for row, is_readable in zip(self.rows, self.is_readable, strict=True)
        ]


@dataclass
class JobParser:
    """Turns texts into numbers."""

    #: The positions of our columns in the rows.
    positions: Mapping[str, int]
    #: Seconds per unit of the durations in our columns, where that is not 1.
    units: Mapping[str, float] = field(default_factory=dict)
    #: Return, for each row, whether its job had not ended.
    find_unfinished: Callable[[Cells], list[bool]] | None = None
    #: The positions of other columns, which are kept as they are.
    kept: Mapping[str, int] = field(default_factory=dict)
    #: How the first submission time is written: others must be the same.
    time_kind: TimeKind | None = None
    _jobs: int = 0

    def parse(self, texts: JobTexts) -> RawJobs:
        """Return the jobs that texts stand for."""
        jobs = len(texts)
        cells = {ours: texts.list_column(position) for ours, position in self.positions.items()}
        submit = self._parse_times(cells, "submit", jobs)
        start = self._parse_times(cells, "start", jobs)
        defects = {UNREADABLE: ~np.array(texts.is_readable)}
        if self.find_unfinished is not None:
            defects[UNFINISHED] = np.array(self.find_unfinished(cells))
        with np.errstate(invalid="ignore"):  # infinity minus infinity: both values are invalid
            wait = self._parse_durations(cells, "wait", jobs)
            start = np.where(np.isnan(start) & (wait >= 0), submit + wait, start)
            start_to_end = self._parse_times(cells, "end", jobs) - start
        runtime = self._parse_durations(cells, "runtime", jobs)

        def quote(job: int, ours: str) -> str:
            if ours == "runtime" and not cells.get(ours, [""] * jobs)[job].strip():
                ends = [cells[key][job] for key in ("start", "end") if key in cells]
                return " to ".join(ends) if any(ends) else ""
            return cells[ours][job] if ours else ", ".join(texts.rows[job])

        return RawJobs(
            places=texts.places,
            names=self._get_names(cells, jobs),
            submit_times=submit,
            runtimes=np.where(np.isnan(runtime), start_to_end, runtime),
            servers=parse_numbers(cells["servers"]),
            start_times=start,
            estimates=self._parse_durations(cells, "estimate", jobs),
            defects=defects,
            quote=quote,
            labels=self._get_labels(cells, texts),
            counts=texts.counts,
        )

    def build(self, builder: TraceBuilder) -> Trace:
        """Return the trace; it has a date if the times are dates."""
        has_dates = self.time_kind not in (None, TimeKind.NUMBER)
        return builder.build(
            epoch=0.0 if has_dates else None, is_zoned=self.time_kind == TimeKind.ZONED_DATE
        )

    def _get_names(self, cells: Cells, jobs: int) -> Sequence[str]:
        first = self._jobs + 1
        self._jobs += jobs
        if "name" in cells:
            return [name.strip() for name in cells["name"]]
        return [str(job) for job in range(first, first + jobs)]

    def _get_labels(self, cells: Cells, texts: JobTexts) -> dict[str, list[str]]:
        labels = {name: texts.list_column(position) for name, position in self.kept.items()}
        if "user" in cells:
            labels["user"] = list(cells["user"])
        return {name: list(map(str.strip, values)) for name, values in labels.items()}

    def _parse_durations(self, cells: Cells, ours: str, jobs: int) -> FloatArray:
        if ours not in cells:
            return np.full(jobs, np.nan)
        return parse_durations(cells[ours]) * self.units.get(ours, 1.0)

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
