"""``hesrpt status``: the state of a run's jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt._version import __version__
from hesrpt.cli.options import AsJson
from hesrpt.cli.run_choice import RunArguments, RunChoice
from hesrpt.display.console import create_console
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from hesrpt.cli.directory_run import DirectoryRun
    from hesrpt.cli.service_run import ServiceRun

# How often to look again with --watch, in seconds.
_WATCH_SECONDS = 1.0


def status(
    run: RunChoice,
    jobs: RunArguments = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show the jobs until you press Ctrl-C.")
    ] = False,
    all_jobs: Annotated[
        bool, typer.Option("--all", help="Show all jobs that have ended, not only the latest 20.")
    ] = False,
    learned: Annotated[
        bool,
        typer.Option(
            "--learned",
            help="Show what was learned about each kind of job instead; not with a URL.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of each job of a run: its items, servers, time left, and what it waits for."""
    from hesrpt.cli.directory_run import DirectoryRun
    from hesrpt.cli.run_tables import print_run

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
        print(json.dumps(view.content, indent=2))
    else:
        print_run(view, shows_all=all_jobs or bool(names))


def _watch(target: DirectoryRun | ServiceRun, names: Collection[str]) -> None:
    """Show the jobs of a run again and again."""
    from rich.live import Live

    from hesrpt.display.terminal_table import build_view

    console = create_console()
    if not console.is_terminal:
        raise InputError("--watch needs a terminal; hesrpt wait waits for jobs without one")
    first = target.read().select(names).overview
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            shown = first
            while True:
                size = console.size
                view = build_view(shown, width=size.width, height=size.height - 1)
                live.update(view, refresh=True)
                time.sleep(_WATCH_SECONDS)
                shown = target.read().select(names).overview
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _show_learned(state: Path, as_json: bool) -> None:
    from hesrpt.cli.learned_table import print_learned
    from hesrpt.decisions.kinds import KindMemory
    from hesrpt.reports.inspection import read_learned_runs

    kinds = KindMemory(read_learned_runs(state)).summarise()
    if as_json:
        keys = ("kind", "runs", "items", "item_seconds", "spread", "p", "p_error", "p_origin")
        rows = [
            {key: getattr(kind, key) for key in keys} | {"is_command": not kind.is_bag}
            for kind in kinds
        ]
        print(json.dumps({"hesrpt": __version__, "kinds": rows}, indent=2))
    else:
        print_learned(kinds)
