"""What the commands that change the jobs of a run have in common."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt._version import __version__
from hesrpt.cli.completion import complete_group, complete_job
from hesrpt.display.escaping import escape
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.runtime.storage.journal_entries import RequestKind

JobNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB", autocompletion=complete_job, show_default=False, help="Names of jobs."
    ),
]
AllJobs = Annotated[bool, typer.Option("--all", help="All jobs that have not ended.")]
GroupName = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="NAME",
        autocompletion=complete_group,
        help="A group of jobs, instead of names of jobs.",
    ),
]
AllFailedJobs = Annotated[
    bool, typer.Option("--all", help="All jobs with failed items, and all that were cancelled.")
]


def change_jobs(
    state: Path,
    kind: RequestKind,
    names: Sequence[str] | None,
    *,
    all_jobs: bool,
    as_json: bool,
    weight: float | None = None,
    group: str | None = None,
) -> None:
    """Ask for a change of jobs, and print what happened or will happen.

    Exit with code 1 if the change of a job was refused.
    """
    from hesrpt.cli.run_tables import describe_continuation
    from hesrpt.runtime.reports.inspection import read_status
    from hesrpt.runtime.requests import request_change

    if group is not None and (names or all_jobs):
        raise InputError("--group means the jobs of a group: leave out --all and names of jobs")
    if not names and not all_jobs and group is None:
        known = ", ".join(job.name for job in read_status(state).jobs) or "none"
        raise InputError(f"JOB is missing; name jobs, or use --all; jobs are: {known}")
    if names and all_jobs:
        raise InputError("--all means all jobs: leave out their names")
    results = request_change(state, kind, names or (), weight=weight, group=group)
    if as_json:
        entries = [
            {
                "name": result.job,
                "request": result.request,
                "answered": result.is_answered,
                "refused": result.is_refused,
                "text": result.text,
            }
            for result in results
        ]
        content = {"hesrpt": __version__, "jobs": entries}
        print(json.dumps(content, indent=2))
    else:
        for result in results:
            print(escape(f"{result.job}: {result.text}"))
        status = read_status(state)
        if not status.is_running and not all(result.is_answered for result in results):
            print(escape(f"no scheduler is running{describe_continuation(status, state)}"))
    if any(result.is_refused for result in results):
        raise typer.Exit(1)
