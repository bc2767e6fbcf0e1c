"""Reading traces that are tables with a header: the output of sacct, and CSV files.

CSV files are separated by commas, semicolons, tabs or vertical bars.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import Block, Row, parse_csv
from hesrpt.traces.building import Cells, JobParser, JobTexts, TraceBuilder, join_components
from hesrpt.traces.columns import find_columns, find_kept_columns, normalise_name
from hesrpt.traces.slurm_ids import SlurmId
from hesrpt.traces.trace import Trace

_BATCH = 10_000  # rows that are parsed at a time


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
    while len(header) > 1 and not header[-1]:
        header.pop()  # sacct --parsable ends each line with a separator
    place = f"{builder.source}:{header_line}"
    positions = find_columns(place, header, dialect, columns, builder.notes)
    if dialect.parse_id is not None and "name" not in positions:
        raise InputError(
            f"{place}: has no column {dialect.known_names['name'][0]}, which tells jobs from job "
            "steps; add JobID to the --format of sacct"
        )
    names_of_units = {ours: normalise_name(header[at]) for ours, at in positions.items()}
    parser = JobParser(
        positions,
        {ours: dialect.units.get(name, 1.0) for ours, name in names_of_units.items()},
        dialect.find_unfinished,
        kept=find_kept_columns(place, header, builder.kept),
    )
    table = _Table(header, positions, dialect.parse_id)
    for batch in table.batch_rows(rows, last_header_line):
        builder.add(parser.parse(batch))
    if len(table.components):
        components = parser.parse(table.components)
        builder.add(join_components(components, table.jobs_of_components))
    return parser.build(builder)


@dataclass
class _Table:
    """The rows of a table that describe jobs."""

    header: list[str]
    positions: Mapping[str, int]  # of our columns in the header
    parse_id: Callable[[str], SlurmId | None] | None
    #: Components of heterogeneous jobs, and their jobs. They may be apart in the file.
    components: JobTexts = field(default_factory=JobTexts)
    jobs_of_components: list[str] = field(default_factory=list)

    def batch_rows(self, rows: Iterator[Row], previous: int) -> Iterator[JobTexts]:
        """Yield the rows that describe jobs, many at a time; set components aside."""
        width = len(self.header)
        batch = JobTexts()
        for line, cells in rows:
            before, previous = previous, line
            if not any(map(str.strip, cells)) or self._is_header(cells):
                continue  # concatenated files repeat the header
            if (
                len(cells) < width
                or any(cells[width:])
                or (line > before + 1 and self._spans_lines(cells))
            ):
                # A stray quotation mark joins several lines into one row: each is unreadable.
                for lost in range(before + 1, line + 1):
                    batch.add(lost, cells, is_readable=False)
            else:
                self._add_row(line, cells, batch)
            if len(batch) >= _BATCH:
                yield batch
                batch = JobTexts()
        if len(batch):
            yield batch

    def _add_row(self, line: int, cells: list[str], batch: JobTexts) -> None:
        name = "" if self.parse_id is None else cells[self.positions["name"]]
        # Most names are plain numbers.
        meaning = None if self.parse_id is None or name.isdigit() else self.parse_id(name)
        if meaning is None:
            batch.add(line, cells)
        elif meaning.is_step:
            pass  # another row is the whole job
        elif meaning.is_component:
            self.components.add(line, cells)
            self.jobs_of_components.append(meaning.job)
        else:
            batch.add(line, cells, count=meaning.tasks)

    def _is_header(self, cells: Sequence[str]) -> bool:
        width = len(self.header)
        return (
            cells[0].strip() == self.header[0]
            and [c.strip() for c in cells[:width]] == self.header
            and not any(cells[width:])
        )

    def _spans_lines(self, cells: Sequence[str]) -> bool:
        return any(
            "\n" in cells[position]
            for ours, position in self.positions.items()
            if ours != "name"  # names may contain line breaks
        )


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


def is_delimited(line: str) -> bool:
    """Return True: any other text is read as a table with a header."""
    return True


def read_delimited(
    text: Iterable[Block], builder: TraceBuilder, columns: Mapping[str, str]
) -> Trace:
    """Read a CSV file."""
    return read_table(text, builder, _CSV, columns)


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
