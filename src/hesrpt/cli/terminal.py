"""The terminal: tables, progress bars and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hesrpt.display.console import create_console
from hesrpt.display.escaping import escape
from hesrpt.errors import OverloadWarning

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MAX_TABLE_WIDTH = 1000


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
