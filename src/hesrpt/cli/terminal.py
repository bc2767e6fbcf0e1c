"""What commands show beside their results: progress, warnings, and where files are."""

from __future__ import annotations

import os
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
        from hesrpt import plotting

        plotting.check_figure_path(plot)


def check_targets(source: str, *targets: Path | None) -> None:
    """Raise an error if a file cannot be written, or would be written over."""
    from hesrpt.errors import InputError

    seen = {Path(source).resolve()}
    for target in (target for target in targets if target is not None):
        if target.exists() and not target.is_file() and not target.is_dir():
            continue  # a terminal, a pipe
        place = target.resolve()
        if place in seen:
            raise InputError(f"{target}: is read or written twice; give another name")
        if not place.parent.is_dir():
            raise InputError(f"{target}: cannot be written: there is no folder {place.parent}")
        if place.is_dir() or not os.access(place if place.exists() else place.parent, os.W_OK):
            raise InputError(f"{target}: cannot be written")
        seen.add(place)


def say_where(plot: Path | None, csv: Path | None) -> None:
    """Say where the files are."""
    if plot is not None:
        print(f"drawn in {plot}")
    if csv is not None:
        print(f"written to {csv}")
