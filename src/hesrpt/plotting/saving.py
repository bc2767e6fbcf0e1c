"""Figures as files with metadata that describe how each was made, and as images in notebooks."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import matplotlib.figure
from matplotlib import rc_context

from hesrpt._version import __version__
from hesrpt.errors import InputError
from hesrpt.files import write_bytes
from hesrpt.plotting.style import RC_PARAMS

_FORMATS = (".pdf", ".png", ".svg")
_DOTS_PER_INCH = 200
# On the page of a notebook. A figure has more dots than that, so it is sharp on any display.
_PIXELS_PER_INCH = 100


# The same figure gives the same file: ids in SVG files follow from their content alone.
_REPRODUCIBLE = {"svg.hashsalt": "hesrpt"}


class Figure(matplotlib.figure.Figure):
    """A figure that notebooks show, even if pyplot was never imported."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the figure as an image, with its size on the page."""
        width, height = (round(inches * _PIXELS_PER_INCH) for inches in self.get_size_inches())
        return _render(self, "png"), {"width": width, "height": height}


def check_figure_path(path: str | Path) -> Path:
    """Return the path of a figure, or raise an error if its suffix names no known format."""
    target = Path(path)
    if target.suffix.lower() not in _FORMATS:
        raise InputError(f"a figure must end in {', '.join(_FORMATS)}, got {str(path)!r}")
    return target


def save_figure(figure: matplotlib.figure.Figure, path: str | Path, description: str = "") -> None:
    """Save a figure atomically, with ``description`` and our version in its metadata."""
    target = check_figure_path(path)
    suffix = target.suffix.lower()
    metadata: dict[str, str | None] = {
        "Creator" if suffix != ".png" else "Software": f"hesrpt {__version__}"
    }
    if suffix != ".png":  # PNG files have no date
        metadata["Date" if suffix == ".svg" else "CreationDate"] = None
    if description:
        metadata["Subject" if suffix == ".pdf" else "Description"] = description
    write_bytes(target, _render(figure, suffix[1:], metadata), create_directory=True)


def _render(
    figure: matplotlib.figure.Figure, kind: str, metadata: dict[str, str | None] | None = None
) -> bytes:
    data = io.BytesIO()
    with warnings.catch_warnings(), rc_context(RC_PARAMS | _REPRODUCIBLE):
        # The font lacks some scripts. Matplotlib draws their letters as boxes, and warns.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(data, format=kind, dpi=_DOTS_PER_INCH, metadata=metadata)
    return data.getvalue()
