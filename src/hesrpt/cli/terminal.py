"""What commands write: tables, progress bars and warnings on the terminal, and files."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hesrpt._version import __version__
from hesrpt.display.console import create_console, escape
from hesrpt.errors import InputError, OverloadWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

_MAX_TABLE_WIDTH = 1000


def print_json(**content: Any) -> None:
    """Print values as JSON, after the version of the program."""
    print(json.dumps({"hesrpt": __version__} | content, indent=2))


def create_table(*columns: str, left: Collection[str], **settings: Any) -> Table:
    """Return an empty table whose columns are aligned right, except for those in ``left``.

    ``settings`` are those of each column, such as ``no_wrap``.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", **settings)
    return table


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


def check_output_files(
    *,
    source: Path | None = None,
    figures: Sequence[Path | None] = (),
    reports: Sequence[Path | None] = (),
    others: Sequence[Path | None] = (),
) -> None:
    """Raise an error if a file cannot be written or would overwrite the source or another file."""
    used = {source.resolve()} if source is not None else set()
    for figure in filter(None, figures):
        from hesrpt.plotting import check_figure_path

        check_figure_path(figure)
    for path in filter(None, [*figures, *reports, *others]):
        if path.exists() and not path.is_file() and not path.is_dir():
            continue  # a terminal or a pipe
        if path in reports and path.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"a report must end in .html, got {str(path)!r}")
        target = path.resolve()
        if target in used:
            raise InputError(f"{path}: is already used for another file; choose another name")
        used.add(target)
        problem = _find_problem(target)
        if problem is not None:
            raise InputError(f"{path}: cannot be written: {problem}")


def _find_problem(target: Path) -> str | None:
    """Return the reason why a file cannot be written, or None if it can."""
    if target.is_dir():
        return "it is a directory"
    if not target.parent.is_dir():
        return f"there is no directory {target.parent}"
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        return "permission denied"
    return None


def save_figure(figure: Figure, path: Path) -> None:
    """Save a figure with the command line in its metadata."""
    from hesrpt import plotting

    plotting.save_figure(figure, path, description=" ".join(["hesrpt", *sys.argv[1:]]))


def print_locations(*paths: Path | None) -> None:
    """Print the path of each file that was written."""
    for path in filter(None, paths):
        print(escape(f"wrote {path}"))
