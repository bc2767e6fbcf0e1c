"""The table that shows the progress of jobs while they run."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from hesrpt.display.console import literal, print_error_text
from hesrpt.runtime.pool import Pool
from hesrpt.units import format_duration


class LiveTable:
    """A live table of the jobs; without a terminal, one line for each job that ends."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self.live: Live | None = None
        self.announced: set[str] = set()

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.quiet:
            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.live is not None:
            self.live.__exit__(None, None, None)

    def print_line(self, line: str) -> None:
        """Print a line that stays."""
        self.console.print(literal(line), soft_wrap=True)

    def update(self, pool: Pool) -> None:
        """Show the current state of the jobs."""
        if self.quiet:
            return
        if self.live is not None:
            self.live.update(_build_table(pool))
            return
        for job in pool.jobs:
            if job.has_ended and job.name not in self.announced:
                self.announced.add(job.name)
                subject = f"{job.name}: {job.state} after {format_duration(job.flow_time)}"
                print_error_text(self.console, subject, job.error)


def _build_table(pool: Pool) -> Table:
    snapshot, ends = pool.snapshot(), pool.predict_ends()
    table = Table(box=None, pad_edge=False)
    for column in ("job", "", "items", "servers", "elapsed", "remaining"):
        table.add_column(column, justify="left" if column in ("job", "") else "right")
    flow_times = []
    for job in pool.jobs:
        held, planned = snapshot.held.get(job.name, 0), snapshot.planned.get(job.name, 0)
        end = ends.get(job.name)
        remaining = None if end is None else max(end - snapshot.time, 0.0)
        flow_times.append(job.flow_time + (remaining or 0.0))
        table.add_row(
            literal(job.name),
            ProgressBar(total=job.items or max(job.done * 2, 1), completed=job.done, width=24),
            f"{job.done:,}/{job.items:,}" if job.items is not None else f"{job.done:,}",
            f"{held} of {planned}" if not job.has_ended else "",
            format_duration(job.flow_time),
            job.state if remaining is None else format_duration(remaining),
        )
    if snapshot.servers == 0:
        table.caption = "waiting: no server is free on the cluster"
    elif flow_times:
        mean = format_duration(sum(flow_times) / len(flow_times))
        table.caption = f"{snapshot.servers} servers; predicted mean flow time: {mean}"
    return table
