"""The files that commands write: checked before the work, announced after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hesrpt.display.escaping import escape
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
