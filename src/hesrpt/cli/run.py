"""``hesrpt run``: real jobs on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hesrpt._version import __version__
from hesrpt.cli.completion import complete_change
from hesrpt.cli.engine_options import EngineOptions
from hesrpt.cli.options import (
    AsJson,
    malleable_policy_option,
    option,
    whole_number_option,
)
from hesrpt.display.console import create_console, literal
from hesrpt.display.escaping import escape
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from hesrpt.display.overview import RunOverview
    from hesrpt.pool.pool import Pool
    from hesrpt.scheduler.job_registry import OnChange


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
        str | None,
        malleable_policy_option("the policy in the jobs file, or else adaptive"),
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
        str | None,
        typer.Option(
            metavar="CHOICE",
            autocompletion=complete_change,
            help="For jobs whose command has changed since the run in --state DIR was started: "
            "redo does all items again, keep keeps the results of items that are done, and error, "
            "the default, refuses to run.",
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
    from hesrpt.cli.failed_items import print_failures
    from hesrpt.cli.run_tables import SCRIPT_HINT, get_resume_command, print_outcome
    from hesrpt.jobs.jobs_file import JobsFile, read_jobs_file
    from hesrpt.pool.batch_run import RunOptions, run_jobs
    from hesrpt.reports.counterfactuals import MAX_JOBS_AT_ONCE
    from hesrpt.reports.inspection import (
        read_job_names,
        read_policy,
        read_report,
        read_status,
    )
    from hesrpt.storage.state_directory import holds_run

    if jobs is None and state is None:
        raise InputError("JOBS.TOML is missing; to continue a run, use --state DIR")
    if jobs is None and state is not None and not holds_run(state):
        raise InputError(f"{state}: holds no run; to start one, give a jobs file")
    if on_change is not None and state is None:
        raise InputError("--on-change needs --state DIR")
    engine, parsed_options = engine_options.engine, engine_options.parse()
    known = read_job_names(state) if state is not None and holds_run(state) else ()
    file = JobsFile() if jobs is None else read_jobs_file(jobs, known)
    if file.resources and engine == "local":
        parsed_options.setdefault("resources", file.resources)
    if log is not None and not dry_run:
        _log_to_file(log)
    earlier_policy = read_policy(state) if state is not None and holds_run(state) else None
    chosen = policy or file.policy or earlier_policy or "adaptive"
    options = RunOptions(
        servers=file.servers if servers is None else servers,
        policy=chosen,
        state=state,
        keep_going=keep_going,
        on_change=cast("OnChange", on_change or "error"),
        learned=learned,
        engine=engine,
        engine_options=parsed_options,
        group_weights=file.group_weights,
    )
    if dry_run:
        from hesrpt.cli.dry_run import print_preview
        from hesrpt.pool.run_preview import preview_run

        print_preview(preview_run(file.jobs, options), options, as_json=as_json)
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
        result = {
            "hesrpt": __version__,
            "policy": chosen,
            "servers": pool.servers,
            "jobs": _jobs_as_json(pool, state),
            "comparison": (
                pool.compare_policies(max_jobs=MAX_JOBS_AT_ONCE).to_json_value()
                if pool.jobs
                else None
            ),
        }
        print(json.dumps(result, indent=2))
    elif not pool.jobs:
        if state is not None and read_status(state).waits_for_script:
            ended = f"nothing is left to do: all commands in {state} have ended; {SCRIPT_HINT}"
        else:
            ended = f"nothing is left to do: all jobs in {state} have ended"
        console.print(literal(ended), soft_wrap=True)
    else:
        # With a state directory, jobs that ended before the run was resumed had servers too.
        records = pool.records if state is None else read_report(state).records
        print_outcome(
            console,
            records,
            servers=pool.servers,
            first_start=pool.first_start,
            comparison=pool.compare_policies(max_jobs=MAX_JOBS_AT_ONCE),
        )
        if console.is_terminal:  # otherwise each failure was printed when it happened
            print_failures(console, pool.records)
    if any(job.state == "failed" for job in pool.jobs):
        raise typer.Exit(1)


@contextlib.contextmanager
def _show_progress(console: Console, *, hidden: bool) -> Iterator[Callable[[Pool], None]]:
    """Show the jobs of a run while they run; yield what to call from time to time."""
    from hesrpt.display.screens import HiddenScreen, LineScreen, Screen, TerminalScreen

    screen: Screen = HiddenScreen()
    if not hidden:
        is_terminal = console.is_terminal
        screen = TerminalScreen(console, leaves_table=False) if is_terminal else LineScreen(console)
    shown: list[Pool] = []
    last: list[RunOverview] = []

    def update(pool: Pool) -> None:
        overview = pool.overview()
        if shown:
            screen.update(overview)
        else:
            shown.append(pool)
            screen.open(overview)
        last[:] = [overview]

    try:
        yield update
        last[:] = [pool.overview() for pool in shown]  # an interrupt cancels jobs that will go on
    finally:
        for overview in last:
            screen.close(overview)


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
    from hesrpt.cli.failed_items import failures_as_json
    from hesrpt.reports.inspection import read_status

    keys = ("name", "state", "items", "done", "flow_time", "error")
    if state is None:
        return [
            {key: getattr(job, key) for key in keys}
            | {"failed_items": failures_as_json(job.failures)}
            for job in pool.jobs
        ]
    status = read_status(state)
    return [
        {key: getattr(job, key) for key in keys}
        | {"state": status.get_state(job), "failed_items": failures_as_json(job.failed_items)}
        for job in status.jobs
    ]
