"""``hesrpt paper``: the heSRPT paper, reproduced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hesrpt.cli.options import AsJson, Seed, option, whole_number_option
from hesrpt.cli.terminal import create_table, print_table, show_progress
from hesrpt.display.console import create_console, escape, literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesrpt.paper import Claim
    from hesrpt.paper.exhibits import Row


def paper(
    out: Annotated[
        Path, option("Directory for the figures, their data and the claims.", metavar="DIR")
    ],
    seed: Seed = 0,
    jobs: Annotated[int, whole_number_option("Jobs in each set.", metavar="M")] = 500,
    servers: Annotated[int, whole_number_option("Number of servers.")] = 1_000_000,
    sets: Annotated[int, whole_number_option("Number of sets of jobs.", metavar="R")] = 10,
    curves: Annotated[
        Path | None,
        option(
            "Fit these measured speedups: a CSV file with columns workers, speedup (or "
            "throughput) and, optionally, application. Use - for standard input.",
            metavar="FILE.CSV",
        ),
    ] = None,
    pdf: Annotated[bool, option("Write each figure as PDF as well.", "--pdf")] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce every figure of the heSRPT paper, and check every claim."""
    from hesrpt.paper import reproduce

    with show_progress("paper", hidden=as_json) as progress:
        reproduction = reproduce(
            out,
            seed=seed,
            jobs=jobs,
            servers=servers,
            sets=sets,
            curves=curves or (),
            pdf=pdf,
            progress=lambda done, total, _: progress(done, total),
        )
    if as_json:
        print(json.dumps(reproduction.as_json(), indent=2))
        return
    if curves is not None:
        _print_fits(reproduction.exhibit("fig2_measured").table)
    _print_claims(reproduction.claims)
    print()
    print(escape(f"wrote figures, data and claims to {out}; start with {out / 'index.md'}"))


def _print_fits(rows: Sequence[Row]) -> None:
    """Print how well each law fits each measured curve."""
    from hesrpt.paper.reproduction import format_cell

    console = create_console()
    columns = ("application", "points", "p", "R²", "f (Amdahl)", "R²", "better")
    table = create_table(*columns, left=["application", "better"])
    for row in rows:
        shown = [value for name, value in row.items() if name != "problem"]
        table.add_row(*(literal(format_cell(value)) for value in shown))
    print_table(console, table)
    console.print()


def _print_claims(claims: Sequence[Claim]) -> None:
    """Print a row for each claim, with the likeliest reason if it does not hold."""
    from rich.text import Text

    from hesrpt.paper import Verdict
    from hesrpt.paper.claims import count_verdicts

    styles = {Verdict.HOLDS: "green", Verdict.ROUGHLY: "yellow", Verdict.DIFFERS: "red"}
    console = create_console()
    table = create_table(left=())
    for column, ratio in (("where", 3), ("the paper says", 8), ("we computed", 10)):
        table.add_column(column, ratio=ratio)
    table.add_column("verdict", no_wrap=True)
    for claim in claims:
        computed = Text(claim.computed)
        if claim.reason:
            computed.append(f"\nlikeliest reason: {claim.reason}", style="italic")
        verdict = Text(claim.verdict, style=styles[claim.verdict])
        table.add_row(Text(claim.where), Text(claim.says), computed, verdict)
    print_table(console, table)
    console.print(f"\n{count_verdicts(claims)}")
