"""A run as a table for the terminal."""

from __future__ import annotations

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hesrpt.display.console import literal
from hesrpt.display.overview import JobOverview, RunOverview
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


def build_view(run: RunOverview, *, max_rows: int) -> Group:
    """Return a table of the jobs of a run, with a line below it that sums them up."""
    return Group(build_table(run, max_rows=max_rows), _build_summary(run))


def build_table(run: RunOverview, *, max_rows: int, has_bars: bool = True) -> Table:
    """Return a table of the jobs of a run; what few runs have only if there is any."""
    jobs, others = run.select(max_rows)
    has_failures = any(job.failures for job in jobs)
    has_groups, has_waits = any(job.group for job in jobs), any(job.describe_wait() for job in jobs)
    table = Table(box=None, pad_edge=False)
    for column in ("job", *(["group"] if has_groups else []), "state", *([""] if has_bars else [])):
        table.add_column(column)
    for column in ("items", *(["failures"] if has_failures else []), "servers", "elapsed", "left"):
        table.add_column(column, justify="right")
    if has_waits:
        table.add_column("")
    for job in jobs:
        table.add_row(
            literal(job.name),
            *([literal(job.group)] if has_groups else []),
            literal(job.state, _STYLES[job.state]),
            *([_build_bar(job)] if has_bars else []),
            job.describe_items(),
            *([str(job.failures or "")] if has_failures else []),
            job.describe_servers(),
            "" if job.flow_time is None else format_duration(job.flow_time),
            job.describe_left(),
            *([literal(job.describe_wait(), "bright_black")] if has_waits else []),
        )
    if others:
        table.add_row(literal(others, "bright_black"))
    return table


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


def _build_bar(job: JobOverview) -> ProgressBar:
    """Return a bar; a moving one while a job runs whose number of items is unknown."""
    return ProgressBar(
        total=1.0,
        completed=job.progress or 0.0,
        width=_BAR_WIDTH,
        pulse=job.progress is None and job.state == "running",
        complete_style=_STYLES[job.state],
        finished_style=_STYLES[job.state],
    )
