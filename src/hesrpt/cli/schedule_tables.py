"""Tables of plans, simulations and comparisons."""

from __future__ import annotations

from math import ceil

import numpy as np
from rich.table import Table

from hesrpt.cli.terminal import print_table
from hesrpt.display.console import create_console, literal
from hesrpt.objectives import COSTS
from hesrpt.optimal.planner import Plan
from hesrpt.simulator import Comparison, Simulation
from hesrpt.units import format_count

_MAX_ROWS = 20
_MAX_NAME_WIDTH = 24


def print_plan(plan: Plan, verified_gap: float | None = None) -> None:
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
    if plan.objective == "weighted":
        console.print(f"weighted flow   {plan.weighted_flow_time:.6g}")
    console.print(f"makespan        {plan.makespan:.6g}")
    console.print(_describe_proof(plan, verified_gap))


def _build_plan_table(plan: Plan, width: int) -> Table:
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

    table = Table(box=None, pad_edge=False)
    table.add_column("job", no_wrap=True, max_width=_MAX_NAME_WIDTH)
    for header, _ in columns:
        table.add_column(header, justify="right", no_wrap=True)
    for name, *cells in zip(names, *(cells for _, cells in columns), strict=True):
        table.add_row(name, *cells)
    return table


def _describe_proof(plan: Plan, verified_gap: float | None) -> str:
    certificate = plan.certificate
    cost = COSTS[plan.objective]
    checked = "" if verified_gap is None else ", verified independently of the solver"
    if certificate.proven:
        return (
            f"[green]proven optimal[/]: no schedule has a {cost} below "
            f"{certificate.lower_bound:.10g} (gap {_format_gap(certificate.gap)}{checked})"
        )
    return (
        f"[yellow]not proven optimal[/]: {certificate.reason}. The plan is {certificate.summary}. "
        f"No schedule with the same completion order has a {cost} below "
        f"{certificate.lower_bound:.10g} (gap {_format_gap(certificate.gap)}{checked})"
    )


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


def print_simulation(simulation: Simulation) -> None:
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
    table = Table(box=None, pad_edge=False)
    for column in ("", "mean", "median", "p95", "p99", "max"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, label in (("flow_time", "flow time"), ("slowdown", "slowdown")):
        values = (
            metrics[f"{statistic}_{name}"] for statistic in ("mean", "median", "p95", "p99", "max")
        )
        table.add_row(label, *(f"{value:.5g}" for value in values))
    print_table(console, table)
    console.print()
    console.print(f"makespan        {metrics['makespan']:.6g}")
    console.print(f"utilisation     {metrics['utilisation']:.1%}")
    console.print(f"jobs in system  {metrics['mean_jobs']:.5g} on average")
    console.print(f"fairness        {metrics['fairness']:.4f} (Jain's index of the slowdowns)")


def print_comparison(comparison: Comparison) -> None:
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
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
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


def _format_gap(gap: float) -> str:
    return "below 1e-12" if abs(gap) < 1e-12 else f"{gap:.2g}"
