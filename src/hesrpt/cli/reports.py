"""Schedules as text for people and as JSON for programs."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hesrpt._version import __version__
from hesrpt.optimal.planner import Plan
from hesrpt.simulator import Comparison, Simulation

_MOST_ROWS = 20
_LONGEST_NAME = 24
# JSON lists who holds what in every phase, unless that would be more numbers than this.
_MOST_NUMBERS = 2_000_000

_COST = {
    "flow": "total flow time",
    "slowdown": "total slowdown",
    "weighted": "weighted flow time",
    "makespan": "makespan",
}


def print_plan(plan: Plan, verified_gap: float | None = None) -> None:
    """Print who holds how many servers in which phase, when each job ends, and the proof."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    console.print("When each job ends, and how many servers it holds from which time on:\n")
    console.print(_table(plan, console.width))
    omitted = len(plan.workload) - _MOST_ROWS
    if omitted > 0:
        console.print(f"… and {omitted} jobs that end later; --json lists all.")
    console.print()
    console.print(f"mean flow time  [bold]{plan.mean_flow_time:.6g}[/]")
    console.print(f"mean slowdown   {plan.mean_slowdown:.6g}")
    if plan.objective == "weighted":
        console.print(f"weighted flow   {plan.weighted_flow_time:.6g}")
    console.print(f"makespan        {plan.makespan:.6g}")
    console.print(_proof(plan, verified_gap))


def _table(plan: Plan, width: int) -> Table:
    """Return a row for each job, with as many phases as fit."""
    jobs = np.argsort(plan.completion_times, kind="stable")[:_MOST_ROWS]
    names = [Text(plan.workload.names[job]) for job in jobs]  # a name is no markup
    columns = [
        ("size", [f"{plan.workload.sizes[job]:.6g}" for job in jobs]),
        ("ends", [f"{plan.completion_times[job]:.6g}" for job in jobs]),
    ]
    width -= min(max(len(name) for name in names), _LONGEST_NAME) + 3
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
    table.add_column("job", no_wrap=True, max_width=_LONGEST_NAME)
    for header, _ in columns:
        table.add_column(header, justify="right", no_wrap=True)
    for name, *cells in zip(names, *(cells for _, cells in columns), strict=True):
        table.add_row(name, *cells)
    return table


def _proof(plan: Plan, verified_gap: float | None) -> str:
    certificate = plan.certificate
    cost = _COST[plan.objective]
    by = "" if verified_gap is None else ", checked again without the solver"
    if certificate.proven:
        return (
            f"[green]proven optimal[/]: no schedule has a {cost} below "
            f"{certificate.lower_bound:.10g} (gap {_gap(certificate.gap)}{by})"
        )
    return (
        f"[yellow]not proven optimal[/]: {certificate.reason}. Of the schedules that end jobs in "
        f"this same order, none has a {cost} below {certificate.lower_bound:.10g} "
        f"(gap {_gap(certificate.gap)}{by})"
    )


# What a comparison shows, as far as there is room.
_COLUMNS = {
    "median_flow_time": "median",
    "p99_flow_time": "99%",
    "mean_slowdown": "slowdown",
    "utilisation": "in use",
    "mean_jobs": "jobs",
    "p95_flow_time": "95%",
    "max_flow_time": "max",
    "fairness": "fairness",
}


