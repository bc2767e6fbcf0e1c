"""A run as a table for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hesrpt.display.console import literal
from hesrpt.display.overview import (
    RunOverview,
    describe_elapsed,
    describe_items,
    describe_left,
    describe_servers,
    describe_wait,
)
from hesrpt.jobs.job_view import JobView
from hesrpt.units import format_count, format_duration

_STYLES = {
    "running": "blue",
    "waiting": "bright_black",
    "paused": "yellow",
    "submitted": "bright_black",
    "done": "green",
    "failed": "red",
    "cancelled": "bright_black",
}
_SUMMARY_STYLE = "italic bright_black"
_BAR_WIDTH = 24
_HEADER_LINES = 1
# The number of spaces between columns, and how much of a text that may be cut is shown at least.
_GAP = 2
_MIN_WIDTH = 16


def build_view(run: RunOverview, *, width: int, height: int) -> Group:
    """Return a table of the jobs of a run that fits a terminal, with a line that sums them up.

    Jobs that run are shown first of all, and others as far as there is room.
    """
    summary = _build_summary(run)
    summary_lines = len(textwrap.wrap(summary.plain, width))
    room = max(height - summary_lines - _HEADER_LINES, 1)
    jobs, others = run.select(room)
    if others and room > 1:
        jobs, others = run.select(room - 1)  # the last line says how many others there are
    parts: list[Table | Text] = [build_table(jobs, width=width, cuts_names=True)]
    if others and room > 1:
        line = literal(others, "bright_black")
        line.truncate(width, overflow="ellipsis")
        parts.append(line)
    return Group(*parts, summary)


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column of the table: its cells, and what to do with it in a narrow terminal."""

    header: str
    cells: Sequence[Text | ProgressBar]
    is_right: bool = False
    can_shrink: bool = False  # whether its texts may be cut
    order: int = 0  # in which columns are left out; 0: never

    @property
    def width(self) -> int:
        """How wide it is if nothing is cut."""
        return max(cell_len(self.header), *(_measure(cell) for cell in self.cells), 0)

    @property
    def min_width(self) -> int:
        """How wide it must be."""
        return min(self.width, _MIN_WIDTH) if self.can_shrink else self.width

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing about any job."""
        return not any(_measure(cell) for cell in self.cells)


def _measure(cell: Text | ProgressBar) -> int:
    return _BAR_WIDTH if isinstance(cell, ProgressBar) else cell_len(cell.plain)


def build_table(
    jobs: Sequence[JobView],
    *,
    width: int | None = None,
    has_bars: bool = True,
    cuts_names: bool = False,
) -> Table:
    """Return a table of jobs; what few runs have only if there is any.

    If it would be wider than ``width``, columns that matter less are left out. With ``cuts_names``,
    long names of jobs are cut before columns that matter more.
    """
    columns = _build_columns(jobs, has_bars=has_bars, cuts_names=cuts_names)
    columns = _choose_columns(columns, width)
    table = Table(box=None, pad_edge=False)
    spare = 0
    if width is not None:
        spare = width - _sum_widths([column.min_width for column in columns])
    for column in columns:
        shown = column.width
        if width is not None and column.can_shrink:
            shown = min(column.width, column.min_width + max(spare, 0))
            spare -= shown - column.min_width
        justify: Literal["left", "right"] = "right" if column.is_right else "left"
        table.add_column(
            column.header, justify=justify, no_wrap=True, min_width=shown, max_width=shown
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table


def _build_columns(jobs: Sequence[JobView], *, has_bars: bool, cuts_names: bool) -> list[_Column]:
    def build(header: str, texts: Iterable[str], order: int, style: str = "") -> _Column:
        return _Column(
            header=header,
            cells=[literal(text, style) for text in texts],
            is_right=header not in ("job", "group", ""),
            can_shrink=header in ("group", "") or (cuts_names and header == "job"),
            order=order,
        )

    columns = [
        build("job", (job.name for job in jobs), 0),
        build("group", (job.group for job in jobs), 2),
        _Column(header="state", cells=[literal(job.state, _STYLES[job.state]) for job in jobs]),
        _Column(header="", cells=[_build_bar(job) for job in jobs] if has_bars else [], order=1),
        build("items", map(describe_items, jobs), 7),
        build("failures", (str(job.failed or "") for job in jobs), 5),
        build("servers", map(describe_servers, jobs), 6),
        build("elapsed", map(describe_elapsed, jobs), 3),
        build("left", map(describe_left, jobs), 8),
        build("", map(describe_wait, jobs), 4, "bright_black"),
    ]
    optional = ("group", "failures", "")
    return [column for column in columns if column.header not in optional or not column.is_empty]


def _choose_columns(columns: Sequence[_Column], width: int | None) -> list[_Column]:
    """Leave out the columns for which there is no room."""
    chosen = list(columns)
    for column in sorted(columns, key=lambda column: column.order):
        total = _sum_widths([column.min_width for column in chosen])
        if width is not None and total > width and column.order:
            chosen.remove(column)
    return chosen


def _sum_widths(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _build_summary(run: RunOverview) -> Text:
    if run.servers == 0 and not run.note:
        return literal("waiting: no server is free on the cluster", _SUMMARY_STYLE)
    summary, mean = run.describe(), run.mean_flow_time
    if mean is not None:
        predicted = "" if all(job.has_ended for job in run.jobs) else "predicted "
        done = sum(job.state == "done" for job in run.jobs)
        has_others = not predicted and done < len(run.jobs)
        whose = f" of the {format_count(done, 'job')} that are done" if has_others else ""
        summary += f"; {predicted}mean flow time: {format_duration(mean)}{whose}"
    return literal(summary, _SUMMARY_STYLE)


def _build_bar(job: JobView) -> ProgressBar:
    """Return a bar; a moving one while a job runs whose number of items is unknown."""
    return ProgressBar(
        total=1.0,
        completed=job.progress or 0.0,
        width=_BAR_WIDTH,
        pulse=job.progress is None and job.state == "running",
        complete_style=_STYLES[job.state],
        finished_style=_STYLES[job.state],
    )
