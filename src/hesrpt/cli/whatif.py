"""``hesrpt whatif``: a cluster's trace, replayed under other policies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hesrpt.cli.completion import complete_format, complete_policies
from hesrpt.cli.options import (
    OUTPUT_PANEL,
    POLICY_NAMES,
    SPEEDUP_PANEL,
    AsJson,
    CsvFile,
    PlotFile,
    ResizeCost,
    Seed,
    SizeError,
    parse_number,
    parse_policies,
    parse_whole_number,
    split_list,
)
from hesrpt.cli.output_files import check_output_files, print_locations
from hesrpt.cli.terminal import show_progress
from hesrpt.errors import InputError
from hesrpt.files import write_csv

if TYPE_CHECKING:
    from hesrpt.whatif import Study, Variations

_TRACE_PANEL = "Reading the trace"


def whatif(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            help="A trace in SWF, from sacct --parsable2 or --json, a CSV file, or a workload of "
            "Batsim or ElastiSim, plain or gzipped. Use - for standard input.",
        ),
    ],
    servers: Annotated[
        int | None,
        typer.Option(
            parser=parse_whole_number,
            metavar="N",
            help="Number of servers. By default, the number in the trace.",
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            autocompletion=complete_policies,
            help=f"Any of {POLICY_NAMES}. By default, all that suit the trace.",
        ),
    ] = None,
    p: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            rich_help_panel=SPEEDUP_PANEL,
            help="Power law: k servers are k^P times as fast as one. Either a number, several "
            "(0.5,0.7,0.9), or a distribution over the jobs: uniform(0.4,0.9) or normal(0.7,0.1).",
        ),
    ] = None,
    curves: Annotated[
        Path | None,
        typer.Option(
            "--speedups",
            metavar="CURVES.CSV",
            rich_help_panel=SPEEDUP_PANEL,
            help="Pick the speedup of each job at random from these measured curves, instead of "
            "--p.",
        ),
    ] = None,
    max_servers: Annotated[
        str | None,
        typer.Option(
            metavar="LIMIT",
            rich_help_panel=SPEEDUP_PANEL,
            help="The most servers that a malleable job gets: a number (32), a multiple of what it "
            "asked for (2x), the largest request in the trace (largest), a column with a multiple "
            "for each job (per-job=COLUMN), several of these, or none. Sizes do not depend on it.",
            show_default="4x,largest",
        ),
    ] = None,
    malleable: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help="Which jobs are malleable: a fraction of the jobs (0.3), of users or of "
            'server-hours ("0.3 of users"), drawn at random; a column with true or false; or a '
            'condition ("servers >= 8 and runtime > 3600"). The others stay rigid under EASY.',
            show_default="all",
        ),
    ] = None,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help="Show how far each policy is above what any scheduler could reach. Takes up to "
            "half a minute of processor time for 1,000 jobs, and minutes for more.",
        ),
    ] = False,
    resize_cost: ResizeCost = 0.0,
    size_error: SizeError = 0.0,
    sizes: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="What malleable policies know of sizes: exact, or estimates for sizes that follow "
            "from the users' estimates of run times.",
        ),
    ] = "exact",
    seed: Seed = 0,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO",
            rich_help_panel=_TRACE_PANEL,
            help="Use only a part of the trace: 10d..40d or 2024-05-01..2024-06-01.",
        ),
    ] = None,
    min_runtime: Annotated[
        float,
        typer.Option(
            parser=parse_number,
            metavar="SECONDS",
            rich_help_panel=_TRACE_PANEL,
            help="Drop jobs that ran for less than this.",
        ),
    ] = 0.0,
    load: Annotated[
        float | None,
        typer.Option(
            parser=parse_number,
            metavar="L",
            rich_help_panel=_TRACE_PANEL,
            help="Stretch or compress the submission times to reach this load, for example 0.9.",
        ),
    ] = None,
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_format,
            rich_help_panel=_TRACE_PANEL,
            help="Format of the trace: swf, sacct, sacct-json, batsim, elastisim, philly or csv. "
            "By default, it is detected.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="OURS=THEIRS,…",
            rich_help_panel=_TRACE_PANEL,
            help="Names of the columns in the trace, for example submit=timestamp,servers=gpus. "
            "Without a header, columns have numbers: servers=5.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            rich_help_panel=_TRACE_PANEL,
            help="Stop at the first job that cannot be used, instead of dropping it.",
        ),
    ] = False,
    sensitivity: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=OUTPUT_PANEL,
            help="Vary p, resize cost and size error, and save a plot of where the adaptive policy "
            "stops paying off as .png, .svg or .pdf.",
        ),
    ] = None,
    fractions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=OUTPUT_PANEL,
            help="Vary the malleable fraction, and save a plot of how many must change before it "
            "pays as .png, .svg or .pdf.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.HTML", rich_help_panel=OUTPUT_PANEL, help="Write an HTML report."
        ),
    ] = None,
    as_json: AsJson = False,
    csv: CsvFile = None,
    plot: PlotFile = None,
) -> None:
    """Replay a cluster's trace as recorded, with rigid jobs, and with malleable jobs.

    Traces do not record how jobs speed up: --p or --speedups is required. By default no job gets
    more than 4 times the servers that it asked for, nor more than the largest request.

    --csv writes one line for each policy.
    """
    from hesrpt.cli.whatif_tables import print_studies
    from hesrpt.traces import read_trace
    from hesrpt.whatif import (
        RIGID,
        Variations,
        assume_speedup,
        parse_malleability,
        run_fractions,
        run_sensitivity,
        run_study,
    )

    check_output_files(
        source=trace, figures=[plot, sensitivity, fractions], reports=[report], others=[csv]
    )
    if (p is None) == (curves is None):
        raise InputError("choose one of --p or --speedups")
    powers = [None] if p is None else _split_powers(p)
    assumptions = [
        assume_speedup(power, curves=curves, max_servers=max_servers) for power in powers
    ]
    if len(assumptions) > 1 and (sensitivity or fractions or report or plot or csv):
        raise InputError("--plot, --csv, --report, --sensitivity and --fractions need a single --p")
    chosen = parse_malleability(malleable)
    with show_progress("reading", hidden=as_json) as progress:
        jobs = read_trace(
            trace,
            format=format,
            columns=None if columns is None else _parse_columns(columns),
            labels=list(dict.fromkeys((*chosen.labels, *assumptions[0].limit.labels))),
            strict=strict,
            progress=lambda lines: progress(lines, 0),
        )
    options: dict[str, Any] = {
        "window": window,
        "min_runtime": min_runtime,
        "load": load,
        "strict": strict,
        "resize_cost": resize_cost,
        "size_error": size_error,
        "sizes": sizes,
        "seed": seed,
    }
    names = None if policies is None else parse_policies(policies)
    studies = []
    for assumption in assumptions:
        with show_progress(
            "policies and bound" if bound else "policies", hidden=as_json
        ) as progress:
            studies.append(
                run_study(
                    jobs,
                    servers,
                    assumption,
                    policies=names,
                    malleable=chosen,
                    bound=bound,
                    progress=progress,
                    **options,
                )
            )
    variations = Variations()
    if sensitivity is not None:
        with show_progress("sensitivity", hidden=as_json) as progress:
            swept = run_sensitivity(
                jobs, servers, assumptions[0], malleable=chosen, progress=progress, **options
            )
            variations = replace(variations, sensitivity=swept)
    if fractions is not None:
        with show_progress("fractions", hidden=as_json) as progress:
            counted = run_fractions(
                jobs,
                servers,
                assumptions[0],
                counted=chosen.counted,
                policies=None if names is None else [name for name in names if name not in RIGID],
                progress=progress,
                **options,
            )
            variations = replace(variations, fractions=counted)
    if csv is not None:
        write_csv(csv, studies[0].rows())
    _write_figures(studies[0], variations, plot, sensitivity, fractions)
    if report is not None:
        from hesrpt.whatif.report import write_report

        write_report(studies[0], report, variations)
    if as_json:
        print(json.dumps(_as_json(studies, variations), indent=2, allow_nan=False))
    else:
        print_studies(studies, variations)
        print_locations(plot, csv, report, sensitivity, fractions)


def _split_powers(text: str) -> list[str | None]:
    """Return the powers in a list. A distribution may contain commas, so it is not split."""
    if "(" in text or ":" in text:
        return [text]
    return [*split_list(text)] or [text]


def _parse_columns(text: str) -> dict[str, str]:
    """Return the columns in a text such as submit=timestamp,servers=num_gpus."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        ours, _, theirs = (piece.strip() for piece in part.partition("="))
        if not ours or not theirs or ours in columns:
            raise InputError(
                "must be OURS=THEIRS,… with each of our names once, such as submit=timestamp; "
                f"got {part!r}",
                argument="columns",
            )
        columns[ours] = theirs
    return columns


def _write_figures(
    study: Study,
    variations: Variations,
    plot: Path | None,
    sensitivity: Path | None,
    fractions: Path | None,
) -> None:
    """Write the figures that were asked for."""
    if not any((plot, sensitivity, fractions)):
        return
    from hesrpt.plotting import save_figure, sensitivity_figures, whatif_figures

    about = study.conclusion
    if plot is not None:
        save_figure(whatif_figures.draw_overview(study), plot, description=about)
    if sensitivity is not None and variations.sensitivity is not None:
        drawn = sensitivity_figures.draw_sensitivity(variations.sensitivity)
        save_figure(drawn, sensitivity, description=about)
    if fractions is not None and variations.fractions is not None:
        drawn = sensitivity_figures.draw_fractions(variations.fractions)
        save_figure(drawn, fractions, description=about)


def _as_json(studies: list[Study], variations: Variations) -> Any:
    """Return a study as JSON values, or a list of them if there are several."""
    results = [study.as_json() for study in studies]
    results[0] |= variations.as_json()
    return results if len(results) > 1 else results[0]
