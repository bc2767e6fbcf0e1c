"""Ratios that benchmarks measure, their targets, and the last ones, kept in ``figures.txt``.

A ratio compares two times of the same run, so that it hardly depends on the machine. Modules with
benchmarks return what they have measured: ``[at_least("times faster than SimPy", ratio, 150)]``.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console

FIGURES = Path(__file__).parent / "figures.txt"
PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "benchmarks.md"
# A ratio that has become worse by more than this factor is marked.
TOLERANCE = 1.2

_PACKAGES = (
    "hesrpt",
    "numpy",
    "numba",
    "scipy",
    "simpy",
    "ciw",
    "cvxpy",
    "ray",
    "distributed",
    "joblib",
)
_HEADING = "# The last ratios measured; written by: python -m benchmarks --update\n"
_START, _END = "<!-- ratios -->\n", "<!-- end of ratios -->"


@dataclass(frozen=True)
class Ratio:
    """A ratio that was measured, and the least or the greatest that it should be."""

    name: str
    value: float
    target: float
    is_least: bool  # whether the target is the least that the ratio should be

    @property
    def reaches_target(self) -> bool:
        """Whether the ratio is as good as it should be."""
        return self.value >= self.target if self.is_least else self.value <= self.target

    @property
    def shown_target(self) -> str:
        """The target in words."""
        return f"{'at least' if self.is_least else 'at most'} {self.target:,g}"

    def worsening(self, before: Ratio) -> float:
        """Return how many times worse this ratio is than before; below 1 if it is better."""
        better, worse = (before, self) if self.is_least else (self, before)
        return better.value / worse.value if worse.value > 0 else float("inf")


def at_least(name: str, value: float, target: float) -> Ratio:
    """Return a ratio that is better the larger it is."""
    return Ratio(name, value, target, is_least=True)


def at_most(name: str, value: float, target: float) -> Ratio:
    """Return a ratio that is better the smaller it is."""
    return Ratio(name, value, target, is_least=False)


def choose_better(ratio: Ratio, other: Ratio) -> Ratio:
    """Return the better of two measurements of a ratio."""
    return ratio if ratio.worsening(other) <= 1 else other


def find_worse(ratios: Iterable[Ratio], before: Iterable[Ratio]) -> list[Ratio]:
    """Return the ratios that have become worse by more than the tolerance."""
    earlier = {ratio.name: ratio for ratio in before}
    return [
        ratio
        for ratio in ratios
        if ratio.name in earlier and ratio.worsening(earlier[ratio.name]) > TOLERANCE
    ]


@dataclass(frozen=True)
class Figures:
    """The ratios of each benchmark, and the machine and the versions they were measured with."""

    machine: str
    versions: str
    ratios: Mapping[str, tuple[Ratio, ...]]

    def find(self, benchmark: str, name: str) -> Ratio | None:
        """Return the ratio of this name, if there is one."""
        return next((r for r in self.ratios.get(benchmark, ()) if r.name == name), None)

    def find_worse(self, before: Figures) -> list[tuple[str, Ratio]]:
        """Return the ratios that have become worse, each with its benchmark."""
        return [
            (benchmark, ratio)
            for benchmark, ratios in self.ratios.items()
            for ratio in find_worse(ratios, before.ratios.get(benchmark, ()))
        ]

    def to_text(self) -> str:
        """Return the text of ``figures.txt``: columns are two or more spaces apart."""
        lines = [
            (benchmark, ratio.name, format_ratio(ratio.value), ratio.shown_target)
            for benchmark, ratios in self.ratios.items()
            for ratio in ratios
        ]
        head = f"{_HEADING}machine   {self.machine}\nversions  {self.versions}\n\n"
        return head + _align(lines)

    def to_markdown(self) -> str:
        """Return the same as a table with a sentence on machine and versions."""
        rows = "".join(
            f"| `{benchmark}` | {ratio.name} | {format_ratio(ratio.value)} | "
            f"{ratio.shown_target}{'' if ratio.reaches_target else ' (missed)'} |\n"
            for benchmark, ratios in self.ratios.items()
            for ratio in ratios
        )
        head = "| benchmark | ratio | measured | target |\n|---|---|---|---|\n"
        return f"Measured on {self.machine}, with {self.versions}.\n\n{head}{rows}"


def format_ratio(value: float) -> str:
    """Return a ratio with three significant digits.

    >>> format_ratio(1234.5), format_ratio(71.26), format_ratio(0.98765)
    ('1,230', '71.3', '0.988')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.3g}"


