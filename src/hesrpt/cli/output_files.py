"""The files that commands write: checked before the work, announced after it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hesrpt.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_output_files(
    *, source: Path | None = None, figures: list[Path | None], others: list[Path | None]
) -> None:
    """Raise an error if a file cannot be written or would overwrite the source or another file."""
    used = {source.resolve()} if source is not None else set()
    for figure in filter(None, figures):
        from hesrpt.plotting import check_figure_path

        check_figure_path(figure)
    for path in filter(None, [*figures, *others]):
        if path.exists() and not path.is_file() and not path.is_dir():
            continue  # a terminal or a pipe
        target = path.resolve()
        if target in used:
            raise InputError(f"{path}: is already used for another file; choose another name")
        used.add(target)
        directory = target.parent
        while path in figures and not directory.exists():
            directory = directory.parent  # missing directorys of figures are created
        if not directory.is_dir():
            raise InputError(f"{path}: cannot be written: there is no directory {directory}")
        if target.is_dir() or not os.access(target if target.exists() else directory, os.W_OK):
            raise InputError(f"{path}: cannot be written")


def save_figure(figure: Figure, path: Path) -> None:
    """Save a figure with the command line in its metadata."""
    from hesrpt import plotting

    plotting.save_figure(figure, path, description=" ".join(["hesrpt", *sys.argv[1:]]))


def print_locations(*paths: Path | None) -> None:
    """Print the path of each file that was written."""
    for path in filter(None, paths):
        print(f"wrote {path}")
