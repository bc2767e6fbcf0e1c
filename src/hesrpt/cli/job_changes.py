"""What the commands that change the jobs of a run have in common."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt._version import __version__
from hesrpt.cli.completion import complete_group
from hesrpt.cli.run_choice import RunChoice
from hesrpt.display.escaping import escape
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.storage.journal_entries import RequestKind

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


# What is done to a job, if that is not the name of the command.
_VERBS = {"weight": "change"}


def change_jobs(
    choice: RunChoice,
    kind: RequestKind,
    arguments: Sequence[str] | None,
    *,
    all_jobs: bool,
    as_json: bool,
    group: str | None = None,
    weight: float | None = None,
) -> None:
    """Ask for a change of jobs, and print what happened or will happen.

    Exit with code 1 if the change of a job was refused. If there is no job that it applies to, that
    is all right.
    """
    run, names = choice.find(arguments)
    if group is not None and (names or all_jobs):
        raise InputError("--group means the jobs of a group: leave out --all and names of jobs")
    if not names and not all_jobs and group is None:
        from hesrpt.storage.job_names import describe_names

        known = describe_names(run.list_names())
        raise InputError(f"JOB is missing; name jobs, or use --all; {known}")
    if names and all_jobs:
        raise InputError("--all means all jobs: leave out their names")
    results = run.change(kind, names, weight, group)
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
        if not results:
            where = "" if group is None else f" in group {group!r}"
            print(escape(f"nothing to do: there is no job to {_VERBS.get(kind, kind)}{where}"))
        if not all(result.is_answered for result in results) and (
            hint := run.explain_missing_answers()
        ):
            print(escape(hint))
    if any(result.is_refused for result in results):
        raise typer.Exit(1)
