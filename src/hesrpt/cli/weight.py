"""``hesrpt weight``: changes how much jobs of a run matter."""

from __future__ import annotations

from typing import Annotated

import typer

from hesrpt.cli.completion import complete_job
from hesrpt.cli.job_changes import AllJobs, GroupName, change_jobs
from hesrpt.cli.options import AsJson
from hesrpt.cli.run_choice import RunChoice
from hesrpt.errors import InputError
from hesrpt.validation import check_positive, is_number


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
    change_jobs(
        run, "weight", arguments, all_jobs=all_jobs, group=group, as_json=as_json, weight=number
    )
