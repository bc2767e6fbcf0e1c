"""Reading traces that are tables with a header: the output of sacct, and CSV files.

Columns are found by their usual names, or by the user's mapping.
CSV files are separated by commas, semicolons, tabs or vertical bars.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from hesrpt.errors import InputError
from hesrpt.files import Block, Row, parse_csv
from hesrpt.traces.building import Cells, JobParser, JobText, TraceBuilder
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
    #: The most frequent one of these in the header separates the columns.
    separators: str
    #: Other options of Python's csv module.
    csv_options: Mapping[str, Any]
    #: Names that are preferred to others of the same column.
    preferred: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: Seconds per unit of the durations in a column, by its normalised name.
    units: Mapping[str, float] = field(default_factory=dict)
    #: Whether rows have ids of Slurm, which may stand for more or less than a job.
    has_slurm_ids: bool = False
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
        delimiter=max(dialect.separators, key=lines[blank_lines].count),
        **dialect.csv_options,
    )
    last_header_line, names = next(rows)
    names = [name.strip() for name in names]
    while len(names) > 1 and not names[-1]:
        names.pop()  # sacct --parsable ends each line with a separator
    header = _Header(f"{builder.source}:{header_line}", names)
    positions = header.find_columns(dialect, builder)
    if dialect.has_slurm_ids and "name" not in positions:
        raise InputError(
            f"{header.place}: has no column {dialect.known_names['name'][0]}, which tells jobs "
            "from job steps; add JobID to the --format of sacct"
        )
    parser = JobParser(
        positions,
        {ours: dialect.units.get(header.normalised[at], 1.0) for ours, at in positions.items()},
        dialect.find_unfinished,
        kept=header.find_kept(builder.kept),
    )
    table = _Table(names, positions, dialect.has_slurm_ids)
    parser.add_jobs(builder, table.batch_rows(rows, last_header_line))
    return parser.build(builder)


_ID = re.compile(r"(\d+)(?:_(\d+|\[[^\]]*\]?))?(?:\+(\d+))?(\..+)?", re.ASCII)
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_MAX_TASKS = 4_000_001  # the longest array that Slurm accepts


class SlurmId(NamedTuple):
    """What a JobID of sacct stands for."""

    job: str  # without the component and the step
    is_component: bool = False  # of a heterogeneous job
    is_step: bool = False
    tasks: int = 1  # more than one for the tasks of an array that have not started


def parse_id(text: str) -> SlurmId | None:
    """Return what an id stands for, or None if it is not one of Slurm's.

    >>> parse_id("123_4.batch")
    SlurmId(job='123_4', is_component=False, is_step=True, tasks=1)
    >>> parse_id("123+1")
    SlurmId(job='123', is_component=True, is_step=False, tasks=1)
    >>> parse_id("123_[1-5,9%2]").tasks  # at most two of them at a time
    6
    """
    text = text.strip()
    match = _ID.fullmatch(text)
    if match is None:
        return None
    number, task, component, step = match.groups()
    job = number if task is None else f"{number}_{task}"
    tasks = count_tasks(task.strip("[]")) if task and task[0] == "[" else 1
    return SlurmId(job, component is not None, step is not None, tasks)


def count_tasks(ranges: str) -> int:
    """Return the number of tasks in a list of ranges; 1 if it cannot be understood.

    >>> count_tasks("1-5"), count_tasks("0-10:5,12"), count_tasks("1,3,...")
    (5, 4, 1)
    """
    total = 0
    for part in ranges.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or len(part) > 30:
            return 1
        first = int(match[1])
        last, step = int(match[2] or first), int(match[3] or 1)
        if last < first or step < 1:
            return 1
        total += (last - first) // step + 1
    return total if total <= _MAX_TASKS else 1


@dataclass
class _Table:
    """The rows of a table that describe jobs."""

    header: list[str]
    positions: Mapping[str, int]  # of our columns in the header
    has_slurm_ids: bool

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
        # Most ids are plain numbers.
        if not self.has_slurm_ids or cells[self.positions["name"]].isdigit():
            return JobText(line, cells)
        meaning = parse_id(cells[self.positions["name"]])
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


class _Header:
    """The names of a table's columns, and where they are in the file."""

    def __init__(self, place: str, names: list[str]) -> None:
        self.place, self.names = place, names
        self.normalised = [normalise_name(name) for name in names]

    def find_columns(self, dialect: Dialect, builder: TraceBuilder) -> dict[str, int]:
        """Return the positions of our columns; those that the table lacks are left out.

        Columns that the user does not name may have any of the known names. If the header has
        several of them, the first one listed is used for columns in ``ranked``. For others,
        preferred names are used, with a note; if that leaves several, the user must choose.
        """
        found = {ours: self._find_mapped(theirs) for ours, theirs in builder.columns.items()}
        taken = set(found.values())
        for ours, known in dialect.known_names.items():
            if ours in found:
                continue
            candidates = [
                position
                for name in known
                for position, theirs in enumerate(self.normalised)
                if theirs == name and position not in taken
            ]
            preferred = dialect.preferred.get(ours, ())
            best = [position for position in candidates if self.normalised[position] in preferred]
            if len(best) == 1 and len(candidates) > 1:
                others = [self.names[at] for at in sorted(candidates) if at != best[0]]
                builder.notes.append(
                    f"the {ours} of a job are in column {self.names[best[0]]!r}, not in "
                    f"{' or '.join(map(repr, others))}"
                )
                candidates = best
            if len(candidates) > 1 and ours not in dialect.ranked:
                choices = " or ".join(repr(self.names[at]) for at in sorted(candidates))
                raise InputError(
                    f"must say which column of {self.place} holds {ours!r}: {choices}; for example "
                    f"{ours}={self.names[min(candidates)]}",
                    argument="columns",
                )
            if candidates:
                found[ours] = candidates[0]
        has_end = "end" in found and ("start" in found or "wait" in found)
        for ours in ("submit", "runtime", "servers"):
            if ours not in found and not (ours == "runtime" and has_end):
                raise InputError(
                    f"must say which column of {self.place} holds {ours!r}: none has a usual name "
                    f"({', '.join(dialect.known_names[ours])}); {self._list_names()}",
                    argument="columns",
                )
        return found

    def find_kept(self, kept: Sequence[str]) -> dict[str, int]:
        """Return the positions of other columns, given by their names in the file."""
        for name in kept:
            if name not in self.names:
                raise InputError(f"{self.place}: has no column {name!r}; {self._list_names()}")
        return {name: self.names.index(name) for name in kept}

    def _find_mapped(self, name: str) -> int:
        exact = [position for position, theirs in enumerate(self.names) if theirs == name]
        wanted = normalise_name(name)
        found = exact or [at for at, theirs in enumerate(self.normalised) if theirs == wanted]
        if len(found) != 1:
            problem = "appears more than once" if found else "does not exist"
            raise InputError(
                f"names the column {name!r}, which {problem} in {self.place}; {self._list_names()}",
                argument="columns",
            )
        return found[0]

    def _list_names(self, longest: int = 300) -> str:
        text = ", ".join(self.names)
        text = text if len(text) <= longest else text[: longest - 1] + "…"
        return f"its columns are: {text if text.isprintable() else repr(text)}"


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


def _normalise(names: str) -> list[str]:
    return [normalise_name(name) for name in names.split()]


_CSV = Dialect(
    known_names={ours: _normalise(names) for ours, names in _KNOWN_NAMES.items()},
    ranked=("name", "user"),  # many tables have both an id and a name
    # On machines with GPUs, jobs wait for those.
    preferred={"servers": _normalise(f"servers {_GPUS}")},
    separators=",;\t|",  # names of columns rarely contain these
    csv_options={"skipinitialspace": True},
)
