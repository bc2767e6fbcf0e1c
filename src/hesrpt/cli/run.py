"""``hesrpt run``: real jobs on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hesrpt.cli.options import (
    AsJson,
    EngineOptions,
    malleable_policy_option,
    option,
    whole_number_option,
)
from hesrpt.cli.terminal import create_table, print_json, print_table
from hesrpt.display.console import create_console, escape, literal
from hesrpt.errors import InputError
from hesrpt.units import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from hesrpt.display.overview import RunOverview
    from hesrpt.pool.batch_run import PreviewedCommand, PreviewedJob, RunOptions, RunPreview
    from hesrpt.pool.pool import Pool

# How many commands of a job a dry run prints.
_MAX_COMMANDS = 5


def run(
    engine_options: EngineOptions,
    jobs: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOBS.TOML",
            show_default=False,
            help="The jobs. Without them, the run in --state DIR is continued as it is.",
        ),
    ] = None,
    servers: Annotated[
        int | None,
        whole_number_option(
            "Number of servers. By default, the number in the jobs file, or else all cores "
            "of this machine, or all that are free on the cluster."
        ),
    ] = None,
    policy: Annotated[
        str | None, malleable_policy_option("the policy in the jobs file, or else adaptive")
    ] = None,
    state: Annotated[
        Path | None,
        option(
            "Record every result in this directory. If it holds a run already, continue that.",
            metavar="DIR",
        ),
    ] = None,
    keep_going: Annotated[
        bool,
        option(
            "If an item fails, go on with the others of its job. For single jobs, set "
            "keep_going in the jobs file.",
            "--keep-going",
        ),
    ] = False,
    on_change: Annotated[
        Literal["error", "redo", "keep"] | None,
        option(
            "For jobs whose command has changed since the run in --state DIR was started: "
            "redo does all items again, keep keeps the results of items that are done, and error, "
            "the default, refuses to run.",
            metavar="CHOICE",
        ),
    ] = None,
    learned: Annotated[
        Path | None,
        option(
            "State directory of an earlier run, to plan with what its jobs have taught.",
            metavar="DIR",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        option("Append what the scheduler decides, and why, to this file.", metavar="FILE"),
    ] = None,
    dry_run: Annotated[
        bool,
        option(
            "Print the commands and when jobs would end, but start and create nothing.", "--dry-run"
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the jobs in a file so that their mean flow time is as low as possible.

    With --state DIR, the same command starts a run and continues it after a crash. The exit code is
    0 if no job has failed, 1 if one has, 2 if the run was refused, and 130 if it was interrupted.
    """
    from hesrpt.cli.outcomes import print_failures, print_outcome
    from hesrpt.cli.run_access import SCRIPT_HINT, get_resume_command
    from hesrpt.jobs.jobs_file import JobsFile, read_jobs_file
    from hesrpt.pool.batch_run import RunOptions, run_jobs
    from hesrpt.reports.counterfactuals import MAX_JOBS_AT_ONCE
    from hesrpt.reports.inspection import read_job_names, read_policy, read_report, read_status
    from hesrpt.reports.job_views import view_run
    from hesrpt.storage.state_directory import holds_run

    if jobs is None and state is None:
        raise InputError("JOBS.TOML is missing; to continue a run, use --state DIR")
    earlier = state if state is not None and holds_run(state) else None
    if jobs is None and earlier is None:
        raise InputError(f"{state}: holds no run; to start one, give a jobs file")
    if on_change is not None and state is None:
        raise InputError("--on-change needs --state DIR")
    engine, parsed_options = engine_options.engine, engine_options.parse()
    known = () if earlier is None else read_job_names(earlier)
    file = JobsFile() if jobs is None else read_jobs_file(jobs, known)
    if file.resources and engine == "local":
        parsed_options.setdefault("resources", file.resources)
    if log is not None and not dry_run:
        _log_to_file(log)
    earlier_policy = None if earlier is None else read_policy(earlier)
    chosen = policy or file.policy or earlier_policy or "adaptive"
    options = RunOptions(
        servers=file.servers if servers is None else servers,
        policy=chosen,
        state=state,
        keep_going=keep_going,
        on_change=on_change or "error",
        learned=learned,
        engine=engine,
        engine_options=parsed_options,
        group_weights=file.group_weights,
    )
    if dry_run:
        from hesrpt.pool.batch_run import preview_run

        _print_preview(preview_run(file.jobs, options), options, as_json=as_json)
        return
    console = create_console(stderr=as_json)
    # Ray prints the cluster's messages to standard output: keep them out of the JSON.
    redirect = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    try:
        with redirect, _show_progress(console, hidden=as_json) as update:
            pool = run_jobs(
                file.jobs,
                options,
                update,
                lambda line: console.print(literal(line), soft_wrap=True),
            )
    except KeyboardInterrupt:
        hint = ""
        if state is not None:
            hint = f"; continue with: {get_resume_command(state)}{engine_options.write()}"
        print(f"hesrpt: stopped{escape(hint)}", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        compared = pool.compare_policies(max_jobs=MAX_JOBS_AT_ONCE) if pool.jobs else None
        print_json(
            policy=chosen,
            servers=pool.servers,
            jobs=_jobs_as_json(pool, state),
            comparison=None if compared is None else compared.to_json_value(),
        )
    elif not pool.jobs:
        ended = f"all jobs in {state} have ended"
        if state is not None and read_status(state).waits_for_script:
            ended = f"all commands in {state} have ended; {SCRIPT_HINT}"
        console.print(literal(f"nothing is left to do: {ended}"), soft_wrap=True)
    else:
        # With a state directory, jobs that ended before the run was resumed had servers too.
        records = pool.records if state is None else read_report(state).history.records
        print_outcome(
            console,
            records,
            servers=pool.servers,
            first_start=pool.first_start,
            comparison=pool.compare_policies(max_jobs=MAX_JOBS_AT_ONCE),
        )
        if console.is_terminal:  # otherwise each failure was printed when it happened
            print_failures(console, view_run(pool.driver, lists_failures=True).jobs)
    if any(job.state == "failed" for job in pool.jobs):
        raise typer.Exit(1)


@contextlib.contextmanager
def _show_progress(console: Console, *, hidden: bool) -> Iterator[Callable[[Pool], None]]:
    """Show the jobs of a run while they run; yield a function to call from time to time."""
    from hesrpt.display.progress import LineScreen, Screen, TerminalScreen

    if hidden:
        yield lambda pool: None
        return
    screen: Screen = LineScreen(console)
    if console.is_terminal:
        screen = TerminalScreen(console, leaves_table=False)
    shown: list[Pool] = []
    last: RunOverview | None = None

    def update(pool: Pool) -> None:
        nonlocal last
        last = pool.overview()
        (screen.update if shown else screen.open)(last)
        shown[:] = [pool]

    try:
        yield update
        for pool in shown:
            last = pool.overview()  # not after an interrupt, which cancels jobs that will go on
    finally:
        if last is not None:
            screen.close(last)


def _log_to_file(path: Path) -> None:
    """Write the records of this package to a file, and warnings to standard error as before."""
    logger = logging.getLogger("hesrpt")
    logger.setLevel(logging.INFO)
    try:
        file = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", argument="log") from None
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    warnings = logging.StreamHandler()
    warnings.setLevel(logging.WARNING)
    for handler in (file, warnings):
        logger.addHandler(handler)


def _jobs_as_json(pool: Pool, state: Path | None) -> list[dict[str, Any]]:
    """Return all jobs, including those that ended before the run was resumed."""
    from hesrpt.reports.inspection import read_status
    from hesrpt.reports.job_views import view_run

    if state is None:
        views = view_run(pool.driver, lists_failures=True).jobs
    else:
        views = [view for view in read_status(state).views if view.state != "submitted"]
    keys = ("name", "state", "items", "done", "flow_time", "error", "failed_items")
    rows = [view.to_json_value() for view in views]
    return [{key: row[key] for key in keys} for row in rows]


def _print_preview(preview: RunPreview, options: RunOptions, *, as_json: bool) -> None:
    """Print the jobs of a run that was not started, with their commands."""
    if as_json:
        print_json(
            policy=options.policy,
            servers=preview.servers,
            jobs=[_describe_as_json(job) for job in preview.jobs],
        )
        return
    console = create_console()
    columns = ("job", "items", "servers at first", "limits", "ends after")
    table = create_table(*columns, left=["job", "limits"])
    for job in preview.jobs:
        done = f"{job.done:,}/" if job.done else ""
        table.add_row(
            literal(job.spec.name),
            f"{done}{job.spec.items or 0:,}",
            str(job.servers),
            _describe_limits(job),
            _describe_end(job),
        )
    print_table(console, table)
    for job in preview.jobs:
        if not job.left:
            continue
        console.print()
        console.print(literal(f"{job.spec.name}:"), soft_wrap=True)
        for command in islice(job.list_commands(_quote), _MAX_COMMANDS):
            console.print(
                literal(f"  {_describe_directory(command)}{command.text}"), soft_wrap=True
            )
        if (more := len(job.left) - _MAX_COMMANDS) > 0:
            console.print(f"  … and {more:,} more, which --json lists")
    console.print()
    note = f"{options.policy} on {format_count(preview.servers, 'server')}; nothing was started"
    if any(_describe_end(job) == "?" for job in preview.jobs):
        note += '; "?": give the size of the job, or run it once to learn it'
    if any(_waits_for_servers(job) for job in preview.jobs if job.left):
        note += '; "{servers}": not known before the job starts'
    console.print(literal(note), soft_wrap=True)


def _describe_end(job: PreviewedJob) -> str:
    """Return when a job would end; if it would not run, what keeps it from doing so."""
    if job.state != "waiting":
        return job.state
    return "?" if job.end is None else format_duration(job.end)


def _waits_for_servers(job: PreviewedJob) -> bool:
    template = job.spec.command
    return (
        job.command_servers is None and template is not None and "servers" in template.placeholders
    )


def _describe_directory(command: PreviewedCommand) -> str:
    directory = Path(os.path.normpath(command.directory or "."))
    if directory in (Path.cwd(), Path()):
        return ""
    if directory.is_relative_to(Path.cwd()):
        directory = directory.relative_to(Path.cwd())
    return f"cd {_quote(str(directory))} && "


def _quote(text: str) -> str:
    """Quote a text for a shell, without line breaks or other characters that cannot be seen."""
    if text.isprintable():
        return shlex.quote(text)
    characters = (
        char if char.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(char))
        for char in text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    )
    return f"$'{''.join(characters)}'"


def _describe_limits(job: PreviewedJob) -> str:
    spec, limits = job.spec, []
    if spec.max_servers is not None:
        low = max(spec.min_servers, 1)
        span = f"{low}" if low == spec.max_servers else f"{low} to {spec.max_servers}"
        limits.append(f"servers: {span}")
    elif spec.min_servers > 1:
        limits.append(f"servers: at least {spec.min_servers}")
    if spec.command is not None and spec.command.timeout is not None:
        limits.append(f"timeout: {format_duration(spec.command.timeout)}")
    limits.append(f"retries: {spec.retries}")
    return ", ".join(limits)


def _describe_as_json(job: PreviewedJob) -> dict[str, Any]:
    spec = job.spec
    return {
        "name": spec.name,
        "state": job.state,
        "items": spec.items,
        "done": job.done,
        "servers": job.servers,
        "min_servers": spec.min_servers,
        "max_servers": spec.max_servers,
        "timeout": None if spec.command is None else spec.command.timeout,
        "retries": spec.retries,
        "ends_after": job.end,
        "commands": [
            {"item": command.item, "command": command.text, "directory": str(command.directory)}
            for command in job.list_commands()
        ],
    }
