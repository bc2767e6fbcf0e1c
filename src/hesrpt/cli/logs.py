"""``hesrpt logs``: the output of a job's items."""

from __future__ import annotations

from typing import Annotated

import typer

from hesrpt.cli.completion import complete_job
from hesrpt.cli.options import StateDirectory, parse_whole_number


def logs(
    state: StateDirectory,
    job: Annotated[
        str, typer.Argument(metavar="JOB", autocompletion=complete_job, help="Name of a job.")
    ],
    item: Annotated[
        int | None,
        typer.Argument(
            parser=parse_whole_number,
            metavar="ITEM",
            show_default=False,
            help="Number of an item. By default, all items.",
        ),
    ] = None,
) -> None:
    """Print the output of a job's items."""
    from hesrpt.runtime.inspection import read_logs

    for number, text in read_logs(state, job, item):
        if item is None:
            print(f"--- {job}, item {number}")
        print(text, end="" if text.endswith("\n") else "\n")
