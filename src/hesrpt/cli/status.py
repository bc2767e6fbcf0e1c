"""``hesrpt status``: the state of a run's jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hesrpt._version import __version__
from hesrpt.cli.options import AsJson, StateDirectory


def status(
    state: StateDirectory,
    learned: Annotated[
        bool,
        typer.Option("--learned", help="Show what was learned about each kind of job instead."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of each job of a run."""
    if learned:
        _show_learned(state, as_json)
        return
    from hesrpt.cli.failed_items import failures_as_json
    from hesrpt.cli.run_tables import print_status
    from hesrpt.runtime.reports.inspection import read_status

    run_status = read_status(state)
    if as_json:
        keys = ("name", "done", "items", "arrived", "ended", "error")
        jobs = [
            {key: getattr(job, key) for key in keys}
            | {
                "state": run_status.get_state(job),
                "servers": run_status.get_servers(job),
                "planned": run_status.get_planned(job),
                "eta": run_status.get_eta(job),
                "group": job.spec.group,
                "weight": job.spec.weight,
                "after": list(job.spec.after),
                "waits_for": run_status.list_unfinished(job),
                "waits_because": run_status.explain_wait(job),
                "resources": dict(job.spec.resources),
                "hooks": [
                    {"target": call.target, "attempts": call.attempts, "error": call.error}
                    for call in run_status.hooks
                    if call.job == job.number
                ],
                "failed_attempts": job.failures,
                "failed_items": failures_as_json(job.failed_items),
            }
            for job in run_status.jobs
        ]
        result = {
            "hesrpt": __version__,
            "running": run_status.is_running,
            "submitted": [spec.name for spec in run_status.submitted],
            "requests": [
                {"request": each.number, "kind": each.kind, "job": name, "weight": each.weight}
                for name, each in run_status.changes
            ],
            "groups": {
                name: {"weight": group.weight, "paused": group.is_paused}
                for name, group in run_status.groups.items()
            },
            "resources": {
                kind: {"total": total, "free": free}
                for kind, (total, free) in run_status.progress.resources.items()
            },
            "jobs": jobs,
        }
        print(json.dumps(result, indent=2))
    else:
        print_status(run_status, state)


def _show_learned(state: Path, as_json: bool) -> None:
    from hesrpt.cli.learned_table import print_learned
    from hesrpt.runtime.decisions.kinds import KindMemory
    from hesrpt.runtime.reports.inspection import read_learned_runs

    kinds = KindMemory(read_learned_runs(state)).summarise()
    if as_json:
        keys = ("kind", "runs", "items", "item_seconds", "spread", "p", "p_error", "p_origin")
        rows = [
            {key: getattr(kind, key) for key in keys} | {"is_command": not kind.is_bag}
            for kind in kinds
        ]
        print(json.dumps({"hesrpt": __version__, "kinds": rows}, indent=2))
    else:
        print_learned(kinds)
