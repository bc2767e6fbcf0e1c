"""The terminal: the console that commands print to, progress bars and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hesrpt.cli.escaping import escape, escape_lines
from hesrpt.errors import OverloadWarning

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_MAX_TABLE_WIDTH = 1000


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


def print_table(console: Console, table: Table) -> None:
    """Print a table without trailing spaces; on a soft-wrapping console, in its full width."""
    from rich.segment import Segment
    from rich.text import Text

    options = console.options
    if console.soft_wrap:
        options = options.update(max_width=_MAX_TABLE_WIDTH)
    for line in Segment.split_lines(console.render(table, options)):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        console.print(text, soft_wrap=True)


@contextmanager
def show_progress(task: str, *, hidden: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if standard error is a terminal; yield ``update(done, total)``."""
    from rich.progress import Progress

    console = create_console(stderr=True)
    with Progress(
        console=console, transient=True, disable=hidden or not console.is_terminal
    ) as progress:
        bar = progress.add_task(task)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


@contextmanager
def print_overload_warnings() -> Iterator[None]:
    """Print each overload warning as one line on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OverloadWarning)
        yield
    for warning in caught:
        print(f"hesrpt: warning: {escape(str(warning.message))}", file=sys.stderr)
