"""Tables of a what-if study: flow times and slowdowns of a trace under each policy."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from rich.table import Table

from hesrpt.cli.terminal import print_table
from hesrpt.display.console import create_console, literal
from hesrpt.policies.registry import get_title
from hesrpt.units import format_count, format_duration, format_number
from hesrpt.whatif import Study, Variations

_STATISTICS = ("mean", "median", "p95", "p99")


def print_studies(studies: Sequence[Study], variations: Variations) -> None:
    """Print the tables and the conclusion of each study, and what variations of it show."""
    console = create_console(soft_wrap=True)
    first = studies[0]
    load = "all jobs at once" if first.load == inf else f"load {first.load:.2f}"
    servers = format_count(first.servers, "server")
    console.print(literal(f"{first.trace.summary}; {servers}, {load}"))
    console.print()
    for study in studies:
        columns = ["makespan", "utilisation", "resizes"]
        if study.resize_cost > 0:
            columns.append("lost to them")
        if study.bound:
            columns.append("above bound")
        flow_times = _create_table("flow time", *_STATISTICS, *columns)
        slowdowns = _create_table("slowdown", *_STATISTICS)
        for row in study.rows():
            name = get_title(row["policy"]) + (" (overloaded)" if row["overloaded"] else "")
            flow_times.add_row(
                name,
                *(format_duration(row[f"{statistic}_flow_time"]) for statistic in _STATISTICS),
                format_duration(row["makespan"]),
                f"{row['utilisation']:.0%}",
                "" if row["resizes_per_job"] is None else f"{row['resizes_per_job']:.1f}",
                *([_format_lost(row)] if study.resize_cost > 0 else []),
                *([f"{row['above_bound']:.0%}"] if study.bound else []),
            )
            slowdowns.add_row(
                name, *(format_number(row[f"{statistic}_slowdown"]) for statistic in _STATISTICS)
            )
        for table in (flow_times, slowdowns):
            print_table(console, table)
            console.print()
        for note in study.notes:
            console.print(literal(note))
        console.print(literal(study.conclusion, style="bold"))
        for sentence in (*study.caveats, study.distance):
            if sentence is not None:
                console.print(literal(sentence))
        if study is not studies[-1]:
            console.print()
    lines = variations.describe()
    if lines:
        console.print()
    for line in lines:
        console.print(literal(line))


def _format_lost(row: dict[str, Any]) -> str:
    """Return the server-hours lost to resizes."""
    return "" if row["server_hours_lost"] is None else f"{row['server_hours_lost']:,.0f} h"


def _create_table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True, min_width=21)
    for column in others:
        table.add_column(column, justify="right", no_wrap=True, min_width=7)
    return table
