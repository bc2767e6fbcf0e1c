"""``hesrpt whatif``: a cluster's trace, replayed under other policies."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hesrpt.cli.completion import complete_format, complete_policies
from hesrpt.cli.options import (
    POLICY_NAMES,
    AsJson,
    CsvFile,
    PlotFile,
    ResizeCost,
    Seed,
    SizeError,
    number_option,
    option,
    output_option,
    parse_pairs,
    parse_policies,
    speedup_option,
    split_list,
    whole_number_option,
)
from hesrpt.cli.provenance import describe_provenance
from hesrpt.cli.terminal import (
    check_output_files,
    create_table,
    print_locations,
    print_table,
    show_progress,
)
from hesrpt.display.console import create_console, literal
from hesrpt.errors import InputError
from hesrpt.files import write_csv, write_text
from hesrpt.policies.registry import get_title
from hesrpt.units import format_count, format_duration, format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from hesrpt.whatif import Study, Variations

_TRACE_PANEL = "Reading the trace"
_trace_option = partial(option, panel=_TRACE_PANEL)
# What --map must be.
_MAP = "OURS=THEIRS,… with each of our names once, such as submit=timestamp"
_STATISTICS = ("mean", "median", "p95", "p99")


def whatif(
    context: typer.Context,
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            help="A trace in SWF, from sacct --parsable2 or --json, a CSV file, training jobs, or "
            "a workload of Batsim or ElastiSim, plain or gzipped. Use - for standard input.",
        ),
    ],
    servers: Annotated[
        int | None, whole_number_option("Number of servers. By default, the number in the trace.")
    ] = None,
    policies: Annotated[
        str | None,
        option(
            f"Any of {POLICY_NAMES}. By default, all that suit the trace.",
            metavar="NAME,…",
            complete=complete_policies,
        ),
    ] = None,
    p: Annotated[
        str | None,
        speedup_option(
            "Power law: k servers are k^P times as fast as one. Either a number, several "
            "(0.5,0.7,0.9), or a distribution over the jobs: uniform(0.4,0.9) or normal(0.7,0.1).",
            metavar="P",
        ),
    ] = None,
    curves: Annotated[
        Path | None,
        speedup_option(
            "Pick the speedup of each job at random from these measured curves, instead of --p.",
            "--speedups",
            metavar="CURVES.CSV",
        ),
    ] = None,
    max_servers: Annotated[
        str | None,
        speedup_option(
            "The most servers that a malleable job gets: a number (32), a multiple of what it "
            "asked for (2x), the largest request in the trace (largest), a column with a multiple "
            "for each job (per-job=COLUMN), several of these, or none. Sizes do not depend on it.",
            metavar="LIMIT",
            show_default="4x,largest",
        ),
    ] = None,
    malleable: Annotated[
        str | None,
        option(
            "Which jobs are malleable: a fraction of the jobs (0.3), of users or of "
            'server-hours ("0.3 of users"), drawn at random; a column with true or false; or a '
            'condition ("servers >= 8 and runtime > 3600"). The others stay rigid under EASY.',
            metavar="WHICH",
            show_default="all",
        ),
    ] = None,
    bound: Annotated[
        bool,
        option(
            "Show how far each policy is above what any scheduler could reach. Takes up to "
            "half a minute of processor time for 1,000 jobs, and minutes for more.",
            "--bound",
        ),
    ] = False,
    resize_cost: ResizeCost = 0.0,
    size_error: SizeError = 0.0,
    sizes: Annotated[
        str,
        option(
            "What malleable policies know of sizes: exact, or estimates for sizes that follow "
            "from the users' estimates of run times.",
            metavar="KIND",
        ),
    ] = "exact",
    seed: Seed = 0,
    window: Annotated[
        str | None,
        _trace_option(
            "Use only a part of the trace: 10d..40d or 2024-05-01..2024-06-01.", metavar="FROM..TO"
        ),
    ] = None,
    min_runtime: Annotated[
        float,
        number_option(
            "Drop jobs that ran for less than this.", metavar="SECONDS", panel=_TRACE_PANEL
        ),
    ] = 0.0,
    load: Annotated[
        float | None,
        number_option(
            "Stretch or compress the submission times to reach this load, for example 0.9.",
            metavar="L",
            panel=_TRACE_PANEL,
        ),
    ] = None,
    format: Annotated[  # noqa: A002
        str | None,
        _trace_option(
            "Format of the trace: swf, sacct, sacct-json, batsim, elastisim, philly, training or "
            "csv. By default, it is detected.",
            metavar="NAME",
            complete=complete_format,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        _trace_option(
            "Names of the columns in the trace, for example submit=timestamp,servers=gpus. "
            "Without a header, columns have numbers: servers=5.",
            "--map",
            metavar="OURS=THEIRS,…",
        ),
    ] = None,
    strict: Annotated[
        bool,
        _trace_option(
            "Stop at the first job that cannot be used, instead of dropping it.", "--strict"
        ),
    ] = False,
    sensitivity: Annotated[
        Path | None,
        output_option(
            "Vary p, resize cost and size error, and save a plot of where the adaptive policy "
            "stops paying off as .png, .svg or .pdf.",
            metavar="FILE",
        ),
    ] = None,
    fractions: Annotated[
        Path | None,
        output_option(
            "Vary the malleable fraction, and save a plot of how many must change before it "
            "pays as .png, .svg or .pdf.",
            metavar="FILE",
        ),
    ] = None,
    report: Annotated[
        Path | None, output_option("Write an HTML report.", metavar="FILE.HTML")
    ] = None,
    as_json: AsJson = False,
    csv: CsvFile = None,
    plot: PlotFile = None,
) -> None:
    """Replay a cluster's trace as recorded, with rigid jobs, and with malleable jobs.

    Most traces do not record how jobs speed up: --p or --speedups is required. By default no job
    gets more than 4 times the servers that it asked for, nor more than the largest request. Lists
    of training jobs record it: by default, their jobs have their own speedups and no such limit.

    --csv writes one line for each policy.
    """
    from hesrpt.traces import read_trace
    from hesrpt.whatif import (
        RIGID,
        StudyOptions,
        Variations,
        assume_speedup,
        run_fractions,
        run_sensitivity,
        run_study,
    )
    from hesrpt.whatif.assumptions import assume_recorded, parse_limit
    from hesrpt.whatif.variations import POLICIES

    check_output_files(
        source=trace, figures=[plot, sensitivity, fractions], reports=[report], others=[csv]
    )
    if p is not None and curves is not None:
        raise InputError("choose one of --p or --speedups")
    powers: list[str | None] = [] if curves is None else [None]
    powers = powers if p is None else _split_powers(p)
    assumptions = [
        assume_speedup(power, curves=curves, max_servers=max_servers) for power in powers
    ]
    if len(assumptions) > 1 and (sensitivity or fractions or report or plot or csv):
        raise InputError("--plot, --csv, --report, --sensitivity and --fractions need a single --p")
    names = None if policies is None else parse_policies(policies)
    options = StudyOptions(
        servers=servers,
        policies=names,
        malleable=malleable,
        window=window,
        min_runtime=min_runtime,
        load=load,
        strict=strict,
        bound=bound,
        resize_cost=resize_cost,
        size_error=size_error,
        sizes=sizes,
        seed=seed,
    )
    labels = (*options.malleable.labels, *parse_limit(max_servers).labels)
    with show_progress("reading", hidden=as_json) as progress:
        jobs = read_trace(
            trace,
            format=format,
            columns=None if columns is None else parse_pairs(columns, _MAP, "columns"),
            labels=list(dict.fromkeys(labels)),
            strict=strict,
            progress=lambda lines: progress(lines, 0),
        )
    if not (assumptions or jobs.speedups):
        raise InputError("choose one of --p or --speedups to say how jobs speed up")
    studies = []
    for assumption in assumptions or [assume_recorded(jobs, max_servers)]:
        options = replace(options, assumption=assumption)
        with show_progress(
            "policies and bound" if bound else "policies", hidden=as_json
        ) as progress:
            studies.append(run_study(jobs, options, progress=progress))
    about = studies[0].conclusion
    if plot or sensitivity or fractions:
        from hesrpt.plotting import save_figure, whatif_figures
    if plot is not None:
        save_figure(whatif_figures.draw_overview(studies[0]), plot, description=about)
    swept = counted = None
    if sensitivity is not None:
        with show_progress("sensitivity", hidden=as_json) as progress:
            swept = run_sensitivity(jobs, options, progress=progress)
        drawn = whatif_figures.draw_sensitivity(swept)
        save_figure(drawn, sensitivity, description=about)
    if fractions is not None:
        resizable = [name for name in names or POLICIES if name not in RIGID]
        with show_progress("fractions", hidden=as_json) as progress:
            counted = run_fractions(jobs, options, policies=resizable, progress=progress)
        drawn = whatif_figures.draw_fractions(counted)
        save_figure(drawn, fractions, description=about)
    variations = Variations(swept, counted)
    if csv is not None:
        write_csv(csv, studies[0].rows())
    provenance = describe_provenance(context, trace=jobs.sha256)
    given, used = provenance["options"], options.as_json()  # with what is chosen by default
    given |= {name: used[key] for name in given if (key := name.replace("-", "_")) in used}
    if report is not None:
        from hesrpt.whatif.report import render_report

        write_text(report, render_report(studies[0], variations, provenance))
    if as_json:
        print(json.dumps(_as_json(studies, variations, provenance), indent=2, allow_nan=False))
    else:
        _print_studies(studies, variations)
        print_locations(plot, csv, report, sensitivity, fractions)


def _split_powers(text: str) -> list[str | None]:
    """Return the powers in a list. A distribution may contain commas, so it is not split."""
    if "(" in text or ":" in text:
        return [text]
    return [*split_list(text)] or [text]


def _print_studies(studies: Sequence[Study], variations: Variations) -> None:
    """Print the tables and the conclusion of each study, and what variations of it show."""
    console = create_console(soft_wrap=True)
    first = studies[0]
    load = "all jobs at once" if first.load == inf else f"load {first.load:.2f}"
    servers = format_count(first.servers, "server")
    console.print(literal(f"{first.trace.summary}; {servers}, {load}"))
    console.print()
    for study in studies:
        columns = ["makespan", "utilisation", "resizes"]
        if study.options.resize_cost > 0:
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
                *([_format_lost(row)] if study.options.resize_cost > 0 else []),
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
    table = create_table(first, *others, left=[first], no_wrap=True, min_width=7)
    table.columns[0].min_width = 21
    return table


def _as_json(studies: list[Study], variations: Variations, provenance: dict[str, Any]) -> Any:
    """Return a study as JSON values, or a list of them if there are several."""
    results = [study.as_json() | {"provenance": provenance} for study in studies]
    results[0] |= variations.as_json()
    return results if len(results) > 1 else results[0]
