"""The settings of a reproduction, and its exhibits: figures with the data behind them."""

from __future__ import annotations

import platform
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

#: Called with the amount of work done, the total amount, and the kind of the last step.
Progress: TypeAlias = Callable[[int, int, str], None]
Row: TypeAlias = dict[str, Any]

#: The values of p in the paper's comparison.
POWERS = (0.05, 0.3, 0.5, 0.9, 0.99)
#: The policies in the paper's comparison.
COMPARED_POLICIES = ("hesrpt", "srpt", "equi", "hell", "knee")
#: The shape of the paper's Pareto distribution of sizes.
SHAPE = 1.5
#: Data files state this instead of a seed if a computation is not random.
NOT_RANDOM = "not random"


@dataclass(frozen=True)
class Settings:
    """The size of a reproduction. The defaults are those of the paper's evaluation."""

    seed: int = 0  # of the first set of jobs
    jobs: int = 500  # in each set
    servers: int = 1_000_000
    sets: int = 10
    curves: Sequence[Curve] = ()  # measured speedups; published ones if empty
    stream: int = 10_000  # jobs in each stream of arrivals

    def __post_init__(self) -> None:
        minimum_of = {"seed": 0, "jobs": 2, "servers": 1, "sets": 1, "stream": 1000}
        for name, minimum in minimum_of.items():
            value = check_whole_number(name, getattr(self, name), minimum=minimum)
            object.__setattr__(self, name, value)

    @property
    def has_paper_size(self) -> bool:
        """Whether the comparison has as many jobs and servers as the paper's."""
        return (self.jobs, self.servers) == (500, 1_000_000)

    def get_seeds(self, sets: int | None = None) -> range:
        """Return the seed of each set of jobs, or of the first ``sets`` of them."""
        return range(self.seed, self.seed + min(self.sets, sets or self.sets))


@dataclass(frozen=True)
class Exhibit:
    """A figure, one sentence that says what it shows, and the numbers in it."""

    name: str
    title: str
    sentence: str
    figure: Figure
    rows: list[Row]
    parameters: Row
    further_pages: Sequence[Figure] = ()
    table: list[Row] = field(default_factory=list)  # a summary of the rows, if there is one
    note: str = ""  # how it was computed

    @property
    def is_beyond(self) -> bool:
        """Whether the figure goes beyond the paper."""
        return self.name.startswith("beyond")

    @property
    def pages(self) -> dict[str, Figure]:
        """The figures by the names of their files."""
        further = {f"{self.name}_{page}": one for page, one in enumerate(self.further_pages, 2)}
        return {self.name: self.figure, **further}

    @property
    def description(self) -> str:
        """The description in the metadata of the files."""
        provenance = "; ".join(f"{name}: {value}" for name, value in self._provenance.items())
        return f"{self.title}. {self.sentence} {provenance}"

    def save_data(self, directory: Path) -> None:
        """Write the numbers in the figure, and its table if it has one, as CSV."""
        for name, rows in ((self.name, self.rows), (f"{self.name}_table", self.table)):
            if rows:
                files.write_csv(directory / f"{name}.csv", [row | self._provenance for row in rows])

    @property
    def _provenance(self) -> Row:
        return {**self.parameters, "versions": get_versions()}


def save_page(figure: Figure, stem: Path, description: str, formats: Sequence[str]) -> None:
    """Write a figure in several formats."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is done, and doing it again would take long
    for suffix in formats:
        plotting.save_figure(figure, stem.with_name(f"{stem.name}.{suffix}"), description)


@cache
def get_versions() -> str:
    """Return the versions of the programs that computed the numbers."""
    used = [f"{name} {version(name)}" for name in ("numpy", "scipy", "numba", "matplotlib")]
    return ", ".join([f"hesrpt {__version__}", f"Python {platform.python_version()}", *used])
