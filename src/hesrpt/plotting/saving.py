"""Saving figures as PNG, SVG or PDF, with the description of how each was made in its metadata."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from hesrpt._version import __version__
from hesrpt.errors import InputError
from hesrpt.plotting.style import RC_PARAMS

_FORMATS = (".pdf", ".png", ".svg")
_DOTS_PER_INCH = 200


def check_figure_path(path: str | Path) -> Path:
    """Return the path of a figure, or raise an error if its suffix names no known format."""
    target = Path(path)
    if target.suffix.lower() not in _FORMATS:
        raise InputError(f"a figure must end in {', '.join(_FORMATS)}, got {str(path)!r}")
    return target


def save_figure(figure: Figure, path: str | Path, description: str = "") -> None:
    """Save a figure atomically, with ``description`` and our version in its metadata."""
    target = check_figure_path(path).resolve()  # write through a symbolic link
    suffix = target.suffix.lower()
    metadata = {"Creator" if suffix != ".png" else "Software": f"hesrpt {__version__}"}
    if description:
        metadata["Subject" if suffix == ".pdf" else "Description"] = description
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent, suffix=target.suffix)
        os.close(handle)
        try:
            with warnings.catch_warnings(), rc_context(RC_PARAMS):
                # The font lacks some scripts: their letters are drawn as boxes.
                warnings.filterwarnings("ignore", message="Glyph")
                figure.savefig(draft, dpi=_DOTS_PER_INCH, metadata=metadata)
            os.chmod(draft, 0o666 & ~_get_umask())
            os.replace(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from None


def _get_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
