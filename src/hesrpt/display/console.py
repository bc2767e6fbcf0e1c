"""The console of a terminal, and text that is shown on it literally."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hesrpt.display.escaping import escape, escape_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def create_console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """Return a console that prints text literally, without highlighting or emoji codes."""
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=soft_wrap, highlight=False, emoji=False)


def literal(text: str, style: str = "") -> Text:
    """Return a text that is shown as it is: without markup, and with control characters escaped."""
    from rich.text import Text

    return Text(escape(text), style=style)


def print_error_text(console: Console, subject: str, error: str | None) -> None:
    """Print what happened to something, and an error, which may have several lines."""
    from rich.text import Text

    reason = f": {escape_lines(error)}" if error else ""
    console.print(Text(f"{escape(subject)}{reason}"), soft_wrap=True)
