"""Reading traces that are tables with a header: the output of sacct, and CSV files.

Columns are found by their usual names, or by the user's mapping.
CSV files are separated by commas, semicolons, tabs or vertical bars.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import Block, Row, parse_csv
from hesrpt.traces.building import Cells, JobParser, JobText, TraceBuilder
from hesrpt.traces.cells import SlurmId
from hesrpt.traces.trace import Trace

_BATCH = 10_000  # rows that are parsed at a time
#: Our names for the columns of a trace.
COLUMNS = ("submit", "runtime", "servers", "start", "end", "wait", "estimate", "name", "user")


def normalise_name(name: str) -> str:
    """Return the name of a column without capitals, spaces, underscores and hyphens.

    >>> normalise_name(" Submit_Time"), normalise_name("submit time"), normalise_name("SubmitTime")
    ('submittime', 'submittime', 'submittime')
    """
    return re.sub(r"[\s_-]+", "", name).lower()


def check_columns(columns: Mapping[str, str]) -> None:
    """Check that all keys of the user's mapping are names of our columns."""
    for ours in columns:
        if ours not in COLUMNS:
            raise InputError(
                f"must map some of {', '.join(COLUMNS)} to columns of the trace, got {ours!r}",
                argument="columns",
            )


@dataclass(frozen=True)
class Dialect:
    """How one kind of table differs from another."""

    #: The normalised names that each of our columns may have.
    known_names: Mapping[str, Sequence[str]]
    #: Our columns for which the first known name is used if a table has several.
    ranked: Collection[str]
    #: Options of Python's csv module, given the header line.
    csv_options: Callable[[str], Mapping[str, Any]]
    #: Names that are preferred to others of the same column.
    preferred: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: Seconds per unit of the durations in a column, by its normalised name.
    units: Mapping[str, float] = field(default_factory=dict)
    #: What the name of a row stands for, if it may be more or less than a job.
    parse_id: Callable[[str], SlurmId | None] | None = None
    #: Return, for each row, whether its job had not ended.
    find_unfinished: Callable[[Cells], list[bool]] | None = None


