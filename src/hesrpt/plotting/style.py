"""How figures look (style of each policy, axes, legends, font sizes), and how they are saved."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib.figure
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator

from hesrpt._version import __version__
from hesrpt.errors import InputError
from hesrpt.files import write_bytes
from hesrpt.policies.registry import POLICIES
from hesrpt.traces.trace import RECORDED

P = ParamSpec("P")
Result = TypeVar("Result")

#: Widths of figures in inches: one that fills a printed page, and one for a single panel.
FULL_WIDTH, PANEL_WIDTH = 7.0, 4.8
#: Lines that show a reference value.
REFERENCE_COLOUR = "#666666"

# The ends of a short logarithmic axis differ by less than this factor, those of a long one by more.
_SHORT_AXIS, _LONG_AXIS = 4.0, 800.0

# Text is 7 to 9 points high at the size at which a figure is printed.
RC_PARAMS: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "figure.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.markersize": 4.5,
}


@dataclass(frozen=True)
class Style:
    """The title and the look of one policy."""

    title: str
    colour: str
    marker: str = "o"
    line: str = "-"
    width: float = 1.3

    @property
    def line_options(self) -> dict[str, Any]:
        """The options of ``Axes.plot`` for a line of this policy."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.line,
            "linewidth": self.width,
            "label": self.title,
        }


_STYLES = {
    name: Style(entry.title, entry.colour, entry.marker, entry.line)
    for name, entry in POLICIES.items()
}
# Wide and pale, so that a simulated policy that agrees with the record stays visible on top of it.
_STYLES[RECORDED] = Style(RECORDED, "#B5B5B5", "X", width=3.5)
# For policies that are not in the registry, such as a user's own.
_OTHER_COLOURS = ("#7F6A00", "#5A3E8E", "#3B7A57", "#C46210")


def get_styles(policies: Iterable[str]) -> dict[str, Style]:
    """Return the style of each policy; unregistered ones get the remaining colours in turn."""
    remaining = cycle(_OTHER_COLOURS)
    return {
        one: _STYLES[one] if one in _STYLES else Style(one, next(remaining)) for one in policies
    }


def get_style(policy: str) -> Style:
    """Return the style of one policy."""
    return get_styles([policy])[policy]


def with_house_style(draw: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a drawing function, so that it uses the project's fonts, grid and line widths."""

    @wraps(draw)
    def draw_in_style(*args: P.args, **options: P.kwargs) -> Result:
        with rc_context(RC_PARAMS):
            return draw(*args, **options)

    return draw_in_style


class _PlainLogLocator(Locator):
    """Ticks at 1, 2, 5, 10, …; only powers of ten on long axes, evenly spaced on short ones."""

    def __call__(self) -> Sequence[float]:
        assert self.axis is not None
        return self.tick_values(*self.axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        low, high = max(min(vmin, vmax), 1e-300), max(vmin, vmax)
        if high < _SHORT_AXIS * low:
            ticks = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
            return [tick for tick in ticks if tick > 0]
        is_long = high > _LONG_AXIS * low
        locator = LogLocator(subs=(1.0,), numticks=6) if is_long else LogLocator(subs=(1, 2, 5))
        return [float(tick) for tick in locator.tick_values(low, high)]


def use_log_scale(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic, with plain numbers as labels."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(_PlainLogLocator())
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def align_crowded_labels(axes: Axes, distance: float = 0.12) -> None:
    """Move tick labels on the x axis apart if they are close to each other."""
    low, high = axes.get_xlim()
    ticks = list(axes.get_xticks())
    for place, (tick, label) in enumerate(zip(ticks, axes.get_xticklabels(), strict=True)):
        if any(0 < other - tick < distance * (high - low) for other in ticks):
            label.set_horizontalalignment("right")
        elif place > 0 and tick - ticks[place - 1] < distance * (high - low):
            label.set_horizontalalignment("left")


def add_legend_below(figure: Figure, axes: Axes, most_columns: int | None = None) -> None:
    """Put the legend of some axes below the figure, to be read line by line.

    It is one line, unless it has more than ``most_columns`` entries. Lines are equally long, except
    that the last one may be shorter.
    """
    handles, labels = axes.get_legend_handles_labels()
    lines = math.ceil(len(labels) / (most_columns or len(labels)))
    columns = math.ceil(len(labels) / lines)
    # Matplotlib fills a legend column by column.
    order = [entry for column in range(columns) for entry in range(len(labels))[column::columns]]
    figure.legend(
        [handles[entry] for entry in order],
        [labels[entry] for entry in order],
        loc="outside lower center",
        ncols=columns,
    )


def create_panel(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure with a single panel, and the axes of the panel."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def create_panels(columns: int, height: float, share_y: bool = False) -> tuple[Figure, Any]:
    """Return a figure as wide as a page with panels side by side, and the axes of the panels."""
    figure = Figure(figsize=(FULL_WIDTH, height), layout="constrained")
    return figure, figure.subplots(1, columns, sharey=share_y, squeeze=False)[0]


def write_beside(
    axes: Axes, text: str, point: tuple[Any, Any], offset: float, size: float = 8, **options: Any
) -> None:
    """Write a small text beside a point, ``offset`` points to the right of it."""
    options |= {"textcoords": "offset points", "va": "center", "fontsize": size}
    axes.annotate(text, point, xytext=(offset, 0), **options)


def format_ratio(ratio: float) -> str:
    """Return a ratio with three significant digits.

    >>> [format_ratio(ratio) for ratio in (1037.4, 103.7, 11.04, 1.349, 1.0004)]
    ['1037', '104', '11.0', '1.35', '1.00']
    """
    return f"{ratio:.{0 if ratio >= 99.95 else 1 if ratio >= 9.995 else 2}f}"


def escape_text(text: str) -> str:
    """Escape ``$``, so that matplotlib does not read the text as mathematics."""
    return text.replace("$", r"\$")


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
