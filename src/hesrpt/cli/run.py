"""The commands that run real jobs: run, submit, status, logs, report."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hesrpt.cli.options import AsJson, CsvFile, PlotFile
from hesrpt.policies import POLICIES

StateArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The state directory of a run.")]


def run(
    jobs: Annotated[
        Path | None,
        typer.Argument(metavar="JOBS.TOML", help="The jobs; not needed with --resume."),
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Servers; the cores of this machine, or what is free on the cluster."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="local (this machine) or ray (a Ray cluster).")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Of the Ray cluster; auto is this machine's."),
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(metavar="NAME=N,…", help="A server on the cluster, as CPU=4,GPU=0.5; CPU=1."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"One of {', '.join(POLICIES)}; by default hesrpt."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Record every outcome here, so that nothing is lost."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --state DIR.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the jobs of a file so that they end as early as possible on average."""
    from rich.console import Console

    from hesrpt.cli import live_table as live
    from hesrpt.errors import InputError
    from hesrpt.runtime.jobs_file import JobsFile, read_jobs_file
    from hesrpt.runtime.runs import Where, remembered_policy, run_jobs

    if jobs is None and not resume:
        raise InputError("a jobs file is needed, or --state DIR --resume to go on with a run")
    if resume and state is None:
        raise InputError("--resume needs --state DIR")
    file = JobsFile((), None, None) if jobs is None else read_jobs_file(jobs)
    chosen = policy or file.policy or (remembered_policy(state) if state and resume else "hesrpt")
    console = Console(stderr=as_json, highlight=False, emoji=False)
    where = Where(engine, address, None if resources is None else _amounts(resources))
    # Ray prints news of the cluster wherever it likes: not into what programs read.
    apart = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    try:
        with apart, live.Display(console, quiet=as_json) as display:
            pool = run_jobs(
                file.jobs,
                file.servers if servers is None else servers,
                chosen,
                state,
                resume,
                where,
                display,
            )
    except KeyboardInterrupt:
        options = {"engine": None if engine == "local" else engine}
        options |= {"address": address, "resources": resources}
        again = "".join(f" --{key} {value}" for key, value in options.items() if value)
        how = f"; go on with: hesrpt run --state {state} --resume{again}" if state else ""
        typer.echo(f"hesrpt: stopped{how}", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print(
            json.dumps(
                {"policy": chosen, "servers": pool.servers, "jobs": _jobs(pool, state)}, indent=2
            )
        )
    elif not pool.jobs:
        console.print(f"all jobs in {state} have ended")
    else:
        live.print_end(console, pool.ended, pool.servers, chosen, pool.began)
    if any(job.error for job in pool.jobs):
        raise typer.Exit(1)


def _amounts(text: str) -> dict[str, float]:
    """Return resources: CPU=4,GPU=0.5."""
    from hesrpt.errors import InputError

    amounts = {}
    for part in text.split(","):
        name, _, amount = (piece.strip() for piece in part.partition("="))
        try:
            if name in amounts:
                raise ValueError
            amounts[name] = float(amount)
        except ValueError:
            raise InputError(
                f"--resources: {part!r}: NAME=NUMBER is wanted, each once, as in CPU=4,GPU=0.5"
            ) from None
    return amounts


def _jobs(pool: Any, state: Path | None) -> list[dict[str, Any]]:
    """Return all jobs, also those that an earlier sitting has done."""
    from hesrpt.runtime.runs import status as read

    keys = ("name", "state", "items", "done", "flow_time", "error")
    jobs = pool.jobs if state is None else read(state)[1]
    return [{key: getattr(job, key) for key in keys} for job in jobs]


def submit(
    state: StateArgument,
    jobs: Annotated[Path, typer.Argument(metavar="JOBS.TOML", help="The jobs to add.")],
) -> None:
    """Add jobs to a run that goes on: hesrpt run --state DIR."""
    from hesrpt.runtime.jobs_file import read_jobs_file
    from hesrpt.runtime.runs import submit as leave

    requests = read_jobs_file(jobs).jobs
    running = leave(state, requests, str(jobs))
    names = ", ".join(request.name for request in requests)
    when = "" if running else "; no scheduler runs on it now: they start when it is resumed"
    print(f"submitted to {state}: {names}{when}")


def status(state: StateArgument, as_json: AsJson = False) -> None:
    """Show how the jobs of a state directory stand."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hesrpt.runtime.runs import status as read

    running, jobs = read(state)
    if as_json:
        print(json.dumps({"running": running, "jobs": [job.__dict__ for job in jobs]}, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("job", "state", "items", "failures", "flow time"):
        table.add_column(column, justify="left" if column in ("job", "state") else "right")
    for job in jobs:
        flow_time = "" if job.flow_time is None else f"{job.flow_time:.2f} s"
        total = "?" if job.items is None else f"{job.items:,}"
        table.add_row(
            Text(job.name), job.state, f"{job.done:,}/{total}", str(job.failures or ""), flow_time
        )
    console = Console(highlight=False, emoji=False)
    console.print(table)
    for job in jobs:
        if job.error and job.state == "failed":
            console.print(Text(f"\n{job.name} failed: {job.error}"), soft_wrap=True)
    console.print(
        "\na scheduler is running" if running else "\nno scheduler is running", highlight=False
    )


def logs(
    state: StateArgument,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The name of a job.")],
    item: Annotated[
        int | None, typer.Argument(metavar="ITEM", help="The number of an item; all if not given.")
    ] = None,
) -> None:
    """Print what the items of a job have printed."""
    from hesrpt.runtime.runs import logs as read

    for number, text in read(state, job, item):
        if item is None:
            print(f"--- {job}, item {number}")
        print(text, end="" if text.endswith("\n") else "\n")


def report(
    state: StateArgument, as_json: AsJson = False, csv: CsvFile = None, plot: PlotFile = None
) -> None:
    """Show what came of a run: flow times, and what plain policies would have given."""
    from rich.console import Console

    from hesrpt.cli import live_table as live
    from hesrpt.runtime.runs import alternatives, recorded, remembered_policy

    schedule, ended, servers, began = recorded(state)
    if csv is not None:
        schedule.to_csv(csv)
    if plot is not None:
        from hesrpt import plotting

        plotting.save_figure(
            schedule.plot(in_seconds=True), plot, description=" ".join(["hesrpt", *sys.argv[1:]])
        )
    if as_json:
        print(
            json.dumps(
                {
                    "servers": servers,
                    "metrics": schedule.metrics(),
                    "instead": alternatives(ended, servers, began),
                    "jobs": schedule.rows(),
                },
                indent=2,
            )
        )
    else:
        console = Console(highlight=False, emoji=False)
        live.print_end(console, ended, servers, remembered_policy(state), began)


def register(app: typer.Typer) -> None:
    """Add these commands to the others."""
    for command in (run, submit, status, logs, report):
        app.command()(command)
