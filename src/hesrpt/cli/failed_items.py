"""The items of jobs that have failed, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from hesrpt.display.console import literal, print_error_text
from hesrpt.jobs.failures import ItemFailure

# How many failed items of a job to list, and how many lines of a traceback to show.
_MAX_ITEMS = 10
_MAX_LINES = 12


class ShownJob(Protocol):
    """A job of which it is shown why it has failed."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def state(self) -> str:
        """Its state."""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""

    @property
    def error(self) -> str | None:
        """Why it has failed or was cancelled."""

    @property
    def failed_items(self) -> Sequence[ItemFailure]:
        """Its items that have failed."""


def print_cancellations(console: Console, jobs: Sequence[ShownJob]) -> None:
    """Print why jobs were cancelled."""
    reasons = {job.name: job.error for job in jobs if job.state == "cancelled" and job.error}
    if reasons:
        console.print()
    for name, reason in reasons.items():
        console.print(literal(f"{name} {reason}"), soft_wrap=True)  # which begins with "cancelled"


def print_failures(console: Console, records: Sequence[ShownJob]) -> None:
    """Print why jobs failed, where, and which of their items have failed."""
    for record in records:
        if record.state == "failed":
            console.print()
            error, failures = str(record.error), record.failed_items
            if failures and failures[0].traceback and failures[0].describe() in error:
                lines = failures[0].traceback.rstrip().splitlines()[-_MAX_LINES:-1]
                error = "\n".join([error, *lines])
            print_error_text(console, f"{record.name} failed", error)
        if record.failed_items and (not record.has_ended or len(record.failed_items) > 1):
            console.print()
            _print_failed_items(console, record)


def _print_failed_items(console: Console, record: ShownJob) -> None:
    failures = record.failed_items
    console.print(literal(f"failed items of {record.name}:"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("item", "value", "attempts", "last error"):
        table.add_column(column, justify="right" if column in ("item", "attempts") else "left")
    for failure in failures[:_MAX_ITEMS]:
        error = literal(_summarise(failure))
        table.add_row(str(failure.item), literal(failure.value), str(failure.attempts), error)
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    if len(failures) > _MAX_ITEMS:
        console.print(f"  and {len(failures) - _MAX_ITEMS:,} more, which --json lists")


def _summarise(failure: ItemFailure) -> str:
    """Return an error in one line; for a command, with the last line of its output."""
    first, *others = failure.error.splitlines()
    return f"{first}: {others[-1]}" if others and not failure.traceback else first


def failures_as_json(failures: Iterable[ItemFailure]) -> list[dict[str, Any]]:
    """Return failed items as JSON values."""
    keys = ("item", "value", "attempts", "error", "traceback")
    return [{key: getattr(failure, key) for key in keys} for failure in failures]
