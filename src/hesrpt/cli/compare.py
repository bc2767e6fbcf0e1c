"""``hesrpt compare``: several policies on the same workload."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from hesrpt.cli.completion import complete_policies
from hesrpt.cli.option_groups import JobOptions, SimulationOptions, SpeedupOptions, check_columns
from hesrpt.cli.options import (
    POLICY_NAMES,
    AsJson,
    CsvFile,
    PlotFile,
    Servers,
    parse_policies,
    parse_whole_number,
)
from hesrpt.cli.output_files import check_output_files, print_locations, save_figure
from hesrpt.cli.terminal import print_overload_warnings, show_progress


def compare(
    *,
    servers: Servers,
    policies: Annotated[
        str,
        typer.Option(
            metavar="NAME,…", autocompletion=complete_policies, help=f"Any of {POLICY_NAMES}."
        ),
    ] = "hesrpt,equi,srpt",
    replications: Annotated[
        int,
        typer.Option(
            parser=parse_whole_number,
            metavar="R",
            help="Number of times to draw random jobs, each with a new seed.",
        ),
    ] = 1,
    bound: Annotated[
        bool,
        typer.Option("--bound", help="Show how far each policy is above what any could reach."),
    ] = False,
    jobs: JobOptions,
    speedup: SpeedupOptions,
    simulation: SimulationOptions,
    as_json: AsJson = False,
    csv: CsvFile = None,
    plot: PlotFile = None,
) -> None:
    """Simulate several policies on the same jobs, side by side.

    --csv writes one line for each policy, replication and metric.
    """
    from hesrpt import simulator
    from hesrpt.cli import json_output, schedule_tables

    check_output_files(source=jobs.jobs, figures=[plot], others=[csv])
    workloads = jobs.create(speedup, simulation.seed, replications)
    names = parse_policies(policies)
    check_columns(names, workloads[0])
    with (
        show_progress("policies and bound" if bound else "policies", hidden=as_json) as progress,
        print_overload_warnings(),
    ):
        comparison = simulator.compare(
            workloads, servers, names, bound=bound, progress=progress, **asdict(simulation)
        )
    if csv is not None:
        comparison.to_csv(csv)
    if plot is not None:
        from hesrpt import plotting

        save_figure(plotting.draw_comparison(comparison), plot)
    if as_json:
        print(json.dumps(json_output.comparison_as_json(comparison), indent=2))
    else:
        schedule_tables.print_comparison(comparison)
        print_locations(plot, csv)
