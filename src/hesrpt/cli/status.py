"""``hesrpt status``: the state of a run's jobs."""

from __future__ import annotations

import json
from dataclasses import asdict

from hesrpt.cli.options import AsJson, StateDirectory


def status(state: StateDirectory, as_json: AsJson = False) -> None:
    """Show the state of each job of a run."""
    from hesrpt.cli.run_tables import print_status
    from hesrpt.runtime import runs

    is_running, jobs = runs.status(state)
    if as_json:
        print(json.dumps({"running": is_running, "jobs": [asdict(job) for job in jobs]}, indent=2))
    else:
        print_status(is_running, jobs)
