"""The schedule that a trace records, beside those of a study."""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.simulator.simulation import Simulation, record_unresized_jobs
from hesrpt.traces import Trace
from hesrpt.traces.trace import RECORDED
from hesrpt.units import format_count
from hesrpt.workload import Workload

# If a larger part of the jobs has no recorded start, the recorded schedule is not shown.
_MAX_WITHOUT_START = 0.01


def build_recorded_run(trace: Trace, workload: Workload, servers: int) -> Simulation | None:
    """Return the schedule that the trace records; None if too many starts are missing."""
    from hesrpt.simulator.backfilling import run_times

    if not _has_enough_starts(trace):
        return None
    starts = np.maximum(_complete_starts(trace), trace.submit_times)
    ends = starts + run_times(workload)
    return record_unresized_jobs(workload, float(servers), starts, ends, trace.servers, RECORDED)


def describe_recorded(trace: Trace, is_part: bool) -> list[str]:
    """Return sentences on the recorded schedule."""
    missing = int(np.count_nonzero(np.isnan(trace.start_times)))
    if missing == len(trace):
        return []
    have = f"{format_count(missing, 'job')} {'has' if missing == 1 else 'have'} no recorded start"
    if not _has_enough_starts(trace):
        return [f"the recorded schedule is not shown: {have}"]
    notes = []
    if missing:
        notes.append(
            f"{have}: the recorded schedule lets {'it' if missing == 1 else 'them'} wait as long "
            "as the job submitted before"
        )
    if is_part:
        notes.append(
            "recorded waits are those of the whole trace; simulations start on an empty machine, "
            "without the jobs that were left out"
        )
    return notes


def _has_enough_starts(trace: Trace) -> bool:
    return bool(np.isnan(trace.start_times).mean() <= _MAX_WITHOUT_START)


def _complete_starts(trace: Trace) -> FloatArray:
    """Return when jobs started; where that is unknown, they wait as long as the job before."""
    waits = trace.start_times - trace.submit_times
    known = np.flatnonzero(~np.isnan(waits))
    before = np.searchsorted(known, np.arange(len(trace)), side="right") - 1
    return trace.submit_times + waits[known[np.maximum(before, 0)]]
