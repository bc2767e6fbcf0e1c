"""``hesrpt status``: the state of a run's jobs."""

from __future__ import annotations

import json

from hesrpt._version import __version__
from hesrpt.cli.options import AsJson, StateDirectory


def status(state: StateDirectory, as_json: AsJson = False) -> None:
    """Show the state of each job of a run."""
    from hesrpt.cli.run_tables import print_status
    from hesrpt.runtime.inspection import read_status

    run_status = read_status(state)
    if as_json:
        keys = ("name", "done", "items", "failures", "arrived", "ended", "error")
        jobs = [
            {key: getattr(job, key) for key in keys} | {"state": run_status.get_state(job)}
            for job in run_status.jobs
        ]
        result = {
            "hesrpt": __version__,
            "running": run_status.is_running,
            "submitted": [spec.name for spec in run_status.submitted],
            "jobs": jobs,
        }
        print(json.dumps(result, indent=2))
    else:
        print_status(run_status, state)
