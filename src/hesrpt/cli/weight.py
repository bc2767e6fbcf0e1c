"""``hesrpt weight``: changes how much jobs of a run matter."""

from __future__ import annotations

from typing import Annotated

import typer

from hesrpt.cli.job_changes import AllJobs, GroupName, JobNames, change_jobs
from hesrpt.cli.options import AsJson, StateDirectory
from hesrpt.errors import InputError
from hesrpt.validation import check_positive, is_number


def weight(
    state: StateDirectory,
    jobs: JobNames = None,
    weight: Annotated[
        str,
        typer.Argument(
            metavar="WEIGHT",
            show_default=False,
            help="A number greater than 0; 1 at first.",
        ),
    ] = "",
    all_jobs: AllJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """Change the weights of jobs: what a second of their flow time costs.

    A job with a higher weight gets more servers and ends earlier. The weight of a group multiplies
    those of its jobs.
    """
    if not is_number(weight):
        raise InputError(f"WEIGHT must be a number greater than 0, got {weight!r}")
    value = check_positive("weight", float(weight))
    change_jobs(
        state, "weight", jobs, all_jobs=all_jobs, group=group, as_json=as_json, weight=value
    )
