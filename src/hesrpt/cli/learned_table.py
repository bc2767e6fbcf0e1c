"""The table of what was learned about each kind of job."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hesrpt.cli.terminal import print_table
from hesrpt.decisions.kinds import LearnedKind
from hesrpt.display.console import create_console, literal
from hesrpt.units import format_duration_with_margin

_TEXT_COLUMNS = ("kind", "of", "p from")


def print_learned(kinds: Sequence[LearnedKind]) -> None:
    """Print how long the items of each kind take, and how its jobs speed up."""
    console = create_console()
    if not kinds:
        console.print("nothing has been learned yet: no item has finished")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("kind", "of", "runs", "items", "time", "p", "p from"):
        table.add_column(column, justify="left" if column in _TEXT_COLUMNS else "right")
    for kind in kinds:
        table.add_row(
            literal(kind.kind),
            "items" if kind.is_bag else "a command",
            str(kind.runs),
            f"{kind.items:,}",
            format_duration_with_margin(kind.item_seconds, kind.spread),
            f"{kind.p:.2f}" if kind.p_origin == "given" else f"{kind.p:.2f} ± {kind.p_error:.2f}",
            kind.p_origin,
        )
    print_table(console, table)
