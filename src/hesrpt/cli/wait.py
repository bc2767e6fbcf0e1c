"""``hesrpt wait``: waits until jobs have ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt._version import __version__
from hesrpt.cli.options import AsJson
from hesrpt.cli.run_choice import RunArguments, RunChoice
from hesrpt.display.escaping import escape
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.cli.directory_run import DirectoryRun
    from hesrpt.cli.run_view import EndedJob
    from hesrpt.cli.service_run import ServiceRun

#: The exit code if jobs take too long, as of the program ``timeout``.
TIMED_OUT = 124


def wait(
    run: RunChoice,
    jobs: RunArguments = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long to wait at most, for example 90 (seconds) or 2h."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until jobs have ended, or all that have not yet, and print what became of them.

    The exit code is 0 if all are done, 1 if one has failed or was cancelled, 2 if the request makes
    no sense, 3 if the service cannot be reached, and 124 if it took too long.
    """
    target, names = run.find(jobs)
    wait_for_jobs(target, names, _parse_timeout(timeout), as_json=as_json)


def _parse_timeout(text: str | None) -> float | None:
    from hesrpt.units import parse_duration

    try:
        return None if text is None else parse_duration(text)
    except ValueError:
        raise InputError(f"--timeout must be a duration such as 90 or 2h, got {text!r}") from None


def wait_for_jobs(
    target: DirectoryRun | ServiceRun,
    names: Sequence[str],
    timeout: float | None,
    *,
    as_json: bool,
) -> None:
    """Wait for jobs, print what became of them, and exit with a code that says it."""
    ended, has_timed_out = [], False
    try:
        for job in target.wait(names, timeout):
            ended.append(job)
            if not as_json:
                print(escape(f"{job.name}: {_describe_end(job)}"), flush=True)
    except TimeoutError:
        has_timed_out = True
        print(f"hesrpt: jobs have not ended after {timeout:g} s", file=sys.stderr)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if as_json:
        content = {"hesrpt": __version__, "jobs": [job._asdict() for job in ended]}
        print(json.dumps(content, indent=2))
    if has_timed_out:
        raise typer.Exit(TIMED_OUT)
    if any(job.state != "done" for job in ended):
        raise typer.Exit(1)


def _describe_end(job: EndedJob) -> str:
    """Return what became of a job, and why; the reason may repeat that it was cancelled."""
    if job.error is None:
        return job.state
    reason = job.error.partition("\n")[0]
    return reason if reason.startswith(job.state) else f"{job.state}: {reason}"
