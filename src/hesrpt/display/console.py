"""The console of a terminal, and text from outside, such as job names, made safe to show on it."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

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


def escape(text: str) -> str:
    r"""Replace control characters, and characters that hide or reorder others.

    >>> escape("a\x1b[31m\nb\u202e é")
    'a\\x1b[31m\\nb\\u202e é'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or unicodedata.category(letter) == "Zs" else _name(letter)
        for letter in text
    )


def escape_output(text: str) -> str:
    """Escape the output of a program, which keeps its lines and tabs."""
    lines = ("\t".join(map(escape, line.split("\t"))) for line in text.split("\n"))
    return "\n".join(lines)


def escape_lines(text: str) -> str:
    r"""Escape a text of several lines, and indent all but the first: none can pass for ours.

    >>> escape_lines("boom\n\tat x\r")
    'boom\n            at x\\r'
    """
    return "\n    ".join(escape(line.expandtabs(8)) for line in text.split("\n"))


def _name(letter: str) -> str:
    if "\udc80" <= letter <= "\udcff":
        return f"\\x{ord(letter) - 0xDC00:02x}"  # a byte that is not UTF-8
    return letter.encode("unicode_escape").decode()
