"""What became of jobs: their flow times, those under other policies, and why some have failed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from hesrpt.cli.terminal import create_table, print_table
from hesrpt.display.console import literal, print_error_text
from hesrpt.display.overview import describe_end
from hesrpt.jobs.failures import FailedItem
from hesrpt.jobs.job_view import JobView
from hesrpt.policies.registry import get_title
from hesrpt.reports.counterfactuals import RunComparison
from hesrpt.storage.journal_entries import JobRecord
from hesrpt.units import format_count, format_duration, format_duration_with_margin

# Mention how long the first server took to start if it was longer than this, in seconds.
_SLOW_START = 0.5
# How many failed items of a job to list, and how many lines of a traceback to show.
_MAX_ITEMS = 10
_MAX_LINES = 12


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
    table = create_table("job", "items", "work", "p", "flow time", left=["job"])
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
    table = create_grid()
    title = f"{get_title(comparison.policy)} on {format_count(servers, 'server')}"
    done = sum(record.state == "done" for record in records)
    if done == 0:
        table.add_row("mean flow time", "none: no job is done")
        return table
    mean = format_duration(comparison.mean_flow_time)
    table.add_row("mean flow time", mean, "measured", literal(title))
    if done < len(records):
        table.add_row("", "", "", describe_done(done))
    if recent is not None:
        jobs = len(recent.simulated[0].flow_times)
        latest = literal(describe_latest(jobs))
        table.add_row("", format_duration(recent.mean_flow_time), "measured", latest)
    for each in (recent or comparison).simulated:
        mean = format_duration_with_margin(each.mean_flow_time, each.margin)
        table.add_row("", mean, "simulated", literal(get_title(each.policy)))
    return table


def create_grid() -> Table:
    """Return an empty table of mean flow times: the value, how it is known, and whose it is."""
    return Table.grid("", "", "", "", padding=(0, 2, 0, 0))


def describe_done(jobs: int) -> str:
    """Return which jobs a mean is of, if some have failed."""
    return f"of the {format_count(jobs, 'job')} that {'is' if jobs == 1 else 'are'} done"


def describe_latest(jobs: int) -> str:
    """Return which jobs a mean is of, if only the latest can be compared."""
    return f"the latest {format_count(jobs, 'comparable job')}"


def print_cancellations(console: Console, jobs: Sequence[JobView]) -> None:
    """Print why jobs were cancelled."""
    cancelled = [job for job in jobs if job.state == "cancelled"]
    if cancelled:
        console.print()
    for job in cancelled:
        console.print(literal(f"{job.name} {describe_end(job)}"), soft_wrap=True)


def print_failures(console: Console, jobs: Sequence[JobView]) -> None:
    """Print why jobs failed, where, and which of their items have failed."""
    for job in jobs:
        failures = job.failed_items or ()
        if job.state == "failed":
            console.print()
            error = str(job.error)
            # An item that has made the job fail is named in the error of the job.
            if failures and failures[0].traceback and job.reason == "items_failed":
                lines = failures[0].traceback.rstrip().splitlines()[-_MAX_LINES:-1]
                error = "\n".join([error, *lines])
            print_error_text(console, f"{job.name} failed", error)
        if failures and (not job.has_ended or len(failures) > 1):
            console.print()
            _print_failed_items(console, job.name, failures)


def _print_failed_items(console: Console, name: str, failures: Sequence[FailedItem]) -> None:
    console.print(literal(f"failed items of {name}:"), soft_wrap=True)
    columns = ("item", "value", "attempts", "last error")
    table = create_table(*columns, left=["value", "last error"])
    for failure in failures[:_MAX_ITEMS]:
        error = literal(_summarise(failure))
        table.add_row(str(failure.item), literal(failure.value), str(failure.attempts), error)
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    if len(failures) > _MAX_ITEMS:
        console.print(f"  and {len(failures) - _MAX_ITEMS:,} more, which --json lists")


def _summarise(failure: FailedItem) -> str:
    """Return an error in one line; for a command, with the last line of its output."""
    first, *others = failure.error.splitlines()
    return f"{first}: {others[-1]}" if others and not failure.traceback else first
