"""``hesrpt simulate``: one policy on a workload."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from hesrpt.cli.completion import complete_policy
from hesrpt.cli.option_groups import JobOptions, SimulationOptions, SpeedupOptions, check_columns
from hesrpt.cli.options import POLICY_NAMES, AsJson, CsvFile, PlotFile, Servers
from hesrpt.cli.output_files import check_output_files, print_locations, save_figure
from hesrpt.cli.terminal import print_overload_warnings, show_progress


def simulate(
    *,
    servers: Servers,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME", autocompletion=complete_policy, help=f"One of {POLICY_NAMES}."
        ),
    ] = "hesrpt",
    jobs: JobOptions,
    speedup: SpeedupOptions,
    simulation: SimulationOptions,
    as_json: AsJson = False,
    csv: CsvFile = None,
    plot: PlotFile = None,
) -> None:
    """Simulate one policy and show flow times and slowdowns.

    --csv writes one line for each job.
    """
    from hesrpt import simulator
    from hesrpt.cli import json_output, schedule_tables

    check_output_files(source=jobs.jobs, figures=[plot], others=[csv])
    (workload,) = jobs.create(speedup, simulation.seed)
    check_columns([policy], workload)
    with show_progress(policy, hidden=as_json) as progress, print_overload_warnings():
        schedule = simulator.simulate(
            workload, servers, policy, progress=progress, **asdict(simulation)
        )
    if csv is not None:
        schedule.to_csv(csv)
    if plot is not None:
        save_figure(schedule.plot(), plot)
    if as_json:
        print(json.dumps(json_output.simulation_as_json(schedule), indent=2))
    else:
        schedule_tables.print_simulation(schedule)
        print_locations(plot, csv)
