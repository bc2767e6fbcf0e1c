"""Run the campaign: ``python -m chaos --seed 1 --kills 1000``; see ``--help``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from chaos.belonging import BelongingReport, check_belonging
from chaos.campaign import SUBJECTS, Campaign, CampaignReport


def main() -> None:
    """Run the campaign of the command line; exit with 1 if it has found anything."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="start of all randomness")
    parser.add_argument("--kills", type=int, default=1000, help="how many processes to kill")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no trial after")
    parser.add_argument("--parallel", type=int, default=3, help="how many trials at a time")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds until it is a hang")
    parser.add_argument(
        "--subject", choices=["all", "run", "service"], default="all", help="what to kill"
    )
    parser.add_argument(
        "--results", type=int, default=1_000_000, help="how many results must belong to their items"
    )
    parser.add_argument("--directory", type=Path, help="where to work (default: a new directory)")
    parser.add_argument("--json", action="store_true", help="print JSON to standard output")
    options = parser.parse_args()
    console = Console(stderr=options.json, highlight=False, soft_wrap=True)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="hesrpt-chaos-"))
    campaign = Campaign(
        directory=directory,
        seed=options.seed,
        kills=options.kills,
        seconds=options.seconds,
        parallel=options.parallel,
        patience=options.patience,
        subjects=SUBJECTS if options.subject == "all" else (options.subject,),
    )
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console) as progress:
        task = progress.add_task("kills", total=options.kills)

        def show(report: CampaignReport) -> None:
            faults = sum(map(len, report.faults.values()))
            text = f"kills ({report.trials} trials, {faults} faults)"
            progress.update(task, description=text, completed=report.kills.total())

        try:
            report = campaign.run(show)
        except KeyboardInterrupt:
            os._exit(130)  # the trials' threads do not end by themselves, their processes do
    belonging = check_belonging(directory / "belonging", options.results, options.seed)
    if options.json:
        values = {"results": belonging.results, "results of other items": belonging.wrong}
        print(json.dumps(report.to_json() | values, indent=2))
    _print_report(console, report)
    _print_belonging(console, belonging)
    if not report.is_clean or belonging.wrong:
        console.print(f"evidence: {directory}")
        sys.exit(1)


def _print_report(console: Console, report: CampaignReport) -> None:
    for kind, lines in report.faults.items():
        for line in lines[:20]:
            console.print(f"{kind}: {line}", markup=False)
    for error in report.errors:
        console.print(error, markup=False)
    table = Table(title=f"Campaign with seed {report.seed}", min_width=50)
    table.add_column("")
    table.add_column("count", justify="right")
    rows = {
        "trials": report.trials,
        "scheduler starts": report.lives,
        "items": report.items,
        "seconds": round(report.seconds),
    }
    for name, count in rows.items():
        table.add_row(name, f"{count:,}")
    table.add_row("longest answer of the API", f"{report.longest_answer:.2f} s")
    table.add_section()
    for name, count in report.kills.most_common():
        table.add_row(f"killed: {name}", f"{count:,}")
    table.add_row("killed: all", f"{report.kills.total():,}")
    table.add_section()
    for name, count in report.others.most_common():
        table.add_row(name, f"{count:,}")
    table.add_section()
    for kind, lines in report.faults.items():
        table.add_row(kind, f"{len(lines):,}")
    console.print(table)


def _print_belonging(console: Console, report: BelongingReport) -> None:
    for line in report.wrong[:20]:
        console.print(line, markup=False)
    table = Table(title="Results and their items", min_width=50)
    table.add_column("")
    table.add_column("count", justify="right")
    for name, count in report.others.most_common():
        table.add_row(name, f"{count:,}")
    table.add_row("results", f"{report.results:,}")
    table.add_row("results of other items", f"{len(report.wrong):,}")
    console.print(table)


if __name__ == "__main__":
    main()
