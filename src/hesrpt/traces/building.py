"""Building a trace from the jobs of a file: unusable jobs are dropped, and counted by reason.

Tables and JSON files both become texts, one for each of our columns, so that values are understood
and quoted in the same way wherever they come from. Components of heterogeneous jobs, which start
together on servers of different kinds, become one job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import InputError
from hesrpt.speedups import Measured
from hesrpt.traces.trace import Trace, summarise_jobs
from hesrpt.units import parse_duration
from hesrpt.validation import shorten

UNREADABLE = "line could not be read"
UNFINISHED = "had not ended"
_EXPECTED = {
    "submit": "seconds of at least 0, or a date such as 2024-05-01T12:00:00, as for other jobs",
    "runtime": "seconds, HH:MM:SS, D-HH:MM:SS or amounts such as 1h 30m",
    "servers": "a number greater than 0",
}
_MAX_VALUE = 1e15  # seconds or servers: larger values are mistakes


@dataclass(frozen=True, eq=False)
class RawJobs:
    """Some jobs as the file describes them: NaN is a missing value, infinity an invalid one."""

    #: Where each job is in the file: the number of its line, or its place in a list.
    places: Sequence[int | str]
    names: Sequence[str]
    submit_times: FloatArray
    runtimes: FloatArray
    servers: FloatArray
    start_times: FloatArray
    estimates: FloatArray
    #: Jobs that are unusable for reasons only the format knows, by reason.
    defects: Mapping[str, BoolArray]
    #: Return the text of a job in the file: of one column, or of the whole row for "".
    quote: Callable[[int, str], str]
    #: Other columns as text.
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Measured speedups, if the format has them; those of unusable jobs are ignored.
    speedups: Sequence[Measured] = ()
    #: How many jobs each entry stands for, if that is not always one.
    counts: Sequence[int] | None = None


class _Defect(NamedTuple):
    reason: str
    column: str  # the column at fault; "" for the whole row
    jobs: BoolArray


@dataclass
class TraceBuilder:
    """Collects usable jobs and counts the others; if strict, an unusable job is an error."""

    source: str
    strict: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)  # the user's names of our columns
    kept: tuple[str, ...] = ()  # other columns to keep as labels, by their names in the file
    jobs_read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    #: Sentences on what the reader assumed.
    notes: list[str] = field(default_factory=list)
    #: What each column should hold.
    expected: dict[str, str] = field(default_factory=_EXPECTED.copy)
    _examples: dict[str, str] = field(default_factory=dict)  # of dropped jobs, by reason
    _batches: list[FloatArray] = field(default_factory=list)  # a row for each column of numbers
    _names: list[str] = field(default_factory=list)
    _labels: dict[str, list[str]] = field(default_factory=dict)
    _speedups: list[Measured] = field(default_factory=list)

    def add(self, jobs: RawJobs) -> None:
        """Add the usable jobs; each unusable one is counted under the first reason that applies."""
        usable = np.ones(len(jobs.names), np.bool_)
        defects = []
        for defect in _find_defects(jobs):
            affected = usable & defect.jobs
            if affected.any():
                defects.append(defect._replace(jobs=affected))
                usable &= ~affected
        if self.strict and defects:
            first = min(defects, key=lambda defect: int(np.argmax(defect.jobs)))
            raise InputError(self._describe_first(jobs, first))
        self.jobs_read += int(np.count_nonzero(usable))
        for defect in defects:
            number = int(np.count_nonzero(defect.jobs))
            if jobs.counts is not None:
                number = sum(compress(jobs.counts, defect.jobs))
            self.jobs_read += number
            self.dropped[defect.reason] = self.dropped.get(defect.reason, 0) + number
            if defect.reason not in self._examples:
                self._examples[defect.reason] = self._describe_first(jobs, defect)
        start, estimate = jobs.start_times, jobs.estimates
        start = np.where(_is_plausible(start) & (start >= jobs.submit_times), start, np.nan)
        estimate = np.where(_is_plausible(estimate) & (estimate > 0), estimate, np.nan)
        columns = (jobs.submit_times, jobs.runtimes, np.ceil(jobs.servers), start, estimate)
        self._batches.append(np.array(columns)[:, usable])
        self._names += compress(jobs.names, usable)
        self._speedups += compress(jobs.speedups, usable)
        for name, values in jobs.labels.items():
            self._labels.setdefault(name, []).extend(compress(values, usable))

    def build(
        self,
        *,
        machine_servers: int | None = None,
        epoch: float | None = None,
        is_zoned: bool = False,
    ) -> Trace:
        """Return the trace of the usable jobs.

        ``epoch`` is the Unix time of the file's time 0, if it is known: in UTC if ``is_zoned``, and
        otherwise in the local time of the cluster.
        """
        if not self.jobs_read:
            raise InputError(f"{self.source}: contains no jobs")
        if not self._names:
            counts = summarise_jobs(0, self.jobs_read, self.dropped)
            example = self._examples[max(self.dropped, key=self.dropped.__getitem__)]
            raise InputError(
                f"{self.source}: contains no usable job: {counts}; for example, {example}"
            )
        jobs = np.concatenate(self._batches, axis=1)
        order = np.argsort(jobs[0], kind="stable")
        submit_times, runtimes, servers, start_times, estimates = jobs[:, order]
        first = float(submit_times[0])
        return Trace(
            source=self.source,
            submit_times=submit_times - first,
            runtimes=runtimes,
            servers=servers,
            start_times=start_times - first,
            estimates=estimates,
            names=tuple(self._names[job] for job in order.tolist()),
            labels={
                name: np.array(values)[order]
                for name, values in self._labels.items()
                if any(values)
            },
            speedups=tuple(self._speedups[job] for job in order.tolist() if self._speedups),
            machine_servers=machine_servers,
            start_date=None if epoch is None else convert_to_date(epoch + first, is_zoned),
            jobs_read=self.jobs_read,
            dropped=self.dropped,
            notes=tuple(self.notes),
        )

    def _describe_first(self, jobs: RawJobs, defect: _Defect) -> str:
        """Return a sentence on the first job with a defect."""
        job = int(np.argmax(defect.jobs))
        name = "" if defect.reason == UNREADABLE else f"job {shorten(jobs.names[job])} "
        text = jobs.quote(job, defect.column)
        is_repetition = defect.reason.endswith(f" {text}")  # "had run time 0, got '0'"
        got = "" if is_repetition else f", got {shorten(text)}"
        has_expectation = not is_repetition and defect.column
        expected = f"; expected {self.expected[defect.column]}" if has_expectation else ""
        return f"{self.source}:{jobs.places[job]}: {name}{defect.reason}{got}{expected}"


def _find_defects(jobs: RawJobs) -> Iterator[_Defect]:
    """Yield the reasons why jobs are unusable; a job may have several."""
    for reason, affected in jobs.defects.items():
        yield _Defect(reason, "", affected)
    submit, runtime, servers = jobs.submit_times, jobs.runtimes, jobs.servers
    yield _Defect("had no submission time", "submit", np.isnan(submit))
    yield _Defect("had an invalid submission time", "submit", ~_is_plausible(submit))
    yield _Defect("had no run time", "runtime", np.isnan(runtime))
    yield _Defect("had run time 0", "runtime", runtime == 0)
    is_invalid = ~_is_plausible(runtime) | (runtime < 0)
    yield _Defect("had an invalid run time", "runtime", is_invalid)
    yield _Defect("had no servers", "servers", np.isnan(servers) | (servers == 0))
    is_invalid = ~_is_plausible(servers) | (servers < 0)
    yield _Defect("had an invalid number of servers", "servers", is_invalid)


def _is_plausible(values: FloatArray) -> BoolArray:
    return np.abs(values) <= _MAX_VALUE  # False for NaN too


def join_components(components: RawJobs, jobs: Sequence[str]) -> RawJobs:
    """Return one job for all components of each, given the name of the job of each component.

    A job holds the servers of all its components until the last of them ends.
    """
    members: dict[str, list[int]] = {}
    for component, job in enumerate(jobs):
        members.setdefault(job, []).append(component)
    groups = list(members.values())

    def join(values: FloatArray, reduce: Callable[[FloatArray], np.float64]) -> FloatArray:
        return np.array([reduce(values[group]) for group in groups])

    def quote(job: int, column: str) -> str:
        return " + ".join(components.quote(component, column) for component in groups[job])

    return RawJobs(
        places=[components.places[group[0]] for group in groups],
        names=list(members),
        # A missing value of one component is missing for the job: NaN propagates.
        submit_times=join(components.submit_times, np.min),
        runtimes=join(components.runtimes, np.max),
        servers=join(components.servers, np.sum),
        start_times=join(components.start_times, np.min),
        estimates=join(components.estimates, np.max),
        defects={
            reason: np.array([affected[group].any() for group in groups])
            for reason, affected in components.defects.items()
        },
        quote=quote,
        labels={
            name: [values[group[0]] for group in groups]
            for name, values in components.labels.items()
        },
    )


# --- from texts to numbers: NaN stands for a missing value, infinity for an invalid one -----------


class TimeKind(IntEnum):
    """How a time is written."""

    NUMBER = 0
    LOCAL_DATE = 1  # without a time zone
    ZONED_DATE = 2


_MISSING = {"", "-", "--", "na", "n/a", "nan", "none", "null", "unknown"} | {
    "partition_limit",  # Slurm prints this for a job without its own limit
    "unlimited",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)


def parse_numbers(cells: Sequence[str]) -> FloatArray:
    """Return the numbers in a column.

    >>> parse_numbers(["4", "0.5", "N/A", "many"])
    array([4. , 0.5, nan, inf])
    """
    return _parse_column(cells, _parse_missing)


def parse_durations(cells: Sequence[str]) -> FloatArray:
    """Return the seconds in a column of durations (see :func:`hesrpt.units.parse_duration`).

    >>> parse_durations(["90", "01:30", "1-00:00:00.5", "UNLIMITED", "soon"])
    array([   90. ,    90. , 86400.5,     nan,     inf])
    """
    return _parse_column(cells, _parse_duration)


def parse_times(cells: Sequence[str]) -> tuple[FloatArray, NDArray[np.uint8]]:
    """Return the seconds in a column of numbers or dates, and the :class:`TimeKind` of each.

    >>> parse_times(["12", "1970-01-01T00:01:00", "1970-01-01 01:00:00+01:00"])
    (array([12., 60.,  0.]), array([0, 1, 2], dtype=uint8))
    """
    try:
        return _parse_floats(cells), np.zeros(len(cells), np.uint8)
    except ValueError:
        times, kinds = zip(*map(_parse_time, cells), strict=True)
        return np.array(times), np.array(kinds, np.uint8)


def convert_to_date(seconds: float, is_zoned: bool) -> datetime | None:
    """Return the date at this many seconds since 1970, or None if it is out of range."""
    try:
        return (_EPOCH if is_zoned else _LOCAL_EPOCH) + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _parse_floats(cells: Sequence[str]) -> FloatArray:
    return np.array(list(map(float, cells)))


def _parse_column(cells: Sequence[str], fallback: Callable[[str], float]) -> FloatArray:
    try:
        return _parse_floats(cells)  # fast, and enough for most columns
    except ValueError:
        known = {cell: _parse_cell(cell, fallback) for cell in set(cells)}  # many are the same
        return np.array([known[cell] for cell in cells])


def _parse_cell(cell: str, fallback: Callable[[str], float]) -> float:
    try:
        return float(cell)
    except ValueError:
        return fallback(cell.strip())


def _parse_missing(text: str) -> float:
    """Return NaN for a text that marks a missing value, and infinity for any other text."""
    return math.nan if text.lower() in _MISSING else math.inf


def _parse_duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        return _parse_missing(text)


def _parse_time(cell: str) -> tuple[float, TimeKind]:
    text = cell.strip()
    if text[4:5] == "-":
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            return math.inf, TimeKind.NUMBER
        if date.tzinfo is None:
            return (date - _LOCAL_EPOCH).total_seconds(), TimeKind.LOCAL_DATE
        return (date - _EPOCH).total_seconds(), TimeKind.ZONED_DATE
    return _parse_cell(text, _parse_duration), TimeKind.NUMBER


#: By our names of columns; "state" is another one, for formats that have states.
Cells = Mapping[str, Sequence[str]]


class JobText(NamedTuple):
    """A job as it is written in a file."""

    place: int | str
    cells: Sequence[str]
    is_readable: bool = True
    jobs: int = 1  # how many it stands for
    component_of: str | None = None  # the heterogeneous job that it is a part of


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

    def add_jobs(self, builder: TraceBuilder, batches: Iterable[Sequence[JobText]]) -> None:
        """Add jobs to a trace, and the components of heterogeneous jobs, which may be far apart."""
        components: list[JobText] = []
        for batch in batches:
            components += [text for text in batch if text.component_of is not None]
            if whole := [text for text in batch if text.component_of is None]:
                builder.add(self._parse(whole))
        if components:
            owners = [str(text.component_of) for text in components]
            builder.add(join_components(self._parse(components), owners))

    def _parse(self, texts: Sequence[JobText]) -> RawJobs:
        jobs = len(texts)
        cells = {ours: _list_column(texts, at) for ours, at in self.positions.items()}
        submit = self._parse_times(cells, "submit", jobs)
        start = self._parse_times(cells, "start", jobs)
        defects = {UNREADABLE: np.array([not text.is_readable for text in texts])}
        if self.find_unfinished is not None:
            defects[UNFINISHED] = np.array(self.find_unfinished(cells))
        with np.errstate(invalid="ignore"):  # infinity minus infinity: both values are invalid
            wait = self._parse_durations(cells, "wait", jobs)
            start = np.where(np.isnan(start) & (wait >= 0), submit + wait, start)
            start_to_end = self._parse_times(cells, "end", jobs) - start
        runtime = self._parse_durations(cells, "runtime", jobs)
        names = cells.get("name") or [str(self._jobs + number + 1) for number in range(jobs)]
        self._jobs += jobs
        labels = {name: _list_column(texts, at) for name, at in self.kept.items()}
        if "user" in cells:
            labels["user"] = cells["user"]

        def quote(job: int, ours: str) -> str:
            if ours == "runtime" and not cells.get(ours, [""] * jobs)[job].strip():
                ends = [cells[key][job] for key in ("start", "end") if key in cells]
                return " to ".join(ends) if any(ends) else ""
            return cells[ours][job] if ours else ", ".join(texts[job].cells)

        return RawJobs(
            places=[text.place for text in texts],
            names=[name.strip() for name in names],
            submit_times=submit,
            runtimes=np.where(np.isnan(runtime), start_to_end, runtime),
            servers=parse_numbers(cells["servers"]),
            start_times=start,
            estimates=self._parse_durations(cells, "estimate", jobs),
            defects=defects,
            quote=quote,
            labels={name: list(map(str.strip, values)) for name, values in labels.items()},
            counts=[text.jobs for text in texts],
        )

    def build(self, builder: TraceBuilder) -> Trace:
        """Return the trace; it has a date if the times are dates."""
        has_dates = self.time_kind not in (None, TimeKind.NUMBER)
        return builder.build(
            epoch=0.0 if has_dates else None, is_zoned=self.time_kind == TimeKind.ZONED_DATE
        )

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


def _list_column(texts: Sequence[JobText], position: int) -> list[str]:
    """Return the cells of a column; those of unreadable rows are empty."""
    return [text.cells[position] if text.is_readable else "" for text in texts]
