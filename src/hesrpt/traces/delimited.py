"""CSV files: tables with a header, separated by commas, semicolons, tabs or vertical bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hesrpt.files import Block
from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.columns import normalise_name
from hesrpt.traces.table import Dialect, read_table
from hesrpt.traces.trace import Trace

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
