"""Tables of the reproduction: fits of measured curves, and claims with verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from hesrpt.cli.terminal import print_table
from hesrpt.display.console import create_console, literal
from hesrpt.paper import Claim, Verdict
from hesrpt.paper.claims.verdicts import count_verdicts
from hesrpt.paper.exhibits import Row
from hesrpt.paper.result_pages import format_cell

_STYLES = {Verdict.HOLDS: "green", Verdict.ROUGHLY: "yellow", Verdict.DIFFERS: "red"}


def print_fits(rows: Sequence[Row]) -> None:
    """Print how well each law fits each measured curve."""
    console = create_console()
    table = Table(box=None, pad_edge=False)
    for column in ("application", "points", "p", "R²", "f (Amdahl)", "R²", "better"):
        table.add_column(column, justify="left" if column in ("application", "better") else "right")
    for row in rows:
        shown = [value for name, value in row.items() if name != "problem"]
        table.add_row(*(literal(format_cell(value)) for value in shown))
    print_table(console, table)
    console.print()


def print_claims(claims: Sequence[Claim]) -> None:
    """Print a row for each claim, with the likeliest reason if it does not hold."""
    console = create_console()
    table = Table(box=None, pad_edge=False)
    for column, ratio in (("where", 3), ("the paper says", 8), ("we computed", 10)):
        table.add_column(column, ratio=ratio)
    table.add_column("verdict", no_wrap=True)
    for claim in claims:
        computed = Text(claim.computed)
        if claim.reason:
            computed.append(f"\nlikeliest reason: {claim.reason}", style="italic")
        verdict = Text(claim.verdict, style=_STYLES[claim.verdict])
        table.add_row(Text(claim.where), Text(claim.says), computed, verdict)
    print_table(console, table)
    console.print(f"\n{count_verdicts(claims)}")
