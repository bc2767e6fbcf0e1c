"""hesrpt whatif: what would have come of the log of a cluster, had the system chosen."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hesrpt.cli.options import AsJson, CsvFile, MaxServers, PlotFile, ResizeCost, Seed, SizeError
from hesrpt.cli.terminal import check_plot, check_targets, progress_bar, say_where
from hesrpt.policies import POLICIES

if TYPE_CHECKING:
    from hesrpt.whatif import Sensitivity, Study


def whatif(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="SWF, sacct --parsable2 or CSV, plain or gzipped; - for standard input.",
            show_default=False,
        ),
    ],
    servers: Annotated[
        int | None, typer.Option(metavar="N", help="Servers; as the log says, if it does.")
    ] = None,
    p: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="Speedup k^P: a number, several (0.5,0.7,0.9), or a distribution over jobs: "
            "uniform(0.4,0.9), normal(0.7,0.1).",
        ),
    ] = None,
    speedups: Annotated[
        str | None,
        typer.Option(metavar="CURVES.CSV", help="Draw each job's speedup from measured curves."),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help=f"Which to compare, of {', '.join(POLICIES)}."),
    ] = None,
    max_servers: MaxServers = None,
    min_size: Annotated[
        float, typer.Option(metavar="S", help="Leave out jobs that ran for fewer seconds.")
    ] = 0.0,
    window: Annotated[
        str | None,
        typer.Option(metavar="A..B", help="Part of the log: 10d..40d, 2024-05-01..2024-06-01."),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(metavar="L", help="Stretch or squeeze submissions to this load, as 0.9."),
    ] = None,
    resize_cost: ResizeCost = 0.0,
    size_error: SizeError = 0.0,
    seed: Seed = 0,
    log_format: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="swf, sacct or csv.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="OURS=THEIRS,…",
            help="Columns of the log: submit=timestamp,servers=num_gpus,runtime=duration.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="A job that cannot be used is an error.")
    ] = False,
    sensitivity: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Sweep p, resize cost and size error; draw where it stops paying."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="OUT.HTML", help="Write all of it as one HTML file.")
    ] = None,
    as_json: AsJson = False,
    csv: CsvFile = None,
    plot: PlotFile = None,
) -> None:
    """Replay a cluster's log: as recorded, rigid, and with servers that the system hands out."""
    from hesrpt.errors import InputError
    from hesrpt.traces import read_trace
    from hesrpt.whatif import assume_speedup, run_sensitivity, run_study

    check_plot(plot)
    check_plot(sensitivity)
    check_targets(log, plot, sensitivity, report, csv)
    powers = [None] if p is None else _several(p)
    assumptions = [
        assume_speedup(power, curves=speedups, max_servers=max_servers) for power in powers
    ]
    if len(assumptions) > 1 and (sensitivity or report or plot or csv):
        raise InputError("several p: --plot, --csv, --report and --sensitivity are for one of them")
    with progress_bar("reading", as_json) as progress:
        trace = read_trace(
            log, format=log_format, columns=_mapped(columns), strict=strict,
            progress=lambda lines: progress(lines, 0),
        )  # fmt: skip
    options: dict[str, Any] = {
        "window": window, "min_runtime": min_size, "load": load, "resize_cost": resize_cost,
        "size_error": size_error, "seed": seed, "strict": strict,
    }  # fmt: skip
    chosen = None if policies is None else [one.strip() for one in policies.split(",")]
    studies = []
    for assumption in assumptions:
        with progress_bar("policies", as_json) as progress:
            studies.append(
                run_study(trace, servers, assumption, policies=chosen, progress=progress, **options)
            )
    swept = None
    if sensitivity is not None:
        with progress_bar("sensitivity", as_json) as progress:
            swept = run_sensitivity(trace, servers, assumptions[0], progress=progress, **options)
    _write(studies[0], swept, csv, plot, report, sensitivity)
    if as_json:
        told: Any = [one.as_json() for one in studies]
        if swept is not None:
            told[0]["sensitivity"] = swept.rows()
        print(json.dumps(told if len(told) > 1 else told[0], indent=2, allow_nan=False))
        return
    _print(studies, swept)
    say_where(plot, csv)
    for where, what in ((report, "the report is"), (sensitivity, "the chart is")):
        if where is not None:
            print(f"{what} in {where}")


def _several(text: str) -> list[str | None]:
    """Return the powers of a list; commas within brackets belong to a distribution."""
    if "(" in text or ":" in text:
        return [text]
    return [part.strip() for part in text.split(",") if part.strip()] or [text]


def _mapped(text: str | None) -> dict[str, str] | None:
    from hesrpt.errors import InputError

    if text is None:
        return None
    mapped = {}
    for part in text.split(","):
        ours, equals, theirs = (piece.strip() for piece in part.partition("="))
        if not (ours and equals and theirs) or ours in mapped:
            raise InputError(
                f"--map: {part!r}: OURS=THEIRS is wanted, each once, as in submit=timestamp"
            )
        mapped[ours] = theirs
    return mapped


def _write(
    study: Study,
    swept: Sensitivity | None,
    csv: Path | None,
    plot: Path | None,
    report: Path | None,
    chart: Path | None,
) -> None:
    if csv is not None:
        from hesrpt.files import write_csv

        write_csv(csv, study.rows())
    if plot is not None or chart is not None:
        from hesrpt import plotting
        from hesrpt.plotting import whatif_figures

        if plot is not None:
            plotting.save_figure(
                whatif_figures.draw_overview(study), plot, description=study.conclusion
            )
        if chart is not None and swept is not None:
            plotting.save_figure(
                whatif_figures.draw_sensitivity(swept), chart, description=study.conclusion
            )
    if report is not None:
        from hesrpt.whatif.report import write_report

        write_report(study, report)


def _print(studies: list[Study], swept: Sensitivity | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hesrpt.plotting import get_title
    from hesrpt.units import format_duration, format_number

    console = Console(highlight=False, soft_wrap=True, emoji=False)
    first = studies[0]
    load = "all jobs at once" if first.load == inf else f"load {first.load:.2f}"
    console.print(f"{first.trace.summary}; {first.servers:,} servers, {load}\n")
    kinds = ("mean", "median", "p95", "p99")
    for study in studies:
        flow_times, slowdowns = Table(box=None, pad_edge=False), Table(box=None, pad_edge=False)
        for table, headings in (
            (flow_times, ("flow time", *kinds, "makespan", "in use")),
            (slowdowns, ("slowdown", *kinds)),
        ):
            table.add_column(headings[0], no_wrap=True, min_width=21)
            for heading in headings[1:]:
                table.add_column(heading, justify="right", no_wrap=True, min_width=7)
        for row in study.rows():
            name = get_title(row["policy"]) + (" (overloaded)" if row["overloaded"] else "")
            flow_times.add_row(
                name,
                *(format_duration(row[f"{kind}_flow_time"]) for kind in kinds),
                format_duration(row["makespan"]),
                f"{row['utilisation']:.0%}",
            )
            slowdowns.add_row(name, *(format_number(row[f"{kind}_slowdown"]) for kind in kinds))
        console.print(flow_times)
        console.print()
        console.print(slowdowns)
        console.print()
        for note in study.notes:
            console.print(Text(note))
        console.print(Text(study.conclusion, style="bold"))
        if study is not studies[-1] or swept is not None:
            console.print()
    for line in swept.describe_limits() if swept is not None else ():
        console.print(line)


def register(app: typer.Typer) -> None:
    """Add this command to the others."""
    app.command()(whatif)
