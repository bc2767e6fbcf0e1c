"""What is shown of a run at one moment: in words, and as HTML for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape as escape_html

from hesrpt.display.console import escape
from hesrpt.jobs.job_view import STATES, JobView
from hesrpt.units import format_count, format_duration

# How much of an error to show in one line.
_MAX_ERROR = 300
# How many names of jobs to show that a job waits for.
_MAX_NAMES = 3
# How many jobs a run as text or HTML lists: more are not read.
_MAX_JOBS = 30


# --- a job in words -------------------------------------------------------------------------------


def describe_items(job: JobView) -> str:
    """Return how many items are done, such as ``12/100``."""
    return f"{job.done:,}/{'?' if job.items is None else format(job.items, ',')}"


def describe_servers(job: JobView) -> str:
    """Return how many servers a job holds and is to have, such as ``2 of 3``."""
    if job.has_ended or job.state == "submitted":
        return ""
    if job.planned is None or job.servers == job.planned == 0:
        return f"{job.servers}"
    return f"{job.servers} of {job.planned}"


def describe_elapsed(job: JobView) -> str:
    """Return how long a job has been there, or took."""
    return "" if job.elapsed is None else format_duration(job.elapsed)


def describe_left(job: JobView) -> str:
    """Return how long it will take until a job has ended, no more precisely than is known."""
    if job.eta is None or job.has_ended or job.state == "paused":
        return ""
    return f"{job.eta:.1f} s" if job.eta < 10 else format_duration(job.eta)


def describe_wait(job: JobView) -> str:
    """Return what a job waits for, if that is known."""
    others = len(job.waits_for) - _MAX_NAMES
    names = [*job.waits_for[:_MAX_NAMES], *([f"{others} others"] if others > 0 else [])]
    return job.waits_because if not names else f"waits for {', '.join(names)}"


def describe_end(job: JobView) -> str:
    """Return what became of a job that has ended, and the first line of why."""
    if job.error is None:
        return job.state
    reason = job.error.partition("\n")[0]
    return reason if job.state == "cancelled" else f"{job.state}: {reason}"  # one says it already


def describe_job(job: JobView) -> str:
    """Return the state of a job in words."""
    if job.items is None:
        items = f"{format_count(job.done, 'item')} done"
    else:
        items = f"{job.done:,} of {format_count(job.items, 'item')}"
    words = [job.state, items]
    if job.has_ended:
        words[1] += f" in {format_duration(job.elapsed or 0.0)}"
        if job.state == "failed":
            error = (job.error or "").partition("\n")[0]
            if len(error) > _MAX_ERROR:
                error = f"{error[: _MAX_ERROR - 1]}…"
            words[1] += f": {error}"
        return ", ".join(words)
    if job.servers:
        words.append(format_count(job.servers, "server"))
    if left := describe_left(job):
        words.append(f"{left} left")
    if wait := describe_wait(job):
        words.append(wait)
    return ", ".join(words)


# --- a run ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunOverview:
    """A run at one moment."""

    servers: int  # how many there are
    policy: str
    jobs: Sequence[JobView]
    note: str = ""  # what has become of the scheduler, unless it is running

    @property
    def has_ended(self) -> bool:
        """Whether there were jobs and all have ended, or none can go on."""
        return bool(self.note) or (bool(self.jobs) and all(job.has_ended for job in self.jobs))

    @property
    def mean_flow_time(self) -> float | None:
        """The mean flow time of jobs that are done or will be; None if it is unknown.

        It is predicted for jobs that have not ended. Others have failed or were cancelled.
        """
        total, jobs = 0.0, [job for job in self.jobs if job.state not in ("failed", "cancelled")]
        for job in jobs:
            left = 0.0 if job.has_ended else job.eta
            if left is None or job.elapsed is None:
                return None
            total += job.elapsed + left
        return total / len(jobs) if jobs else None

    def describe(self) -> str:
        """Return what the run has and does in one line, such as ``4 servers, policy equi``."""
        words = [
            format_count(self.servers, "server"),
            f"policy {self.policy}",
            count_states(self.jobs),
        ]
        return ", ".join(word for word in (self.note, *words) if word)

    def describe_with_jobs(self) -> str:
        """Return a line for the run, and one for each job."""
        jobs, others = self.select(_MAX_JOBS)
        lines = [self.describe(), *(f"{job.name}: {describe_job(job)}" for job in jobs)]
        return "\n  ".join(map(escape, [*lines, others] if others else lines))

    def select(self, most: int) -> tuple[list[JobView], str]:
        """Return the jobs to show if there is room for ``most``, and how many others there are.

        Those that have ended are left out first, beginning with the first, and those that run last.
        """
        if len(self.jobs) <= most:
            return list(self.jobs), ""
        last = len(self.jobs)
        places = sorted(
            range(last),
            key=lambda place: (
                self.jobs[place].has_ended,
                self.jobs[place].state != "running",
                -place if self.jobs[place].has_ended else place,
            ),
        )
        shown = sorted(places[:most])
        others = [self.jobs[place] for place in places[most:]]
        return [self.jobs[place] for place in shown], f"and {count_states(others)}"


def count_states(jobs: Sequence[JobView]) -> str:
    """Return how many jobs are in each state, such as ``2 running, 1 done``."""
    counts = Counter(job.state for job in jobs)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "no jobs"


# --- as HTML, for notebooks with a light or a dark background -------------------------------------

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
    jobs, others = run.select(_MAX_JOBS)
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
            f'<th style="{_LEFT if place < 3 else _RIGHT}{quiet}">{name}</th>'
            for place, name in enumerate(_HEADINGS)
        )
        rows = "".join(map(_render_row, jobs))
        parts.append(
            f'<table style="{_TABLE}"><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>'
        )
    if footer:
        lines = "\n".join(map(_escape, footer.split("\n")))
        parts.append(f'<div style="opacity:.75;white-space:pre-wrap">{lines}</div>')
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
    columns = "".join(f'<td style="{style}">{cell}</td>' for style, cell in cells)
    return f"<tr>{columns}</tr>"


def _render_bar(progress: float | None, colour: str) -> str:
    width = f"{100 * (progress or 0.0):.4g}%"
    return (
        '<div style="width:160px;height:8px;border-radius:4px;overflow:hidden;'
        f'background:rgba(128,128,128,.25)"><div style="width:{width};height:8px;'
        f'background:{colour}"></div></div>'
    )


def _escape(text: str) -> str:
    return escape_html(escape(text))
