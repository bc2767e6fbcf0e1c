"""``hesrpt submit``: adds jobs to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hesrpt.cli.options import StateDirectory
from hesrpt.display.escaping import escape


def submit(
    state: StateDirectory,
    jobs: Annotated[Path, typer.Argument(metavar="JOBS.TOML", help="The jobs to add.")],
) -> None:
    """Add jobs to a run. If it is not running, they start when it is resumed."""
    from hesrpt.cli.run_tables import get_resume_command
    from hesrpt.runtime.commands.jobs_file import read_jobs_file
    from hesrpt.runtime.reports.inspection import read_job_names
    from hesrpt.runtime.requests import submit_jobs

    file = read_jobs_file(jobs, read_job_names(state))
    specs = file.jobs
    start_now = submit_jobs(state, specs, file.group_weights)
    names = ", ".join(spec.name for spec in specs)
    subject = "it starts" if len(specs) == 1 else "they start"
    note = "" if start_now else f"; {subject} with: {get_resume_command(state)}"
    print(escape(f"submitted to {state}: {names}{note}"))
