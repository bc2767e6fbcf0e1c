"""Workloads of the simulator ElastiSim: JSON with ``jobs`` that refer to application models.

Servers are nodes. A job that can use several numbers of nodes counts as asking for the most. Run
times follow from application models and the platform, if these files are next to the workload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hesrpt.traces.application_models import compute_duration, read_model
from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.columns import refuse_columns
from hesrpt.traces.json_jobs import get_first_job, get_number
from hesrpt.traces.platforms import find_platform
from hesrpt.traces.simulator_workloads import read_workload
from hesrpt.traces.trace import Trace
from hesrpt.units import format_count


def is_elastisim(document: Any) -> bool:
    """Return whether a JSON document is a workload of ElastiSim."""
    first = get_first_job(document)
    return isinstance(document, dict) and (
        "application_model" in first or ("submit_time" in first and "type" in first)
    )


def read_elastisim(document: Any, builder: TraceBuilder, columns: Mapping[str, str]) -> Trace:
    """Read a workload of ElastiSim."""
    refuse_columns(builder.source, "ElastiSim's workloads", columns)
    directory = Path(builder.source).parent
    platform = find_platform(directory)
    models: dict[str, Any] = {}
    partial = 0

    def compute_runtime(job: Mapping[str, Any]) -> float:
        nonlocal partial
        path = job.get("application_model")
        if not isinstance(path, str):
            return math.nan
        if path not in models:
            models[path] = read_model(directory, path)
        arguments = job.get("arguments")
        values = dict(arguments) if isinstance(arguments, dict) else {}
        nodes, gpus = get_number(_get_nodes(job)), _get_gpus(job)
        values |= {"num_nodes": nodes, "num_gpus_per_node": gpus, "num_gpus": nodes * gpus}
        speed = platform.speed if platform else math.nan
        seconds, has_left_out = compute_duration(models[path], values, speed)
        partial += has_left_out and not math.isnan(seconds)
        return seconds

    def describe_run_times() -> list[str]:
        if not partial:
            return []
        return [
            f"the run times of {format_count(partial, 'job')} leave out communication, input and "
            "output, which depend on the simulated network"
        ]

    return read_workload(
        builder,
        document.get("jobs"),
        get_servers=_get_nodes,
        compute_runtime=compute_runtime,
        names={"name": "id", "submit": "submit_time"},
        machine_servers=platform.nodes if platform else None,
        describe_run_times=describe_run_times,
        expected="a walltime, or an application model that waits, or that computes on a platform; "
        "these files must be next to the workload",
    )


def _get_nodes(job: Mapping[str, Any]) -> Any:
    return job.get("num_nodes", job.get("num_nodes_max"))


def _get_gpus(job: Mapping[str, Any]) -> float:
    gpus = job.get("num_gpus_per_node", job.get("num_gpus_per_node_max", 0))
    return get_number(gpus)
