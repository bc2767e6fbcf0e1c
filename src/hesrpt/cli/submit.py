"""``hesrpt submit``: adds the jobs in a file to a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from hesrpt._version import __version__
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
    """Add the jobs in a file to a run. If it is not running, they start when it is resumed."""
    from hesrpt.runtime.commands.jobs_file import list_run_settings

    target, files = run.find(jobs)
    if len(files) != 1:
        raise InputError(
            "JOBS.TOML is missing" if not files else f"one JOBS.TOML is enough, got {files[1]!r}"
        )
    added = target.submit(Path(files[0]))
    if settings := list_run_settings(files[0]):
        ignored = f"{', '.join(settings)}: only hesrpt run obeys this; the jobs join a run as it is"
        print(escape(f"hesrpt: {files[0]}: {ignored}"), file=sys.stderr)
    if as_json:
        print(json.dumps({"hesrpt": __version__, "jobs": list(added.names)}, indent=2))
    else:
        print(escape(f"submitted to {target.place}: {', '.join(added.names)}{added.note}"))
