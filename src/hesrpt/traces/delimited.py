"""CSV files: tables with a header, separated by commas, semicolons, tabs or vertical bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hesrpt.files import Block
from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.columns import normalise_name
from hesrpt.traces.table import Dialect, read_table
from hesrpt.traces.trace import Trace

_KNOWN_NAMES = {
    "submit": "submit submit_time submission_time submitted timestamp arrival arrival_time time",
    "runtime": "runtime duration elapsed run",
    "servers": "servers num_gpus num_gpu gpus gpu_num num_cpus cpus nodes num_nodes procs "
    "processors cores",
    "start": "start start_time started",
    "end": "end end_time finished",
    "wait": "wait wait_time",
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


_CSV = Dialect(
    known_names={
        ours: [normalise_name(name) for name in names.split()]
        for ours, names in _KNOWN_NAMES.items()
    },
    ranked=("name", "user"),  # many tables have both an id and a name
    csv_options=_choose_csv_options,
)
