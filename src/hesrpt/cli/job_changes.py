"""``hesrpt cancel``, ``pause``, ``resume``, ``retry`` and ``weight``: change the jobs of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt.cli.completion import complete_group, complete_job
from hesrpt.cli.options import AsJson, option
from hesrpt.cli.run_choice import RunArguments, RunChoice
from hesrpt.cli.terminal import print_json
from hesrpt.display.console import escape
from hesrpt.errors import InputError
from hesrpt.validation import check_positive, is_number

if TYPE_CHECKING:
    from hesrpt.storage.journal_entries import RequestKind

AllJobs = Annotated[bool, option("All jobs that have not ended.", "--all")]
AllFailedJobs = Annotated[
    bool, option("All jobs with failed items, and all that were cancelled.", "--all")
]
GroupName = Annotated[
    str | None,
    option(
        "A group of jobs, instead of names of jobs.",
        "--group",
        metavar="NAME",
        complete=complete_group,
    ),
]


def cancel(
    run: RunChoice,
    jobs: RunArguments = None,
    all_jobs: AllJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """End jobs of a run. They stay cancelled until they are retried.

    Items that are running are stopped. Results of items that are done are kept.
    """
    _change_jobs(run, "cancel", jobs, all_jobs=all_jobs, group=group, as_json=as_json)


def pause(
    run: RunChoice,
    jobs: RunArguments = None,
    all_jobs: AllJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """Give the servers of jobs to others until the jobs are resumed.

    A job with items finishes those that are running, and starts no others. A single command is
    suspended with all its processes, or stopped if it resizes by restarting.
    """
    _change_jobs(run, "pause", jobs, all_jobs=all_jobs, group=group, as_json=as_json)


def resume(
    run: RunChoice,
    jobs: RunArguments = None,
    all_jobs: AllJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """Let paused jobs go on."""
    _change_jobs(run, "resume", jobs, all_jobs=all_jobs, group=group, as_json=as_json)


def retry(
    run: RunChoice,
    jobs: RunArguments = None,
    all_jobs: AllFailedJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """Run the failed items of jobs again, and continue jobs that were cancelled."""
    _change_jobs(run, "retry", jobs, all_jobs=all_jobs, group=group, as_json=as_json)


def weight(
    run: RunChoice,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] [JOB]... WEIGHT",
            autocompletion=complete_job,
            show_default=False,
            help="State directory of the run, unless an option or a variable says which; names of "
            "jobs; and a number greater than 0, which is 1 at first.",
        ),
    ] = None,
    all_jobs: AllJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """Change the weights of jobs: what a second of their flow time costs.

    A job with a higher weight gets more servers and ends earlier. The weight of a group multiplies
    those of its jobs.
    """
    *arguments, value = jobs or [""]
    if not is_number(value):
        got = f", got {value!r}" if value else ""
        raise InputError(f"WEIGHT is missing: the last word must be a number greater than 0{got}")
    number = check_positive("WEIGHT", float(value))
    _change_jobs(
        run, "weight", arguments, all_jobs=all_jobs, group=group, as_json=as_json, weight=number
    )


def _change_jobs(
    choice: RunChoice,
    kind: RequestKind,
    arguments: Sequence[str] | None,
    *,
    all_jobs: bool,
    as_json: bool,
    group: str | None,
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
        print_json(jobs=entries)
    else:
        for result in results:
            print(escape(f"{result.job}: {result.text}"))
        if not results:
            where = "" if group is None else f" in group {group!r}"
            verb = "change" if kind == "weight" else kind
            print(escape(f"nothing to do: there is no job to {verb}{where}"))
        if not all(result.is_answered for result in results) and (
            hint := run.explain_missing_answers()
        ):
            print(escape(hint))
    if any(result.is_refused for result in results):
        raise typer.Exit(1)
