"""``hesrpt plan``: the optimal plan of a batch of jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hesrpt.cli.option_groups import SpeedupOptions, read_jobs_file
from hesrpt.cli.options import AsJson, PlotFile, Servers
from hesrpt.cli.output_files import check_output_files, print_locations, save_figure
from hesrpt.errors import InputError
from hesrpt.files import describe_source
from hesrpt.objectives import Objective


def plan(
    *,
    jobs: Annotated[
        Path,
        typer.Argument(
            metavar="JOBS.CSV",
            help="The jobs: a CSV file with a column size and, optionally, name, weight, p and "
            "max_servers. Use - for standard input.",
        ),
    ],
    servers: Servers,
    objective: Annotated[
        Objective,
        typer.Option(
            metavar="NAME",
            help="What to minimise: flow (mean flow time), slowdown, weighted (flow time) or "
            "makespan.",
        ),
    ] = "flow",
    whole: Annotated[bool, typer.Option("--whole", help="Allocate whole servers only.")] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Check the proof of optimality independently of the solver.",
        ),
    ] = False,
    speedup: SpeedupOptions,
    as_json: AsJson = False,
    plot: PlotFile = None,
) -> None:
    """Find the best plan for a batch of jobs, and prove that it is optimal where possible."""
    from hesrpt.cli import json_output, schedule_tables
    from hesrpt.optimal import certificate, planner

    check_output_files(source=jobs, figures=[plot])
    workload = read_jobs_file(jobs, speedup)
    if objective == "weighted" and workload.weights is None:
        raise InputError(f"--objective weighted needs a column weight in {describe_source(jobs)}")
    schedule = planner.plan(workload, servers, objective=objective, whole=whole)
    # Compute all that is claimed before it is verified.
    schedule.certificate.certified_gap  # noqa: B018
    verified_gap = certificate.verify(schedule) if verify else None
    if plot is not None:
        save_figure(schedule.plot(), plot)
    if as_json:
        print(json.dumps(json_output.plan_as_json(schedule, verified_gap), indent=2))
    else:
        schedule_tables.print_plan(schedule, verified_gap)
        print_locations(plot)
