"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from hesrpt.cli.completion import complete_malleable_policy
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


def number_option(text: str, *names: str, metavar: str, panel: str | None = None) -> OptionInfo:
    """Return an option whose value is a number, with its help text."""
    info: OptionInfo = typer.Option(
        *names, parser=parse_number, metavar=metavar, rich_help_panel=panel, help=text
    )
    return info


def whole_number_option(
    text: str, *names: str, metavar: str = "N", panel: str | None = None
) -> OptionInfo:
    """Return an option whose value is a whole number, with its help text."""
    info: OptionInfo = typer.Option(
        *names, parser=parse_whole_number, metavar=metavar, rich_help_panel=panel, help=text
    )
    return info


def text_option(
    text: str,
    *names: str,
    metavar: str,
    panel: str | None = None,
    complete: Callable[..., list[str]] | None = None,
) -> OptionInfo:
    """Return an option whose value is a text or a path, with its help text.

    ``complete`` returns values for completion in the shell.
    """
    info: OptionInfo = typer.Option(
        *names, metavar=metavar, rich_help_panel=panel, help=text, autocompletion=complete
    )
    return info


def flag_option(text: str, name: str, *, panel: str | None = None) -> OptionInfo:
    """Return an option that is given or not, with its help text."""
    info: OptionInfo = typer.Option(name, rich_help_panel=panel, help=text)
    return info


def malleable_policy_option(default: str) -> OptionInfo:
    """Return an option that names a policy of the live scheduler, and says what is the default."""
    info: OptionInfo = typer.Option(
        metavar="NAME",
        autocompletion=complete_malleable_policy,
        help=f"One of {MALLEABLE_POLICY_NAMES}. By default, {default}.",
    )
    return info


POLICY_NAMES = ", ".join(POLICIES)
MALLEABLE_POLICY_NAMES = ", ".join(list_malleable_policies())
SPEEDUP_PANEL = "Speedup"
OUTPUT_PANEL = "Output"

Servers = Annotated[float, number_option("Number of servers.", metavar="N")]
MaxServers = Annotated[
    float | None,
    number_option(
        "Maximum number of servers that one job can use.", metavar="K", panel=SPEEDUP_PANEL
    ),
]
Seed = Annotated[int, whole_number_option("Random seed.", metavar="S")]
ResizeCost = Annotated[
    float,
    number_option(
        "Time for which a job pauses when its number of servers changes; for traces, seconds.",
        metavar="T",
    ),
]
SizeError = Annotated[
    float,
    number_option(
        "Error of the sizes that the policy sees: each is multiplied by exp(E·Z), with Z "
        "standard normal.",
        metavar="E",
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
