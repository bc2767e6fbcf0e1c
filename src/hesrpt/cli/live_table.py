"""What is seen while jobs run, and what in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hesrpt.runtime.forecast import forecast
from hesrpt.runtime.history import Ended
from hesrpt.runtime.pool import Pool
from hesrpt.runtime.runs import alternatives
from hesrpt.units import format_duration

# A start that takes longer than this, in seconds, is told of.
_WORTH_TELLING = 0.5


class Display:
    """A table that follows the jobs; where there is no terminal, a line for each end."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.live: Live | None = None
        self.told: set[str] = set()

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.quiet:
            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        if self.live is not None:
            self.live.__exit__(None, None, None)

    def __call__(self, pool: Pool) -> None:
        """Show how the jobs stand."""
        if self.quiet:
            return
        if self.live is not None:
            self.live.update(_table(pool))
            return
        for job in pool.jobs:
            if job.state != "running" and job.name not in self.told:
                self.told.add(job.name)
                reason = f": {job.error}" if job.error else ""
                line = f"{job.name}: {job.state} after {format_duration(job.flow_time)}{reason}"
                self.console.print(Text(line), soft_wrap=True)


def _table(pool: Pool) -> Table:
    driver = pool._driver
    with driver.condition:
        now, servers = driver.now, driver.core.servers
        ends = forecast(driver.core, now, driver.core.allocator.policy)
        held = {name: (job.planned, job.observed) for name, job in driver.core.jobs.items()}
    table = Table(box=None, pad_edge=False)
    for column in ("job", "", "items", "servers", "so far", "ends in"):
        table.add_column(column, justify="left" if column in ("job", "") else "right")
    flow_times = []
    for job in pool.jobs:
        total = job.items or max(job.done * 2, 1)
        planned, observed = held.get(job.name, (0, 0))
        left = ends.get(job.name)
        state = format_duration(max(left - now, 0.0)) if left is not None else job.state
        flow_times.append(job.flow_time + (max(left - now, 0.0) if left is not None else 0.0))
        table.add_row(
            Text(job.name),
            ProgressBar(total=total, completed=job.done, width=24),
            f"{job.done:,}/{job.items:,}" if job.items is not None else f"{job.done:,}",
            f"{observed} of {planned}" if job.state == "running" else "",
            format_duration(job.flow_time),
            state,
        )
    if servers == 0:
        table.caption = "waiting: the cluster has no server free"
    elif flow_times:
        mean = format_duration(sum(flow_times) / len(flow_times))
        table.caption = f"{servers} servers; mean flow time, predicted: {mean}"
    return table


def print_end(
    console: Console, ended: Sequence[Ended], servers: int, policy: str, began: float
) -> None:
    """Print the flow times, and what plain policies would have given."""
    if not ended:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("job", "items", "work", "p", "flow time"):
        table.add_column(column, justify="left" if column == "job" else "right")
    for job in ended:
        p = getattr(job.speedup, "p", None)
        table.add_row(
            Text(job.name),
            f"{job.items:,}",
            format_duration(job.size),
            "" if p is None else f"{p:.2f}",
            format_duration(job.ended - job.arrived),
        )
    console.print(table)
    mean = sum(job.ended - job.arrived for job in ended) / len(ended)
    some = "1 server" if servers == 1 else f"{servers} servers"
    console.print(f"\nmean flow time  {format_duration(mean)} under {policy}, on {some}")
    for name, other in alternatives(ended, servers, began).items():
        console.print(
            f"                {format_duration(other)} it would have been under "
            f"{name.upper()}, by simulation"
        )
    if (waited := began - min(job.arrived for job in ended)) > _WORTH_TELLING:
        console.print(
            f"                all with {format_duration(waited)} until the first server was up"
        )
