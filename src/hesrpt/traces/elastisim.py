"""Workloads of the simulator ElastiSim: JSON with ``jobs`` that refer to application models.

Servers are nodes. A job that can use several numbers of nodes counts as asking for the most. Run
times follow from application models that only wait, if these files are next to the workload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hesrpt.traces.application_models import compute_duration, read_model
from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.json_jobs import get_first_job, get_number, refuse_columns
from hesrpt.traces.trace import Trace
from hesrpt.traces.walltimes import read_workload


def is_elastisim(document: Any) -> bool:
    """Return whether a JSON document is a workload of ElastiSim."""
    first = get_first_job(document)
    return isinstance(document, dict) and (
        "application_model" in first or ("submit_time" in first and "type" in first)
    )


def read_elastisim(document: Any, builder: TraceBuilder, columns: Mapping[str, str]) -> Trace:
    """Read a workload of ElastiSim."""
    refuse_columns(builder, "ElastiSim's workloads", columns)
    directory = Path(builder.source).parent
    models: dict[str, Any] = {}

    def compute_runtime(job: Mapping[str, Any]) -> float:
        path = job.get("application_model")
        if not isinstance(path, str):
            return math.nan
        if path not in models:
            models[path] = read_model(directory, path)
        arguments = job.get("arguments")
        values = dict(arguments) if isinstance(arguments, dict) else {}
        values |= {"num_nodes": _get_nodes(job), "num_gpus_per_node": _get_gpus(job)}
        return compute_duration(models[path], values)

    return read_workload(
        builder,
        document.get("jobs"),
        get_servers=_get_nodes,
        compute_runtime=compute_runtime,
        names={"name": "id", "submit": "submit_time"},
    )


def _get_nodes(job: Mapping[str, Any]) -> Any:
    return job.get("num_nodes", job.get("num_nodes_max"))


def _get_gpus(job: Mapping[str, Any]) -> float:
    gpus = job.get("num_gpus_per_node", job.get("num_gpus_per_node_max", 0))
    return get_number(gpus)
