"""``hesrpt plan``, ``simulate`` and ``compare``: jobs in a file or random ones, in virtual time."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from hesrpt import simulator
from hesrpt.cli.completion import complete_policies, complete_policy
from hesrpt.cli.options import (
    POLICY_NAMES,
    AsJson,
    CsvFile,
    JobOptions,
    PlotFile,
    Servers,
    SimulationOptions,
    SpeedupOptions,
    Whole,
    check_columns,
    option,
    parse_policies,
    read_jobs_file,
    whole_number_option,
)
from hesrpt.cli.provenance import describe_provenance
from hesrpt.cli.terminal import (
    check_output_files,
    create_table,
    print_json,
    print_locations,
    print_overload_warnings,
    print_table,
    save_figure,
    show_progress,
)
from hesrpt.display.console import create_console, literal
from hesrpt.errors import InputError
from hesrpt.files import describe_source
from hesrpt.objectives import COSTS, SUMMARY, Objective, needs_weights
from hesrpt.optimal import certificate, planner
from hesrpt.simulator import Comparison, Simulation
from hesrpt.simulator.intervals import Difference
from hesrpt.units import format_count

if TYPE_CHECKING:
    from rich.table import Table

# A table of a plan has at most this many rows, with names at most this wide.
_MAX_ROWS = 20
_MAX_NAME_WIDTH = 24
# A plan's phases are left out of its JSON if they would hold more numbers than this.
_MAX_NUMBERS = 2_000_000
# Metrics of a comparison, the most important first: narrow terminals show only the first ones.
_METRICS = {
    "median_flow_time": "median flow time",
    "p99_flow_time": "p99 flow time",
    "mean_slowdown": "mean slowdown",
    "utilisation": "utilisation",
    "mean_jobs": "jobs in system",
    "p95_flow_time": "p95 flow time",
    "max_flow_time": "max flow time",
    "fairness": "fairness",
}


def plan(
    *,
    context: typer.Context,
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
        Objective, option(f"What to minimise: {SUMMARY}.", metavar="NAME")
    ] = "flow",
    whole: Whole = False,
    verify: Annotated[
        bool, option("Check the proof of optimality independently of the solver.", "--verify")
    ] = False,
    speedup: SpeedupOptions,
    as_json: AsJson = False,
    plot: PlotFile = None,
) -> None:
    """Find the best plan for a batch of jobs, and prove that it is optimal where possible."""
    check_output_files(source=jobs, figures=[plot])
    workload = read_jobs_file(jobs, speedup)
    if needs_weights(objective) and workload.weights is None:
        raise InputError(
            f"--objective {objective} needs a column weight in {describe_source(jobs)}"
        )
    schedule = planner.plan(workload, servers, objective=objective, whole=whole)
    # Compute all that is claimed before it is verified.
    schedule.certificate.certified_gap  # noqa: B018
    verified_gap = certificate.verify(schedule) if verify else None
    if plot is not None:
        save_figure(schedule.plot(), plot)
    if as_json:
        print_json(**_plan_as_json(schedule, verified_gap), provenance=describe_provenance(context))
    else:
        _print_plan(schedule, verified_gap)
        print_locations(plot)


def _print_plan(plan: planner.Plan, verified_gap: float | None = None) -> None:
    """Print the allocation in each phase, the completion times, and the proof of optimality."""
    console = create_console(soft_wrap=True)
    console.print("Servers of each job in each phase, and when the job ends:\n")
    print_table(console, _build_plan_table(plan, console.width))
    omitted = len(plan.workload) - _MAX_ROWS
    if omitted > 0:
        end = "ends" if omitted == 1 else "end"
        console.print(f"… and {format_count(omitted, 'job')} that {end} later; --json lists all.")
    console.print()
    console.print(f"mean flow time  [bold]{plan.mean_flow_time:.6g}[/]")
    console.print(f"mean slowdown   {plan.mean_slowdown:.6g}")
    if needs_weights(plan.objective):
        console.print(f"weighted flow   {plan.weighted_flow_time:.6g}")
    console.print(f"makespan        {plan.makespan:.6g}")
    console.print(_describe_proof(plan, verified_gap))


def _build_plan_table(plan: planner.Plan, width: int) -> Table:
    """Return a table with a row for each job, and as many phases as fit into the width."""
    jobs = np.argsort(plan.completion_times, kind="stable")[:_MAX_ROWS]
    names = [literal(plan.workload.names[job]) for job in jobs]
    columns = [
        ("size", [f"{plan.workload.sizes[job]:.6g}" for job in jobs]),
        ("ends", [f"{plan.completion_times[job]:.6g}" for job in jobs]),
    ]
    width -= min(max(len(name) for name in names), _MAX_NAME_WIDTH) + 3
    width -= sum(max(map(len, cells)) + 2 for _, cells in columns)
    for phase in plan.phases():
        held = [f"{phase.servers[job]:.4g}" if phase.servers[job] else "" for job in jobs]
        header = f"from {phase.start:.4g}"
        width -= max(len(header), *map(len, held)) + 2
        if width < 0:
            columns.append(("…", [""] * len(jobs)))
            break
        columns.append((header, held))

    headers = [header for header, _ in columns]
    table = create_table("job", *headers, left=["job"], no_wrap=True)
    table.columns[0].max_width = _MAX_NAME_WIDTH
    for name, *cells in zip(names, *(cells for _, cells in columns), strict=True):
        table.add_row(name, *cells)
    return table


def _describe_proof(plan: planner.Plan, verified_gap: float | None) -> str:
    proof, cost = plan.certificate, COSTS[plan.objective]
    verdict = "[green]proven optimal[/]: no schedule"
    if not proof.proven:
        verdict = (
            f"[yellow]not proven optimal[/]: {proof.reason}. The plan is {proof.summary}. "
            "No schedule with the same completion order"
        )
    gap = "below 1e-12" if abs(proof.gap) < 1e-12 else f"{proof.gap:.2g}"
    checked = "" if verified_gap is None else ", verified independently of the solver"
    return f"{verdict} has a {cost} below {proof.lower_bound:.10g} (gap {gap}{checked})"


def _plan_as_json(plan: planner.Plan, verified_gap: float | None = None) -> dict[str, Any]:
    """Return a plan as JSON values, with the jobs in the order of the input."""
    proof, workload = plan.certificate, plan.workload
    columns = {
        "name": workload.names,
        "size": workload.sizes.tolist(),
        "completion_time": plan.completion_times.tolist(),
        "flow_time": plan.flow_times.tolist(),
        "slowdown": plan.slowdowns.tolist(),
        "value": proof.job_values.tolist(),
    }
    result: dict[str, Any] = {
        "objective": plan.objective,
        "servers": plan.servers,
        "whole": plan.whole,
        "mean_flow_time": plan.mean_flow_time,
        "total_flow_time": plan.total_flow_time,
        "weighted_flow_time": plan.weighted_flow_time,
        "mean_slowdown": plan.mean_slowdown,
        "makespan": plan.makespan,
        "certificate": {
            "proven": proof.proven,
            "reason": proof.reason,
            "lower_bound": proof.lower_bound,
            "gap": proof.gap,
            "certified_gap": proof.certified_gap,
            "verified_gap": verified_gap,
        },
        "jobs": [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ],
        "phases": None,
    }
    if len(workload) * len(plan.timeline.ends) <= _MAX_NUMBERS:
        result["phases"] = [
            {"start": phase.start, "end": phase.end, "servers": phase.servers.tolist()}
            for phase in plan.phases()
        ]
    return result


def simulate(
    *,
    context: typer.Context,
    servers: Servers,
    policy: Annotated[
        str, option(f"One of {POLICY_NAMES}.", metavar="NAME", complete=complete_policy)
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
        print_json(**_simulation_as_json(schedule), provenance=describe_provenance(context))
    else:
        _print_simulation(schedule)
        print_locations(plot, csv)


def _print_simulation(simulation: Simulation) -> None:
    """Print the metrics of one policy."""
    console = create_console(soft_wrap=True)
    counts = [
        f"{simulation.policy} on {format_count(simulation.servers, 'server')}",
        format_count(len(simulation.workload), "job"),
        format_count(simulation.events, "event"),
    ]
    console.print(literal(", ".join(counts)))
    console.print()
    metrics = simulation.metrics()
    statistics = ("mean", "median", "p95", "p99", "max")
    table = create_table("", *statistics, left=[""], no_wrap=True)
    for name, label in (("flow_time", "flow time"), ("slowdown", "slowdown")):
        values = (metrics[f"{statistic}_{name}"] for statistic in statistics)
        table.add_row(label, *(f"{value:.5g}" for value in values))
    print_table(console, table)
    console.print()
    console.print(f"makespan        {metrics['makespan']:.6g}")
    console.print(f"utilisation     {metrics['utilisation']:.1%}")
    console.print(f"jobs in system  {metrics['mean_jobs']:.5g} on average")
    console.print(f"fairness        {metrics['fairness']:.4f} (Jain's index of the slowdowns)")


def _simulation_as_json(simulation: Simulation) -> dict[str, Any]:
    """Return a simulation as JSON values, without its allocations."""
    return {
        "policy": simulation.policy,
        "servers": simulation.servers,
        "whole": simulation.whole,
        "events": simulation.events,
        "overloaded": simulation.is_overloaded,
        "metrics": simulation.metrics(),
        "jobs": simulation.rows(),
    }


def compare(
    *,
    context: typer.Context,
    servers: Servers,
    policies: Annotated[
        str, option(f"Any of {POLICY_NAMES}.", metavar="NAME,…", complete=complete_policies)
    ] = "hesrpt,equi,srpt",
    replications: Annotated[
        int,
        whole_number_option(
            "Number of times to draw random jobs, each with a new seed.", metavar="R"
        ),
    ] = 1,
    bound: Annotated[
        bool, option("Show how far each policy is above what any could reach.", "--bound")
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
        print_json(**_comparison_as_json(comparison), provenance=describe_provenance(context))
    else:
        _print_comparison(comparison)
        print_locations(plot, csv)


def _print_comparison(comparison: Comparison) -> None:
    """Print a table with a row for each policy."""
    console = create_console(soft_wrap=True)
    first = comparison[next(iter(comparison))]
    jobs, replications = len(first.workload), comparison.replications
    note = f", {replications} replications" if replications > 1 else ""
    servers = format_count(first.servers, "server")
    console.print(f"{format_count(jobs, 'job')} on {servers}{note}\n")
    best = comparison.interval(comparison.best, "mean_flow_time").mean
    columns: list[tuple[str, list[str]]] = [("mean flow time", []), ("vs best", [])]
    for policy in comparison:
        mean, half_width = comparison.interval(policy, "mean_flow_time")
        columns[0][1].append(f"{mean:.5g}" + (f" ± {half_width:.2g}" if replications > 1 else ""))
        columns[1][1].append(f"{mean / best:.3f}")
    if comparison.lower_bound is not None:
        above = [f"{comparison.above_bound(policy):.1%}" for policy in comparison]
        columns.append(("above bound", above))
    for metric, header in _METRICS.items():
        values = (comparison.interval(policy, metric).mean for policy in comparison)
        columns.append((header, [f"{value:.4g}" for value in values]))
    table = create_table("policy", left=["policy"], no_wrap=True)
    width = console.width - max(map(len, comparison)) - 2
    shown = []
    for header, cells in columns:
        width -= max(map(len, [header, *cells])) + 2
        if width < -2:  # the last column needs no padding
            break
        table.add_column(header, justify="right", no_wrap=True)
        shown.append(cells)
    for policy, *row in zip(comparison, *shown, strict=True):
        table.add_row(literal(policy), *row, style="bold" if policy == comparison.best else "")
    print_table(console, table)
    if len(shown) < len(columns):
        console.print("--json and --csv contain all metrics")
    distance = comparison.above_bound(comparison.best)
    if (bound := comparison.lower_bound) is not None and distance is not None:
        console.print(
            f"no schedule has a mean flow time below {bound:.5g}, even if it knows all arrivals: "
            f"{comparison.best} is at most {ceil(1000 * distance) / 10:.1f}% above the best "
            "possible"
        )
    if replications > 1:
        console.print()
        for difference in comparison.differences():
            console.print(literal(str(difference)))
        console.print(f"± is half the width of the {comparison.confidence:.0%} confidence interval")


def _comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the metrics of all policies as JSON values."""
    first = comparison[next(iter(comparison))]
    return {
        "servers": first.servers,
        "whole": first.whole,
        "jobs": len(first.workload),
        "replications": comparison.replications,
        "confidence": comparison.confidence,
        "best": comparison.best,
        "lower_bound": comparison.lower_bound,
        "policies": comparison.rows(),
        "differences": [_difference_as_json(each) for each in comparison.differences()],
    }


def _difference_as_json(difference: Difference) -> dict[str, Any]:
    """Return a difference as JSON values; without an interval, the half widths are null."""
    has_interval = difference.replications > 1
    return {
        "policy": difference.policy,
        "other": difference.other,
        "mean": difference.mean,
        "half_width": difference.half_width if has_interval else None,
        "percentage": difference.percentage,
        "percentage_half_width": difference.percentage_half_width if has_interval else None,
        "clear": difference.is_clear if has_interval else None,
    }
