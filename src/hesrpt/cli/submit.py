"""``hesrpt submit``: adds the jobs in a file to a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hesrpt.cli.added_jobs import add_and_print
from hesrpt.cli.options import AsJson
from hesrpt.cli.run_choice import RunChoice
from hesrpt.display.escaping import escape
from hesrpt.errors import InputError


def submit(
    run: RunChoice,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] JOBS.TOML",
            show_default=False,
            help="State directory of the run, unless an option or a variable says which; and the "
            "file with the jobs to add.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add the jobs in a file to a run. If it is not running, they start when it is resumed.

    If one of them can never start, because it needs more than there is, none is added.
    """
    from hesrpt.jobs.jobs_file import list_run_settings

    target, files = run.find(jobs)
    if len(files) != 1:
        raise InputError(
            "JOBS.TOML is missing" if not files else f"one JOBS.TOML is enough, got {files[1]!r}"
        )
    add_and_print(lambda: target.submit(Path(files[0])), as_json=as_json)
    if settings := list_run_settings(files[0]):
        ignored = f"{', '.join(settings)}: only hesrpt run obeys this; the jobs join a run as it is"
        print(escape(f"hesrpt: {files[0]}: {ignored}"), file=sys.stderr)
