"""What a reproduction is made of: its settings, and exhibits (a figure with the data behind it)."""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from matplotlib.figure import Figure

from hesrpt import files, plotting
from hesrpt._version import __version__
from hesrpt.readers import Curve
from hesrpt.validation import check_whole_number

#: Called with the number of steps done, that of all, and what was done last.
Progress: TypeAlias = Callable[[int, int, str], None]
Row: TypeAlias = dict[str, Any]

#: The values of p in the paper's comparison.
POWERS = (0.05, 0.3, 0.5, 0.9, 0.99)
#: Its policies.
POLICIES = ("hesrpt", "srpt", "equi", "hell", "knee")
#: The shape of its distribution of sizes.
SHAPE = 1.5
#: What stands in the place of a seed where there is none.
NOT_RANDOM = "not random"


@dataclass(frozen=True)
class Settings:
    """What may be chosen. As it stands, the paper's own evaluation, with seeds from 0 on."""

    seed: int = 0
    jobs: int = 500
    servers: int = 1_000_000
    sets: int = 10
    curves: Sequence[Curve] = ()
    stream: int = 10_000  # jobs in a stream of arrivals

    def __post_init__(self) -> None:
        least_of = {"seed": 0, "jobs": 2, "servers": 1, "sets": 1, "stream": 1000}
        for name, least in least_of.items():
            value = check_whole_number(name, getattr(self, name), minimum=least)
            object.__setattr__(self, name, value)

    @property
    def as_in_paper(self) -> bool:
        """Whether the comparison is of as many jobs, on as many servers, as the paper's."""
        return (self.jobs, self.servers) == (500, 1_000_000)

    def seeds(self, sets: int | None = None) -> range:
        """Return the seeds of the sets of jobs, or of the first few."""
        return range(self.seed, self.seed + min(self.sets, sets or self.sets))


@dataclass(frozen=True)
class Exhibit:
    """A figure, the sentence that says what it shows, and the numbers in it."""

    name: str
    title: str
    sentence: str
    figure: Figure
    rows: list[Row]
    parameters: Row
    more: list[Figure] = field(default_factory=list)  # further pages
    table: list[Row] = field(default_factory=list)  # one row for each thing shown, if that differs
    note: str = ""  # how it was made, for the page

    def __post_init__(self) -> None:
        # About seven points to a letter.
        width = int(self.figure.get_figwidth() * 72 / 5.2)
        self.figure.suptitle("\n".join(textwrap.wrap(self.sentence, width)), fontsize="small")

    @property
    def pages(self) -> dict[str, Figure]:
        """The figures by the names of their files."""
        further = {f"{self.name}_{page}": one for page, one in enumerate(self.more, start=2)}
        return {self.name: self.figure, **further}

    @property
    def description(self) -> str:
        """What the metadata of its files say."""
        about = "; ".join(f"{name}: {value}" for name, value in self._about.items())
        return f"{self.title}. {self.sentence} {about}"

    def save_data(self, directory: Path) -> None:
        """Write the numbers in the figure, and its table if it has one."""
        for name, rows in ((self.name, self.rows), (f"{self.name}_table", self.table)):
            if rows:
                files.write_csv(directory / f"{name}.csv", [row | self._about for row in rows])

    @property
    def _about(self) -> Row:
        return {**self.parameters, "versions": versions()}


def save_figure(figure: Figure, stem: Path, description: str) -> None:
    """Write a figure as PNG and as SVG."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # once is enough, and it takes long
    for ending in ("png", "svg"):
        plotting.save_figure(figure, stem.with_name(f"{stem.name}.{ending}"), description)


@cache
def versions() -> str:
    """Return what the numbers were computed with."""
    used = [f"{name} {version(name)}" for name in ("numpy", "scipy", "numba", "matplotlib")]
    return ", ".join([f"hesrpt {__version__}", f"Python {platform.python_version()}", *used])
