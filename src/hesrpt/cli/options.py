"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hesrpt.errors import InputError
from hesrpt.policies import POLICIES, list_malleable_policies


def parse_number(text: str) -> float:
    """Return the number that a text contains, or raise an error that quotes the text."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be a number, got {text!r}") from None


def parse_whole_number(text: str) -> int:
    """Return the whole number that a text contains; 1e6 is accepted too."""
    try:
        return int(text)  # exact, however large
    except ValueError:
        number = parse_number(text)
    if not number.is_integer():
        raise typer.BadParameter(f"must be a whole number, got {text!r}")
    return int(number)


def split_list(text: str) -> list[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_policies(text: str) -> list[str]:
    """Return the names in a comma-separated list of policies."""
    names = split_list(text)
    if not names:
        raise InputError("must name at least one policy", argument="policies")
    return names


POLICY_NAMES = ", ".join(POLICIES)
MALLEABLE_POLICY_NAMES = ", ".join(list_malleable_policies())
SPEEDUP_PANEL = "Speedup"
OUTPUT_PANEL = "Output"

Servers = Annotated[
    float, typer.Option(parser=parse_number, metavar="N", help="Number of servers.")
]
MaxServers = Annotated[
    float | None,
    typer.Option(
        parser=parse_number,
        metavar="K",
        rich_help_panel=SPEEDUP_PANEL,
        help="Maximum number of servers that one job can use.",
    ),
]
Seed = Annotated[int, typer.Option(parser=parse_whole_number, metavar="S", help="Random seed.")]
ResizeCost = Annotated[
    float,
    typer.Option(
        parser=parse_number,
        metavar="T",
        help="Time for which a job pauses when its number of servers changes; for traces, seconds.",
    ),
]
SizeError = Annotated[
    float,
    typer.Option(
        parser=parse_number,
        metavar="E",
        help="Error of the sizes that the policy sees: each is multiplied by exp(E·Z), with Z "
        "standard normal.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=OUTPUT_PANEL, help="Print JSON."),
]
PlotFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=OUTPUT_PANEL,
        help="Save a plot of the result as .png, .svg or .pdf.",
    ),
]
CsvFile = Annotated[
    Path | None,
    typer.Option(
        "--csv", metavar="FILE", rich_help_panel=OUTPUT_PANEL, help="Write the result as CSV."
    ),
]
