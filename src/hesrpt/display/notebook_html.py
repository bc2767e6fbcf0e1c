"""A run as HTML, for notebooks with a light or a dark background."""

from __future__ import annotations

from html import escape as escape_html

from hesrpt.display.escaping import escape
from hesrpt.display.overview import (
    RunOverview,
    describe_elapsed,
    describe_items,
    describe_left,
    describe_servers,
)
from hesrpt.jobs.job_view import JobView

# More rows than this are not read.
_MAX_ROWS = 30
# Colours that stand out from white and from black; text has the notebook's own colour.
_COLOURS = {
    "running": "#3b82d0",
    "waiting": "#9a9a9a",
    "paused": "#c98500",
    "submitted": "#9a9a9a",
    "done": "#3a9d5d",
    "failed": "#d9534f",
    "cancelled": "#9a9a9a",
}
_TABLE = "border-collapse:collapse;border:none;margin:2px 0;color:inherit;font-size:inherit"
_HEADINGS = ("job", "state", "", "items", "servers", "elapsed", "left")
_CELL = "padding:2px 12px 2px 0;border:none;background:none;vertical-align:middle;"
_LEFT = f"{_CELL}white-space:nowrap;text-align:left;"
_RIGHT = f"{_CELL}white-space:nowrap;text-align:right;"


def render_run(run: RunOverview) -> str:
    """Return a table of the jobs of a run."""
    jobs, others = run.select(_MAX_ROWS)
    return _render_table(f"<b>Pool</b>: {_escape(run.describe())}", jobs, others)


def render_job(job: JobView) -> str:
    """Return a table of one job, and why it failed."""
    error = f"{job.error}" if job.state == "failed" and job.error else ""
    return _render_table("", [job], error)


def _render_table(title: str, jobs: list[JobView], footer: str) -> str:
    parts = ['<div style="font-size:13px;line-height:1.5;font-variant-numeric:tabular-nums">']
    if title:
        parts.append(f"<div>{title}</div>")
    if jobs:
        quiet = "font-weight:normal;opacity:.65"
        cells = "".join(
            _render_cell("th", f"{_LEFT if place < 3 else _RIGHT}{quiet}", name)
            for place, name in enumerate(_HEADINGS)
        )
        rows = "".join(map(_render_row, jobs))
        parts.append(
            f'<table style="{_TABLE}"><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>'
        )
    if footer:
        parts.append(f'<div style="opacity:.75;white-space:pre-wrap">{_escape_lines(footer)}</div>')
    return "".join([*parts, "</div>"])


def _render_row(job: JobView) -> str:
    colour = _COLOURS[job.state]
    dot = f'<span style="color:{colour}">●</span>'
    cells = [
        (_LEFT, _escape(job.name)),
        (_LEFT, f"{dot} {job.state}"),
        (_LEFT, _render_bar(job.progress, colour)),
        (_RIGHT, describe_items(job)),
        (_RIGHT, describe_servers(job)),
        (_RIGHT, describe_elapsed(job)),
        (_RIGHT, describe_left(job)),
    ]
    columns = "".join(_render_cell("td", style, cell) for style, cell in cells)
    return f"<tr>{columns}</tr>"


def _render_cell(tag: str, style: str, content: str) -> str:
    return f'<{tag} style="{style}">{content}</{tag}>'


def _render_bar(progress: float | None, colour: str) -> str:
    width = f"{100 * (progress or 0.0):.4g}%"
    return (
        '<div style="width:160px;height:8px;border-radius:4px;overflow:hidden;'
        f'background:rgba(128,128,128,.25)"><div style="width:{width};height:8px;'
        f'background:{colour}"></div></div>'
    )


def _escape(text: str) -> str:
    return escape_html(escape(text))


def _escape_lines(text: str) -> str:
    return "\n".join(map(_escape, text.split("\n")))
