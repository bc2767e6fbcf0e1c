"""Tables of a run: the state of its jobs, and its outcome."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hesrpt.cli.failed_items import print_cancellations, print_failures
from hesrpt.cli.run_view import RunView
from hesrpt.cli.terminal import print_table
from hesrpt.display.console import create_console, literal
from hesrpt.display.overview import RunOverview
from hesrpt.display.terminal_table import build_table
from hesrpt.policies.registry import get_title
from hesrpt.reports.counterfactuals import RunComparison
from hesrpt.reports.inspection import RunStatus
from hesrpt.service.client import JobInfo
from hesrpt.storage.journal_entries import JobRecord
from hesrpt.units import format_count, format_duration, format_duration_with_margin

# Mention how long the first server took to start if it was longer than this, in seconds.
_SLOW_START = 0.5
# How few jobs a service compares policies on.
_FEWEST_COMPARED = 2
# How many of the jobs that have ended to show.
_MAX_ENDED = 20

#: How to continue jobs that call Python functions.
SCRIPT_HINT = "Python jobs continue when their script is run with Pool(…, resume=True)"


def _print_jobs(console: Console, run: RunOverview, *, shows_all: bool) -> set[str]:
    """Print a table of the jobs, without most of those that have ended; return those printed."""
    active = sum(not job.has_ended for job in run.jobs)
    rows = len(run.jobs) if shows_all else active + _MAX_ENDED
    jobs, others = run.select(rows)
    width = console.width if console.is_terminal else None
    print_table(console, build_table(jobs, width=width, has_bars=console.is_terminal))
    if others:
        console.print(literal(f"{others}; --all shows them"), soft_wrap=True)
    return {job.name for job in jobs}


def print_run(view: RunView, *, shows_all: bool = False) -> None:
    """Print the state of each job, why jobs failed, and whether a scheduler is running.

    If none is, and jobs remain, say how to continue.
    """
    console = create_console()
    run = view.overview
    failures = view.find_failures(_print_jobs(console, run, shows_all=shows_all))
    print_cancellations(console, failures)
    print_failures(console, failures)
    for hook in view.failed_hooks:
        console.print(literal(hook.describe()), soft_wrap=True)
    for name, what in view.changes:
        text = f"requested for {name}, but not done yet: {what}"
        console.print(literal(text), soft_wrap=True)
    console.print()
    scheduler = f"a scheduler is running: {run.describe()}"
    if run.note:
        scheduler = f"{run.note}{view.continuation}"
    console.print(literal(scheduler), soft_wrap=True)


def describe_continuation(status: RunStatus, directory: Path) -> str:
    """Return how to continue a run that no scheduler runs, to be appended to a sentence."""
    requested = {name for name, _ in status.changes}
    left = [job for job in status.jobs if not job.has_ended or job.name in requested]
    hint = ""
    if status.submitted or any(job.spec.command for job in left):
        hint += f"; continue with: {get_resume_command(directory)}"
    elif any(job.spec.command and job.state == "failed" for job in status.jobs):
        hint += f"; run failed items again with: {get_resume_command(directory)}"
    if status.waits_for_script:
        hint += f"; {SCRIPT_HINT}"
    return hint


def get_resume_command(directory: Path) -> str:
    """Return the command that resumes the run in a state directory."""
    command = "serve" if (directory / "token").exists() else "run"
    return f"hesrpt {command} --state {shlex.quote(str(directory))}"


def print_outcome(
    console: Console,
    records: Sequence[JobRecord],
    *,
    servers: int,
    first_start: float,
    comparison: RunComparison,
    recent: RunComparison | None = None,
) -> None:
    """Print flow times as measured, and as simulated under the run's own and other policies.

    If the whole run cannot be compared, ``recent`` is about its latest jobs that can.
    """
    table = Table(box=None, pad_edge=False)
    for column in ("job", "items", "work", "p", "flow time"):
        table.add_column(column, justify="left" if column == "job" else "right")
    for record in records:
        p = getattr(record.speedup, "p", None)
        table.add_row(
            literal(record.name),
            f"{record.done:,}",
            format_duration(record.size) if record.size else "",
            "" if p is None or not record.size else f"{p:.2f}",
            format_duration(record.flow_time or 0.0),
        )
    print_table(console, table)
    console.print()
    print_table(console, _build_comparison(records, comparison, servers, recent))
    if comparison.reason is not None and recent is None:
        reason = f"no comparison with other policies: {comparison.reason}"
        console.print(literal(reason), soft_wrap=True)
    if any(record.spec.resumed for record in records):
        console.print(
            "the run was resumed: the time when no scheduler ran counts nowhere, and work that "
            "was interrupted and done again counts everywhere",
            soft_wrap=True,
        )
    # Of a command that was suspended or restarted, it is not known when it first started.
    is_start_known = all(
        record.spec.is_bag or not (record.spec.was_paused or record.spec.resize == "restart")
        for record in records
    )
    wait = first_start - min(record.arrived for record in records)
    if is_start_known and wait > _SLOW_START:
        console.print(
            f"all flow times include {format_duration(wait)} until the first server was ready"
        )


def _build_comparison(
    records: Sequence[JobRecord],
    comparison: RunComparison,
    servers: int,
    recent: RunComparison | None,
) -> Table:
    """Return the mean flow time as measured, and as simulated under each policy."""
    table = Table.grid("", "", "", "", padding=(0, 2, 0, 0))
    title = f"{get_title(comparison.policy)} on {format_count(servers, 'server')}"
    done = sum(record.state == "done" for record in records)
    if done == 0:
        table.add_row("mean flow time", "none: no job is done")
        return table
    mean = format_duration(comparison.mean_flow_time)
    table.add_row("mean flow time", mean, "measured", literal(title))
    if done < len(records):
        table.add_row("", "", "", _describe_done(done))
    if recent is not None:
        jobs = len(recent.simulated[0].flow_times)
        latest = literal(_describe_latest(jobs))
        table.add_row("", format_duration(recent.mean_flow_time), "measured", latest)
    for each in (recent or comparison).simulated:
        mean = format_duration_with_margin(each.mean_flow_time, each.margin)
        table.add_row("", mean, "simulated", literal(get_title(each.policy)))
    return table


def _describe_done(jobs: int) -> str:
    """Return of which jobs a mean is."""
    return f"of the {format_count(jobs, 'job')} that {'is' if jobs == 1 else 'are'} done"


def _describe_latest(jobs: int) -> str:
    return f"the latest {format_count(jobs, 'comparable job')}"


def explain_missing_comparison(schedule: Mapping[str, Any]) -> str | None:
    """Return why a service has no comparison with other policies; None if it has one."""
    comparison = schedule["comparison"]
    if comparison is not None:
        return str(comparison["reason"]) if comparison["reason"] else None
    if schedule["ended"] < _FEWEST_COMPARED:
        return f"fewer than {_FEWEST_COMPARED} jobs are done"
    return "the service works it out in the background; ask again in a minute"


def print_service_report(
    console: Console, schedule: Mapping[str, Any], jobs: Sequence[JobInfo]
) -> None:
    """Print the flow times of ended jobs of a service, and of other policies by simulation."""
    table = Table(box=None, pad_edge=False)
    for column in ("job", "state", "items", "flow time"):
        table.add_column(column, justify="right" if column in ("items", "flow time") else "left")
    for job in jobs:
        flow_time = format_duration(job.flow_time or 0.0)
        table.add_row(literal(job.name), literal(job.state), f"{job.done:,}", flow_time)
    print_table(console, table)
    console.print()
    mean, comparison, bound = (schedule[key] for key in ("mean_flow_time", "comparison", "bound"))
    if mean is None:
        console.print("mean flow time: none, because no job is done")
        return
    grid = Table.grid("", "", "", "", padding=(0, 2, 0, 0))
    whose = _describe_done(schedule["ended"])
    grid.add_row("mean flow time", format_duration(mean), "measured", whose)
    if comparison is not None and comparison["simulated"]:
        measured = format_duration(comparison["measured"])
        grid.add_row("", measured, "measured", _describe_latest(comparison["jobs"]))
        for each in comparison["simulated"]:
            value = format_duration_with_margin(each["mean_flow_time"], each["margin"])
            grid.add_row("", value, "simulated", literal(get_title(each["policy"])))
    if bound is not None and bound["mean_flow_time"] is not None:
        value = format_duration(bound["mean_flow_time"])
        grid.add_row("", value, "lower bound", f"{bound['ratio']:.2f} times this was needed")
    print_table(console, grid)
    if reason := explain_missing_comparison(schedule):
        console.print(literal(f"no comparison with other policies: {reason}"), soft_wrap=True)
    if bound is not None and bound["reason"]:
        console.print(literal(f"no lower bound: {bound['reason']}"), soft_wrap=True)
    console.print(
        "the work and the p of each job: hesrpt report --state DIR, where the service runs"
    )