def print_simulation(simulation: Simulation) -> None:
    """Print what came of a policy."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    jobs = len(simulation.workload)
    console.print(
        Text(
            f"{simulation.policy} on {simulation.servers:g} servers, {jobs:,} jobs, "
            f"{simulation.events:,} events\n"
        )
    )
    metrics = simulation.metrics()
    table = Table(box=None, pad_edge=False)
    for column in ("", "mean", "median", "95%", "99%", "max"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, label in (("flow_time", "flow time"), ("slowdown", "slowdown")):
        figures = (metrics[f"{which}_{name}"] for which in ("mean", "median", "p95", "p99", "max"))
        table.add_row(label, *(f"{figure:.5g}" for figure in figures))
    console.print(table)
    console.print()
    console.print(f"makespan        {metrics['makespan']:.6g}")
    console.print(f"utilisation     {metrics['utilisation']:.1%}")
    console.print(f"jobs in system  {metrics['mean_jobs']:.5g} on average")
    console.print(f"fairness        {metrics['fairness']:.4f} (Jain's index of the slowdowns)")


def simulation_as_json(simulation: Simulation) -> dict[str, Any]:
    """Return everything about a simulation as JSON values, but who held what when."""
    return {
        "hesrpt": __version__,
        "policy": simulation.policy,
        "servers": simulation.servers,
        "whole": simulation.whole,
        "events": simulation.events,
        "overloaded": simulation.overloaded,
        "metrics": simulation.metrics(),
        "jobs": simulation.rows(),
    }


def print_comparison(comparison: Comparison) -> None:
    """Print a row for each policy."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    first = comparison[next(iter(comparison))]
    jobs, times = len(first.workload), comparison.replications
    repeated = f", {times} replications" if times > 1 else ""
    console.print(f"{jobs:,} jobs on {first.servers:g} servers{repeated}\n")
    best = comparison.interval(comparison.best, "mean_flow_time").mean
    columns: list[tuple[str, list[str]]] = [("mean flow time", []), ("to best", [])]
    for policy in comparison:
        mean, half_width = comparison.interval(policy, "mean_flow_time")
        columns[0][1].append(f"{mean:.5g}" + (f" ± {half_width:.2g}" if times > 1 else ""))
        columns[1][1].append(f"{mean / best:.3f}")
    for metric, header in _COLUMNS.items():
        figures = (comparison.interval(policy, metric).mean for policy in comparison)
        columns.append((header, [f"{figure:.4g}" for figure in figures]))
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    width = console.width - max(map(len, comparison)) - 2
    shown = []
    for header, cells in columns:
        width -= max(map(len, [header, *cells])) + 2
        if width < -2:  # the last column needs no room after it
            break
        table.add_column(header, justify="right", no_wrap=True)
        shown.append(cells)
    for policy, *row in zip(comparison, *shown, strict=True):
        table.add_row(Text(policy), *row, style="bold" if policy == comparison.best else "")
    console.print(table)
    if len(shown) < len(columns):
        console.print("--json and --csv have all figures")
    if times > 1:
        console.print(f"± is the {comparison.confidence:.0%} confidence interval of the mean")


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the figures of all policies as JSON values."""
    first = comparison[next(iter(comparison))]
    return {
        "hesrpt": __version__,
        "servers": first.servers,
        "whole": first.whole,
        "jobs": len(first.workload),
        "replications": comparison.replications,
        "confidence": comparison.confidence,
        "best": comparison.best,
        "policies": comparison.rows(),
    }


def _gap(gap: float) -> str:
    return "below 1e-12" if abs(gap) < 1e-12 else f"{gap:.2g}"


def plan_as_json(plan: Plan, verified_gap: float | None = None) -> dict[str, Any]:
    """Return everything about a plan as JSON values; jobs stand in the order they were given."""
    certificate, workload = plan.certificate, plan.workload
    result: dict[str, Any] = {
        "hesrpt": __version__,
        "objective": plan.objective,
        "servers": plan.servers,
        "whole": plan.whole,
        "mean_flow_time": plan.mean_flow_time,
        "total_flow_time": plan.total_flow_time,
        "weighted_flow_time": plan.weighted_flow_time,
        "mean_slowdown": plan.mean_slowdown,
        "makespan": plan.makespan,
        "certificate": {
            "proven": certificate.proven,
            "reason": certificate.reason,
            "lower_bound": certificate.lower_bound,
            "gap": certificate.gap,
            "verified_gap": verified_gap,
        },
        "jobs": [
            {
                "name": name,
                "size": size,
                "completion_time": end,
                "flow_time": flow_time,
                "slowdown": slowdown,
                "value": value,
            }
            for name, size, end, flow_time, slowdown, value in zip(
                workload.names,
                workload.sizes.tolist(),
                plan.completion_times.tolist(),
                plan.flow_times.tolist(),
                plan.slowdowns.tolist(),
                certificate.job_values.tolist(),
                strict=True,
            )
        ],
        "phases": None,
    }
    if len(workload) * len(plan.timeline.ends) <= _MOST_NUMBERS:
        result["phases"] = [
            {"start": phase.start, "end": phase.end, "servers": phase.servers.tolist()}
            for phase in plan.phases()
        ]
    return result