def read_table(text: Iterable[Block], builder: TraceBuilder, dialect: Dialect) -> Trace:
    """Read the jobs in a table.

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
    while len(header) > 1 and not header[-1]:
        header.pop()  # sacct --parsable ends each line with a separator
    place = f"{builder.source}:{header_line}"
    positions = _find_columns(place, header, dialect, builder)
    if dialect.parse_id is not None and "name" not in positions:
        raise InputError(
            f"{place}: has no column {dialect.known_names['name'][0]}, which tells jobs from job "
            "steps; add JobID to the --format of sacct"
        )
    parser = JobParser(
        positions,
        {
            ours: dialect.units.get(normalise_name(header[at]), 1.0)
            for ours, at in positions.items()
        },
        dialect.find_unfinished,
        kept=_find_kept_columns(place, header, builder.kept),
    )
    table = _Table(header, positions, dialect.parse_id)
    parser.add_jobs(builder, table.batch_rows(rows, last_header_line))
    return parser.build(builder)


@dataclass
class _Table:
    """The rows of a table that describe jobs."""

    header: list[str]
    positions: Mapping[str, int]  # of our columns in the header
    parse_id: Callable[[str], SlurmId | None] | None

    def batch_rows(self, rows: Iterator[Row], previous: int) -> Iterator[list[JobText]]:
        """Yield the rows that describe jobs, many at a time."""
        batch: list[JobText] = []
        for line, cells in rows:
            before, previous = previous, line
            if not any(map(str.strip, cells)) or self._is_header(cells):
                continue  # concatenated files repeat the header
            width = len(self.header)
            has_width = len(cells) >= width and not any(cells[width:])
            if not has_width or (line > before + 1 and self._spans_lines(cells)):
                # A stray quotation mark joins several lines into one row: each is unreadable.
                lost = range(before + 1, line + 1)
                batch += [JobText(number, cells, is_readable=False) for number in lost]
            elif (text := self._read_row(line, cells)) is not None:
                batch.append(text)
            if len(batch) >= _BATCH:
                yield batch
                batch = []
        yield batch

    def _read_row(self, line: int, cells: list[str]) -> JobText | None:
        """Return the job of a row, or None if it is a step: another row is the whole job."""
        name = "" if self.parse_id is None else cells[self.positions["name"]]
        # Most names are plain numbers.
        meaning = None if self.parse_id is None or name.isdigit() else self.parse_id(name)
        if meaning is None:
            return JobText(line, cells)
        if meaning.is_step:
            return None
        if meaning.is_component:
            return JobText(line, cells, component_of=meaning.job)
        return JobText(line, cells, jobs=meaning.tasks)

    def _is_header(self, cells: Sequence[str]) -> bool:
        width = len(self.header)
        return (
            cells[0].strip() == self.header[0]
            and [c.strip() for c in cells[:width]] == self.header
            and not any(cells[width:])
        )

    def _spans_lines(self, cells: Sequence[str]) -> bool:
        # Names may contain line breaks.
        checked = (at for ours, at in self.positions.items() if ours != "name")
        return any("\n" in cells[position] for position in checked)


def _find_columns(
    place: str, header: Sequence[str], dialect: Dialect, builder: TraceBuilder
) -> dict[str, int]:
    """Return the positions of our columns in the header; columns that it lacks are left out.

    Columns that the user does not name may have any of the known names. If the header has several
    of them, the first one listed is used for columns in ``ranked``. For others, preferred names are
    used, with a note; if that leaves several, the user must choose.
    """
    normalised = [normalise_name(name) for name in header]
    found = {
        ours: _find_mapped_column(place, header, normalised, theirs)
        for ours, theirs in builder.columns.items()
    }
    taken = set(found.values())
    for ours, known in dialect.known_names.items():
        if ours in found:
            continue
        candidates = [
            position
            for name in known
            for position, theirs in enumerate(normalised)
            if theirs == name and position not in taken
        ]
        preferred = dialect.preferred.get(ours, ())
        best = [position for position in candidates if normalised[position] in preferred]
        if len(best) == 1 and len(candidates) > 1:
            others = [header[position] for position in sorted(candidates) if position != best[0]]
            builder.notes.append(
                f"the {ours} of a job are in column {header[best[0]]!r}, not in "
                f"{' or '.join(map(repr, others))}"
            )
            candidates = best
        if len(candidates) > 1 and ours not in dialect.ranked:
            choices = " or ".join(repr(header[position]) for position in sorted(candidates))
            raise InputError(
                f"must say which column of {place} holds {ours!r}: {choices}; for example "
                f"{ours}={header[min(candidates)]}",
                argument="columns",
            )
        if candidates:
            found[ours] = candidates[0]
    _check_required(place, header, dialect.known_names, found)
    return found


def _find_kept_columns(place: str, header: Sequence[str], kept: Sequence[str]) -> dict[str, int]:
    """Return the positions of other columns, given by their names in the file."""
    positions = {}
    for name in kept:
        if name not in header:
            raise InputError(
                f"{place}: has no column {name!r}; its columns are: {_list_names(header)}"
            )
        positions[name] = header.index(name)
    return positions


def _find_mapped_column(
    place: str, header: Sequence[str], normalised: Sequence[str], name: str
) -> int:
    exact = [position for position, theirs in enumerate(header) if theirs == name]
    found = exact or [
        position for position, theirs in enumerate(normalised) if theirs == normalise_name(name)
    ]
    if len(found) != 1:
        problem = "appears more than once" if found else "does not exist"
        raise InputError(
            f"names the column {name!r}, which {problem} in {place}; "
            f"its columns are: {_list_names(header)}",
            argument="columns",
        )
    return found[0]


def _check_required(
    place: str,
    header: Sequence[str],
    known_names: Mapping[str, Sequence[str]],
    found: Collection[str],
) -> None:
    has_runtime = "runtime" in found or ("end" in found and ("start" in found or "wait" in found))
    for ours in ("submit", "runtime", "servers"):
        if ours not in found and not (ours == "runtime" and has_runtime):
            raise InputError(
                f"must say which column of {place} holds {ours!r}: none has a usual name "
                f"({', '.join(known_names[ours])}); its columns are: {_list_names(header)}",
                argument="columns",
            )


def _list_names(header: Sequence[str], longest: int = 300) -> str:
    text = ", ".join(header)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text if text.isprintable() else repr(text)


_GPUS = "num_gpus num_gpu gpus gpu_num gpu_count n_gpus requested_gpus"
_KNOWN_NAMES = {
    "submit": "submit submit_time submission_time submitted submitted_time timestamp arrival "
    "arrival_time creation_time time",
    "runtime": "runtime duration elapsed execution_time run",
    "servers": f"servers {_GPUS} num_cpus cpus cpu_num nodes num_nodes node_num procs processors "
    "cores num_cores requested_number_of_resources",
    "start": "start start_time started starting_time scheduled_time",
    "end": "end end_time finished finish_time deletion_time",
    "wait": "wait wait_time waiting_time",
    "estimate": "estimate requested_time time_limit walltime",
    "name": "job_id id job name",
    "user": "user user_id user_name uid",
}


def read_csv(text: Iterable[Block], builder: TraceBuilder) -> Trace:
    """Read a CSV file."""
    return read_table(text, builder, _CSV)


def _choose_csv_options(header: str) -> Mapping[str, Any]:
    # Column names rarely contain these characters, so the most frequent one is the separator.
    return {"delimiter": max(",;\t|", key=header.count), "skipinitialspace": True}


def _normalise(names: str) -> list[str]:
    return [normalise_name(name) for name in names.split()]


_CSV = Dialect(
    known_names={ours: _normalise(names) for ours, names in _KNOWN_NAMES.items()},
    ranked=("name", "user"),  # many tables have both an id and a name
    # On machines with GPUs, jobs wait for those.
    preferred={"servers": _normalise(f"servers {_GPUS}")},
    csv_options=_choose_csv_options,
)
