"""``hesrpt status`` and ``wait``: the state of a run's jobs, and their end."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt.cli.options import AsJson, RunArguments, RunChoice, option, parse_quantity
from hesrpt.cli.terminal import create_table, print_json, print_table
from hesrpt.display.console import create_console, escape, literal
from hesrpt.errors import InputError
from hesrpt.units import format_duration_with_margin, parse_duration

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from hesrpt.cli.run_access import DirectoryRun, RunView, ServiceRun
    from hesrpt.decisions.learning import LearnedKind
    from hesrpt.display.overview import RunOverview
    from hesrpt.jobs.job_view import JobView

# How many of the jobs that have ended to show.
_MAX_ENDED = 20
# The exit code if jobs take too long, as of the program ``timeout``.
_TIMED_OUT = 124
# How often to look again with --watch, in seconds.
_WATCH_SECONDS = 1.0


def status(
    run: RunChoice,
    jobs: RunArguments = None,
    watch: Annotated[
        bool, option("Show the jobs until you press Ctrl-C.", "--watch", "-w")
    ] = False,
    all_jobs: Annotated[
        bool, option("Show all jobs that have ended, not only the latest 20.", "--all")
    ] = False,
    learned: Annotated[
        bool,
        option(
            "Show what was learned about each kind of job instead; not with a URL.", "--learned"
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of each job of a run: its items, servers, time left, and what it waits for."""
    from hesrpt.cli.run_access import DirectoryRun

    target, names = run.find(jobs)
    if learned:
        if not isinstance(target, DirectoryRun):
            raise InputError("--learned needs the state directory of the run")
        _show_learned(target.directory, as_json)
        return
    if watch:
        if as_json:
            raise InputError("--watch and --json exclude each other")
        _watch(target, names)
        return
    view = target.read().select(names)
    if as_json:
        print_json(**view.to_json_value())
    else:
        _print_run(view, shows_all=all_jobs or bool(names))


def _print_run(view: RunView, *, shows_all: bool) -> None:
    """Print the state of each job, why jobs failed, and whether a scheduler is running.

    If none is, and jobs remain, say how to continue.
    """
    from hesrpt.cli.outcomes import print_cancellations, print_failures

    console = create_console()
    run = view.overview
    jobs = _print_jobs(console, run, shows_all=shows_all)
    print_cancellations(console, jobs)
    print_failures(console, jobs)
    for hook in view.failed_hooks:
        console.print(literal(hook.describe()), soft_wrap=True)
    for name, request in view.changes:
        text = f"requested for {name}, but not done yet: {request.describe()}"
        console.print(literal(text), soft_wrap=True)
    console.print()
    scheduler = view.obstacle or f"a scheduler is running: {run.describe()}"
    console.print(literal(scheduler), soft_wrap=True)


def _print_jobs(console: Console, run: RunOverview, *, shows_all: bool) -> list[JobView]:
    """Print a table of the jobs, without most of those that have ended; return those printed."""
    from hesrpt.display.terminal_table import build_table

    active = sum(not job.has_ended for job in run.jobs)
    rows = len(run.jobs) if shows_all else active + _MAX_ENDED
    jobs, others = run.select(rows)
    width = console.width if console.is_terminal else None
    print_table(console, build_table(jobs, width=width, has_bars=console.is_terminal))
    if others:
        console.print(literal(f"{others}; --all shows them"), soft_wrap=True)
    return jobs


def _watch(target: DirectoryRun | ServiceRun, names: Collection[str]) -> None:
    """Show the jobs of a run again and again."""
    from rich.live import Live

    from hesrpt.display.terminal_table import build_view

    console = create_console()
    if not console.is_terminal:
        raise InputError("--watch needs a terminal; hesrpt wait waits for jobs without one")
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                shown = target.read(failures=False).select(names).overview
                size = console.size
                view = build_view(shown, width=size.width, height=size.height - 1)
                live.update(view, refresh=True)
                time.sleep(_WATCH_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _show_learned(state: Path, as_json: bool) -> None:
    from hesrpt.decisions.learning import KindMemory
    from hesrpt.reports.inspection import read_learned_runs

    kinds = KindMemory(read_learned_runs(state)).summarise()
    if as_json:
        keys = ("kind", "runs", "items", "item_seconds", "spread", "p", "p_error", "p_origin")
        rows = [
            {key: getattr(kind, key) for key in keys} | {"is_command": not kind.is_bag}
            for kind in kinds
        ]
        print_json(kinds=rows)
    else:
        _print_learned(kinds)


def _print_learned(kinds: Sequence[LearnedKind]) -> None:
    """Print how long the items of each kind take, and how its jobs speed up."""
    console = create_console()
    if not kinds:
        console.print("nothing has been learned yet: no item has finished")
        return
    columns = ("kind", "of", "runs", "items", "time", "p", "p from")
    table = create_table(*columns, left=["kind", "of", "p from"])
    for kind in kinds:
        table.add_row(
            literal(kind.kind),
            "items" if kind.is_bag else "a command",
            str(kind.runs),
            f"{kind.items:,}",
            format_duration_with_margin(kind.item_seconds, kind.spread),
            f"{kind.p:.2f}" if kind.p_origin == "given" else f"{kind.p:.2f} ± {kind.p_error:.2f}",
            kind.p_origin,
        )
    print_table(console, table)


def wait(
    run: RunChoice,
    jobs: RunArguments = None,
    timeout: Annotated[
        str | None,
        option("How long to wait at most, for example 90 (seconds) or 2h.", metavar="DURATION"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until jobs have ended, or all that have not yet, and print what became of them.

    The exit code is 0 if all are done, 1 if one has failed or was cancelled, 2 if the request makes
    no sense, 3 if the service cannot be reached, and 124 if it took too long.
    """
    target, names = run.find(jobs)
    most = parse_quantity("--timeout", timeout, parse_duration, "a duration such as 90 or 2h")
    wait_for_jobs(target, names, most, as_json=as_json)


def wait_for_jobs(
    target: DirectoryRun | ServiceRun, names: Sequence[str], timeout: float | None, *, as_json: bool
) -> None:
    """Wait for jobs, print what became of them, and exit with a code that says it."""
    from hesrpt.display.overview import describe_end

    ended, has_timed_out = [], False
    try:
        for job in target.wait(names, timeout):
            ended.append(job)
            if not as_json:
                print(escape(f"{job.name}: {describe_end(job)}"), flush=True)
    except TimeoutError:
        has_timed_out = True
        print(f"hesrpt: jobs have not ended after {timeout:g} s", file=sys.stderr)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if as_json:
        keys = ("name", "state", "reason", "error")
        print_json(jobs=[{key: getattr(job, key) for key in keys} for job in ended])
    if has_timed_out:
        raise typer.Exit(_TIMED_OUT)
    if any(job.state != "done" for job in ended):
        raise typer.Exit(1)
