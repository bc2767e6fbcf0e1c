"""What other policies would have made of the latest jobs: a program of its own.

The service starts ``python -m hesrpt.service.analysis DIR`` now and then, with low priority, so
that simulations never delay the scheduler. It prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.optimal.bounds import lower_bound
from hesrpt.reports.counterfactuals import compare_policies, read_recent_history
from hesrpt.reports.inspection import RunHistory
from hesrpt.reports.run_schedule import get_measured_size, get_measured_speedup
from hesrpt.speedups import Speedup
from hesrpt.speedups.limits import Limited
from hesrpt.storage.journal_entries import JobRecord
from hesrpt.workload import Workload


def analyse(directory: Path) -> dict[str, Any]:
    """Return the comparison with other policies and the lower bound, as JSON values."""
    history = read_recent_history(directory)
    if history is None:
        return {"comparison": None, "bound": None}
    comparison = compare_policies(history)
    return {
        "comparison": {
            "measured": comparison.mean_flow_time,
            "jobs": len(history.records),
            "policy": comparison.policy,
            "simulated": [vars(each) for each in comparison.simulated],
            "reason": comparison.reason,
        },
        "bound": bound_history(history, comparison.mean_flow_time),
    }


def bound_history(history: RunHistory, measured: float) -> dict[str, Any]:
    """Return a mean flow time that no schedule of the same jobs could have beaten."""
    records = history.records
    found = {"mean_flow_time": None, "ratio": None, "jobs": len(records), "reason": None}
    first = min(record.arrived for record in records)
    workload = Workload(
        [get_measured_size(record) for record in records],
        [_limit_speedup(record, history.servers) for record in records],
        arrivals=[record.arrived - first for record in records],
    )
    try:
        mean = lower_bound(workload, history.servers).mean
    except InputError as error:
        return found | {"reason": str(error)}
    if not 0 < mean <= measured:
        reason = "the measured sizes and speedups do not fit the measured flow times"
        return found | {"reason": reason}
    return found | {"mean_flow_time": mean, "ratio": measured / mean}


def _limit_speedup(record: JobRecord, servers: int) -> Speedup:
    """Return the measured speedup of a job, up to the servers that it could have used."""
    speedup = get_measured_speedup(record)
    most = record.spec.max_servers or servers
    if record.spec.is_bag:
        most = min(most, max(record.done, 1))
    return speedup if most >= servers else Limited(speedup, most)


def main() -> None:
    """Print the analysis of a state directory."""
    os.nice(19)
    sys.stdout.write(json.dumps(analyse(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
