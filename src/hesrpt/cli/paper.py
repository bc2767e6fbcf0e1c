"""``hesrpt paper``: the heSRPT paper, reproduced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hesrpt.cli.options import AsJson, Seed, parse_whole_number
from hesrpt.cli.terminal import show_progress
from hesrpt.display.escaping import escape


def paper(
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Directory for the figures, their data and the claims."),
    ],
    seed: Seed = 0,
    jobs: Annotated[
        int, typer.Option(parser=parse_whole_number, metavar="M", help="Jobs in each set.")
    ] = 500,
    servers: Annotated[
        int, typer.Option(parser=parse_whole_number, metavar="N", help="Number of servers.")
    ] = 1_000_000,
    sets: Annotated[
        int, typer.Option(parser=parse_whole_number, metavar="R", help="Number of sets of jobs.")
    ] = 10,
    curves: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.CSV",
            help="Fit these measured speedups: a CSV file with columns workers, speedup (or "
            "throughput) and, optionally, application. Use - for standard input.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce every figure of the heSRPT paper, and check every claim."""
    from hesrpt.cli import paper_tables
    from hesrpt.paper import reproduce

    with show_progress("paper", hidden=as_json) as progress:
        reproduction = reproduce(
            out,
            seed=seed,
            jobs=jobs,
            servers=servers,
            sets=sets,
            curves=curves or (),
            progress=lambda done, total, _: progress(done, total),
        )
    if as_json:
        print(json.dumps(reproduction.as_json(), indent=2))
        return
    if curves is not None:
        paper_tables.print_fits(reproduction.exhibit("fig2_measured").table)
    paper_tables.print_claims(reproduction.claims)
    print()
    print(escape(f"wrote figures, data and claims to {out}; start with {out / 'index.md'}"))
