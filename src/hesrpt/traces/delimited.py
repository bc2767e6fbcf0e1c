"""Tables of values separated by commas, semicolons, tabs or bars; names vary in these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hesrpt.traces.columns import plain
from hesrpt.traces.table import Dialect


def _options(header: str) -> Mapping[str, Any]:
    # Names hardly hold any of these, so the most frequent one separates them.
    return {"delimiter": max(",;\t|", key=header.count), "skipinitialspace": True}


def _never(name: str) -> bool:
    return False


_KNOWN = {
    "submit": (
        "submit", "submit_time", "submission_time", "submitted", "timestamp", "arrival",
        "arrival_time", "time",
    ),
    "runtime": ("runtime", "duration", "elapsed", "run"),
    "servers": (
        "servers", "num_gpus", "num_gpu", "gpus", "gpu_num", "num_cpus", "cpus", "nodes",
        "num_nodes", "procs", "processors", "cores",
    ),
    "start": ("start", "start_time", "started"),
    "end": ("end", "end_time", "finished"),
    "wait": ("wait", "wait_time"),
    "estimate": ("estimate", "requested_time", "time_limit", "walltime"),
    "name": ("job_id", "id", "job", "name"),
}  # fmt: skip
CSV = Dialect(
    known={ours: [plain(name) for name in names] for ours, names in _KNOWN.items()},
    ranked=("name",),  # a job may well have both an id and a name
    options=_options,
    units={},
    is_part=_never,
)
