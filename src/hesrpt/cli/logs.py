"""``hesrpt logs``: the output of a job's items."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hesrpt.cli.completion import complete_job
from hesrpt.cli.options import parse_whole_number
from hesrpt.cli.run_choice import RunChoice
from hesrpt.display.escaping import escape
from hesrpt.errors import InputError


def logs(
    run: RunChoice,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] JOB [ITEM]",
            autocompletion=complete_job,
            show_default=False,
            help="State directory of the run, unless an option or a variable says which; name of "
            "a job; and number of an item, by default all items.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print further output until the job ends.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print each line of output as a JSON object with its job and item."
        ),
    ] = False,
) -> None:
    """Print the output of a job's items.

    A line such as "── item 3, attempt 2, 14:03:11 ──" tells the attempts of an item apart.
    """
    from hesrpt.cli.log_printers import print_json_lines, print_text
    from hesrpt.storage.job_names import describe_names

    target, words = run.find(jobs)
    if not words:
        raise InputError(f"JOB is missing; {describe_names(target.list_names())}")
    if len(words) > 2:
        raise InputError(f"one JOB and one ITEM are enough, got {words[2]!r}")
    job, item = words[0], _parse_item(words[1]) if len(words) > 1 else None
    print_output = print_json_lines if as_json else print_text
    try:
        has_printed = print_output(job, target.open_logs(job, item, follow=follow))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if not has_printed:
        subject = f"job {job!r}" if item is None else f"item {item} of job {job!r}"
        print(escape(f"hesrpt: {subject} has printed nothing"), file=sys.stderr)


def _parse_item(text: str) -> int:
    try:
        return parse_whole_number(text)
    except typer.BadParameter:
        raise InputError(f"ITEM must be a number, got {text!r}") from None