def read_figures(text: str) -> Figures:
    """Read the text of ``figures.txt``."""
    head, _, body = text.partition("\n\n")
    facts = dict(
        re.split(r"\s{2,}", line, maxsplit=1) for line in head.splitlines() if line[:1] != "#"
    )
    ratios: dict[str, tuple[Ratio, ...]] = {}
    for line in body.splitlines():
        benchmark, name, value, target = re.split(r"\s{2,}", line)
        kind, _, limit = target.rpartition(" ")
        ratio = Ratio(name, _parse_number(value), _parse_number(limit), is_least=kind == "at least")
        ratios[benchmark] = (*ratios.get(benchmark, ()), ratio)
    return Figures(facts["machine"], facts["versions"], ratios)


def describe_machine() -> str:
    """Return the processor, the number of cores and the operating system."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found = next(line for line in lines if line.startswith("model name"))
        processor = found.partition(":")[2].strip()
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def list_versions() -> str:
    """Return the versions of Python and of the packages that were measured or compared with."""
    versions = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(versions)


def print_figures(console: Console, figures: Figures, before: Figures) -> None:
    """Print all ratios beside their targets and the last ones."""
    worse = figures.find_worse(before)
    lines = [("benchmark", "ratio", "measured", "target", "last time", "")]
    for benchmark, ratios in figures.ratios.items():
        for ratio in ratios:
            last = before.find(benchmark, ratio.name)
            marks = [] if ratio.reaches_target else ["misses its target"]
            if (benchmark, ratio) in worse:
                marks.append(f"worse by more than {TOLERANCE - 1:.0%}")
            shown = "" if last is None else format_ratio(last.value)
            measured = format_ratio(ratio.value)
            line = (benchmark, ratio.name, measured, ratio.shown_target, shown, ", ".join(marks))
            lines.append(line)
    console.print(_align(lines))
    for what, now, then in (
        ("machine", figures.machine, before.machine),
        ("versions", figures.versions, before.versions),
    ):
        console.print(f"{what}: {now}" + ("" if now == then else f" (last time: {then})"))


def update_figures(figures: Figures, names: Iterable[str]) -> None:
    """Write ``figures.txt`` and the table of the page on benchmarks.

    Benchmarks that were not run keep their ratios if those are from the same machine, with the same
    versions. Otherwise they are dropped. ``names`` has all benchmarks in their order.
    """
    before = read_figures(FIGURES.read_text())
    is_same = (before.machine, before.versions) == (figures.machine, figures.versions)
    kept = before.ratios if is_same else {}
    ratios = {name: figures.ratios.get(name, kept.get(name, ())) for name in names}
    merged = Figures(figures.machine, figures.versions, ratios)
    FIGURES.write_text(merged.to_text())
    PAGE.write_text(insert_table(PAGE.read_text(), merged))


def insert_table(page: str, figures: Figures) -> str:
    """Return the page with the table of these ratios instead of the one it has."""
    before, _, rest = page.partition(_START)
    _, _, after = rest.partition(_END)
    return f"{before}{_START}{figures.to_markdown()}{_END}{after}"


def _align(lines: Sequence[tuple[str, ...]]) -> str:
    """Return a table of text whose columns are two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )


def _parse_number(text: str) -> float:
    return float(text.replace(",", ""))
