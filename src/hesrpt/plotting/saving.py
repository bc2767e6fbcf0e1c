"""Saving figures as PNG, SVG or PDF, with metadata that describe how each was made."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from hesrpt._version import __version__
from hesrpt.errors import InputError
from hesrpt.files import write_bytes
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
    target = check_figure_path(path)
    suffix = target.suffix.lower()
    metadata = {"Creator" if suffix != ".png" else "Software": f"hesrpt {__version__}"}
    if description:
        metadata["Subject" if suffix == ".pdf" else "Description"] = description
    data = io.BytesIO()
    with warnings.catch_warnings(), rc_context(RC_PARAMS):
        # The font lacks some scripts. Matplotlib draws their letters as boxes, and warns.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(data, format=suffix[1:], dpi=_DOTS_PER_INCH, metadata=metadata)
    write_bytes(target, data.getvalue(), create_directory=True)
