"""What commands show beside their results: progress, warnings, and where files are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def progress_bar(what: str, hidden: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=hidden or not console.is_terminal
    ) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def warnings_told() -> Iterator[None]:
    """Say on standard error, in one line each, what the library warns of."""
    import warnings

    from hesrpt.errors import OverloadWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OverloadWarning)
        yield
    for warning in caught:
        print(f"hesrpt: warning: {warning.message}", file=sys.stderr)


def check_plot(plot: Path | None) -> None:
    """Raise an error if a figure cannot be drawn there: before the work, not after it."""
    if plot is not None:
        from hesrpt import plots

        plots.check_path(plot)


def say_where(plot: Path | None, csv: Path | None) -> None:
    """Say where the files are."""
    if plot is not None:
        print(f"drawn in {plot}")
    if csv is not None:
        print(f"written to {csv}")
